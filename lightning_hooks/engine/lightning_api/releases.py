"""What the supported releases of Lightning lack; no other module knows a release.

===============================  ======  ======================================================
not in Lightning                 before  so
===============================  ======  ======================================================
``fit(weights_only=...)``        2.6     a file with other objects than tensors is refused
``WeightAveraging``              2.6     no callback is one
``is_resuming`` of the fit loop  2.6.2   Lightning makes the iterator of a resumed epoch
``_broadcast_sigterm_tensor``    2.5.2   SIGTERM ends the rank that it reaches; a line tells
stages of a restart              2.5     a run goes on inexactly within an epoch; a line tells
===============================  ======  ======================================================
"""

from __future__ import annotations

import re
from typing import Any

import lightning as L
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.lightning_api.entry_point import chosen_path
from lightning_hooks.engine.lightning_api.private_names import private_import
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = ["check_release", "is_weight_averaging", "restarted", "resumes"]

NEWEST = "2.6"
"""The newest release that the tests run with."""

_WeightAveraging = private_import("lightning.pytorch.callbacks", "WeightAveraging")


def check_release(trainer: L.Trainer) -> None:
    """Warn of a release that is newer than the tests, and of a resume that an old one cannot do.

    Args:
        trainer: A Trainer in ``setup``.
    """
    if _release(L.__version__) > _release(NEWEST):
        rank_zero_warn(
            f"Lightning {L.__version__} is newer than {NEWEST}, the newest release that "
            "lightning_hooks was tested with; a private name that has changed is told by a line of "
            "its own"
        )
    resumes_run = trainer.state.fn == TrainerFn.FITTING and chosen_path(trainer) is not None
    if resumes_run and not hasattr(trainer.fit_loop, "restarted_mid_epoch"):
        rank_zero_warn(
            f"Lightning {L.__version__} goes on exactly from the end of an epoch only, and without "
            "max_steps: within an epoch it repeats events and batches, where Lightning 2.5 goes on"
        )


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def is_weight_averaging(callback: object) -> bool:
    """Whether a callback is an average of Lightning's, which restores the raw weights itself."""
    return _WeightAveraging is not None and isinstance(callback, _WeightAveraging)


def resumes(fit_loop: Any) -> bool:
    """Whether the fit loop runs the first epoch of a resumed run."""
    return bool(getattr(fit_loop, "is_resuming", False))


def restarted(loop: Any, stage: str) -> bool:
    """Whether a loop of the resumed run restarts in a stage, such as ``"mid_epoch"``."""
    return bool(getattr(loop, f"restarted_{stage}", False))
