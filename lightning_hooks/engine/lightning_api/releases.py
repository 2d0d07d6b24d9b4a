"""What the supported releases of Lightning lack; no other module knows a release.

===============================  ======  ======================================================
not in Lightning                 before  so
===============================  ======  ======================================================
``fit(weights_only=...)``        2.6     a file with other objects than tensors is refused
``WeightAveraging``              2.6     no callback is one
``val_check_batch`` before fit   2.6     asked by ``val_check_batch()``: None, as in 2.6
``is_resuming`` of the fit loop  2.6.2   Lightning makes the iterator of a resumed epoch
===============================  ======  ======================================================
"""

from __future__ import annotations

import re
from typing import Any

import lightning as L

from lightning_hooks.engine.lightning_api.private_names import private_import
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = ["check_release", "is_weight_averaging", "resumes", "val_check_batch"]

NEWEST = "2.6"
"""The newest release that the tests run with."""

_WeightAveraging = private_import("lightning.pytorch.callbacks", "WeightAveraging")


def check_release() -> None:
    """Warn of a release of Lightning that is newer than the tests."""
    if _release(L.__version__) > _release(NEWEST):
        rank_zero_warn(
            f"Lightning {L.__version__} is newer than {NEWEST}, the newest release that "
            "lightning_hooks was tested with; a private name that has changed is told by a line of "
            "its own"
        )


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def is_weight_averaging(callback: object) -> bool:
    """Whether a callback is Lightning's ``WeightAveraging``, which restores the raw weights."""
    return _WeightAveraging is not None and isinstance(callback, _WeightAveraging)


def resumes(fit_loop: Any) -> bool:
    """Whether the fit loop runs the first epoch of a resumed run."""
    return bool(getattr(fit_loop, "is_resuming", False))


def val_check_batch(trainer: L.Trainer) -> int | float | None:
    """Return the number of batches between two validations; None by time, and before a fit."""
    return getattr(trainer, "val_check_batch", None)
