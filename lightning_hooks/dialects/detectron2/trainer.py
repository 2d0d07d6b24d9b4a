"""detectron2's ``TrainerBase`` and ``SimpleTrainer``, with Lightning as the engine."""

from __future__ import annotations

import logging
import math
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from lightning_hooks.dialects.detect import refuse_fast_reid
from lightning_hooks.dialects.detectron2.engine import run_steps
from lightning_hooks.dialects.detectron2.storage import EventStorage, get_event_storage
from lightning_hooks.dialects.steps.storage.rank_means import RankMeans
from lightning_hooks.utils.default_logger import default_logger

__all__ = ["SimpleTrainer", "TrainerBase"]


class TrainerBase:
    """A loop of steps with hooks: subclasses define ``run_step``.

    Note:
        Departures from detectron2: the iterations run in a ``lightning.Trainer``, one batch each;
        it is made by ``train`` with the arguments ``lightning_options`` of the class.
    """

    lightning_options: Mapping[str, Any] = {}
    """Arguments of the ``lightning.Trainer``: ``callbacks``, ``profiler``."""

    start_iter: int = 0
    max_iter: int
    storage: EventStorage

    def __init__(self) -> None:
        self._hooks: list[Any] = []
        self.iter = 0

    @property
    def rank(self) -> int:
        """Number of this process."""
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        return torch.distributed.get_rank() if distributed else 0

    @property
    def logger(self) -> logging.Logger:
        """The logger of this package."""
        return default_logger(self.rank)

    def register_hooks(self, hooks: Iterable[Any]) -> None:
        """Add hooks, which are called in this order; None is skipped.

        Raises:
            TypeError: for an object that is no hook of detectron2.
        """
        for hook in hooks:
            if hook is None:
                continue
            refuse_fast_reid(hook)
            if not callable(getattr(hook, "after_step", None)):
                raise TypeError(f"{hook!r} has no after_step(): derive it from HookBase")
            hook.trainer = weakref.proxy(self)
            self._hooks.append(hook)

    def train(self, start_iter: int, max_iter: int) -> None:
        """Run the iterations from one number up to another, with all hooks.

        Args:
            start_iter: Number of the first iteration.
            max_iter: Number after the last iteration.
        """
        self.iter = self.start_iter = start_iter
        self.max_iter = max_iter
        with EventStorage(start_iter) as self.storage:
            try:
                self.before_train()
                if start_iter < max_iter:
                    steps = range(start_iter, max_iter)
                    run_steps(self, steps, self._run_iteration, **self.lightning_options)
                self.iter += 1  # a complete run is at max_iter
            finally:
                self.after_train()

    def _run_iteration(self, number: int) -> None:
        self.iter = number
        self.before_step()
        self.run_step()
        self.after_step()

    def before_train(self) -> None:
        """Call this point of all hooks."""
        self._call("before_train")

    def after_train(self) -> None:
        """Call this point of all hooks, at the iteration where the run has ended."""
        self.storage.iter = self.iter
        self._call("after_train")

    def before_step(self) -> None:
        """Call this point of all hooks, with the storage at this iteration."""
        self.storage.iter = self.iter
        self._call("before_step")

    def after_backward(self) -> None:
        """Call this point of all hooks that have it."""
        self._call("after_backward")

    def after_step(self) -> None:
        """Call this point of all hooks."""
        self._call("after_step")

    def _call(self, point: str) -> None:
        for hook in self._hooks:
            method = getattr(hook, point, None)
            if method is not None:
                method()

    def run_step(self) -> None:
        """Run one step."""
        raise NotImplementedError(f"{type(self).__name__} must define run_step()")

    def state_dict(self) -> dict[str, Any]:
        """Return the iteration, and the states of the hooks by class."""
        hooks: dict[str, Any] = {}
        for hook in self._hooks:
            state = hook.state_dict() if callable(getattr(hook, "state_dict", None)) else None
            if state:
                hooks.setdefault(type(hook).__qualname__, state)
        return {"iteration": self.iter, **({"hooks": hooks} if hooks else {})}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the iteration and the hooks."""
        self.iter = state_dict["iteration"]
        for key, value in state_dict.get("hooks", {}).items():
            owner = next((h for h in self._hooks if type(h).__qualname__ == key), None)
            if owner is None:
                self.logger.warning("the state of the hook %r is not used: there is no such", key)
            else:
                owner.load_state_dict(value)


class SimpleTrainer(TrainerBase):
    """Trains one model with one optimizer on one loader, a step for each batch.

    Args:
        model: Returns its losses by name, or one loss.
        data_loader: Iterable of the model's inputs, with a batch for each iteration.
        optimizer: The optimizer.
        gather_metric_period: Number of iterations between two that store losses.
        zero_grad_before_forward: Whether gradients are cleared before the model runs.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        data_loader: Iterable[Any],
        optimizer: torch.optim.Optimizer,
        gather_metric_period: int = 1,
        zero_grad_before_forward: bool = False,
    ) -> None:
        super().__init__()
        model.train()
        self.model = model
        self.data_loader = data_loader
        self.optimizer = optimizer
        self.gather_metric_period = gather_metric_period
        self.zero_grad_before_forward = zero_grad_before_forward
        self._data_loader_iter_obj: Iterator[Any] | None = None

    @property
    def _data_loader_iter(self) -> Iterator[Any]:
        """The iterator of the batches; it is made at the first one."""
        if self._data_loader_iter_obj is None:
            self._data_loader_iter_obj = iter(self.data_loader)
        return self._data_loader_iter_obj

    @_data_loader_iter.setter
    def _data_loader_iter(self, value: Iterator[Any]) -> None:
        self._data_loader_iter_obj = value

    def run_step(self) -> None:
        """Load a batch, run the model, go backward, step the optimizer."""
        if not self.model.training:
            raise AssertionError(f"[{type(self).__name__}] the model is in eval mode")
        began = time.perf_counter()
        data = next(self._data_loader_iter)
        data_time = time.perf_counter() - began
        if self.zero_grad_before_forward:
            self.optimizer.zero_grad()
        loss_dict = self.model(data)
        if isinstance(loss_dict, torch.Tensor):
            loss_dict = {"total_loss": loss_dict}
        if not self.zero_grad_before_forward:
            self.optimizer.zero_grad()
        sum(loss_dict.values()).backward()
        self.after_backward()
        self._write_metrics(loss_dict, data_time)
        self.optimizer.step()

    def _write_metrics(
        self, loss_dict: Mapping[str, torch.Tensor], data_time: float, prefix: str = ""
    ) -> None:
        if (self.iter + 1) % self.gather_metric_period == 0:
            self.write_metrics(loss_dict, data_time, self.iter, prefix)

    @staticmethod
    def write_metrics(
        loss_dict: Mapping[str, torch.Tensor],
        data_time: float,
        cur_iter: int | None = None,
        prefix: str = "",
    ) -> None:
        """Store the losses, averaged over the ranks, their sum and the time of loading.

        Raises:
            FloatingPointError: if a loss is infinite or NaN.
        """
        losses = {name: loss.detach() for name, loss in loss_dict.items()}
        device = next((loss.device for loss in losses.values()), torch.device("cpu"))
        means = {name: float(value) for name, value in RankMeans(device)(losses).items()}
        storage = get_event_storage()
        now = storage.iter if cur_iter is None else cur_iter
        storage.put_scalars(cur_iter=now, rank_data_time=data_time, data_time=data_time)
        total = sum(means.values())
        if not math.isfinite(total):
            raise FloatingPointError(
                f"Loss became infinite or NaN at iteration={now}!\nloss_dict = {means}"
            )
        storage.put_scalar(f"{prefix}total_loss", total, cur_iter=now)
        if len(means) > 1:
            for name, value in means.items():
                storage.put_scalar(name, value, cur_iter=now)

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with the optimizer's."""
        return {**super().state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the state, with the optimizer's."""
        super().load_state_dict(state_dict)
        self.optimizer.load_state_dict(state_dict["optimizer"])
