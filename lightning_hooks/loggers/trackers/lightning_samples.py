"""Images and tables in Lightning's loggers: each logger has a method of its own, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.trackers.tensorboard import as_markdown
from lightning_hooks.utils.samples import Table

__all__ = ["calls_for", "kinds_of"]


def _to_swanlab(logger: Any, name: str, image: Any, step: int) -> None:
    logger.log_image(name, [image.transpose(1, 2, 0).squeeze()], step=step)


def _to_comet(logger: Any, name: str, image: Any, step: int) -> None:
    logger.experiment.log_image(image.transpose(1, 2, 0).squeeze(), name=name, step=step)


def _to_mlflow(logger: Any, name: str, image: Any, step: int) -> None:
    picture = image.transpose(1, 2, 0).squeeze()
    logger.experiment.log_image(logger.run_id, picture, key=name, step=step)


def _to_tensorboard(logger: Any, name: str, image: Any, step: int) -> None:
    logger.experiment.add_image(name, image, step)


def _table_to_comet(logger: Any, name: str, table: Table, step: int) -> None:
    file = f"{name.replace('/', '_')}_{step}.csv"
    logger.experiment.log_table(file, [*map(list, table.rows)], headers=[*table.columns])


def _table_to_mlflow(logger: Any, name: str, table: Table, step: int) -> None:
    columns = {name: [row[i] for row in table.rows] for i, name in enumerate(table.columns)}
    logger.experiment.log_table(logger.run_id, columns, f"tables/{name}/{step}.json")


def _table_to_tensorboard(logger: Any, name: str, table: Table, step: int) -> None:
    logger.experiment.add_text(name, as_markdown(table), step)


def _table_to_wandb(logger: Any, name: str, table: Table, step: int) -> None:
    logger.log_table(name, columns=[*table.columns], data=[*map(list, table.rows)], step=step)


Send = Callable[[Any, str, Any, int], None]

_SENDERS: Mapping[str, Mapping[str, Send]] = {
    "CometLogger": {"images": _to_comet, "tables": _table_to_comet},
    "MLFlowLogger": {"images": _to_mlflow, "tables": _table_to_mlflow},
    "SwanLabLogger": {"images": _to_swanlab},
    "TensorBoardLogger": {"images": _to_tensorboard, "tables": _table_to_tensorboard},
    "WandbLogger": {"images": _to_swanlab, "tables": _table_to_wandb},
}
"""The functions that log a sample, by the name of the logger's class and the kind of sample."""


def kinds_of(logger_class: type) -> Mapping[str, Send]:
    """Return the kinds of samples that a class of loggers has, each with a function to log it."""
    names = (base.__name__ for base in logger_class.__mro__)
    return next((_SENDERS[name] for name in names if name in _SENDERS), {})


def calls_for(logger: Any, record: Record) -> Iterator[Callable[[], None]]:
    """Yield a call for each sample of a record that a logger has a method for."""
    for kind, send in kinds_of(type(logger)).items():
        for name, sample in getattr(record, kind).items():
            yield partial(send, logger, name, sample, record.step)
