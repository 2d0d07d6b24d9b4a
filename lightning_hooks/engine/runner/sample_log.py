"""``SampleLog``: give images, tables and other samples to the loggers of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.hook_callback import HookCallback, natives_with
from lightning_hooks.storage.file_names import inner_path
from lightning_hooks.storage.files import is_local, join, make_directory, write_bytes
from lightning_hooks.utils.media import encoded
from lightning_hooks.utils.samples import Sample, kind_of

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["SampleLog"]

_FOLDER = "media"
_IN_FILES = "images", "texts", "audios", "videos"
"""The kinds of samples that a file can hold."""

_OUTSIDE: dict[Any, str] = {TrainerFn.VALIDATING: "val", TrainerFn.TESTING: "test"}


class SampleLog:
    """The samples logged by hooks and by the module's steps; each logger gets a sample at once.

    Outside of a fit the loggers get samples at the end of the evaluation, with the values.

    Args:
        runner: The runner with the loggers.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.waiting: list[tuple[str, Sample]] = []
        """The names and samples of an evaluation outside of a fit."""

    @property
    def mode(self) -> str:
        """``train``, ``val`` or ``test``: of the module's ``on_train_epoch_end``, ``train``."""
        trainer = self._runner.trainer
        in_fit = "train" if trainer.training else self._runner.mode or "train"
        return _OUTSIDE.get(trainer.state.fn, in_fit)

    def holds(self, kind: str) -> bool:
        """Whether a logger of the run holds a kind, such as ``images``.

        Loggers that do not are named once in a warning.
        """
        hooks = self._loggers()
        others = [type(hook).__name__ for hook in hooks if kind not in hook._takes]
        if len(others) == len(hooks) and kind in _IN_FILES and self._runner.may_write:
            where = join(self._runner.work_dir, _FOLDER)
            self._runner.warn_once(
                f"no tracker of this run holds {kind}: they are files in {where}"
            )
        elif len(others) == len(hooks):
            text = f"no logger of this run holds {kind}: they are not logged; W&B, TensorBoard and "
            self._runner.warn_once(text + "ClearML hold them: WandbLoggerHook(), ...")
        elif others:
            self._runner.warn_once(
                f"{', '.join(others)} cannot hold {kind}: the other trackers have them"
            )
        return len(others) < len(hooks)

    def log(self, name: str, make: Callable[[], Sample]) -> None:
        """Log the first rank's sample as ``train/name``, ``val/name`` or ``test/name``."""
        trainer = self._runner.trainer
        if trainer.is_global_zero and not trainer.sanity_checking:
            prefix = f"{self.mode}/"
            self.log_as(name if name.startswith(prefix) else prefix + name, make())

    def log_as(self, name: str, sample: Sample) -> None:
        """Log a sample of the first rank under a name, at the current iteration."""
        runner, fn = self._runner, self._runner.trainer.state.fn
        if fn not in (TrainerFn.FITTING, *_OUTSIDE):
            text = "log_image and log_table log in fit, validate and test, not in predict"
            runner.warn_once(text)
        elif not self.holds(kind_of(sample)):
            self._write_file(name, sample)
        elif fn in _OUTSIDE:
            self.waiting.append((name, sample))
        else:
            for hook in self._loggers():
                hook._log_sample(runner, name, sample)

    def _write_file(self, name: str, sample: Sample) -> None:
        """Write a sample that no tracker holds into the work dir, if the sample has a file."""
        file, runner = encoded(sample), self._runner
        if file is not None and runner.may_write:
            ending, content = file
            number = runner.iter + (runner.mode is not None)
            path = join(runner.work_dir, _FOLDER, inner_path(name), f"{number}.{ending}")
            try:
                if is_local(path):
                    make_directory(path.rpartition("/")[0])
                write_bytes(path, content)
            except OSError as error:  # a full disk, which costs no training
                runner.warn_once(f"{path} cannot be written ({error})")

    def _loggers(self) -> list[HookCallback]:
        return natives_with("_log_sample", self._runner.hooks)
