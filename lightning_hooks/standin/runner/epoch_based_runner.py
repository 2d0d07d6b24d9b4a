"""mmcv's runner that counts epochs."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import torch

from lightning_hooks.engine.lightning_api.data import set_train_length
from lightning_hooks.engine.runner.runner import EpochRunner
from lightning_hooks.standin.runner.base_runner import BaseRunner
from lightning_hooks.standin.runner.builders import RUNNERS
from lightning_hooks.utils.warn import warn

__all__ = ["EpochBasedRunner", "Runner"]


@RUNNERS.register_module()
class EpochBasedRunner(BaseRunner, EpochRunner):
    """Train epoch by epoch.

    Takes the arguments of :class:`~lightning_hooks.standin.runner.base_runner.BaseRunner`.

    Note:
        Departures from mmcv: see ``BaseRunner``.
    """

    stands_for: ClassVar[Any] = EpochRunner

    def run(
        self, data_loaders: Any, workflow: Any, max_epochs: int | None = None, **kwargs: Any
    ) -> None:
        """Train and validate until ``max_epochs`` epochs are trained.

        Args:
            data_loaders: A list of loaders, in the order of the workflow.
            workflow: A list of ``("train", epochs)`` and ``("val", epochs)``, repeated in a cycle.
            max_epochs: Deprecated: an argument of the constructor.
            **kwargs: Arguments for ``train_step``.
        """
        parts = self._parts(data_loaders, workflow, "max_epochs", max_epochs)
        lengths = [len(loader) for (mode, _), loader in parts if mode == "train"]
        if lengths:
            self._max_iters = self._max_epochs * lengths[0]
        loop = functools.partial(self._run_epochs, parts, kwargs)
        self._fit(workflow, f"{self._max_epochs} epochs", loop, lengths[0] if lengths else 1)

    def _run_epochs(self, parts: list[tuple[tuple[str, int], Any]], kwargs: Any) -> None:
        self.call_hook("before_run")
        for mode, loader in self._plan(parts, lambda: self.epoch >= self._max_epochs):
            getattr(self, mode)(loader, **kwargs)
        self.call_hook("after_run")

    def train(self, data_loader: Any, **kwargs: Any) -> None:
        """Train for an epoch."""
        self._begin_pass("train", data_loader)
        self._max_iters = self._max_epochs * len(data_loader)
        set_train_length(self.trainer, len(data_loader))
        self.call_hook("before_train_epoch")
        self._engine.call_event("on_train_epoch_start")
        for index, batch in enumerate(self.data_loader):  # a hook may have replaced the loader
            self._inner_iter = index
            self._run_batch(batch, "train", **kwargs)
            self._iter += 1
            if self.should_stop:
                break
        self.call_hook("after_train_epoch")
        self._engine.call_event("on_train_epoch_end")
        self._epoch += 1

    @torch.no_grad()
    def val(self, data_loader: Any, **kwargs: Any) -> None:
        """Validate once."""
        self._begin_pass("val", data_loader)
        with self.val_log():
            self.call_hook("before_val_epoch")
            with self._engine.validation():
                for index, batch in enumerate(self.data_loader):
                    self._inner_iter = index
                    self._run_batch(batch, "val")
                self.call_hook("after_val_epoch")


@RUNNERS.register_module()
class Runner(EpochBasedRunner):
    """The old name of EpochBasedRunner."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warn("Runner was deprecated, please use EpochBasedRunner instead", DeprecationWarning)
        super().__init__(*args, **kwargs)
