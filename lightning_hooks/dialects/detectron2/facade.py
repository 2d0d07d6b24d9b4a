"""A run as hooks of detectron2 see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lightning_hooks.dialects.detectron2.storage import EventStorage
from lightning_hooks.dialects.dialect import Dialect
from lightning_hooks.dialects.steps import facade

__all__ = ["TrainerFacade"]


class TrainerFacade(facade.TrainerFacade):
    """The trainer that detectron2's hooks have as ``self.trainer``.

    Its storage also has ``rank_data_time``, which is this rank's ``data_time``.

    Note:
        Departures from detectron2: ``_data_loader_iter`` is an iterator of its own over the
        training loader; the Trainer's batches go on beside it. It cannot be replaced, and
        ``run_step()`` cannot be called: Lightning loads the batches and runs the step.
    """

    storage_class = EventStorage
    packages = ("detectron2",)

    def __init__(self, runner: Any, dialect: Dialect) -> None:
        self._assigned = 0  # what a hook has added to `iter`
        self._batches: Iterator[Any] | None = None
        super().__init__(runner, dialect)

    @property
    def iter(self) -> int:
        """Number of finished iterations; an assigned number holds until the next iteration."""
        return super().iter + self._assigned

    @iter.setter
    def iter(self, value: int) -> None:
        self._assigned = int(value) - super().iter

    def at_before_train_iter(self) -> None:
        """Count on from the run's own iteration, as detectron2's loop does."""
        self._assigned = 0
        super().at_before_train_iter()
        time = self.storage.histories().get("data_time")
        if time is not None and time.last_iteration() == self.storage.iter:
            self.storage.feed({"rank_data_time": time.latest()})

    @property
    def _trainer(self) -> Any:
        """The trainer inside a ``DefaultTrainer``: this one."""
        return self._given("_trainer") or self

    def _given(self, name: str) -> Any:
        """Return one of ``HookAdapter(attributes=...)``."""
        return getattr(self._runner, name) if name in self._runner.given_attributes else None

    @property
    def _data_loader_iter(self) -> Any:
        """An iterator over the training loader."""
        given = self._given("_data_loader_iter")
        if given is None and self._batches is None:
            self._batches = iter(self.data_loader)
        return given or self._batches

    @_data_loader_iter.setter
    def _data_loader_iter(self, value: Any) -> None:
        raise AttributeError(
            "trainer._data_loader_iter cannot be replaced, since Lightning loads the batches: "
            "give trainer.fit() a loader, and Trainer(reload_dataloaders_every_n_epochs=1) to "
            "make it anew"
        )

    def run_step(self) -> None:
        """Refuse: the step is Lightning's.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "trainer.run_step() is Lightning's training_step: write what it should do there, or "
            "in before_step and after_step of a hook"
        )

    def reset_data_loader(self, data_loader_builder: Any) -> None:
        """Refuse: the loader is Lightning's.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "trainer.reset_data_loader() cannot be called, since Lightning loads the batches: "
            "write train_dataloader() in the module or a DataModule, and "
            "Trainer(reload_dataloaders_every_n_epochs=1) to make it anew"
        )

    def _write_metrics(
        self,
        loss_dict: Mapping[str, Any],
        data_time: float,
        prefix: str = "",
        iter: int | None = None,
    ) -> None:
        """Store losses with their sum, and the time of loading, as detectron2's trainer does."""
        scalars = {"data_time": data_time, "rank_data_time": data_time}
        scalars[f"{prefix}total_loss"] = sum(loss_dict.values())
        if len(loss_dict) > 1:
            scalars.update(loss_dict)
        self.storage.feed(scalars, iter)

    def state_dict(self) -> dict[str, Any]:
        """Return the iteration and the states of the hooks and the optimizer."""
        hooks: dict[str, Any] = {}
        for hosted in self.hosted_hooks():
            hook = hosted.foreign_hook
            state = hook.state_dict() if callable(getattr(hook, "state_dict", None)) else None
            if state:
                hooks.setdefault(type(hook).__qualname__, state)
        optimizer = self.optimizer
        if isinstance(optimizer, dict):
            states = {name: one.state_dict() for name, one in optimizer.items()}
        else:
            states = optimizer.state_dict()
        return {"iteration": self.iter, **({"hooks": hooks} if hooks else {}), "optimizer": states}
