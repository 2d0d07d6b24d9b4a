"""``TrainerFacade``: ``self.trainer`` of detectron2's hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lightning_hooks.dialects.detectron2.events import EventStorage
from lightning_hooks.dialects.dialect import Dialect
from lightning_hooks.dialects.facade import load_optimizer_state, optimizer_state
from lightning_hooks.dialects.steps import trainer_facade
from lightning_hooks.engine.lightning_api import data

__all__ = ["TrainerFacade"]


class TrainerFacade(trainer_facade.TrainerFacade):
    """``self.trainer`` of detectron2's hooks.

    The storage also has ``rank_data_time``, the ``data_time`` of this rank.

    ``reset_data_loader()``, or an iterator assigned to ``_data_loader_iter_obj``, replaces the
    training data from the next step on. The lengths of the run and of an epoch stay.

    Note:
        Departures from detectron2: until replaced, ``_data_loader_iter`` is a second iterator over
        the training loader, independent of the Trainer's batches. In ``before_step`` Lightning has
        loaded the batch already, so the data cannot be replaced there. ``run_step()`` raises
        NotImplementedError: Lightning runs the step.
    """

    storage_class = EventStorage
    packages = ("detectron2",)

    def __init__(self, runner: Any, dialect: Dialect) -> None:
        self._assigned = 0  # difference of an assigned `iter` from the run's
        self._loader: Any = None  # an assigned data loader
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
        return self

    @property
    def data_loader(self) -> Any:
        """The training loader; an assigned loader needs ``_data_loader_iter_obj = None`` too."""
        return super().data_loader if self._loader is None else self._loader

    @data_loader.setter
    def data_loader(self, value: Any) -> None:
        self._loader = value

    @property
    def _data_loader_iter(self) -> Any:
        """An iterator over the training loader, or the assigned iterator."""
        if self._batches is None:
            self._batches = iter(self.data_loader)
        return self._batches

    @_data_loader_iter.setter
    def _data_loader_iter(self, value: Any) -> None:
        raise AttributeError(
            "trainer._data_loader_iter cannot be replaced, since Lightning loads the batches: "
            "assign the iterator to trainer._data_loader_iter_obj"
        )

    @property
    def _data_loader_iter_obj(self) -> Any:
        return self._data_loader_iter

    @_data_loader_iter_obj.setter
    def _data_loader_iter_obj(self, value: Any) -> None:
        """Train on the iterator's batches from the next step on; None: on ``data_loader`` anew."""
        runner, point = self._runner, self._entered[0] if self._entered else "before_run"
        if point == "before_train_iter":
            raise RuntimeError(
                "the training data cannot be replaced in before_step, since Lightning has loaded "
                "the batch of this step: write the code in after_step of the step before"
            )
        self._loader = self.data_loader
        self._batches = iter(self._loader) if value is None else value
        batches = _Batches(self._batches, runner.trainer.num_training_batches)
        if point == "before_run":
            runner._new_data_loader = runner.loader_of_run = batches
        else:
            data.switch_loader(runner.trainer, batches)

    def reset_data_loader(self, data_loader_builder: Callable[[], Any]) -> None:
        """Train on the loader returned by a function, from the next step on."""
        self.data_loader = data_loader_builder()
        self._data_loader_iter_obj = None

    def run_step(self) -> None:
        """Refuse: Lightning runs the step.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "trainer.run_step() cannot be called, since Lightning runs training_step: write the "
            "code in training_step, or in before_step and after_step of a hook"
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
        more = {"hooks": hooks} if hooks else {}
        return {"iteration": self.iter, **more, "optimizer": optimizer_state(self.optimizer)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the iteration, the hooks and the optimizer from ``state_dict()``."""
        self.iter = state_dict["iteration"]
        all_hooks = [hosted.foreign_hook for hosted in self.hosted_hooks()]
        hooks = {type(hook).__qualname__: hook for hook in reversed(all_hooks)}
        for name, state in state_dict.get("hooks", {}).items():
            if name in hooks:
                hooks[name].load_state_dict(state)
            else:
                self.logger.warning("Cannot find the hook '%s', its state_dict is ignored.", name)
        load_optimizer_state(self.optimizer, state_dict["optimizer"])


class _Batches:
    """The batches of an iterator, as a loader.

    Args:
        iterator: The iterator; each epoch continues after the last.
        length: Number of batches of an epoch, infinity if unknown.
    """

    def __init__(self, iterator: Iterator[Any], length: float) -> None:
        self._iterator, self._length = iterator, length

    def __len__(self) -> int:
        if self._length == float("inf"):
            raise TypeError("the number of batches of an epoch is unknown")
        return int(self._length)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterator:  # noqa: UP028  # yield from closes a generator after an epoch
            yield batch
        raise RuntimeError(
            "the loader assigned by a hook has ended before the run; detectron2's loaders have no "
            "end"
        )
