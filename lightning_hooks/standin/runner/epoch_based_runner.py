"""mmcv's runner that counts epochs."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from lightning_hooks.engine.runner.epoch_runner import EpochRunner
from lightning_hooks.standin.runner.base_runner import BaseRunner
from lightning_hooks.standin.runner.builders import RUNNERS
from lightning_hooks.standin.runner.engine import LastValues, check_workflow

__all__ = ["EpochBasedRunner", "Runner"]


@RUNNERS.register_module()
class EpochBasedRunner(BaseRunner, EpochRunner):
    """Train epoch by epoch.

    Takes the arguments of :class:`~lightning_hooks.standin.runner.base_runner.BaseRunner`.

    Note:
        Departures from mmcv: those of ``BaseRunner``.
    """

    stands_for: ClassVar[Any] = EpochRunner
    log_buffer_class = LastValues
    _steps: Iterator[tuple[str, Any]] = iter(())
    _rest: Iterator[Any] = iter(())
    _taken = 0
    _loader_before_run: Any = None

    def run(
        self, data_loaders: Any, workflow: Any, max_epochs: int | None = None, **kwargs: Any
    ) -> None:
        """Train and validate until ``max_epochs`` epochs are trained.

        Args:
            data_loaders: A list of loaders, one for each part of the workflow.
            workflow: A list of ``("train", epochs)`` and ``("val", epochs)``, repeated in a cycle.
            max_epochs: Deprecated: pass it to the constructor.
            **kwargs: Arguments for ``train_step``.
        """
        check_workflow(data_loaders, workflow)
        self._set_limit("max_epochs", max_epochs)
        limit = f"{self._max_epochs} epochs"
        training = [
            x for x, (mode, _) in zip(data_loaders, workflow, strict=True) if mode == "train"
        ]
        if training:
            self._max_iters = self._max_epochs * len(training[0])
        if self.loops_itself:
            loop = functools.partial(self._loop, data_loaders, workflow, kwargs)
            self._fit(workflow, limit, loop)
            return
        self._steps = self._plan(list(zip(workflow, data_loaders, strict=True)))
        self._step_kwargs = kwargs
        self._loader_before_run = self._data_loader
        self.data_loader = (training or data_loaders)[0]
        self._fit(workflow, limit, self.go_on)

    # -- a loop of a subclass's own ----------------------------------------------------------

    def _loop(self, loaders: Any, workflow: Any, kwargs: Any) -> None:
        self.call_hook("before_run")
        for mode, loader in self._plan(list(zip(workflow, loaders, strict=True))):
            getattr(self, mode)(loader, **kwargs)
        self.call_hook("after_run")

    def train(self, data_loader: Any, **kwargs: Any) -> None:
        """Train for an epoch, where a subclass has a loop of its own."""
        self.check_loops_itself()
        self.model.train()
        self.mode, self.data_loader = "train", data_loader
        self._max_iters = self._max_epochs * len(data_loader)
        self.call_hook("before_train_epoch")
        for self._inner_iter, batch in enumerate(data_loader):
            self._run_batch(batch, "train", **kwargs)
            self._iter += 1
        self.call_hook("after_train_epoch")
        self._epoch += 1

    @torch.no_grad()
    def val(self, data_loader: Any, **kwargs: Any) -> None:
        """Validate once, where a subclass has a loop of its own."""
        self.check_loops_itself()
        self.model.eval()
        self.mode, self.data_loader = "val", data_loader
        self.call_hook("before_val_epoch")
        for self._inner_iter, batch in enumerate(data_loader):
            self._run_batch(batch, "val")
        self.call_hook("after_val_epoch")

    # -- Lightning's loop --------------------------------------------------------------------

    def announce(self) -> None:
        """Log the run; restore for ``before_run`` the loader set before ``run()``."""
        super().announce()
        if self._loader_before_run is not None:
            self.data_loader, self._loader_before_run = self._loader_before_run, None

    def _plan(self, parts: list[tuple[tuple[str, int], Any]]) -> Iterator[tuple[str, Any]]:
        """Yield mode and loader of each epoch, until all training epochs are done."""
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
        """Run the validations of the workflow up to the next training epoch or the end."""
        self.validates_again = False
        for mode, loader in self._steps:
            self.data_loader = loader
            if mode == "train":
                self.model.train()  # the wrapper too: Lightning switches the model inside only
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
        """Exhaust the loader, as a ``for`` loop does: samplers may draw a last time."""
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
