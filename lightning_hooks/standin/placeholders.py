"""Placeholders for names of mmcv that the stand-in does not offer, and advice for their users.

A placeholder can be imported; a class can also be subclassed and registered. Calls and attributes
raise an error with advice.
"""

from __future__ import annotations

import functools
from abc import ABCMeta
from typing import Any, NoReturn

from lightning_hooks.standin.lite import NEEDS_LITE
from lightning_hooks.standin.name_table import LITE, MODULES, Kind, Source, names_of
from lightning_hooks.utils.suggestions import suggest

__all__ = ["hint_for", "load", "placeholder", "placeholder_name"]

_ADVICE = {
    ("mmcv.device.", "mmcv.runner.ipu"): (
        "mmcv's other devices are not offered by the stand-in: Lightning has its own. "
        'Give the runner trainer_kwargs=dict(accelerator="mps"), or take mmcv.parallel'
    ),
    tuple(f"mmcv.fileio.file_client.{name}" for name in ("Ceph", "Memcached")): (
        "this client is not offered by the stand-in: give FileClient paths of fsspec "
        '("s3://bucket/file", with fsspec and s3fs installed), or copy the class from mmcv 1.7.2 '
        "and register it with FileClient.register_backend"
    ),
    ("mmcv.transforms",): (
        "mmcv.transforms is part of mmcv 2.x: take mmcv 2.x (`pip install mmcv-lite`, if its "
        "compiled operators are not needed)"
    ),
    ("mmcv.model_zoo", "mmcv.runner.checkpoint.get_", "mmcv.runner.checkpoint.load_from_"): (
        "the stand-in does not resolve names of OpenMMLab's model zoo: give load_checkpoint a "
        "path, an https:// or an s3:// address"
    ),
}
"""Advice by the starts of missing names."""


def _advice_for(full: str) -> str | None:
    """Return the advice for a missing name; None without special advice."""
    for starts, advice in _ADVICE.items():
        if full.startswith(starts):
            return advice
    return NEEDS_LITE if full.rpartition(".")[0] in LITE else None


def _refusal(full: str) -> str:
    advice = _advice_for(full) or (
        "this is not offered by the stand-in of lightning_hooks: copy it from mmcv 1.7.2 into your "
        "project, or install mmcv itself"
    )
    return f"{full}: {advice}."


def hint_for(module: str, name: str) -> str:
    """Return the error message for a name missing in mmcv 1.7.2, with advice or similar names."""
    full = f"{module}.{name}" if module else name
    advice = _advice_for(full)
    if advice is not None:
        return f"{full}: {advice}."
    submodules = {m.rpartition(".")[2] for m in MODULES if m.rpartition(".")[0] == module}
    hint = suggest(name, {*names_of(module), *submodules}, f"dir({module})")
    return (
        f"{module} has no {name!r} in the stand-in of lightning_hooks: {hint}. "
        "For what it does not offer, copy that function into your project, or install mmcv itself"
    )


def load(source: Source) -> Any:
    """Return the object of a name, or a placeholder for a missing name."""
    if source.missing is None:
        return source.load()
    return placeholder(source.module, source.name, source.missing)


@functools.cache
def placeholder(module: str, name: str, kind: Kind) -> Any:
    """Return the placeholder of a name."""
    if kind == "class":
        return _PlaceholderClass(name, (), {"__module__": module})
    if kind == "value":
        return _PlaceholderValue(module, name)

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(_refusal(f"{module}.{name}"))

    refuse.__module__, refuse.__name__, refuse.__qualname__ = module, name, name
    refuse.placeholder = f"{module}.{name}"  # type: ignore[attr-defined]
    return refuse


def placeholder_name(value: Any) -> str:
    """Return the full name of a placeholder, or of a class's placeholder base class.

    Returns:
        ``"mmcv.ops.carafe.CARAFE"``; empty for any other object.
    """
    if isinstance(value, _PlaceholderClass):
        origin = next(cls for cls in reversed(value.__mro__) if isinstance(cls, _PlaceholderClass))
        return f"{origin.__module__}.{origin.__name__}"
    title = vars(value).get("placeholder", "") if hasattr(value, "__dict__") else ""
    return title if isinstance(title, str) else ""


class _PlaceholderClass(ABCMeta):
    """The type of placeholders for classes: subclasses work, instances are refused."""

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(_refusal(placeholder_name(cls)))

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("_"):  # Python, torch and pickle ask for such attributes
            raise AttributeError(f"{cls.__name__} has no attribute {name!r}")
        raise AttributeError(_refusal(placeholder_name(cls)))


class _PlaceholderValue:
    """A placeholder for a value, such as a registry or a constant."""

    def __init__(self, module: str, name: str) -> None:
        self.placeholder = f"{module}.{name}"

    def __repr__(self) -> str:
        return f"<{self.placeholder}, which the stand-in does not offer>"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(name if name.startswith("_") else _refusal(self.placeholder))
