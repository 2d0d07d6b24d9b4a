"""The loss scale of half precision training: its arguments, its scaler, its saved state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from lightning_hooks.utils.arguments import check_bool, check_int, check_number

__all__ = ["ScalerState", "configure", "is_static", "make_scaler", "scaler_arguments"]

LossScale = float | str | Mapping[str, Any]
"""A number for a scale that never changes, ``"dynamic"``, or the arguments of a GradScaler."""

FLOAT32_MAX = torch.finfo(torch.float32).max

ARGUMENTS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")


def is_static(loss_scale: LossScale) -> bool:
    """Whether the scale never changes."""
    return isinstance(loss_scale, (int, float))


def scaler_arguments(loss_scale: LossScale) -> dict[str, Any]:
    """Return the arguments of :class:`torch.amp.GradScaler` for a loss scale.

    Raises:
        TypeError: if it is no number, str or dict, or an argument of the dict has a wrong type.
        ValueError: if it is not positive, another str than ``"dynamic"``, or has an unknown key or
            an argument out of range.

    >>> scaler_arguments(512), scaler_arguments("dynamic"), scaler_arguments({"growth_interval": 9})
    ({'init_scale': 512.0}, {}, {'growth_interval': 9})
    """
    allowed = "a positive number, 'dynamic' or a dict of GradScaler's arguments"
    if isinstance(loss_scale, Mapping):
        unknown = [key for key in loss_scale if key not in ARGUMENTS]
        if unknown:
            raise ValueError(f"loss_scale has unknown keys {unknown}; known: {list(ARGUMENTS)}")
        if "init_scale" in loss_scale:
            scaler_arguments(loss_scale["init_scale"])
        _check_growth(loss_scale)
        return dict(loss_scale)
    if loss_scale == "dynamic":
        return {}
    if isinstance(loss_scale, bool) or not isinstance(loss_scale, (int, float, str)):
        raise TypeError(f"loss_scale must be {allowed}, got {loss_scale!r}")
    if isinstance(loss_scale, str) or not 0 < loss_scale <= FLOAT32_MAX:  # as the scaler stores it
        raise ValueError(f"loss_scale must be {allowed}, got {loss_scale!r}")
    return {"init_scale": float(loss_scale)}


def _check_growth(loss_scale: Mapping[str, Any]) -> None:
    """Check the arguments that torch checks by an assertion, or later."""
    for name, value in loss_scale.items():
        where = f"loss_scale[{name!r}]"
        if name == "growth_factor":
            check_number(where, value, above=1)
        elif name == "backoff_factor":
            check_number(where, value, above=0)
            if value >= 1:
                raise ValueError(f"{where} must be below 1, got {value}")
        elif name == "growth_interval":
            check_int(where, value, 1)
        elif name == "enabled":
            check_bool(**{where: value})


def make_scaler(loss_scale: LossScale, device: str) -> torch.amp.GradScaler:
    """Make a scaler for a type of device (``"cuda"``, ``"cpu"``)."""
    return torch.amp.GradScaler(device, **scaler_arguments(loss_scale))


def configure(scaler: torch.amp.GradScaler, loss_scale: LossScale) -> None:
    """Set an existing scaler, the Trainer's, to a loss scale.

    A static one gets factors of 1: no update changes it.
    """
    if not scaler.is_enabled():
        return
    defaults = torch.amp.GradScaler("cpu").state_dict()
    wanted = {"init_scale": defaults["scale"], **defaults, **scaler_arguments(loss_scale)}
    if is_static(loss_scale):
        wanted.update(growth_factor=1.0, backoff_factor=1.0)
    factors = {key: wanted[key] for key in ("growth_factor", "backoff_factor", "growth_interval")}
    scaler.load_state_dict({"scale": wanted["init_scale"], **factors, "_growth_tracker": 0})


class ScalerState(Mapping[str, Any]):
    """A scaler's ``state_dict()``, read on access only: reading waits for the device.

    >>> ScalerState(torch.amp.GradScaler("cpu", init_scale=8.0))["scale"]
    8.0
    """

    def __init__(self, scaler: torch.amp.GradScaler) -> None:
        self._scaler = scaler

    def __getitem__(self, key: str) -> Any:
        return self._scaler.state_dict()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._scaler.state_dict())

    def __len__(self) -> int:
        return len(self._scaler.state_dict())

    def items(self) -> Any:
        """Return all at once: one read of the device."""
        return self._scaler.state_dict().items()

    def __repr__(self) -> str:
        return repr(self._scaler.state_dict())

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self._scaler.state_dict(),)
