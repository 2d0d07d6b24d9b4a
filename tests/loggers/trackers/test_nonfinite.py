"""NaN and infinities: what each backend's own reader gives back."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import (
    DvcliveLoggerHook,
    LightningLoggerHook,
    MlflowLoggerHook,
    TensorboardLoggerHook,
    TextLoggerHook,
    VisdomLoggerHook,
    WandbLoggerHook,
)
from support.logs.trackers import (
    Odd,
    client_of,
    fit,
    history,
    read_dvclive,
    read_tensorboard,
    read_visdom_log,
    read_visdom_server,
    read_wandb,
    run_of,
)

pytestmark = [
    pytest.mark.usefixtures("nothing_elsewhere"),
    # the clients' own, and Python's
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
AS_THEY_ARE = [math.nan, math.inf, -math.inf, 1.5]
LARGEST = 1.7976931348623157e308


def by_mlflow(client: Any) -> list[float]:
    points = client.get_metric_history(run_of(client).info.run_id, "train/odd")
    return [point.value for point in sorted(points, key=lambda point: point.step)]


def column(rows: dict[int, dict[str, Any]]) -> list[Any]:
    return [rows[step]["train/odd"] for step in sorted(rows) if "train/odd" in rows[step]]


def in_json(work: Path) -> list[Any]:
    (path,) = work.glob("*.log.json")
    rows = map(json.loads, path.read_text().splitlines())
    return [row["odd"] for row in rows if row["mode"] == "train"]


def in_csv(work: Path) -> list[Any]:
    (path,) = work.rglob("metrics.csv")
    with path.open() as file:
        return [row["train/odd"] for row in csv.DictReader(file) if row["train/odd"]]


CASES: dict[str, tuple[Any, Callable[[Path], list[Any]], list[Any]]] = {
    "text": (TextLoggerHook, in_json, [None, None, None, 1.5]),
    "tensorboard": (
        TensorboardLoggerHook,
        lambda work: column(read_tensorboard(work / "tf_logs")[0]),
        AS_THEY_ARE,
    ),
    "dvclive": (
        DvcliveLoggerHook,
        lambda work: column(read_dvclive(work / "dvclive")),
        AS_THEY_ARE,
    ),
    "wandb": (
        WandbLoggerHook,
        lambda work: column(history(read_wandb(work))),
        ["NaN", "Infinity", "-Infinity", 1.5],
    ),
    "mlflow": (
        MlflowLoggerHook,
        lambda work: by_mlflow(client_of(work / "mlflow.db")),
        [math.nan, LARGEST, -LARGEST, 1.5],
    ),
    "csv": (
        partial(LightningLoggerHook, {"type": "CSVLogger"}),
        in_csv,
        ["nan", "inf", "-inf", "1.5"],
    ),
    "visdom": (
        VisdomLoggerHook,
        lambda work: column(read_visdom_log(work / "visdom")),
        [None, math.inf, -math.inf, 1.5],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_the_reader_sees(work: Path, name: str) -> None:
    kind, read, wanted = CASES[name]
    if name not in ("text", "csv"):
        pytest.importorskip(name)
    fit(work, Odd(), kind(interval=1, by_epoch=False), epochs=1)
    assert repr(read(work)) == repr(wanted)  # nan is not equal to nan


def test_a_visdom_server_has_what_the_offline_client_has(
    work: Path, tmp_path: Path, visdom_server: int
) -> None:
    server = {"server": "http://127.0.0.1", "port": visdom_server, "env": "digits"}
    fit(work, Odd(), VisdomLoggerHook(server, interval=1), epochs=1)
    assert repr(column(read_visdom_server(tmp_path / "digits.json"))) == repr(CASES["visdom"][2])
