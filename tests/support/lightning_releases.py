"""Features that some supported Lightning releases lack; the tests of these features are skipped."""

from __future__ import annotations

import inspect

import lightning as L
import pytest
from lightning.pytorch import callbacks
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop

__all__ = ["ema_weight_averaging", "what_it_lacks"]

_SINCE_2_5 = hasattr(_FitLoop, "restarted_mid_epoch")
_SINCE_2_5_3 = hasattr(_FitLoop, "is_resuming")
_SINCE_2_6 = hasattr(callbacks, "WeightAveraging")

_NEEDS = {
    "exact resumes within an epoch": (  # where the error is in another process, or in plain fits
        _SINCE_2_5,
        (
            "test_a_slurm_job_calls_for_the_next[requeue]",
            "test_a_signal_leaves_raw_weights_flushed_logs_and_a_state_to_resume_from[SIGTERM-True]",
            "test_values_of_an_epoch_in_two_parts",
        ),
    ),
    "import of all that hooks import of torch": (
        _SINCE_2_5,
        ("test_importing_us_imports_only_us_file_locks_and_the_standard_library",),
    ),
    "start of a run that has ended": (
        _SINCE_2_5,
        ("test_a_finished_run_calls_only_before_run_and_after_run",),
    ),
    "news of a SIGTERM on one of several ranks": (
        hasattr(_TrainingEpochLoop, "_broadcast_sigterm_tensor"),
        ("driver/test_sigterm.py",),
    ),
    "whole fit after its LearningRateFinder": (
        _SINCE_2_5_3,
        ("test_learning_rate_finder", "test_the_learning_rate_finder_and_a_fresh_run"),
    ),
    "RichProgressBar for the installed rich": (
        _SINCE_2_5_3,
        ("test_shows_a_bar_beside_the_trainers[RichProgressBar]",),
    ),
    "steps that return any mapping under manual optimization": (
        _SINCE_2_5_3,
        ("test_a_step_may_return_what_lightning_accepts[mappingproxy]",),
    ),
    "ModelCheckpoint(save_on_exception=True)": (
        _SINCE_2_5_3,
        ("test_no_file_is_written_because_of_our_own_error",),
    ),
    "MLFlowLogger that sends each file alone": (_SINCE_2_5_3, ("test_mlflow_gets_each_file",)),
    "error for what is no callback, in words of its own": (
        _SINCE_2_6,
        (
            "test_a_class_in_the_callbacks",
            "test_an_old_hook_in_the_callbacks_beside",
            "test_a_trainer_of_the_other_lightning_is_refused",
            "test_without_the_call_the_error_names_it",
            "test_what_is_no_hook_is_refused[a class]",
            "test_what_is_no_hook_is_refused[a logger of Lightning's]",
            "test_errors_before_any_hook[0-",
            "test_errors_before_any_hook[1-",
        ),
    ),
    "Trainer.fit(weights_only=...)": (
        "weights_only" in inspect.signature(L.Trainer.fit).parameters,
        (
            "test_a_file_loads_into_a_module_that_has_the_hooks_buffers",
            "test_the_mistake_brings_the_message[A checkpoint has classes in it]",
        ),
    ),
    "val_check_interval as a time": (_SINCE_2_6, ("test_validation_by_the_clock",)),
}
"""Whether the installed release has the feature, and parts of the names of its tests."""


def what_it_lacks(test: str) -> str:
    """Return the feature for a test, by node id, that the installed Lightning lacks, or ""."""
    lacking = (
        need for need, (has, parts) in _NEEDS.items() if not has for part in parts if part in test
    )
    return next(lacking, "")


def ema_weight_averaging(decay: float = 0.999) -> callbacks.Callback:
    """Return Lightning's average; skip the test if Lightning has none."""
    if not hasattr(callbacks, "EMAWeightAveraging"):
        pytest.skip("Lightning has no EMAWeightAveraging")
    return callbacks.EMAWeightAveraging(decay=decay)
