"""The table of trackers: writers, extras, and options of ``lightning-hooks replay``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning_hooks.loggers.delivery.writer import Writer

__all__ = ["OPTIONS", "TRACKERS", "Tracker", "writer_class"]

OPTIONS: Mapping[str, str] = {
    "tracking_uri": "MLflow's server or store; by default MLFLOW_TRACKING_URI",
    "experiment": "MLflow's experiment; by default MLflow's own",
    "project": "the project, of W&B, Neptune or ClearML",
    "entity": "W&B's user or team",
    "mode": "online or offline for W&B; async, sync or offline for Neptune",
    "server": "URL of a W&B server (by default WANDB_BASE_URL), or of Visdom's without the port",
    "port": "port of the Visdom server",
    "env": "environment of the Visdom windows",
    "dir": "folder of the tracker's files; ClearML and Visdom use no server then",
    "logger": 'a Lightning logger as JSON: {"type": "CSVLogger", "save_dir": "logs"}',
    "name": "name of a new run",
    "run_id": "id of the run to continue; by default a new run begins",
}
"""Help of the options of ``lightning-hooks replay``, all of them strings."""


@dataclass(frozen=True)
class Tracker:
    """An entry of the table, under the name of the tracker's package, module and extra.

    Args:
        writer: The name of the writer's class.
        requirement: The package and versions that the extra installs; empty for no package.
        options: Keys of ``OPTIONS``.
    """

    writer: str
    requirement: str
    options: tuple[str, ...]


TRACKERS: Mapping[str, Tracker] = {
    "clearml": Tracker("ClearMLWriter", "clearml>=1.14", ("project", "dir", "name", "run_id")),
    "dvclive": Tracker("DvcliveWriter", "dvclive>=3.40", ("dir",)),
    "lightning": Tracker("LightningWriter", "", ("logger",)),
    "mlflow": Tracker(
        "MlflowWriter", "mlflow>=3.1", ("tracking_uri", "experiment", "name", "run_id")
    ),
    "neptune": Tracker(
        "NeptuneWriter", "neptune>=1.10,<2", ("project", "mode", "dir", "name", "run_id")
    ),
    "tensorboard": Tracker("TensorboardWriter", "tensorboard>=2.15", ("dir",)),
    "visdom": Tracker("VisdomWriter", "visdom>=0.2.4", ("server", "port", "env", "dir", "run_id")),
    "wandb": Tracker(
        *("WandbWriter", "wandb>=0.17"),
        ("project", "entity", "mode", "server", "dir", "name", "run_id"),
    ),
}


def writer_class(name: str) -> type[Writer]:
    """Return the class of a tracker's writer, by a key of ``TRACKERS``."""
    module = importlib.import_module(f"lightning_hooks.loggers.trackers.{name}")
    return getattr(module, TRACKERS[name].writer)  # type: ignore[no-any-return]
