"""mmcv's runner that counts epochs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

from lightning_hooks.engine.runner.epoch_runner import EpochRunner
from lightning_hooks.standin.runner.base_runner import BaseRunner
from lightning_hooks.standin.runner.builder import RUNNERS
from lightning_hooks.standin.runner.engine import check_workflow

__all__ = ["EpochBasedRunner", "Runner"]


@RUNNERS.register_module()
class EpochBasedRunner(BaseRunner, EpochRunner):
    """Trains epoch by epoch.

    Its arguments are those of :class:`~lightning_hooks.standin.runner.base_runner.BaseRunner`.

    Note:
        Departures from mmcv: those of ``BaseRunner``.
    """

    stands_for: ClassVar[Any] = EpochRunner
    _steps: Iterator[tuple[str, Any]] = iter(())
    _rest: Iterator[Any] = iter(())
    _taken = 0
    _left: Any = None  # the data_loader that was there before run()

    def run(
        self, data_loaders: Any, workflow: Any, max_epochs: int | None = None, **kwargs: Any
    ) -> None:
        """Train and validate until ``max_epochs`` epochs are trained.

        Args:
            data_loaders: A list of loaders, one for each part of the workflow.
            workflow: A list of ``("train", epochs)`` and ``("val", epochs)``, gone through again
                and again.
            max_epochs: Deprecated: the constructor's.
            **kwargs: Passed on to ``train_step``.
        """
        check_workflow(data_loaders, workflow)
        self._set_limit("max_epochs", max_epochs)
        training = [
            x for x, (mode, _) in zip(data_loaders, workflow, strict=True) if mode == "train"
        ]
        self._steps = self._plan(list(zip(workflow, data_loaders, strict=True)))
        self._step_kwargs = kwargs
        self._left = self._data_loader
        self.data_loader = (training or data_loaders)[0]
        if training:
            self._max_iters = self._max_epochs * len(training[0])
        self._fit(workflow, f"{self._max_epochs} epochs")

    def announce(self) -> None:
        """Log what is about to be run; ``before_run`` sees the loader that was set before."""
        super().announce()
        if self._left is not None:
            self.data_loader, self._left = self._left, None

    def _plan(self, parts: list[tuple[tuple[str, int], Any]]) -> Iterator[tuple[str, Any]]:
        """Yield the epochs to run, as long as there are any to train."""
        trains = any(mode == "train" for (mode, _), _ in parts)
        while self.epoch < self._max_epochs:
            for (mode, times), loader in parts:
                for _ in range(times):
                    if mode == "train" and self.epoch >= self._max_epochs:
                        break
                    yield mode, loader
            if not trains:
                return

    def go_on(self) -> None:
        """Validate as the workflow has it, up to the next training epoch or the end."""
        self.validates_again = False
        for mode, loader in self._steps:
            self.data_loader = loader
            if mode == "train":
                self.model.train()  # the wrapper too: Lightning knows the model in it alone
                self._max_iters = self._max_epochs * len(loader)
                return
            self._engine.validate()
            self.validates_again = True
        self.trainer.should_stop = True

    begin_workflow = go_on

    def batches(self) -> Iterator[Any]:
        """Yield the batches of the epoch."""
        self._rest = iter(self.data_loader)
        self._taken = 0
        for batch in self._rest:
            self._taken += 1
            yield batch

    def end_epoch(self) -> None:
        """Exhaust the loader, as a ``for`` does: samplers may draw there once more."""
        if self._taken == self.number_of_batches():
            next(self._rest, None)
        self._rest = iter(())

    def number_of_batches(self) -> int:
        """Return the number of batches."""
        return len(self.data_loader)


@RUNNERS.register_module()
class Runner(EpochBasedRunner):
    """The old name of EpochBasedRunner."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            "Runner was deprecated, please use EpochBasedRunner instead",
            DeprecationWarning,
            stacklevel=2,
        )
        super().__init__(*args, **kwargs)
