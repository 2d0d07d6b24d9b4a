"""``SampleLog``: log images, tables and histograms from hooks and from the module's steps."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.hook_list import HookList
from lightning_hooks.engine.participant import natives_with
from lightning_hooks.utils.samples import Histogram, Sample, as_table, image_of, kind_of

__all__ = ["SampleLog"]

_OUTSIDE = {TrainerFn.VALIDATING: "val", TrainerFn.TESTING: "test"}


class SampleLog:
    """The methods of a runner for logging samples; each logger gets a sample at once.

    Outside of a fit the loggers get samples at the end of the evaluation, with the values.
    """

    trainer: Any
    logger: logging.Logger
    mode: str | None
    _hook_list: HookList

    waiting_samples: tuple[tuple[str, Sample], ...] = ()
    """The names and samples of an evaluation outside of a fit."""

    _warned: frozenset[str] = frozenset()  # messages

    def log_image(self, name: str, image: Any) -> None:
        """Log an image at the current iteration, as ``train/name`` or ``val/name``.

        Args:
            name: The image's name; later images of the same name form a series.
            image: A tensor or array ``[C, H, W]`` with 1, 3 or 4 channels, or ``[H, W]``; floats
                from 0 to 1, or integers from 0 to 255.

        Raises:
            TypeError: if the value is no image.
        """
        if self._takes_samples:
            self._log(self._with_mode(name), image_of(name, image))

    def log_table(
        self, name: str, rows: Iterable[Mapping[str, Any]] | Mapping[str, Iterable[Any]]
    ) -> None:
        """Log a table at the current iteration, as ``train/name`` or ``val/name``.

        Args:
            name: The table's name; later tables of the same name form a series.
            rows: A dict for each row, or a dict of columns, of numbers and texts.

        Raises:
            TypeError, ValueError: if the value is no table.
        """
        if self._takes_samples:
            self._log(self._with_mode(name), as_table(name, rows))

    def log_histogram(self, name: str, histogram: Histogram) -> None:
        """Log a histogram at the current iteration."""
        if self._takes_samples:
            self._log(name, histogram)

    @property
    def _takes_samples(self) -> bool:
        return self.trainer.is_global_zero and not self.trainer.sanity_checking

    def _with_mode(self, name: str) -> str:
        mode = _OUTSIDE.get(self.trainer.state.fn, self.mode or "train")
        return name if name.startswith(f"{mode}/") else f"{mode}/{name}"

    def holds(self, kind: str) -> bool:
        """Whether a logger of the run holds ``images``, ``tables`` or ``histograms``.

        Loggers that do not are named once in a warning.
        """
        hooks = self._sample_loggers()
        others = [type(hook).__name__ for hook in hooks if kind not in hook.takes]
        if len(others) == len(hooks):
            text = f"no logger of this run holds {kind}: they are not logged; W&B, TensorBoard and "
            self._warn(text + "ClearML hold them: WandbLoggerHook(), ...")
        elif others:
            self._warn(f"{', '.join(others)} cannot hold {kind}: the other trackers have them")
        return len(others) < len(hooks)

    def _sample_loggers(self) -> list[Any]:
        return natives_with("log_sample", self._hook_list)

    def _log(self, name: str, sample: Sample) -> None:
        fn = self.trainer.state.fn
        if fn not in (TrainerFn.FITTING, *_OUTSIDE):
            self._warn("log_image and log_table log in fit, validate and test, not in predict")
        elif self.holds(kind_of(sample)):
            if fn in _OUTSIDE:
                self.waiting_samples = (*self.waiting_samples, (name, sample))
                return
            for hook in self._sample_loggers():
                hook.log_sample(self, name, sample)

    def _warn(self, text: str) -> None:
        """Warn once in a run."""
        if text not in self._warned:
            self._warned |= {text}
            self.logger.warning(text)
