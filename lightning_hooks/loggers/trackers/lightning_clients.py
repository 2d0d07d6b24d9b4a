"""What Lightning's loggers do beside numbers: images, tables, and the end of a run."""

from __future__ import annotations

import atexit
import importlib
from collections.abc import Collection
from typing import Any

from lightning_hooks.loggers.trackers.tensorboard import as_markdown
from lightning_hooks.utils.samples import as_picture

__all__ = ["Client", "client_of"]


class Client:
    """What a class of loggers does beside numbers: here nothing."""

    takes: Collection[str] = ()
    """The kinds of samples that the loggers take."""

    reuses_run = False
    """Whether a new logger would use an open run again."""

    def log_image(self, logger: Any, name: str, image: Any, step: int) -> None:
        """Log an image, if the loggers take images."""

    def log_table(self, logger: Any, name: str, table: Any, step: int) -> None:
        """Log a table, if the loggers take tables."""

    def begin(self, logger: Any) -> None:
        """Begin the run in the calling thread; this takes the version's folder."""
        getattr(logger, "experiment", None)

    def check(self, logger: Any) -> None:
        """Raise an error for a run that would drop values without an error."""

    def loses_at_kill(self, logger: Any) -> bool:
        """Whether a run stores its values only at the end of the process."""
        return False

    def end(self, logger: Any) -> None:
        """End a run, if a new logger would use it again."""


class _Samples(Client):
    """The loggers take images and tables."""

    takes = ("images", "tables")


class _Aim(_Samples):
    def log_image(self, logger: Any, name: str, image: Any, step: int) -> None:
        aim = importlib.import_module("aim")
        logger.experiment.track(aim.Image(as_picture(image)), name=name, step=step)

    def log_table(self, logger: Any, name: str, table: Any, step: int) -> None:
        aim = importlib.import_module("aim")
        logger.experiment.track(aim.Text(as_markdown(table)), name=name, step=step)


class _Comet(_Samples):
    reuses_run = True

    def log_image(self, logger: Any, name: str, image: Any, step: int) -> None:
        logger.experiment.log_image(as_picture(image), name=name, step=step)

    def log_table(self, logger: Any, name: str, table: Any, step: int) -> None:
        file = f"{name.replace('/', '_')}_{step}.csv"
        logger.experiment.log_table(file, [*map(list, table.rows)], headers=[*table.columns])

    def begin(self, logger: Any) -> None:
        # Comet ends a run at the exit only if the main thread has begun the run
        atexit.register(logger.experiment.end)

    def check(self, logger: Any) -> None:
        run = logger.experiment
        if not (run.alive or run.disabled):
            raise ConnectionError("Comet's run has not reached a server, or has ended")

    def loses_at_kill(self, logger: Any) -> bool:
        return "OfflineExperiment" in _names(type(logger.experiment))

    def end(self, logger: Any) -> None:
        logger.experiment.end()


class _MLFlow(_Samples):
    def log_image(self, logger: Any, name: str, image: Any, step: int) -> None:
        logger.experiment.log_image(logger.run_id, as_picture(image), key=name, step=step)

    def log_table(self, logger: Any, name: str, table: Any, step: int) -> None:
        path = f"tables/{name}/{step}.json"
        logger.experiment.log_table(logger.run_id, table.by_column(), path)


class _SwanLab(_Samples):
    reuses_run = True

    def log_image(self, logger: Any, name: str, image: Any, step: int) -> None:
        logger.log_image(name, [as_picture(image)], step=step)

    def log_table(self, logger: Any, name: str, table: Any, step: int) -> None:
        logger.log_text(name, [as_markdown(table)], step=step)

    def loses_at_kill(self, logger: Any) -> bool:
        return bool(getattr(logger.experiment, "mode", "online") != "online")

    def end(self, logger: Any) -> None:
        if getattr(logger.experiment, "alive", True):
            logger.experiment.finish()


class _TensorBoard(_Samples):
    def log_image(self, logger: Any, name: str, image: Any, step: int) -> None:
        logger.experiment.add_image(name, image, step)

    def log_table(self, logger: Any, name: str, table: Any, step: int) -> None:
        logger.experiment.add_text(name, as_markdown(table), step)


class _Wandb(_Samples):
    reuses_run = True

    def log_image(self, logger: Any, name: str, image: Any, step: int) -> None:
        logger.log_image(name, [as_picture(image)], step=step)

    def log_table(self, logger: Any, name: str, table: Any, step: int) -> None:
        rows = [*map(list, table.rows)]
        logger.log_table(name, columns=[*table.columns], data=rows, step=step)

    def end(self, logger: Any) -> None:
        logger.experiment.finish()


_CLIENTS = {
    "AimLogger": _Aim(),
    "CometLogger": _Comet(),
    "MLFlowLogger": _MLFlow(),
    "SwanLabLogger": _SwanLab(),
    "TensorBoardLogger": _TensorBoard(),
    "WandbLogger": _Wandb(),
}
"""The clients by the names of the loggers' classes: no client is imported for its class."""


def client_of(logger_class: type) -> Client:
    """Return the client of a class of loggers, or of a base of the class."""
    return next((_CLIENTS[n] for n in _names(logger_class) if n in _CLIENTS), Client())


def _names(kind: type) -> list[str]:
    return [base.__name__ for base in kind.__mro__]
