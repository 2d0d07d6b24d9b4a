"""What Lightning's loggers do beside numbers: images, tables, and the end of a run."""

from __future__ import annotations

import atexit
import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lightning_hooks.loggers.trackers.tensorboard import as_markdown
from lightning_hooks.loggers.trackers.wandb import lag_of
from lightning_hooks.utils.samples import as_picture

__all__ = ["Client", "client_of"]


@dataclass(frozen=True)
class Client:
    """What a class of loggers does beside numbers; each function is one of a logger.

    Args:
        log: Log a sample, given with its name and step, by the kind of samples.
        begin: Begin the run in the calling thread; this takes the version's folder.
        check: Raise an error for a run that would drop values without an error.
        lag: Seconds until the run has stored a value; infinite if only at the end of the process.
        end: End an open run, which a new logger would use again; None for other clients.
    """

    log: Mapping[str, Callable[[Any, str, Any, int], object]] = field(default_factory=dict)
    begin: Callable[[Any], object] = lambda logger: getattr(logger, "experiment", None)
    check: Callable[[Any], object] = lambda logger: None
    lag: Callable[[Any], float] = lambda logger: 0.0
    end: Callable[[Any], object] | None = None


def _image(logger: Any, name: str, image: Any, step: int) -> None:
    logger.log_image(name, [as_picture(image)], step=step)


def _aim_image(logger: Any, name: str, image: Any, step: int) -> None:
    aim = importlib.import_module("aim")
    logger.experiment.track(aim.Image(as_picture(image)), name=name, step=step)


def _aim_table(logger: Any, name: str, table: Any, step: int) -> None:
    aim = importlib.import_module("aim")
    logger.experiment.track(aim.Text(as_markdown(table)), name=name, step=step)


def _comet_image(logger: Any, name: str, image: Any, step: int) -> None:
    logger.experiment.log_image(as_picture(image), name=name, step=step)


def _comet_table(logger: Any, name: str, table: Any, step: int) -> None:
    file = f"{name.replace('/', '_')}_{step}.csv"
    logger.experiment.log_table(file, [*map(list, table.rows)], headers=[*table.columns])


def _check_comet(logger: Any) -> None:
    if not (logger.experiment.alive or logger.experiment.disabled):
        raise ConnectionError("Comet's run has not reached a server, or has ended")


def _mlflow_image(logger: Any, name: str, image: Any, step: int) -> None:
    logger.experiment.log_image(logger.run_id, as_picture(image), key=name, step=step)


def _mlflow_table(logger: Any, name: str, table: Any, step: int) -> None:
    path = f"tables/{name}/{step}.json"
    logger.experiment.log_table(logger.run_id, table.by_column(), path)


def _swanlab_table(logger: Any, name: str, table: Any, step: int) -> None:
    logger.log_text(name, [as_markdown(table)], step=step)


def _tensorboard_image(logger: Any, name: str, image: Any, step: int) -> None:
    logger.experiment.add_image(name, image, step)


def _tensorboard_table(logger: Any, name: str, table: Any, step: int) -> None:
    logger.experiment.add_text(name, as_markdown(table), step)


def _wandb_table(logger: Any, name: str, table: Any, step: int) -> None:
    logger.log_table(name, columns=[*table.columns], data=[*map(list, table.rows)], step=step)


_CLIENTS = {
    "AimLogger": Client({"images": _aim_image, "tables": _aim_table}),
    "CometLogger": Client(
        {"images": _comet_image, "tables": _comet_table},
        # Comet ends a run at the exit only if the main thread has begun the run
        begin=lambda logger: atexit.register(logger.experiment.end),
        check=_check_comet,
        lag=lambda logger: (
            math.inf if "OfflineExperiment" in _names(type(logger.experiment)) else 0.0
        ),
        end=lambda logger: logger.experiment.end(),
    ),
    "MLFlowLogger": Client({"images": _mlflow_image, "tables": _mlflow_table}),
    "SwanLabLogger": Client(
        {"images": _image, "tables": _swanlab_table},
        lag=lambda logger: (
            math.inf if getattr(logger.experiment, "mode", "online") != "online" else 0.0
        ),
        end=lambda logger: getattr(logger.experiment, "alive", True) and logger.experiment.finish(),
    ),
    "TensorBoardLogger": Client({"images": _tensorboard_image, "tables": _tensorboard_table}),
    "WandbLogger": Client(
        {"images": _image, "tables": _wandb_table},
        lag=lambda logger: lag_of(logger.experiment),
        end=lambda logger: logger.experiment.finish(),
    ),
}
"""The clients by the names of the loggers' classes: no client is imported for its class."""


def client_of(logger_class: type) -> Client:
    """Return the client of a class of loggers, or of a base of the class."""
    return next((_CLIENTS[n] for n in _names(logger_class) if n in _CLIENTS), Client())


def _names(kind: type) -> list[str]:
    return [base.__name__ for base in kind.__mro__]
