"""Properties of every tracker, with the real clients."""

from __future__ import annotations

import csv
import inspect
import json
import math
import pickle
import random
import re
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import MLFlowLogger, WandbLogger

import lightning_hooks
from lightning_hooks import (
    ClearMLLoggerHook,
    DvcliveLoggerHook,
    Hook,
    HookAdapter,
    LightningLoggerHook,
    MlflowLoggerHook,
    NeptuneLoggerHook,
    TensorboardLoggerHook,
    TextLoggerHook,
    ThroughputHook,
    TrackioLoggerHook,
    VisdomLoggerHook,
    WandbLoggerHook,
    WatchHook,
)
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.replay import replay
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.loggers.trackers.table import TRACKERS, writer_class
from support import contract
from support.logs.trackers import (
    REAL_CLIENTS,
    Odd,
    Sent,
    Tuned,
    client_of,
    close,
    fit,
    history,
    points,
    quiet,
    read_clearml,
    read_dvclive,
    read_neptune,
    read_tensorboard,
    read_text_log,
    read_visdom_log,
    read_visdom_server,
    read_wandb,
    run_of,
    series,
    warnings_in,
)
from support.paths import ROOT
from support.training import TinyModule, make_loader, make_trainer

pytestmark = REAL_CLIENTS


HOOKS: list[Any] = [
    getattr(lightning_hooks, name) for name in sorted(contract.TRACKERS - {"LightningLoggerHook"})
]


@pytest.mark.parametrize("hook", HOOKS)
def test_a_missing_package_fails_at_construction(
    hook: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    match = rf"{hook.__name__} needs .*: pip install {hook._package}$"
    with pytest.raises(ImportError, match=match):
        hook()


def test_the_extras_and_the_hooks_are_in_the_table_of_trackers() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    extras = dict(re.findall(r'(?m)^(\w+) = \["([^"]+)"\]', text))
    wanted = {name: each.requirement for name, each in TRACKERS.items() if each.requirement}
    missing = dict(wanted.items() - extras.items())
    assert not missing, "add these extras to pyproject.toml, each as in table.py"
    assert {hook._package: hook._writer_class for hook in HOOKS} == {
        name: writer_class(name) for name in wanted
    }


@pytest.mark.parametrize("hook", HOOKS)
def test_a_tracker_logs_two_fits_and_pickles(
    hook: type[Any], work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip(hook._package)
    one = pickle.loads(pickle.dumps(hook(interval=2)))
    fit(work, one, epochs=1)
    fit(work, one, epochs=1)
    assert not [text for text in warnings_in(caplog) if "cannot" in text]
    assert pickle.loads(pickle.dumps(one)).interval == 2


class FragileWriter(Writer):
    """A writer that raises a permanent error at one point."""

    name = "fragile"

    def __init__(self, run: Fragile) -> None:
        self.hook = run
        self.hook.reach("open")

    @classmethod
    def connect(cls, *, run: Any = None) -> FragileWriter:
        return cls(run)

    def log(self, record: Record) -> None:
        self.hook.reach("log")

    def send_files(self, files: Any) -> None:
        self.hook.reach("files")

    def close(self, failed: bool = False) -> None:
        self.hook.reach("close")


class Fragile(TrackerHook):
    """A tracker with a ``FragileWriter``."""

    _writer_class = FragileWriter

    def __init__(self, point: str) -> None:
        super().__init__(interval=1, timeout=5)
        self.point = point
        self.seen: list[str] = []

    def reach(self, point: str) -> None:
        self.seen.append(point)
        if point == self.point:
            raise ValueError(f"broken at {point}")

    def _target(self, runner: Any) -> dict[str, Any]:
        return {}

    def _active_run(self) -> Any:
        return self

    def _files(self, runner: Any, folder: str) -> list[tuple[str, str]]:
        return [(__file__, "test.py")]


@pytest.mark.parametrize(
    ("point", "seen"),
    [
        ("open", ["open"]),
        ("log", ["open", *["log"] * 4, "close"]),  # given up after three failed records
        ("files", ["open", *["log"] * 5, "files", "close"]),
        ("close", ["open", *["log"] * 5, "files", "close"]),
    ],
)
def test_departure_a_backend_that_raises_costs_one_warning(
    point: str, seen: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = Fragile(point)
    module = fit(tmp_path / "work", hook, epochs=1)
    assert len(module.losses) == 4
    assert hook.seen == seen
    (warning,) = warnings_in(caplog)
    assert f"(ValueError: broken at {point}); training goes on without it" in warning


class Evaluation(Hook):
    """Reports a number, a list and a string."""

    priority = "LOW"

    def after_train_epoch(self, runner: Any) -> None:
        runner.log_buffer.output.update(acc=torch.tensor(0.5), recalls=[0.1, 0.2], best="cat")
        runner.log_buffer.ready = True


def test_departure_only_numbers_are_sent(work: Path) -> None:
    fit(work, Evaluation(), MlflowLoggerHook(interval=9, log_model=False), epochs=1)
    row = points(work / "mlflow.db")[5]
    assert row["val/acc"] == 0.5
    assert row.keys() == {"val/acc", "val/val_loss", "learning_rate", "momentum", "epoch"}


def test_all_eight_at_once_have_the_same_numbers(
    work: Path, tmp_path: Path, visdom_server: int, caplog: pytest.LogCaptureFixture
) -> None:
    for package in ("clearml", "dvclive"):
        pytest.importorskip(package)
    server = {"server": "http://127.0.0.1", "port": visdom_server, "env": "digits"}
    how: dict[str, Any] = {"interval": 1, "by_epoch": False}
    sent = Sent(**how)
    fit(
        work,
        WatchHook(interval=1, log="norms", depth=0),
        ThroughputHook(warmup_iters=0),
        ClearMLLoggerHook(**how),
        DvcliveLoggerHook(**how),
        MlflowLoggerHook(**how, log_model=False),
        NeptuneLoggerHook(**how),
        sent,
        TensorboardLoggerHook(**how),
        TextLoggerHook(**how),
        VisdomLoggerHook(server, **how),
        WandbLoggerHook(**how),
    )
    assert len(sent.rows) == 8
    assert {"train/loss", "val/val_loss", "learning_rate", "momentum"} <= sent.rows[4].keys()
    watched = {f"train/{name}/all" for name in ("grad_norm", "weight_norm", "update_ratio")}
    assert {*watched, "train/samples_per_sec"} <= sent.rows[4].keys()
    assert read_clearml(work / "clearml") == sent.rows
    assert read_dvclive(work / "dvclive") == sent.rows
    assert points(work / "mlflow.db") == sent.rows
    assert series(read_neptune(work)) == sent.rows
    assert close(read_tensorboard(work / "tf_logs")[0], sent.rows)
    assert read_visdom_server(tmp_path / "digits.json") == sent.rows
    assert history(read_wandb(work)) == sent.rows
    written = read_text_log(work)  # five decimals, as mmcv
    assert written.keys() == sent.rows.keys()
    for step, row in sent.rows.items():
        assert written[step] == pytest.approx(
            {k: v for k, v in row.items() if k not in ("momentum", "epoch")}, abs=5.1e-6
        )
    assert quiet(caplog)
    assert not (work / "spool").exists()


def test_mlflow_and_wandb_share_the_runs_of_lightnings_loggers(work: Path, tmp_path: Path) -> None:
    mlflow = MLFlowLogger(tracking_uri=f"sqlite:///{work}/mlflow.db")
    wandb = WandbLogger(save_dir=work, offline=True, settings={"console": "off"})
    hooks = [MlflowLoggerHook(run=mlflow, interval=2, log_model=False)]
    hooks.append(WandbLoggerHook(run=wandb, interval=2, log_artifact=False))
    adapter = HookAdapter(hooks, work_dir=str(work))
    trainer = make_trainer(tmp_path, adapter, logger=[mlflow, wandb], log_every_n_steps=1)
    trainer.fit(TinyModule(), make_loader(4), make_loader(2))
    wandb.experiment.finish()
    run = run_of(client_of(work / "mlflow.db"))
    assert {"train_loss", "train/loss", "val/val_loss"} <= run.data.metrics.keys()
    rows = history(read_wandb(work)).values()
    assert {"train_loss", "train/loss", "global_step"} <= set().union(*rows)


def test_a_neptune_run_goes_to_mlflow_wandb_and_tensorboard(work: Path, tmp_path: Path) -> None:
    sent = Sent(interval=2)
    fit(work, sent, NeptuneLoggerHook(interval=2), module=Tuned(0.2))
    (run,) = work.glob(".neptune/offline/run__*")
    uri = f"sqlite:///{work}/mlflow.db"
    assert replay(str(run), "mlflow", tracking_uri=uri, experiment="moved") == 1 + len(sent.rows)
    assert points(work / "mlflow.db") == sent.rows
    assert run_of(client_of(work / "mlflow.db")).data.params == {"lr": "0.2", "data": "None"}
    replay(str(run), "tensorboard", dir=str(tmp_path / "tb"))
    assert close(read_tensorboard(tmp_path / "tb")[0], sent.rows)
    replay(str(run), "wandb", mode="offline", dir=str(work))
    assert history(read_wandb(work)) == sent.rows


def test_a_spool_goes_elsewhere_too(work: Path, tmp_path: Path) -> None:
    dead = {"uri": "http://127.0.0.1:9"}
    hook = MlflowLoggerHook(interval=2, log_model=False, timeout=0.2)
    hook._target = lambda runner: dead  # type: ignore[method-assign]
    fit(work, hook, epochs=1)
    (path,) = work.glob("spool/*.jsonl")
    replay(str(path), "tensorboard", dir=str(tmp_path / "tb"))
    assert read_tensorboard(tmp_path / "tb")[0].keys() == {2, 4, 5}
    with pytest.raises(ValueError, match=r"to must be one of .*clearml, .*, got 'comet'"):
        replay(str(path), "comet")


@pytest.mark.parametrize("hook", HOOKS)
def test_what_is_no_run_is_refused(hook: Any) -> None:
    pytest.importorskip(hook._package)
    match = f"run must be the client's run or a Lightning Logger for {hook.__name__}, got 'mine'"
    with pytest.raises(TypeError, match=match):
        hook(run="mine")


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        (lambda: ClearMLLoggerHook({"projct_name": "a"}), "init has .* mean 'project_name'"),
        (lambda: DvcliveLoggerHook(intervall=5), "Live has no argument 'intervall'; known: "),
        (lambda: VisdomLoggerHook({"prt": 1}), "Visdom has no argument 'prt'; did you mean 'port'"),
        (lambda: WandbLoggerHook({"projet": "a"}), "init has .* mean 'project'"),
    ],
)
def test_departure_an_argument_unknown_to_the_client_is_refused(hook: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"LoggerHook: {message}"):
        hook()


@pytest.mark.parametrize(
    ("client", "hook", "message"),
    [
        ("neptune", lambda: NeptuneLoggerHook(mode="asinc"), "mode must .* mean 'async'"),
        ("dvclive", lambda: DvcliveLoggerHook(report="htm"), "report must .* mean 'html'"),
    ],
)
def test_departure_a_value_unknown_to_the_client_is_refused(
    client: str, hook: Any, message: str
) -> None:
    package = pytest.importorskip(client)
    start = package.init_run if client == "neptune" else package.Live
    if "Literal" not in str(inspect.signature(start)):
        pytest.skip("this release does not name the values")
    with pytest.raises(ValueError, match=f"LoggerHook: {message}"):
        hook()


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ({"mode": "ofline"}, "mode must be .*; did you mean 'offline'"),
        ({"resume": "alow"}, "resume must be .*; did you mean 'allow'"),
    ],
)
def test_departure_a_value_unknown_to_wandb_is_refused(init: Any, message: str) -> None:
    wandb = pytest.importorskip("wandb")
    if "Literal" not in str(inspect.signature(wandb.init)):
        pytest.skip("this W&B does not say which values it takes")
    with pytest.raises(ValueError, match=f"LoggerHook: {message}"):
        WandbLoggerHook(init)


def test_a_setting_unknown_to_wandb_is_refused() -> None:
    with pytest.raises(ValueError, match="consol"):
        WandbLoggerHook({"settings": {"consol": "off"}})


class Alike(Hook):
    """Logs names that a backend maps to the same key."""

    names = "a@b", "a#b", "学习率", "批大小"

    def after_train_iter(self, runner: Any) -> None:
        runner.log_buffer.output.update({name: i + 1.0 for i, name in enumerate(self.names)})
        runner.log_buffer.ready = True


def test_names_that_are_distinct_stay_distinct(work: Path) -> None:
    left_out = DvcliveLoggerHook, TrackioLoggerHook  # below; and not everywhere installed
    trackers = [make(interval=1) for make in HOOKS if make not in left_out]
    live = DvcliveLoggerHook(interval=1, by_epoch=False)
    params = {name: i + 1 for i, name in enumerate(Alike.names)}
    fit(work, Alike(), live, *trackers, module=Tuned(0.1, params), epochs=1)
    found = {
        "mlflow": points(work / "mlflow.db"),
        "wandb": history(read_wandb(work)),
        "neptune": series(read_neptune(work)),
        "tensorboard": read_tensorboard(work / "tf_logs")[0],
        "dvclive": read_dvclive(work / "dvclive"),
        "clearml": read_clearml(work / "clearml"),
        "visdom": read_visdom_log(work / "visdom"),
    }
    for backend, rows in found.items():
        values = {value for name, value in rows[1].items() if "loss" not in name}
        assert {1.0, 2.0, 3.0, 4.0} <= values, backend
    client = client_of(work / "mlflow.db")
    assert {"1", "2", "3", "4"} <= {*run_of(client).data.params.values()}
    assert {"train/a_b", "train/学习率"} <= found["mlflow"][1].keys()


# -- the common arguments of clients are keywords of the hooks, beside ``init_kwargs`` --

KEYWORDS: dict[str, dict[str, Any]] = {
    "WandbLoggerHook": {
        **dict.fromkeys(("project", "name", "entity", "group", "notes"), "x"),
        **{"mode": "offline", "tags": ["baseline"]},
    },
    "NeptuneLoggerHook": {"project": "x", "name": "x", "mode": "offline", "tags": ["baseline"]},
    "ClearMLLoggerHook": {"project_name": "x", "task_name": "x", "tags": ["baseline"]},
    "VisdomLoggerHook": {"server": "http://localhost", "port": 8097, "env": "main"},
}


MORE = {
    "WandbLoggerHook": "job_type",
    "NeptuneLoggerHook": "description",
    "ClearMLLoggerHook": "output_uri",
    "VisdomLoggerHook": "username",
}


@pytest.mark.parametrize("name", KEYWORDS)
def test_keywords_are_arguments_of_the_client(name: str) -> None:
    pytest.importorskip(name.removesuffix("LoggerHook").lower())
    make, given = getattr(lightning_hooks, name), KEYWORDS[name]
    assert make(**given).init_kwargs == given
    more = {MORE[name]: None}
    assert make(more, **given).init_kwargs == {**more, **given}
    for key, value in given.items():
        with pytest.raises(ValueError, match=f"{key} is given twice: .* write one of them"):
            make({key: value}, **{key: value})
        with pytest.raises(TypeError, match=f"{key} must be an? "):
            make(**{key: 0.5})
        if key == "tags":
            for wrong in ("baseline", int, [1], (tag for tag in ["baseline"])):
                with pytest.raises(TypeError, match="tags must be a list of str"):
                    make(tags=wrong)


@pytest.mark.usefixtures("nothing_elsewhere")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_mlflow_takes_its_store_and_the_run_s_name(work: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    (work / "mlflow.db").rename(tmp_path / "other.db")
    hook = lightning_hooks.MlflowLoggerHook(
        tracking_uri=f"sqlite:///{tmp_path}/other.db", run_name="first", log_model=False
    )
    fit(work, hook, epochs=1)
    assert run_of(client_of(tmp_path / "other.db")).info.run_name == "first"
    assert not (work / "mlflow.db").exists()
    with pytest.raises(TypeError, match="tracking_uri must be a str or None, got 5"):
        lightning_hooks.MlflowLoggerHook(tracking_uri=5)


# -- NaN and infinities, as returned by each backend's reader --

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


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", CASES)
def test_what_the_reader_sees(work: Path, name: str) -> None:
    kind, read, wanted = CASES[name]
    if name not in ("text", "csv"):
        pytest.importorskip(name)
    fit(work, Odd(), kind(interval=1, by_epoch=False), epochs=1)
    assert repr(read(work)) == repr(wanted)  # nan is not equal to nan


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_visdom_server_has_what_the_offline_client_has(
    work: Path, tmp_path: Path, visdom_server: int
) -> None:
    server = {"server": "http://127.0.0.1", "port": visdom_server, "env": "digits"}
    fit(work, Odd(), VisdomLoggerHook(server, interval=1), epochs=1)
    assert repr(column(read_visdom_server(tmp_path / "digits.json"))) == repr(CASES["visdom"][2])


# -- trackers do not change the training's random numbers --

QUIET_HOOKS = [
    getattr(lightning_hooks, name) for name in sorted(contract.TRACKERS - {"LightningLoggerHook"})
]
SLOW = pytest.mark.slow


class Augmenting(TinyModule):
    """Draws from all three generators in each step, as augmentations do."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[tuple[float, float, float]] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.drawn.append((random.random(), float(np.random.rand()), float(torch.rand(()))))
        return self.loss(batch)


class WaitForClients(Hook):
    """Waits in the second iteration until the client has started and taken a record."""

    priority = "LOWEST"

    def __init__(self, trackers: list[Any]) -> None:
        self.trackers = trackers

    def after_train_iter(self, runner: Any) -> None:
        end = time.monotonic() + 60
        while runner.iter == 1 and time.monotonic() < end:
            states = [tracker.status() for tracker in self.trackers]
            if all(state["sent"] or state["error"] for state in states):
                return
            time.sleep(0.02)


def drawn(folder: Path, trackers: list[Any]) -> list[tuple[float, float, float]]:
    """Return the random numbers drawn by a seeded training."""
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    module = Augmenting()
    adapter = HookAdapter([*trackers, WaitForClients(trackers)], work_dir=str(folder / "work"))
    make_trainer(folder, adapter).fit(module, make_loader(6), make_loader(1))
    return module.drawn


@pytest.mark.parametrize(
    "trackers",
    [
        pytest.param([MlflowLoggerHook], id="MLflow"),
        pytest.param(QUIET_HOOKS, id="all", marks=SLOW),
    ],
)
def test_trackers_draw_none_of_the_training_s_random_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trackers: list[Any]
) -> None:
    monkeypatch.setattr("lightning_hooks.loggers.trackers.base.LINGER", 0.0)
    installed = [each for each in trackers if find_spec(each._package) is not None]
    hooks = [each(interval=1, by_epoch=each is not DvcliveLoggerHook) for each in installed]
    with_trackers = drawn(tmp_path / "all", hooks)
    assert all(hook.status()["sent"] > 6 for hook in hooks)
    assert with_trackers == drawn(tmp_path / "none", [])


def test_a_server_that_does_not_answer_draws_none_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    dead = MlflowLoggerHook(interval=1, timeout=0.0, log_model=False)
    assert drawn(tmp_path / "one", [dead]) == drawn(tmp_path / "none", [])


def test_neptune_draws_from_the_system_only_while_a_run_starts(tmp_path: Path) -> None:
    pytest.importorskip("neptune")
    from neptune.internal.operation_processors import utils

    hook = NeptuneLoggerHook(interval=1)
    assert drawn(tmp_path / "one", [hook]) == drawn(tmp_path / "none", [])
    assert hook.status()["error"] is None
    assert getattr(utils, "random", random) is random  # before 1.10, utils draws nothing
