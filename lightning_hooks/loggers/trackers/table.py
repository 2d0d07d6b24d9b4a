"""The table of trackers: writers, extras, and options of ``lightning-hooks replay``."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning_hooks.loggers.delivery.writer import Writer

__all__ = ["OPTIONS", "TRACKERS", "Tracker", "arguments_of", "options_of", "writer_class"]

OPTIONS: Mapping[str, str] = {
    "tracking_uri": "MLflow's server or store; by default MLFLOW_TRACKING_URI",
    "experiment": "MLflow's experiment; by default MLflow's own",
    "project": "the project, of W&B, Trackio, Neptune or ClearML",
    "entity": "W&B's user or team",
    "mode": "online or offline for W&B; async, sync or offline for Neptune",
    "server": "URL of a W&B server (by default WANDB_BASE_URL), or of Visdom's without the port",
    "port": "port of the Visdom server",
    "env": "environment of the Visdom windows",
    "dir": "folder of the tracker's files; ClearML and Visdom use no server then",
    "logger": 'a Lightning logger as JSON: {"type": "CSVLogger", "save_dir": "logs"}',
    "name": "name of a new run",
    "run_id": "id of the run to continue; by default the spool's run",
}
"""Help of the options of ``lightning-hooks replay``, all of them strings."""


@dataclass(frozen=True)
class Tracker:
    """An entry of the table, under the name of the tracker's package, module and extra.

    Args:
        writer: The name of the writer's class.
        requirement: The package and versions that the extra installs; empty for no package.
        options: The place of each option among the arguments of the writer's ``connect``: names of
            nested dicts, joined by ``/``. Of several places, separated by blanks, the first counts.
    """

    writer: str
    requirement: str
    options: Mapping[str, str]


TRACKERS: Mapping[str, Tracker] = {
    "clearml": Tracker(
        *("ClearMLWriter", "clearml>=1.14"),
        {"project": "init/project_name", "dir": "folder", "name": "init/task_name"}
        | {"run_id": "run_id"},
    ),
    "dvclive": Tracker("DvcliveWriter", "dvclive>=3.41", {"dir": "options/dir"}),
    "lightning": Tracker("LightningWriter", "", {"logger": "logger"}),
    "mlflow": Tracker(
        *("MlflowWriter", "mlflow>=2.17"),
        {"tracking_uri": "uri", "experiment": "experiment", "name": "tags/mlflow.runName"}
        | {"run_id": "run_id label"},
    ),
    "neptune": Tracker(
        *("NeptuneWriter", "neptune>=1.8.6,<2"),
        {"project": "init/project", "mode": "init/mode", "dir": "folder", "name": "init/name"}
        | {"run_id": "custom_run_id init/custom_run_id"},
    ),
    "tensorboard": Tracker("TensorboardWriter", "tensorboard>=2.14", {"dir": "log_dir"}),
    "trackio": Tracker(
        *("TrackioWriter", "trackio>=0.43"),
        {"project": "init/project", "name": "init/name", "run_id": "run_id init/name"},
    ),
    "visdom": Tracker(
        *("VisdomWriter", "visdom>=0.2.4"),
        {"server": "init/server", "port": "init/port", "env": "init/env", "dir": "folder"}
        | {"run_id": "run_id"},
    ),
    "wandb": Tracker(
        *("WandbWriter", "wandb>=0.19.10"),
        {name: f"init/{name} init/settings/{name}" for name in ("project", "entity", "mode")}
        | {"server": "init/settings/base_url", "dir": "init/dir", "name": "init/name"}
        | {"run_id": "run_id init/id"},
    ),
}


def options_of(writer: type[Writer], run: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of ``lightning-hooks replay`` for a run.

    Args:
        writer: The writer.
        run: The open run in use, if any.
        arguments: Other arguments of the writer's ``connect``.
    """
    options = {}
    for option, places in TRACKERS[writer.name].options.items() if writer.name in TRACKERS else ():
        values = (_value_at(place, arguments) for place in places.split())
        options[option] = next((value for value in values if value is not None), None)
    return {**options, **writer.options(run, arguments)}


def _value_at(place: str, arguments: Any) -> Any:
    for name in place.split("/"):
        arguments = arguments.get(name) if isinstance(arguments, Mapping) else None
    return arguments


def arguments_of(writer: type[Writer], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a writer's ``reopen`` for options of ``lightning-hooks replay``.

    Args:
        writer: The writer.
        options: The options.
    """
    arguments: dict[str, Any] = copy.deepcopy({**writer.replayed})
    for option, value in options.items():
        *outer, name = TRACKERS[writer.name].options[option].split()[0].split("/")
        inner = arguments
        for each in outer:
            inner = inner.setdefault(each, {})
        inner[name] = value
    return arguments


def writer_class(name: str) -> type[Writer]:
    """Return the class of a tracker's writer, by a key of ``TRACKERS``."""
    module = importlib.import_module(f"lightning_hooks.loggers.trackers.{name}")
    return getattr(module, TRACKERS[name].writer)  # type: ignore[no-any-return]
