"""``Runner``: mmengine's Runner, with the batches run by a ``lightning.Trainer``.

A script changes one import, and its config nothing::

    from lightning_hooks.dialects.mmengine.runner import Runner

    Runner.from_cfg(cfg).train()

An unchanged ``tools/train.py`` of mmengine, mmdet and others builds the Runner from the config:
``custom_imports=dict(imports=["lightning_hooks.dialects.mmengine.runner"])`` and
``runner_type="LightningRunner"``.

Models, optimizer wrappers, schedulers, evaluators, hooks, log files and checkpoints are
mmengine's. Lightning runs the batches of training, validation and test, with Lightning's
callbacks, loggers and precision: ``Runner(..., trainer=dict(callbacks=[...]))``, or
``trainer=dict(...)`` in the config.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning as L
import torch
from mmengine.logging import HistoryBuffer
from mmengine.registry import RUNNERS
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop, TestLoop, ValLoop
from mmengine.runner import Runner as MMEngineRunner

from lightning_hooks.dialects.mmengine.engine import Engine
from lightning_hooks.storage.torch_files import numpy_globals

__all__ = ["Runner"]

_WHOLE = ("run", "run_epoch")
"""The iterating methods of mmengine's loops; a loop with an overridden method runs by itself."""


@RUNNERS.register_module(name="LightningRunner")
class Runner(MMEngineRunner):  # type: ignore[misc]  # mmengine has no types
    """mmengine's Runner, with Lightning as the engine.

    A custom loop (``train_cfg=dict(type=...)``) with an overridden ``run()`` runs without
    Lightning; a line in the log names the loop.

    Note:
        Departures from mmengine: none for hooks, files and numbers. Several processes are started
        by mmengine's launcher, with mmengine's model wrapper; Lightning's strategies are refused.

    Args:
        args: Arguments of mmengine's Runner.
        trainer: Arguments of the ``lightning.Trainer``; ``cfg.trainer`` by default.
        kwargs: Arguments of mmengine's Runner.

    Raises:
        ValueError: for an argument of ``trainer`` set by mmengine's config.
    """

    def __init__(self, *args: Any, trainer: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = self.cfg.get("trainer") if trainer is None else trainer
        self._engine = Engine(self, dict(own or {}))

    @property
    def trainer(self) -> L.Trainer:
        """The ``lightning.Trainer``."""
        return self._engine.trainer

    def build_train_loop(self, loop: Any) -> Any:
        """Build the training loop, run by Lightning."""
        built = super().build_train_loop(loop)
        self._drive(built, EpochBasedTrainLoop, lambda: self._engine.train_epochs(built))
        self._drive(built, IterBasedTrainLoop, lambda: self._engine.train_iterations(built))
        return built

    def build_val_loop(self, loop: Any) -> Any:
        """Build the validation loop, run by Lightning."""
        built = super().build_val_loop(loop)
        self._drive(built, ValLoop, lambda: self._engine.evaluate(built, "val"))
        return built

    def build_test_loop(self, loop: Any) -> Any:
        """Build the test loop, run by Lightning."""
        built = super().build_test_loop(loop)
        self._drive(built, TestLoop, lambda: self._engine.evaluate(built, "test"))
        return built

    def call_hook(self, fn_name: str, **kwargs: Any) -> None:
        """Call a point of all hooks, and pass the outputs of a training step to Lightning."""
        super().call_hook(fn_name, **kwargs)
        module = self._engine.module
        if fn_name == "after_train_iter" and module is not None:
            module.outputs = kwargs.get("outputs")

    def load_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        """Load a checkpoint of mmengine, also with torch 2.6 and later.

        The classes written by mmengine are allowed in the file, and no others.
        """
        written = [HistoryBuffer, (_statistic, "builtins.getattr"), *numpy_globals()]
        with torch.serialization.safe_globals(written):
            return super().load_checkpoint(*args, **kwargs)

    def _drive(self, loop: Any, library: type[Any], run: Callable[[], Any]) -> None:
        """Let Lightning run a loop of a class, if the iterating methods are mmengine's."""
        own = [n for n in _WHOLE if getattr(type(loop), n, None) is not getattr(library, n, None)]
        if isinstance(loop, library) and own:
            self.logger.warning(
                "%s overrides %s(): the loop runs by itself, without Lightning",
                *(type(loop).__name__, "() and ".join(own)),
            )
        elif isinstance(loop, library):
            loop.run = run


def _statistic(owner: Any, name: str) -> Any:
    """Return a method of mmengine's HistoryBuffer, pickled by ``getattr``."""
    if owner is not HistoryBuffer:
        raise TypeError(f"a checkpoint may have statistics of HistoryBuffer, got {owner!r}.{name}")
    return getattr(owner, name)
