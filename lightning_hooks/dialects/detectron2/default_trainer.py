"""``DefaultTrainer``: a trainer that a detectron2 config describes, for models of plain torch."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from lightning_hooks.dialects.detectron2 import hooks
from lightning_hooks.dialects.detectron2.config import auto_scale_workers, setting
from lightning_hooks.dialects.detectron2.evaluation import inference_on_dataset
from lightning_hooks.dialects.detectron2.printer import CommonMetricPrinter
from lightning_hooks.dialects.detectron2.simple_trainer import AMPTrainer, SimpleTrainer
from lightning_hooks.dialects.detectron2.trainer import TrainerBase
from lightning_hooks.dialects.steps.checkpointer import Checkpointer
from lightning_hooks.dialects.steps.writers import JSONWriter, TensorboardXWriter
from lightning_hooks.hooks.batch_norm.population_stats import bn_layers

__all__ = ["DefaultTrainer"]


class _StepTrainer(SimpleTrainer):
    """Runs the steps of another trainer, which has the hooks."""

    outer: Any

    def after_backward(self) -> None:
        """Call this point of the other trainer's hooks."""
        self.outer.after_backward()


class _AMPStepTrainer(_StepTrainer, AMPTrainer):
    """Runs the steps in mixed precision."""


class DefaultTrainer(TrainerBase):
    """Builds what is trained by its class methods, and trains it with the usual hooks.

    Subclasses define ``build_model``, ``build_optimizer``, ``build_lr_scheduler`` and
    ``build_train_loader``; if there is an evaluation, ``build_test_loader`` and
    ``build_evaluator``, or ``test``.

    In several processes, with torch.distributed initialized, each rank trains on its own loader,
    and the model is in ``DistributedDataParallel``.

    Args:
        cfg: The config: ``OUTPUT_DIR``, ``MODEL.WEIGHTS``, ``SOLVER.MAX_ITER``,
            ``SOLVER.CHECKPOINT_PERIOD`` and ``TEST.EVAL_PERIOD`` are read;
            ``SOLVER.AMP.ENABLED``, ``SOLVER.REFERENCE_WORLD_SIZE``, ``TEST.PRECISE_BN`` and
            ``DATASETS.TEST`` too if they are there.

    Note:
        Departures from detectron2: its models, data sets and solvers are not here, so the class
        methods that build them must be defined; hooks are called at ``after_backward`` too;
        without an evaluator there is no evaluation, and one line of log names it; ``train``
        returns the last results in any case, and ``TEST.EXPECTED_RESULTS`` is not compared, which
        one line of log names.
    """

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        world_size = torch.distributed.get_world_size() if distributed else 1
        cfg = self.auto_scale_workers(cfg, world_size)
        model = self.build_model(cfg)
        optimizer = self.build_optimizer(cfg, model)
        loader = self.build_train_loader(cfg)
        if world_size > 1:
            model = _in_ddp(model)
        step_trainer = _AMPStepTrainer if setting(cfg, "SOLVER.AMP.ENABLED") else _StepTrainer
        self._trainer = step_trainer(model, loader, optimizer)
        self._trainer.outer = weakref.proxy(self)
        self.scheduler = self.build_lr_scheduler(cfg, optimizer)
        self.checkpointer = Checkpointer(model, cfg.OUTPUT_DIR, trainer=weakref.proxy(self))
        self.start_iter = 0
        self.max_iter = cfg.SOLVER.MAX_ITER
        self.cfg = cfg
        if setting(cfg, "TEST.EXPECTED_RESULTS"):
            self.logger.warning("TEST.EXPECTED_RESULTS is not compared: compare train()'s results")
        self.register_hooks(self.build_hooks())

    @property
    def model(self) -> torch.nn.Module:
        """The model."""
        return self._trainer.model

    @model.setter
    def model(self, value: torch.nn.Module) -> None:
        self._trainer.model = value

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer."""
        return self._trainer.optimizer

    @optimizer.setter
    def optimizer(self, value: torch.optim.Optimizer) -> None:
        self._trainer.optimizer = value

    @property
    def data_loader(self) -> Any:
        """The training loader."""
        return self._trainer.data_loader

    @data_loader.setter
    def data_loader(self, value: Any) -> None:
        self._trainer.data_loader = value

    # -- what is trained -------------------------------------------------------------------

    @classmethod
    def build_model(cls, cfg: Any) -> torch.nn.Module:
        """Return the model, on its device; it returns its losses by name."""
        raise _undefined(cls, "build_model(cls, cfg)")

    @classmethod
    def build_optimizer(cls, cfg: Any, model: torch.nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer."""
        raise _undefined(cls, "build_optimizer(cls, cfg, model)")

    @classmethod
    def build_lr_scheduler(cls, cfg: Any, optimizer: torch.optim.Optimizer) -> Any:
        """Return the scheduler, which steps after each iteration."""
        raise _undefined(cls, "build_lr_scheduler(cls, cfg, optimizer)")

    @classmethod
    def build_train_loader(cls, cfg: Any) -> Any:
        """Return the loader, with a batch for each iteration."""
        raise _undefined(cls, "build_train_loader(cls, cfg)")

    @classmethod
    def build_test_loader(cls, cfg: Any, dataset_name: str) -> Any:
        """Return the loader of a data set of ``cfg.DATASETS.TEST``."""
        raise _undefined(cls, "build_test_loader(cls, cfg, dataset_name)")

    @classmethod
    def build_evaluator(cls, cfg: Any, dataset_name: str) -> Any:
        """Return what evaluates the model's outputs on a data set."""
        raise _undefined(cls, "build_evaluator(cls, cfg, dataset_name)")

    @classmethod
    def test(cls, cfg: Any, model: torch.nn.Module, evaluators: Any = None) -> Any:
        """Evaluate the model on the data sets of ``cfg.DATASETS.TEST``.

        Args:
            cfg: The config.
            model: The model.
            evaluators: An evaluator for each data set; those of ``build_evaluator`` by default.

        Returns:
            Results by data set; those of the data set if there is one only.
        """
        names = list(cfg.DATASETS.TEST)
        if evaluators is None:
            evaluators = [cls.build_evaluator(cfg, name) for name in names]
        elif not isinstance(evaluators, (list, tuple)):
            evaluators = [evaluators]
        if len(evaluators) != len(names):
            raise ValueError(f"{len(names)} data sets {names}, but {len(evaluators)} evaluators")
        results = {
            name: inference_on_dataset(model, cls.build_test_loader(cfg, name), evaluator)
            for name, evaluator in zip(names, evaluators, strict=True)
        }
        return results[names[0]] if len(names) == 1 else results

    @staticmethod
    def auto_scale_workers(cfg: Any, num_workers: int) -> Any:
        """Return the config for another number of processes than ``REFERENCE_WORLD_SIZE``."""
        return auto_scale_workers(cfg, num_workers)

    def build_hooks(self) -> list[Any]:
        """Return the hooks: timer, schedule, precise BN, checkpoints, evaluation and writers."""
        cfg = self.cfg
        built: list[Any] = [hooks.IterationTimer(), hooks.LRScheduler(scheduler=self.scheduler)]
        if setting(cfg, "TEST.PRECISE_BN.ENABLED") and bn_layers(self.model):
            batches, number = self.build_train_loader(cfg), cfg.TEST.PRECISE_BN.NUM_ITER
            built.append(hooks.PreciseBN(cfg.TEST.EVAL_PERIOD, self.model, batches, number))
        if self.rank == 0:
            built.append(
                hooks.PeriodicCheckpointer(self.checkpointer, cfg.SOLVER.CHECKPOINT_PERIOD)
            )
        if self._defines("test") or self._defines("build_evaluator"):
            built.append(hooks.EvalHook(cfg.TEST.EVAL_PERIOD, self._test_and_keep))
        else:
            name = type(self).__name__
            self.logger.warning("%s evaluates nothing: it has no build_evaluator() or test()", name)
        if self.rank == 0:
            built.append(hooks.PeriodicWriter(self.build_writers(), period=20))
        return built

    def build_writers(self) -> list[Any]:
        """Return the writers: a line, ``OUTPUT_DIR/metrics.json``, and TensorBoard's files."""
        path = os.path.join(self.cfg.OUTPUT_DIR, "metrics.json")
        writers = [CommonMetricPrinter(self.max_iter), JSONWriter(path)]
        if find_spec("tensorboard") is None:
            self.logger.warning("TensorboardXWriter is left out: tensorboard is not installed")
            return writers
        return [*writers, TensorboardXWriter(self.cfg.OUTPUT_DIR)]

    def _defines(self, method: str) -> bool:
        own = getattr(type(self), method).__func__
        return own is not getattr(DefaultTrainer, method).__func__

    def _test_and_keep(self) -> Any:
        self._last_eval_results = self.test(self.cfg, self.model)
        return self._last_eval_results

    # -- the run ---------------------------------------------------------------------------

    def resume_or_load(self, resume: bool = True) -> None:
        """Go on after the last checkpoint, or load the weights of ``cfg.MODEL.WEIGHTS``."""
        self.checkpointer.resume_or_load(self.cfg.MODEL.WEIGHTS, resume=resume)
        if resume and self.checkpointer.has_checkpoint():
            self.start_iter = self.iter + 1

    def train(self, start_iter: int | None = None, max_iter: int | None = None) -> Any:
        """Train; return the last evaluation's results, if there are some."""
        super().train(
            self.start_iter if start_iter is None else start_iter,
            self.max_iter if max_iter is None else max_iter,
        )
        return getattr(self, "_last_eval_results", None)

    def run_step(self) -> None:
        """Run a step of the trainer inside."""
        self._trainer.iter = self.iter
        self._trainer.run_step()

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with that of the trainer inside."""
        return {**super().state_dict(), "_trainer": self._trainer.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the state, with that of the trainer inside."""
        super().load_state_dict(state_dict)
        self._trainer.load_state_dict(state_dict["_trainer"])


def _in_ddp(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model in DistributedDataParallel, as detectron2 makes it."""
    device = next(model.parameters()).device
    ids = None if device.type == "cpu" else [device.index or 0]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*broadcast_buffers")  # its new name is not in torch 2.6
        return DistributedDataParallel(model, device_ids=ids, broadcast_buffers=False)


def _undefined(cls: type, method: str) -> NotImplementedError:
    return NotImplementedError(f"{cls.__name__} must define the class method {method}")
