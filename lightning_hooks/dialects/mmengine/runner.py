"""``Runner``: mmengine's own, whose batches are run by a ``lightning.Trainer``.

A script changes one import, and its config nothing::

    from lightning_hooks.dialects.mmengine.runner import Runner

    Runner.from_cfg(cfg).train()

A script that cannot be changed builds it by its config, as mmengine's and its sisters'
``tools/train.py`` do: ``custom_imports=dict(imports=["lightning_hooks.dialects.mmengine.runner"])``
and ``runner_type="LightningRunner"``.

Models, optimizer wrappers, schedulers, evaluators, hooks, log files and checkpoints are
mmengine's. Lightning runs the batches of training, validation and test, with its callbacks,
loggers and precision: ``Runner(..., trainer=dict(callbacks=[...]))``, or ``trainer=dict(...)`` in
the config.
"""

from __future__ import annotations

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
"""The methods in which a loop of mmengine's iterates; one with another of them runs itself."""


@RUNNERS.register_module(name="LightningRunner")
class Runner(MMEngineRunner):  # type: ignore[misc]  # mmengine has no types
    """mmengine's Runner, with Lightning as the engine.

    A loop that iterates by itself (a class of ``train_cfg=dict(type=...)`` with a ``run()`` of its
    own) is run as it is, without Lightning; a line in the log names it.

    Note:
        Departures from mmengine: none in what hooks see, in files, or in numbers. Several
        processes are those of mmengine's launcher, with its model wrapper; Lightning's strategies
        are refused.

    Args:
        args: Those of mmengine's Runner.
        trainer: Arguments of the ``lightning.Trainer``; those in ``cfg.trainer`` by default.
        kwargs: Those of mmengine's Runner.

    Raises:
        ValueError: if ``trainer`` has an argument that mmengine's config sets.
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
        """Build the training loop; Lightning runs its batches."""
        built = super().build_train_loop(loop)
        if self._is_driven(built, EpochBasedTrainLoop):
            built.run = lambda: self._engine.train_epochs(built)
        elif self._is_driven(built, IterBasedTrainLoop):
            built.run = lambda: self._engine.train_iterations(built)
        return built

    def build_val_loop(self, loop: Any) -> Any:
        """Build the validation loop; Lightning runs its batches."""
        built = super().build_val_loop(loop)
        if self._is_driven(built, ValLoop):
            built.run = lambda: self._engine.evaluate(built, "val")
        return built

    def build_test_loop(self, loop: Any) -> Any:
        """Build the test loop; Lightning runs its batches."""
        built = super().build_test_loop(loop)
        if self._is_driven(built, TestLoop):
            built.run = lambda: self._engine.evaluate(built, "test")
        return built

    def call_hook(self, fn_name: str, **kwargs: Any) -> None:
        """Call a point of all hooks; the engine passes the outputs of a step on to Lightning."""
        super().call_hook(fn_name, **kwargs)
        module = self._engine.module
        if fn_name == "after_train_iter" and module is not None:
            module.outputs = kwargs.get("outputs")

    def load_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        """Load a checkpoint of mmengine's, which torch 2.6 and later refuse by themselves.

        The classes that mmengine writes are allowed in it, and no others.
        """
        written = [HistoryBuffer, (_statistic, "builtins.getattr"), *numpy_globals()]
        with torch.serialization.safe_globals(written):
            return super().load_checkpoint(*args, **kwargs)

    def _is_driven(self, loop: Any, library: type[Any]) -> bool:
        """Return whether a loop is one of mmengine's kind, as far as it iterates."""
        if not isinstance(loop, library):
            return False
        own = [n for n in _WHOLE if getattr(type(loop), n, None) is not getattr(library, n, None)]
        if own:
            self.logger.warning(
                "%s has its own %s(): it runs its batches itself, without Lightning",
                *(type(loop).__name__, "() and ".join(own)),
            )
        return not own


def _statistic(owner: Any, name: str) -> Any:
    """Return a method of mmengine's HistoryBuffer, which a file refers to by ``getattr``."""
    if owner is not HistoryBuffer:
        raise TypeError(f"a checkpoint may have statistics of HistoryBuffer, got {owner!r}.{name}")
    return getattr(owner, name)
