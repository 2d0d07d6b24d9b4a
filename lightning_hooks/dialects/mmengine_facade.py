"""What mmengine's hooks see of a run: ``runner``, its loops, optimizer wrapper and visualizer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from lightning_hooks import loops
from lightning_hooks.dialects.dialect import Dialect, Facade
from lightning_hooks.dialects.message_hub import MessageHub
from lightning_hooks.iter_runner import IterRunner

__all__ = ["OptimWrapper", "RunnerFacade", "TrainLoop", "ValLoop", "Visualizer"]


class RunnerFacade(Facade):
    """mmengine's Runner, as far as hooks touch it.

    Unless a ``RuntimeInfoHook`` is there to do it, the message hub is given ``epoch``, ``iter``,
    ``max_epochs`` and ``max_iters``, and for each step ``train/lr`` and ``train/<name>`` of the
    scalars that the step returned or logged, for each validation ``val/<name>``.
    """

    def __init__(self, runner: Any, dialect: Dialect) -> None:
        super().__init__(runner, dialect)
        self.train_loop = self._train_loop = TrainLoop(runner)
        self.message_hub = MessageHub()
        self.visualizer = Visualizer(runner)
        self.val_loop = self._val_loop = ValLoop(runner)
        self._resume = False
        self._seen: dict[str, torch.Tensor] = {}
        self.metrics: dict[str, float] = {}
        """What the last validation has found."""

    # -- attributes ------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """Epochs done; a run that is counted in iterations is one epoch."""
        return self.train_loop.epoch

    @property
    def max_epochs(self) -> Any:
        """Epochs to do."""
        return self.train_loop.max_epochs

    @property
    def optim_wrapper(self) -> Any:
        """The optimizer in a wrapper, or a dict of them by name."""
        optimizer = self._runner.optimizer
        if isinstance(optimizer, dict):
            return {name: OptimWrapper(one) for name, one in optimizer.items()}
        return OptimWrapper(optimizer)

    @property
    def train_dataloader(self) -> Any:
        """The training loader."""
        return self.train_loop.dataloader

    @property
    def val_dataloader(self) -> Any:
        """The validation loader."""
        return self.val_loop.dataloader

    @property
    def param_schedulers(self) -> Any:
        """Those given by ``HookAdapter(attributes=...)``, else none: Lightning steps its own."""
        return self._runner.__dict__.get("param_schedulers", [])

    @property
    def log_dir(self) -> str:
        """Where a run's logs belong."""
        return str(os.path.join(self._runner.work_dir, self._runner.timestamp))

    _log_dir = log_dir

    @property
    def experiment_name(self) -> str:
        """A name for the run."""
        given = self._runner.__dict__.get("experiment_name")
        return (
            str(given)
            if given
            else f"{os.path.basename(self._runner.work_dir)}_{self._runner.timestamp}"
        )

    @property
    def seed(self) -> Any:
        """What ``seed_everything`` was called with, if it was."""
        seed = os.environ.get("PL_GLOBAL_SEED")
        return None if seed is None else int(seed)

    @property
    def cfg(self) -> Any:
        """The config given by ``HookAdapter(attributes=...)``, else an empty one."""
        return self._runner.__dict__.get("cfg", _NoConfig())

    def save_checkpoint(
        self,
        out_dir: str,
        filename: str,
        file_client_args: Any = None,
        save_optimizer: bool = True,
        save_param_scheduler: bool = True,
        meta: dict[str, Any] | None = None,
        by_epoch: bool = True,
        backend_args: Any = None,
    ) -> None:
        """Write model, optimizer and meta into a file now."""
        self._runner.save_checkpoint(
            out_dir, filename, save_optimizer=save_optimizer, meta=meta, create_symlink=False
        )

    # -- on the way ------------------------------------------------------------------------

    def take_checkpoint(self) -> None:
        """Note whether the run goes on from a checkpoint; the hooks hear of it later."""
        super().take_checkpoint()
        self._resume = any(hosted.loaded_checkpoint is not None for hosted in self.hosted())

    def _informs(self) -> bool:
        return not any(
            base.__name__ == "RuntimeInfoHook"
            for hosted in self.hosted()
            for base in type(hosted.foreign_hook).__mro__
        )

    def at_before_train(self) -> None:
        """Call ``after_load_checkpoint`` where mmengine loads: between the two first points."""
        found = [hosted.loaded_checkpoint for hosted in self.hosted() if hosted.loaded_checkpoint]
        if found:
            called = [h for h in self.hosted() if h.does("after_load_checkpoint")]
            for hosted in called:
                hosted.call_with_checkpoint("after_load_checkpoint", found[0])
            if called:  # a hook may have changed what the model was to get
                self._runner.module.load_state_dict(found[0]["state_dict"], strict=False)
        for hosted in self.hosted():
            hosted.loaded_checkpoint = None
        self._inform = self._informs()
        if self._inform:
            limits = {"max_epochs": self.max_epochs, "max_iters": self.max_iters}
            self.message_hub.update_info_dict({"loop_stage": "train", **limits})

    def at_before_train_epoch(self) -> None:
        """Tell the epoch."""
        if self._inform:
            self.message_hub.update_info("epoch", self.epoch)

    def at_before_train_iter(self) -> None:
        """Tell the iteration and its learning rate."""
        if self._inform:
            self.message_hub.update_info("iter", self.iter)
            if not isinstance(self._runner.optimizer, dict):
                self.message_hub.update_scalar("train/lr", self.optim_wrapper.get_lr()["lr"][0])

    def at_after_train_iter(self) -> None:
        """Tell the step's scalars."""
        if not self._inform:
            return
        outputs = getattr(self._runner, "outputs", None) or {}
        found = {**outputs, **loops.step_metrics(self._runner.trainer, self._seen)}
        for name, value in {**found, **(outputs.get("log_vars") or {})}.items():
            if isinstance(value, torch.Tensor) and value.numel() == 1:
                value = value.detach().as_subclass(torch.Tensor)
                self.message_hub.update_scalar(f"train/{name}", value)
            elif isinstance(value, (int, float)):
                self.message_hub.update_scalar(f"train/{name}", value)

    def at_after_val_epoch(self) -> None:
        """Read what the validation has found."""
        metrics = loops.val_metrics(self._runner.trainer)
        self.metrics = {name: value.item() for name, value in metrics.items()}
        if self._inform:
            for name, value in self.metrics.items():
                self.message_hub.update_scalar(f"val/{name}", value)


class _NoConfig(dict[str, Any]):
    """A config of nothing."""

    pretty_text = ""
    filename = None


class _Loop:
    def __init__(self, runner: Any) -> None:
        self._runner = runner


class TrainLoop(_Loop):
    """``runner.train_loop``."""

    @property
    def iter(self) -> int:
        """Iterations done."""
        return int(self._runner.iter)

    @property
    def epoch(self) -> int:
        """Epochs done; a run that is counted in iterations is one epoch."""
        return 0 if isinstance(self._runner, IterRunner) else int(self._runner.epoch)

    @property
    def max_iters(self) -> Any:
        """Iterations to do."""
        return self._runner.max_iters

    @property
    def max_epochs(self) -> Any:
        """Epochs to do; assign ``_max_epochs`` to change it."""
        return self._max_epochs

    @property
    def _max_epochs(self) -> Any:
        return 1 if isinstance(self._runner, IterRunner) else self._runner.max_epochs

    @_max_epochs.setter
    def _max_epochs(self, value: int) -> None:
        self._runner._max_epochs = value

    @property
    def val_interval(self) -> Any:
        """Epochs from one validation to the next."""
        return self._runner.trainer.check_val_every_n_epoch

    @property
    def dataloader(self) -> Any:
        """The training loader."""
        trainer = self._runner.trainer
        loaders = loops.train_loaders(trainer)
        return loaders[0] if len(loaders) == 1 else trainer.train_dataloader

    @property
    def stop_training(self) -> bool:
        """Whether training ends; set it to make it so."""
        return bool(self._runner.should_stop)

    @stop_training.setter
    def stop_training(self, value: bool) -> None:
        self._runner.should_stop = value


class ValLoop(_Loop):
    """``runner.val_loop``."""

    @property
    def dataloader(self) -> Any:
        """The validation loader, None where there is none."""
        loaders = self._runner.trainer.val_dataloaders
        return loaders[0] if isinstance(loaders, list) and len(loaders) == 1 else loaders


class OptimWrapper:
    """``runner.optim_wrapper``: the optimizer; what is not here is the optimizer's own."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # not there while a copy is being made
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def get_lr(self) -> dict[str, list[float]]:
        """The learning rate of every group."""
        return {"lr": [group["lr"] for group in self.optimizer.param_groups]}

    def get_momentum(self) -> dict[str, list[float]]:
        """The momentum, or Adam's first beta, of every group."""
        groups = self.optimizer.param_groups
        return {"momentum": [g.get("momentum", g.get("betas", [0])[0]) for g in groups]}

    def update_params(self, loss: Any, **kwargs: Any) -> None:
        """Run backward and step, for a hook that owns it."""
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class Visualizer:
    """``runner.visualizer``: what it is given goes to the Trainer's loggers."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        """Log a number."""
        self.add_scalars({name: value}, step)

    def add_scalars(self, scalar_dict: Mapping[str, Any], step: int = 0, **kwargs: Any) -> None:
        """Log several numbers."""
        for logger in self._runner.trainer.loggers:
            logger.log_metrics({k: float(v) for k, v in scalar_dict.items()}, step=step)

    def add_image(self, name: str, image: Any, step: int = 0, **kwargs: Any) -> None:
        """Log an image (height, width, channels) to the loggers that take images."""
        for logger in self._runner.trainer.loggers:
            if hasattr(logger.experiment, "add_image"):  # TensorBoard
                logger.experiment.add_image(name, image, step, dataformats="HWC")

    def add_config(self, config: Any, **kwargs: Any) -> None:
        """Log a config."""
        for logger in self._runner.trainer.loggers:
            logger.log_hyperparams(dict(config))

    def add_graph(self, model: Any, data_batch: Any, **kwargs: Any) -> None:
        """Nothing: Lightning's loggers have their own ``log_graph``."""
