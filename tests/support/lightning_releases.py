"""What tests ask of Lightning that not every supported release has: the others are skipped."""

from __future__ import annotations

import inspect

import lightning as L
import pytest
from lightning.pytorch import callbacks
from lightning.pytorch.loops.fit_loop import _FitLoop

__all__ = ["ema_weight_averaging", "what_it_lacks"]

EXACT_RESUMES = "exact resumes within an epoch and with max_steps"
OWN_WORDS = "an error for what is no callback, in words of its own"
WEIGHTS_ONLY = "Trainer.fit(weights_only=...)"

_HAS = {
    EXACT_RESUMES: hasattr(_FitLoop, "restarted_mid_epoch"),
    OWN_WORDS: hasattr(callbacks, "WeightAveraging"),
    WEIGHTS_ONLY: "weights_only" in inspect.signature(L.Trainer.fit).parameters,
    "val_check_interval as a time": hasattr(callbacks, "WeightAveraging"),
}
"""Whether the installed release has each; two came together with Lightning 2.6."""

_TESTS = {
    EXACT_RESUMES: ("driver/test_resume.py", "driver/test_loader_place.py"),
    OWN_WORDS: (
        "test_a_class_in_the_callbacks",
        "test_an_old_hook_in_the_callbacks_beside",
        "test_a_trainer_of_the_other_lightning_is_refused",
        "test_without_the_call_the_error_names_it",
    ),
    WEIGHTS_ONLY: ("test_a_file_loads_into_a_module_that_has_the_hooks_buffers",),
    "val_check_interval as a time": ("test_validation_by_the_clock",),
}
"""Parts of the names of the tests that need each."""


def what_it_lacks(test: str) -> str:
    """Return what the installed Lightning lacks for a test, by its node id; empty for nothing."""
    lacking = (need for need, parts in _TESTS.items() if any(part in test for part in parts))
    return next((need for need in lacking if not _HAS[need]), "")


def ema_weight_averaging(decay: float = 0.999) -> callbacks.Callback:
    """Return Lightning's own average; the test is skipped where Lightning has none."""
    if not hasattr(callbacks, "EMAWeightAveraging"):
        pytest.skip("Lightning has no EMAWeightAveraging")
    return callbacks.EMAWeightAveraging(decay=decay)
