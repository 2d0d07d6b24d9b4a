"""``RuntimeInfo``: the entries of mmengine's ``RuntimeInfoHook``, in runs without this hook."""

from __future__ import annotations

from typing import Any

import torch

from lightning_hooks.dialects.facade import scalars_of
from lightning_hooks.engine.lightning_api import logged_values

__all__ = ["EmptyConfig", "RuntimeInfo"]


class RuntimeInfo:
    """Writes the state of the run and the scalars of its steps to the message hub.

    ==========================  ==============================================================
    key                         value
    ==========================  ==============================================================
    ``epoch``, ``iter``         number of finished ones
    ``max_epochs max_iters``    length of the run
    ``loop_stage``              ``train``, ``val`` or ``test``
    ``dataset_meta``            the training set's ``metainfo``, if it has one
    ``cfg``, ``seed``,          the config's text, the seed of ``seed_everything``, the run's name
    ``experiment_name``
    ``train/<lr>``              the first group's learning rate, by the names of ``get_lr()``
    ``train/<name>``            the scalars that a step returned or logged
    ``val/<name>``              the results of a validation, ``test/<name>`` of a test
    ==========================  ==============================================================
    """

    def __init__(self, facade: Any) -> None:
        self._runner = facade
        self._hub = facade.message_hub
        self._outer_stage: Any = None  # the stage around a validation
        self._seen: dict[str, torch.Tensor] = {}

    def before_run(self) -> None:
        """Write config, seed and name of the run."""
        runner = self._runner
        text = getattr(runner.cfg, "pretty_text", "")
        names = {"cfg": text, "seed": runner.seed, "experiment_name": runner.experiment_name}
        self._hub.update_info_dict(names)

    def before_train(self) -> None:
        """Write the length of the run."""
        runner = self._runner
        names = ("epoch", "iter", "max_epochs", "max_iters")
        counters = {name: getattr(runner, name) for name in names}
        self._hub.update_info_dict({"loop_stage": "train", **counters})
        if runner.train_loop.metainfo is not None:
            self._hub.update_info("dataset_meta", runner.train_loop.metainfo)

    def before_train_epoch(self) -> None:
        """Write the epoch."""
        self._hub.update_info("epoch", self._runner.epoch)

    def before_train_iter(self) -> None:
        """Write the iteration and its learning rate."""
        self._hub.update_info("iter", self._runner.iter)
        for name, rates in self._runner.optim_wrapper.get_lr().items():
            self._hub.update_scalar(f"train/{name}", rates[0])

    def after_train_iter(self) -> None:
        """Write the scalars of the step."""
        runner = self._runner._runner
        outputs = getattr(runner, "outputs", None) or {}
        logged = logged_values.step_metrics(runner.trainer, self._seen)
        values = {**outputs, **logged, **(outputs.get("log_vars") or {})}
        for name, value in scalars_of(values).items():
            self._hub.update_scalar(f"train/{name}", value)

    def after_run(self) -> None:
        """Remove the stage."""
        self._hub.pop_info("loop_stage")

    def before_val_epoch(self) -> None:
        """Write the stage."""
        self._outer_stage = self._hub.get_info("loop_stage")
        self._hub.update_info("loop_stage", "val")

    def after_val_epoch(self) -> None:
        """Write the results of the validation."""
        self._write_results("val")

    def after_val(self) -> None:
        """Restore the stage before the validation."""
        self._hub.pop_info("loop_stage")
        if self._outer_stage is not None:
            self._hub.update_info("loop_stage", self._outer_stage)

    def before_test(self) -> None:
        """Write the stage."""
        self._hub.update_info("loop_stage", "test")

    def after_test_epoch(self) -> None:
        """Write the results of the test."""
        self._write_results("test")

    def after_test(self) -> None:
        """Remove the stage."""
        self._hub.pop_info("loop_stage")

    def _write_results(self, stage: str) -> None:
        for name, value in self._runner.metrics.items():
            self._hub.update_scalar(f"{stage}/{name}", value)


class EmptyConfig(dict[str, Any]):
    """A config without entries."""

    pretty_text = ""
    filename = None
