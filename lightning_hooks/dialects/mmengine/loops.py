"""The loops of mmengine's runner, with the attributes that hooks use."""

from __future__ import annotations

import sys
from typing import Any

from lightning_hooks.engine.lightning_api import data

__all__ = ["TestLoop", "TrainLoop", "ValLoop"]


class _Loop:
    def __init__(self, runner: Any) -> None:
        self._runner = runner

    @property
    def _library_name(self) -> str:
        return type(self).__name__

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The library's own class, if it is loaded, for ``isinstance(runner.train_loop, ...)``."""
        return getattr(sys.modules.get("mmengine.runner"), self._library_name, type(self))

    def __getattr__(self, name: str) -> Any:
        kind = type(self).__name__
        public = ", ".join(known for known in dir(type(self)) if not known.startswith("_"))
        raise AttributeError(
            f"mmengine's {kind} has no {name!r} here, only {public}: Lightning's own loop runs the "
            "batches. To run over them once more, use trainer.validate after the fit"
        )


class TrainLoop(_Loop):
    """``runner.train_loop``."""

    @property
    def _library_name(self) -> str:
        return f"{'Epoch' if self._runner.counts_epochs else 'Iter'}BasedTrainLoop"

    @property
    def iter(self) -> int:
        """Number of finished iterations."""
        return int(self._runner.iter)

    @property
    def epoch(self) -> int:
        """Number of finished epochs; a run that is counted in iterations is one epoch."""
        return int(self._runner.epoch) if self._runner.counts_epochs else 0

    @property
    def max_iters(self) -> Any:
        """Number of iterations of the run; assign ``_max_iters`` to change it."""
        return self._runner.max_iters

    @property
    def _max_iters(self) -> Any:
        return self._runner.max_iters

    @_max_iters.setter
    def _max_iters(self, value: int) -> None:
        self._runner._max_iters = value

    @property
    def max_epochs(self) -> Any:
        """Number of epochs of the run; assign ``_max_epochs`` to change it."""
        return self._max_epochs

    @property
    def _max_epochs(self) -> Any:
        return self._runner.max_epochs if self._runner.counts_epochs else 1

    @_max_epochs.setter
    def _max_epochs(self, value: int) -> None:
        self._runner._max_epochs = value

    @property
    def val_interval(self) -> Any:
        """Number of epochs, or iterations, between two validations."""
        trainer = self._runner.trainer
        by_iter = not self._runner.counts_epochs and trainer.val_check_batch
        return trainer.val_check_batch if by_iter else trainer.check_val_every_n_epoch

    @property
    def dataloader(self) -> Any:
        """The training loader."""
        trainer = self._runner.trainer
        loaders = data.train_loaders(trainer)
        return loaders[0] if len(loaders) == 1 else trainer.train_dataloader

    @property
    def metainfo(self) -> Any:
        """The training set's ``metainfo``, None if it has none."""
        return getattr(getattr(self.dataloader, "dataset", None), "metainfo", None)

    @property
    def stop_training(self) -> bool:
        """Whether training ends; it can be assigned."""
        return bool(self._runner.should_stop)

    @stop_training.setter
    def stop_training(self, value: bool) -> None:
        self._runner.should_stop = value


class ValLoop(_Loop):
    """``runner.val_loop``."""

    @property
    def dataloader(self) -> Any:
        """The validation loader; None without one."""
        return _single(self._runner.trainer.val_dataloaders)


class TestLoop(_Loop):
    """``runner.test_loop``."""

    __test__ = False  # no test class of pytest's

    @property
    def dataloader(self) -> Any:
        """The test loader; None without one."""
        return _single(self._runner.trainer.test_dataloaders)


def _single(loaders: Any) -> Any:
    return loaders[0] if isinstance(loaders, list) and len(loaders) == 1 else loaders
