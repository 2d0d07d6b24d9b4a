"""``DefaultTrainer``: a trainer that a detectron2 config describes, for models of plain torch."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from typing import Any

import torch

from lightning_hooks.dialects.detectron2 import hooks
from lightning_hooks.dialects.detectron2.printer import CommonMetricPrinter
from lightning_hooks.dialects.detectron2.trainer import SimpleTrainer, TrainerBase
from lightning_hooks.dialects.steps.checkpointer import Checkpointer
from lightning_hooks.dialects.steps.writers import JSONWriter

__all__ = ["DefaultTrainer"]


class _StepTrainer(SimpleTrainer):
    """Runs the steps of another trainer, which has the hooks."""

    outer: Any

    def after_backward(self) -> None:
        """Call this point of the other trainer's hooks."""
        self.outer.after_backward()


class DefaultTrainer(TrainerBase):
    """Builds what is trained by its class methods, and trains it with the usual hooks.

    Subclasses define ``build_model``, ``build_optimizer``, ``build_lr_scheduler`` and
    ``build_train_loader``; ``test`` too if there is an evaluation.

    Args:
        cfg: The config: ``OUTPUT_DIR``, ``MODEL.WEIGHTS``, ``SOLVER.MAX_ITER``,
            ``SOLVER.CHECKPOINT_PERIOD`` and ``TEST.EVAL_PERIOD`` are read.

    Raises:
        ValueError: for ``SOLVER.AMP.ENABLED``.

    Note:
        Departures from detectron2: its models, data sets and solvers are not here, so the class
        methods that build them must be defined; mixed precision is not there; without ``test``
        there is no evaluation, and one line of log names it.
    """

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        if getattr(getattr(cfg.SOLVER, "AMP", None), "ENABLED", False):
            raise ValueError("SOLVER.AMP.ENABLED=True is not there: set it to False")
        model = self.build_model(cfg)
        optimizer = self.build_optimizer(cfg, model)
        self._trainer = _StepTrainer(model, self.build_train_loader(cfg), optimizer)
        self._trainer.outer = weakref.proxy(self)
        self.scheduler = self.build_lr_scheduler(cfg, optimizer)
        self.checkpointer = Checkpointer(model, cfg.OUTPUT_DIR, trainer=weakref.proxy(self))
        self.start_iter = 0
        self.max_iter = cfg.SOLVER.MAX_ITER
        self.cfg = cfg
        self.register_hooks(self.build_hooks())

    @property
    def model(self) -> torch.nn.Module:
        """The model."""
        return self._trainer.model

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer."""
        return self._trainer.optimizer

    @property
    def data_loader(self) -> Any:
        """The training loader."""
        return self._trainer.data_loader

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
    def test(cls, cfg: Any, model: torch.nn.Module) -> Any:
        """Evaluate the model; return a dict of numbers."""
        raise _undefined(cls, "test(cls, cfg, model)")

    def build_hooks(self) -> list[Any]:
        """Return the hooks: timer, schedule, checkpoints, evaluation and writers."""
        cfg = self.cfg
        built: list[Any] = [hooks.IterationTimer(), hooks.LRScheduler(scheduler=self.scheduler)]
        if self.rank == 0:
            built.append(
                hooks.PeriodicCheckpointer(self.checkpointer, cfg.SOLVER.CHECKPOINT_PERIOD)
            )
        if type(self).test.__func__ is not DefaultTrainer.test.__func__:  # type: ignore[attr-defined]
            built.append(hooks.EvalHook(cfg.TEST.EVAL_PERIOD, self._test_and_keep))
        else:
            self.logger.warning("%s evaluates nothing: it has no test()", type(self).__name__)
        if self.rank == 0:
            built.append(hooks.PeriodicWriter(self.build_writers(), period=20))
        return built

    def build_writers(self) -> list[Any]:
        """Return the writers: a line for the terminal, and ``OUTPUT_DIR/metrics.json``."""
        path = os.path.join(self.cfg.OUTPUT_DIR, "metrics.json")
        return [CommonMetricPrinter(self.max_iter), JSONWriter(path)]

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


def _undefined(cls: type, method: str) -> NotImplementedError:
    return NotImplementedError(f"{cls.__name__} must define the class method {method}")
