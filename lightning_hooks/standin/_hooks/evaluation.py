"""``EvalHook`` and ``DistEvalHook``, with the best checkpoint in mmcv's files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.saving import evaluation
from lightning_hooks.standin._hooks.adjusted import asserting, under_mmcv
from lightning_hooks.standin._hooks.checkpoint import client_and_directory
from lightning_hooks.standin.parallel.inference import with_bar

__all__ = ["DistEvalHook", "EvalHook"]


@asserting
class EvalHook(evaluation.EvalHook):
    """Evaluate, and save the best checkpoint with ``runner.save_checkpoint``.

    :class:`lightning_hooks.EvalHook` describes the arguments, and the hook's work in a Trainer.
    Under the stand-in's runners, as in mmcv, an evaluation leaves the model in evaluation mode and
    changes the random state, a progress bar counts the samples, and a score of exactly 0 is never
    the best.

    Source: mmcv's ``EvalHook``, reproduced.
    """

    file_client: Any = None
    _less_endings = ()

    def before_run(self, runner: Runner) -> None:
        """Choose the directory of the files; read the best score of an earlier run."""
        is_first_run = self.initial_flag
        if runner.loops_itself:
            if self._metric is None:
                self.test_fn = with_bar(self.test_fn)
            place = client_and_directory(runner, self.out_dir, self.file_client_args)
            self.file_client, self._best_dir = place
            if self._best_dir != runner.work_dir:
                where = f"{self._best_dir} by {self.file_client.name}"
                runner.logger.info(f"The best checkpoint will be saved to {where}")
        super().before_run(runner)
        if runner.loops_itself:
            self.initial_flag = is_first_run  # no later run begins with an evaluation

    @under_mmcv
    def _open_directory(self, runner: Runner) -> None:
        """Do nothing: ``before_run`` has opened the storage."""

    @under_mmcv
    def _state_restored(self, runner: Runner) -> AbstractContextManager[None]:
        """Restore nothing."""
        return nullcontext()

    @under_mmcv
    def _drops_logged(self, runner: Runner, loggers: Sequence[Any]) -> bool:
        """Return True: the runner's loggers average the buffer's last values."""
        return True

    @under_mmcv
    def _report_start(self, runner: Runner) -> None:
        """Do nothing: loggers report the first evaluation, too."""

    @under_mmcv
    def _values(self, runner: Runner, scores: Any) -> dict[str, Any]:
        """Return the scores; mmcv's text log formats numpy's types as numpy does."""
        return dict(scores)

    @under_mmcv
    def _is_score(self, runner: Runner, key_score: Any) -> bool:
        return bool(key_score)

    @under_mmcv
    def _save_ckpt(self, runner: Runner, key_score: Any) -> None:
        """Save a checkpoint with the best score so far."""
        if isinstance(key_score, dict):  # of several keys
            super()._save_ckpt(runner, key_score)
            return
        assert runner.meta is not None  # before_run sees to it
        messages = runner.meta["hook_msgs"]
        best = messages.get("best_score", self.init_value_map[str(self.rule)])
        if not self.compare_func(key_score, best):
            return
        unit = "epoch" if self.by_epoch else "iter"
        number = (runner.epoch if self.by_epoch else runner.iter) + 1
        messages["best_score"] = key_score
        start = self.file_client.join_path(self._best_dir, f"best_{self.key_indicator}_{unit}_")
        old = str(self.best_ckpt_path)  # perhaps of a stranger's checkpoint
        ours = re.escape(os.path.realpath(start)) + r"\d+\.pth"
        if re.fullmatch(ours, os.path.realpath(old)) and self.file_client.isfile(old):
            self.file_client.remove(old)
            runner.logger.info(f"The previous best checkpoint {old} was removed")
        name = f"best_{self.key_indicator}_{unit}_{number}.pth"
        self.best_ckpt_path = self.file_client.join_path(self._best_dir, name)
        messages["best_ckpt"] = self.best_ckpt_path
        runner.save_checkpoint(self._best_dir, filename_tmpl=name, create_symlink=False)
        runner.logger.info(f"Now best checkpoint is saved as {name}.")
        runner.logger.info(f"Best {self.key_indicator} is {key_score:0.4f} at {number} {unit}.")


@asserting
class DistEvalHook(EvalHook):
    """:class:`lightning_hooks.DistEvalHook` with mmcv's files.

    Source: mmcv's ``DistEvalHook``, reproduced.
    """

    # the native class's methods, without the native class as a further ancestor
    __init__ = evaluation.DistEvalHook.__init__
    _do_evaluate = evaluation.DistEvalHook._do_evaluate
    _run_test = evaluation.DistEvalHook._run_test
    _over_ranks = True
