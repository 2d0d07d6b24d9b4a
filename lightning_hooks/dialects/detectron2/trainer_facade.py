"""``TrainerFacade``: ``self.trainer`` of detectron2's hooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lightning_hooks.dialects.detectron2.events import EventStorage
from lightning_hooks.dialects.dialect import Dialect
from lightning_hooks.dialects.steps import trainer_facade

__all__ = ["TrainerFacade"]


class TrainerFacade(trainer_facade.TrainerFacade):
    """``self.trainer`` of detectron2's hooks.

    The storage also has ``rank_data_time``, the ``data_time`` of this rank.

    Note:
        Departures from detectron2: ``_data_loader_iter`` is a second iterator over the training
        loader, independent of the Trainer's batches, and cannot be replaced. ``run_step()`` raises
        NotImplementedError: Lightning loads the batches and runs the step.
    """

    storage_class = EventStorage
    packages = ("detectron2",)

    def __init__(self, runner: Any, dialect: Dialect) -> None:
        self._assigned = 0  # difference of an assigned `iter` from the run's
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
        """Drop an assigned iteration, as detectron2's loop does."""
        self._assigned = 0
        super().at_before_train_iter()
        time = self.storage.histories().get("data_time")
        if time is not None and time.last_iteration() == self.storage.iter:
            self.storage.feed({"rank_data_time": time.latest()})

    @property
    def _trainer(self) -> Any:
        """This trainer, for hooks written for a ``DefaultTrainer``."""
        return self._given("_trainer") or self

    def _given(self, name: str) -> Any:
        """Return an attribute of ``HookAdapter(attributes=...)``, None if missing."""
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
            "pass a loader to trainer.fit(); Trainer(reload_dataloaders_every_n_epochs=1) makes a "
            "new loader for each epoch"
        )

    def run_step(self) -> None:
        """Refuse: Lightning runs the step.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "trainer.run_step() cannot be called, since Lightning runs training_step: write the "
            "code in training_step, or in before_step and after_step of a hook"
        )

    def reset_data_loader(self, data_loader_builder: Any) -> None:
        """Refuse: Lightning loads the batches.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "trainer.reset_data_loader() cannot be called, since Lightning loads the batches: "
            "write train_dataloader() in the module or a DataModule, and "
            "Trainer(reload_dataloaders_every_n_epochs=1) for a new loader in each epoch"
        )

    def _write_metrics(
        self,
        loss_dict: Mapping[str, Any],
        data_time: float,
        prefix: str = "",
        iter: int | None = None,
    ) -> None:
        """Store losses, their sum and the loading time, as detectron2's trainer does."""
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
            states = {name: each.state_dict() for name, each in optimizer.items()}
        else:
            states = optimizer.state_dict()
        return {"iteration": self.iter, **({"hooks": hooks} if hooks else {}), "optimizer": states}
