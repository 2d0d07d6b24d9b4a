"""``RuntimeInfo``: what mmengine's ``RuntimeInfoHook`` tells a message hub, where there is none."""

from __future__ import annotations

from typing import Any

import torch

from lightning_hooks.engine.lightning_api import logged_values

__all__ = ["RuntimeInfo"]


class RuntimeInfo:
    """Tells the message hub where the run stands, and the scalars of its steps.

    ==========================  ==============================================================
    key                         value
    ==========================  ==============================================================
    ``epoch``, ``iter``         those done
    ``max_epochs max_iters``    those to do
    ``loop_stage``              ``train``, ``val`` or ``test``
    ``dataset_meta``            the training set's ``metainfo``, if it has that
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
        self._outer: Any = None  # the stage around a validation
        self._seen: dict[str, torch.Tensor] = {}

    def before_run(self) -> None:
        """Tell what the run is."""
        runner = self._runner
        text = getattr(runner.cfg, "pretty_text", "")
        names = {"cfg": text, "seed": runner.seed, "experiment_name": runner.experiment_name}
        self._hub.update_info_dict(names)

    def before_train(self) -> None:
        """Tell the limits."""
        runner = self._runner
        known = ("epoch", "iter", "max_epochs", "max_iters")
        found = {name: getattr(runner, name) for name in known}
        self._hub.update_info_dict({"loop_stage": "train", **found})
        if runner.train_loop.metainfo is not None:
            self._hub.update_info("dataset_meta", runner.train_loop.metainfo)

    def before_train_epoch(self) -> None:
        """Tell the epoch."""
        self._hub.update_info("epoch", self._runner.epoch)

    def before_train_iter(self) -> None:
        """Tell the iteration and its learning rate."""
        self._hub.update_info("iter", self._runner.iter)
        for name, rates in self._runner.optim_wrapper.get_lr().items():
            self._hub.update_scalar(f"train/{name}", rates[0])

    def after_train_iter(self) -> None:
        """Tell the step's scalars."""
        runner = self._runner._runner
        outputs = getattr(runner, "outputs", None) or {}
        found = {**outputs, **logged_values.step_metrics(runner.trainer, self._seen)}
        for name, value in {**found, **(outputs.get("log_vars") or {})}.items():
            if isinstance(value, torch.Tensor) and value.numel() == 1:
                value = value.detach().as_subclass(torch.Tensor)
                self._hub.update_scalar(f"train/{name}", value)
            elif isinstance(value, (int, float)):
                self._hub.update_scalar(f"train/{name}", value)

    def after_run(self) -> None:
        """The stage is over."""
        self._hub.pop_info("loop_stage")

    def before_val_epoch(self) -> None:
        """Tell the stage."""
        self._outer = self._hub.get_info("loop_stage")
        self._hub.update_info("loop_stage", "val")

    def after_val_epoch(self) -> None:
        """Tell what was found."""
        for name, value in self._runner.metrics.items():
            self._hub.update_scalar(f"val/{name}", value)

    def after_val(self) -> None:
        """Go back to the stage before."""
        self._hub.pop_info("loop_stage")
        if self._outer is not None:
            self._hub.update_info("loop_stage", self._outer)

    def before_test(self) -> None:
        """Tell the stage."""
        self._hub.update_info("loop_stage", "test")

    def after_test_epoch(self) -> None:
        """Tell what was found."""
        for name, value in self._runner.metrics.items():
            self._hub.update_scalar(f"test/{name}", value)

    def after_test(self) -> None:
        """The stage is over."""
        self._hub.pop_info("loop_stage")
