"""Train with trackers and read the records stored by the backends."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import Hook, IterTimerHook
from lightning_hooks.cli import main
from lightning_hooks.engine.runner.line import in_fit
from lightning_hooks.loggers.base import LoggerHook
from support import training
from support.training import TinyModule

__all__ = [
    "REAL_CLIENTS",
    "Crash",
    "Odd",
    "Pictures",
    "Sent",
    "Talk",
    "Tuned",
    "client_of",
    "close",
    "everything_in",
    "exit_code",
    "fit",
    "history",
    "in_hparams",
    "inspect_wandb",
    "points",
    "quiet",
    "read_clearml",
    "read_dvclive",
    "read_neptune",
    "read_tensorboard",
    "read_text_log",
    "read_visdom_log",
    "read_visdom_server",
    "read_wandb",
    "replay_as_told",
    "run_of",
    "series",
    "warnings_in",
]

REAL_CLIENTS = [
    pytest.mark.usefixtures("nothing_elsewhere"),
    # the clients' own, of each other and of Python
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
"""The pytest marks of a file that uses the trackers' clients."""


class Sent(LoggerHook):
    """Records the values to be sent, by step."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rows: dict[int, dict[str, float]] = {}

    def log(self, runner: Any) -> None:
        tags = self.get_loggable_tags(runner)
        if in_fit(runner):
            tags["epoch"] = self.get_epoch(runner)
        self.rows.setdefault(self.get_iter(runner), {}).update(tags)


def fit(
    work: Path, *hooks: Any, module: Any = TinyModule, epochs: int = 2, **options: Any
) -> TinyModule:
    """Train with hooks in a given work dir; return the module."""
    own = {"work_dir": str(work), "max_epochs": epochs, "num_sanity_val_steps": 0, "val": 2}
    hooks = IterTimerHook(), *hooks
    trainer = training.fit(work.parent, *hooks, module=module, **{**own, **options})
    return trainer.lightning_module  # type: ignore[return-value]


def read_wandb(work: Path) -> list[dict[str, Any]]:
    (file,) = work.glob("wandb/offline-run-*/run-*.wandb")
    return inspect_wandb(file)


def inspect_wandb(file: Path) -> list[dict[str, Any]]:
    """Finish the run if open; return the records of an offline run's file."""
    import wandb

    if wandb.run is not None and file.samefile(wandb.run.settings.sync_file):
        wandb.finish()
    if importlib.util.find_spec("wandb.sdk.internal.datastore"):  # before W&B's own command
        return [*_scanned(file)]
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(file)]
    lines = subprocess.check_output(command, text=True).splitlines()
    return [json.loads(line) for line in lines]


def _scanned(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of an older W&B release in the format of the current command.

    Skips the test for an open run, because an older release has the rows of an open run in memory.
    """
    from google.protobuf.json_format import MessageToDict
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    store, kinds = DataStore(), set()
    try:
        store.open_for_scan(str(file))
        while data := store.scan_data():
            message = Record()
            message.ParseFromString(data)
            record: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
            kinds.add(message.WhichOneof("record_type"))
            yield {**_with_plain_items(record), "type": message.WhichOneof("record_type")}
    except AssertionError:  # the end of an incomplete file
        kinds.discard("exit")
    finally:
        if getattr(store, "_fp", None):
            store.close()
    if not kinds & {"exit", "history"}:
        pytest.skip("this W&B keeps the rows of an open run in memory")


def _with_plain_items(value: Any) -> Any:
    """Return a record with dicts in the place of lists of names and values in JSON."""
    if isinstance(value, dict):
        return {name: _with_plain_items(inner) for name, inner in value.items()}
    if isinstance(value, list) and value and "value_json" in value[0]:
        names = (item.get("key") or ".".join(item["nested_key"]) for item in value)
        return {
            name: json.loads(item["value_json"], parse_constant=str)
            for name, item in zip(names, value, strict=True)
        }
    return value


def history(records: list[dict[str, Any]]) -> dict[int, dict[str, float]]:
    rows = {}
    for record in records:
        if record["type"] == "history":
            row = dict(record["history"]["item"])
            step = row.pop("_step")
            row.pop("trainer/global_step", None)
            rows[step] = {k: v for k, v in row.items() if not k.startswith("_")}
    return rows


def replay_as_told(caplog: pytest.LogCaptureFixture) -> None:
    """Run the command printed by a hook verbatim."""
    said = "\n".join(record.getMessage() for record in caplog.records)
    (command,) = {*re.findall("(?m)lightning-hooks replay .*", said)}
    with pytest.raises(SystemExit, match="0"):
        main(shlex.split(command)[1:])


def exit_code(records: list[dict[str, Any]]) -> int:
    (found,) = [record["exit"] for record in records if record["type"] == "exit"]
    return int(found.get("exit_code", 0))


def client_of(db: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{db}")


def run_of(client: Any) -> Any:
    experiments = [e.experiment_id for e in client.search_experiments()]
    (run,) = client.search_runs(experiments)
    return run


def logged_models(client: Any, experiments: list[str]) -> list[Any]:
    """Return the models of MLflow 3; skip the rest of the test with MLflow 2."""
    if not hasattr(client, "search_logged_models"):
        pytest.skip("MLflow 2 has no LoggedModel")
    return list(client.search_logged_models(experiments))


def points(db: Path) -> dict[int, dict[str, float]]:
    rows: dict[int, dict[str, float]] = {}
    with sqlite3.connect(db) as connection:
        for key, step, value in connection.execute("select key, step, value from metrics"):
            rows.setdefault(step, {})[key] = value
    return rows


def read_neptune(work: Path) -> list[dict[str, Any]]:
    decoder, found = json.JSONDecoder(), []
    for file in sorted(work.glob(".neptune/offline/run__*/data-*.log")):
        text = file.read_text()
        while text:
            record, end = decoder.raw_decode(text)
            found.append(record["obj"])
            text = text[end:].lstrip()
    return found


def series(operations: list[dict[str, Any]]) -> dict[int, dict[str, float]]:
    rows: dict[int, dict[str, float]] = {}
    for operation in operations:
        if operation["type"] == "LogFloats":
            for point in operation["values"]:
                rows.setdefault(point["step"], {})["/".join(operation["path"])] = point["value"]
    return rows


def read_tensorboard(folder: Path) -> tuple[dict[int, dict[str, float]], Any]:
    """The numbers by step, and the accumulator for the rest."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    events.Reload()
    rows: dict[int, dict[str, float]] = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            rows.setdefault(event.step, {})[tag] = event.value
    return rows, events


def in_hparams(events: Any) -> tuple[Any, list[str]]:
    """Return the parameters and the metric names of TensorBoard's HPARAMS tab."""
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    content = events.PluginTagToContent("hparams")
    start, experiment = (
        HParamsPluginData.FromString(content[f"_hparams_/{name}"])
        for name in ("session_start_info", "experiment")
    )
    metrics = [info.name.tag for info in experiment.experiment.metric_infos]
    return start.session_start_info.hparams, metrics


def read_dvclive(folder: Path) -> dict[int, dict[str, float]]:
    """The numbers by step."""
    rows: dict[int, dict[str, float]] = {}
    metrics = folder / "plots" / "metrics"
    for path in metrics.rglob("*.tsv"):
        name = str(path.relative_to(metrics).with_suffix(""))
        with path.open() as file:
            for row in csv.DictReader(file, delimiter="\t"):
                rows.setdefault(int(row["step"]), {})[name] = float(row[path.stem])
    return rows


def read_clearml(folder: Path) -> dict[int, dict[str, float]]:
    """The numbers by step."""
    rows: dict[int, dict[str, float]] = {}
    for path in folder.glob("offline/*/metrics.jsonl"):
        for line in path.read_text().splitlines():
            for event in json.loads(line):
                if event["type"] == "training_stats_scalar":
                    rows.setdefault(event["iter"], {})[event["metric"]] = event["value"]
    return rows


def read_text_log(work: Path) -> dict[int, dict[str, float]]:
    """Return the numbers of the text log by step, under the trackers' names."""
    rows: dict[int, dict[str, float]] = {}
    (path,) = work.glob("*.log.json")
    step = 0  # the last training iteration, also the step of the following validation
    for line in path.read_text().splitlines():
        row = json.loads(line)
        mode, _, number = (row.pop(name) for name in ("mode", "epoch", "iter"))
        step = number if mode == "train" else step
        rows.setdefault(step, {})["learning_rate"] = row.pop("lr")
        values = {f"{mode}/{k}": v for k, v in row.items() if k not in ("time", "data_time")}
        rows[step].update(values)
    return rows


def read_visdom_server(file: Path) -> dict[int, dict[str, float]]:
    """Return the numbers by step of an environment saved by a Visdom server."""
    rows: dict[int, dict[str, float]] = {}
    for name, window in json.loads(file.read_text())["jsons"].items():
        if window["type"] == "plot":
            data = window["content"]["data"][0]
            for x, y in zip(data["x"], data["y"], strict=True):
                rows.setdefault(int(x), {})[name] = y
    return rows


def read_visdom_log(folder: Path) -> dict[int, dict[str, float]]:
    """The numbers by step, from the file of an offline client."""
    rows: dict[int, dict[str, float]] = {}
    for path in folder.glob("*.log"):
        for line in path.read_text().splitlines():
            _, message = json.loads(line)
            for data in message["data"]:
                for x, y in zip(data.get("x", []), data.get("y", []), strict=True):
                    rows.setdefault(int(x), {})[message["win"]] = y
    return rows


class Odd(Hook):
    """Logs NaN, the infinities and a number, in turn."""

    def after_train_iter(self, runner: Any) -> None:
        runner.log_buffer.output["odd"] = float(["nan", "inf", "-inf", "1.5"][runner.iter % 4])
        runner.log_buffer.ready = True


class Crash(Hook):
    """Raises in the second epoch."""

    def before_train_epoch(self, runner: Any) -> None:
        if runner.epoch:
            raise RuntimeError("crash")


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING" and "ooks" in r.name]


class Tuned(TinyModule):
    """A module with saved hyperparameters."""

    def __init__(self, lr: float = 0.1, data: Any = None) -> None:
        super().__init__(lr)
        self.save_hyperparameters()


class Pictures(Hook):
    """Reports an image and a text."""

    priority = "LOW"

    def after_train_epoch(self, runner: Any) -> None:
        image = torch.linspace(0, 1, 48).reshape(3, 4, 4)
        runner.log_buffer.output.update(sample=image, best="cat")
        runner.log_buffer.ready = True


def close(one: dict[int, dict[str, float]], two: dict[int, dict[str, float]]) -> bool:
    """Return whether two sets of rows are equal in float32."""
    assert one.keys() == two.keys()
    return all(one[step] == pytest.approx(two[step], rel=1e-6) for step in one)


def quiet(caplog: pytest.LogCaptureFixture) -> bool:
    found = [r for r in caplog.records if r.levelname == "WARNING" and "ooks" in r.name]
    return not [r.getMessage() for r in found if "Neptune's hosted service" not in r.getMessage()]


class Talk(Hook):
    """Prints a line in each iteration."""

    def after_train_iter(self, runner: Any) -> None:
        print("a line for the console")


def everything_in(folder: Path) -> bytes:
    return b"".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())
