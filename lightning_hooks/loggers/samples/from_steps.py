"""Log images, tables and histograms to trackers, from hooks and from a module's steps."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import lightning as L

from lightning_hooks.engine.driver.collect import participants_of
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.lightning_api.logged_values import is_isolated
from lightning_hooks.loggers.base import LoggerHook
from lightning_hooks.loggers.delivery.session import Session
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.utils.samples import Sample, kind_of

__all__ = ["LogsSamples", "log_image", "log_table"]


def log_image(module: L.LightningModule, name: str, image: Any) -> None:
    """Log an image from a step of a LightningModule: ``log_image(self, "sample", x[0])``.

    Every tracker of the run gets it at this iteration as ``train/sample``, ``val/sample`` or
    ``test/sample``. The sanity check, the other ranks and steps that a hook runs, as for
    ``precise_bn``, log nothing.

    Args:
        module: The module, which is ``self`` in its step.
        name: Its name; a later one of that name is the next of a series.
        image: A tensor or array ``[C, H, W]`` with 1, 3 or 4 channels, or ``[H, W]``; floats from
            0 to 1, or integers from 0 to 255.

    Raises:
        TypeError: if it is no image.
    """
    runner = _runner_of(module, "log_image")
    if runner is not None:
        runner.log_image(name, image)


def log_table(
    module: L.LightningModule,
    name: str,
    rows: Iterable[Mapping[str, Any]] | Mapping[str, Iterable[Any]],
) -> None:
    """Log a table from a step: ``log_table(self, "worst", {"id": ids, "loss": losses})``.

    W&B, TensorBoard, MLflow, ClearML and Visdom hold tables; the names are those of images.

    Args:
        module: The module, which is ``self`` in its step.
        name: Its name; a later one of that name is the next of a series.
        rows: A dict of columns, or a dict for each row; of numbers and texts.

    Raises:
        TypeError, ValueError: if it is no table.
    """
    runner = _runner_of(module, "log_table")
    if runner is not None:
        runner.log_table(name, rows)


def _runner_of(module: Any, function: str) -> Any:
    if not isinstance(module, L.LightningModule):
        raise TypeError(
            f"{function}(self, name, ...) begins with the LightningModule, got {module!r:.80}"
        )
    if is_isolated(module):
        return None
    trainer = module._trainer
    if trainer is not None and participants_of(trainer):
        return Driver.of(trainer).runner_for(trainer, module)
    reason = "is attached to no Trainer" if trainer is None else "has a Trainer without loggers"
    warnings.warn(
        f"{function}: {type(module).__name__} {reason} of this package, so nothing is logged; "
        "write Trainer(callbacks=[WandbLoggerHook()]), or another tracker",
        stacklevel=3,
    )
    return None


class LogsSamples(LoggerHook):
    """The base of :class:`TrackerHook` that passes samples on to the backend."""

    writer_class: type[Writer]
    """The writer for the backend."""

    _session: Session | None

    @property
    def takes(self) -> Collection[str]:
        """The kinds of samples that the backend holds."""
        return self.writer_class.takes

    def log_sample(self, runner: Any, name: str, sample: Sample) -> None:
        """Append an image, a table or a histogram to the spool, if the backend holds such."""
        if (kind := kind_of(sample)) in self.takes and self._session is not None:
            self._session.append(self.get_iter(runner), **{kind: {name: sample}})

    def _log_all(self, runner: Any) -> None:
        super()._log_all(runner)
        for name, sample in runner.waiting_samples:  # of an evaluation outside of a fit
            self.log_sample(runner, name, sample)
