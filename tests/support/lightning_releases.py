"""What tests ask of Lightning that not every supported release has; such tests are skipped."""

from __future__ import annotations

import inspect

import lightning as L
import pytest
from lightning.pytorch import callbacks
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop

__all__ = ["ema_weight_averaging", "what_it_lacks"]

FINDER = "a fit to the end after its LearningRateFinder"
COUNTS = "right total of ended epochs in a resumed run"
MAPPINGS = "steps that return any mapping under manual optimization"
SIGTERM = "news of a SIGTERM on one of several ranks"
OWN_WORDS = "an error for what is no callback, in words of its own"
WEIGHTS_ONLY = "Trainer.fit(weights_only=...)"

_HAS = {
    FINDER: hasattr(_FitLoop, "is_resuming"),
    COUNTS: hasattr(_FitLoop, "restarted_mid_epoch"),
    MAPPINGS: hasattr(_FitLoop, "is_resuming"),
    SIGTERM: hasattr(_TrainingEpochLoop, "_broadcast_sigterm_tensor"),
    OWN_WORDS: hasattr(callbacks, "WeightAveraging"),
    WEIGHTS_ONLY: "weights_only" in inspect.signature(L.Trainer.fit).parameters,
    "val_check_interval as a time": hasattr(callbacks, "WeightAveraging"),
}
"""Whether the installed release has each; those by another name came together with that name."""

_TESTS = {
    FINDER: ("test_learning_rate_finder_is_not_the_run",),
    COUNTS: ("test_a_killed_run_sees_the_same_samples", "test_ranks_end_together_when_the_time"),
    MAPPINGS: ("test_a_step_may_return_what_lightning_accepts[mappingproxy]",),
    SIGTERM: ("driver/test_sigterm.py",),
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
