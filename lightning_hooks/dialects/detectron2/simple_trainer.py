"""detectron2's ``SimpleTrainer`` and ``AMPTrainer``: one model, one optimizer, one loader."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from lightning_hooks.dialects.detectron2.storage import get_event_storage
from lightning_hooks.dialects.detectron2.trainer import TrainerBase
from lightning_hooks.dialects.steps.storage.rank_means import RankMeans, rank_maximum

__all__ = ["AMPTrainer", "SimpleTrainer"]


class SimpleTrainer(TrainerBase):
    """Trains one model with one optimizer on one loader, a step for each batch.

    Args:
        model: Returns its losses by name, or one loss.
        data_loader: Iterable of the model's inputs, with a batch for each iteration.
        optimizer: The optimizer.
        gather_metric_period: Number of iterations between two that store losses.
        zero_grad_before_forward: Whether gradients are cleared before the model runs.
        async_write_metrics: Accepted, without effect.

    Note:
        Departures from detectron2: losses are stored before the optimizer's step also with
        ``async_write_metrics``, and every rank has their means, as rank 0 has.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        data_loader: Iterable[Any],
        optimizer: torch.optim.Optimizer,
        gather_metric_period: int = 1,
        zero_grad_before_forward: bool = False,
        async_write_metrics: bool = False,
    ) -> None:
        super().__init__()
        model.train()
        self.model = model
        self.data_loader = data_loader
        self.optimizer = optimizer
        self.gather_metric_period = gather_metric_period
        self.zero_grad_before_forward = zero_grad_before_forward
        self.async_write_metrics = async_write_metrics
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

    def reset_data_loader(self, data_loader_builder: Callable[[], Iterable[Any]]) -> None:
        """Replace the loader by what a function returns; it is iterated from the next step on."""
        del self.data_loader  # its workers may hold memory that the next one needs
        self.data_loader = data_loader_builder()
        self._data_loader_iter_obj = None

    def run_step(self) -> None:
        """Load a batch, run the model, go backward, step the optimizer."""
        if not self.model.training:
            raise AssertionError(f"[{type(self).__name__}] the model is in eval mode")
        began = time.perf_counter()
        data = next(self._data_loader_iter)
        data_time = time.perf_counter() - began
        if self.zero_grad_before_forward:
            self.optimizer.zero_grad()
        with self._precision():
            loss_dict = self.model(data)
            if isinstance(loss_dict, torch.Tensor):
                loss_dict = {"total_loss": loss_dict}
            loss = sum(loss_dict.values())
        if not self.zero_grad_before_forward:
            self.optimizer.zero_grad()
        self._backward(loss)
        self.after_backward()
        self._write_metrics(loss_dict, data_time)
        self._step()

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def _backward(self, loss: Any) -> None:
        loss.backward()

    def _step(self) -> None:
        self.optimizer.step()

    def _write_metrics(
        self,
        loss_dict: Mapping[str, torch.Tensor],
        data_time: float,
        prefix: str = "",
        iter: int | None = None,
    ) -> None:
        now = self.iter if iter is None else iter
        if (now + 1) % self.gather_metric_period == 0:
            self.write_metrics(loss_dict, data_time, now, prefix)

    @staticmethod
    def write_metrics(
        loss_dict: Mapping[str, torch.Tensor],
        data_time: float,
        cur_iter: int | None = None,
        prefix: str = "",
    ) -> None:
        """Store the losses, averaged over the ranks, their sum and the longest time of loading.

        Raises:
            FloatingPointError: if a loss is infinite or NaN.
        """
        losses = {name: loss.detach() for name, loss in loss_dict.items()}
        device = next((loss.device for loss in losses.values()), torch.device("cpu"))
        means = {name: float(value) for name, value in RankMeans(device)(losses).items()}
        storage = get_event_storage()
        now = storage.iter if cur_iter is None else cur_iter
        storage.put_scalar("rank_data_time", data_time, cur_iter=now)
        storage.put_scalar("data_time", rank_maximum(data_time, device), cur_iter=now)
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


class AMPTrainer(SimpleTrainer):
    """Trains in automatic mixed precision, with scaled gradients.

    Args:
        model: Returns its losses by name, or one loss.
        data_loader: Iterable of the model's inputs, with a batch for each iteration.
        optimizer: The optimizer.
        gather_metric_period: Number of iterations between two that store losses.
        zero_grad_before_forward: Whether gradients are cleared before the model runs.
        grad_scaler: Scales the gradients; torch's ``GradScaler`` by default.
        precision: Type in which the model runs where autocast allows it.
        log_grad_scaler: Whether the scale is stored, as ``[metric]grad_scaler``.
        async_write_metrics: Accepted, without effect.

    Raises:
        TypeError: for a model in ``DataParallel``, whose threads do not run in mixed precision.

    Note:
        Departures from detectron2: a model on the CPU is trained too.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        data_loader: Iterable[Any],
        optimizer: torch.optim.Optimizer,
        gather_metric_period: int = 1,
        zero_grad_before_forward: bool = False,
        grad_scaler: torch.amp.GradScaler | None = None,
        precision: torch.dtype = torch.float16,
        log_grad_scaler: bool = False,
        async_write_metrics: bool = False,
    ) -> None:
        if isinstance(model, torch.nn.DataParallel):
            raise TypeError("AMPTrainer trains no DataParallel: use DistributedDataParallel")
        super().__init__(
            model,
            data_loader,
            optimizer,
            gather_metric_period,
            zero_grad_before_forward,
            async_write_metrics,
        )
        first = next(model.parameters(), None)
        self._device_type = "cpu" if first is None else first.device.type
        if grad_scaler is None:
            grad_scaler = torch.amp.GradScaler(self._device_type)
        self.grad_scaler = grad_scaler
        self.precision = precision
        self.log_grad_scaler = log_grad_scaler

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        return torch.autocast(self._device_type, dtype=self.precision)

    def _backward(self, loss: Any) -> None:
        self.grad_scaler.scale(loss).backward()
        if self.log_grad_scaler:
            get_event_storage().put_scalar("[metric]grad_scaler", self.grad_scaler.get_scale())

    def _step(self) -> None:
        self.grad_scaler.step(self.optimizer)
        self.grad_scaler.update()

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with the scaler's."""
        return {**super().state_dict(), "grad_scaler": self.grad_scaler.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the state, with the scaler's."""
        super().load_state_dict(state_dict)
        self.grad_scaler.load_state_dict(state_dict["grad_scaler"])
