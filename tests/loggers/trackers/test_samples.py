"""Images, tables and histograms, read back from each backend with support for a kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_hooks import (
    ClearMLLoggerHook,
    EMAHook,
    Hook,
    HookAdapter,
    MlflowLoggerHook,
    TensorboardLoggerHook,
    TextLoggerHook,
    VisdomLoggerHook,
    WandbLoggerHook,
    WatchHook,
    log_image,
    log_table,
)
from lightning_hooks.loggers.delivery.record import Record, from_line, to_line
from lightning_hooks.loggers.delivery.spool import StoredSpool
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.replay import replay
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.utils.samples import Histogram, Table
from support.logs.trackers import (
    REAL_CLIENTS,
    client_of,
    fit,
    history,
    read_clearml,
    read_tensorboard,
    read_wandb,
    run_of,
    warnings_in,
)
from support.training import TinyModule, TinyNormModule, make_loader, make_trainer

pytestmark = REAL_CLIENTS

IMAGE = torch.linspace(0, 1, 60).reshape(3, 4, 5)
WORST = {"id": [1, 2], "loss": torch.tensor([0.5, float("nan")]), "label": ["a|b", "<dog>"]}
ROWS = [[1, 0.5, "a|b"], [2, None, "<dog>"]]


class Sampling(TinyModule):
    """Logs an image and a table in validations and tests."""

    def validation_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if batch_idx == 0:
            log_image(self, "sample", IMAGE)
            log_table(self, "worst", WORST)
        return super().validation_step(batch, batch_idx)

    def test_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.validation_step(batch, batch_idx)


class Drawing(Hook):
    """Logs an image in training, as a hook does."""

    def after_train_iter(self, runner: Any) -> None:
        if runner.inner_iter == 0:
            runner.log_image("batch", np.full((4, 5), 255, np.uint8))


def tables_in(events: Any, tag: str) -> list[tuple[int, str]]:
    found = events.Tensors(f"{tag}/text_summary")
    return [(e.step, e.tensor_proto.string_val[0].decode()) for e in found]


@pytest.mark.parametrize("adapted", [False, True], ids=["bare", "adapter"])
@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iterations"])
def test_tensorboard_holds_all_of_them(tmp_path: Path, adapted: bool, by_epoch: bool) -> None:
    hooks = [Drawing(), WatchHook(3), TensorboardLoggerHook(interval=2, by_epoch=by_epoch)]
    callbacks = [HookAdapter(hooks, by_epoch=by_epoch)] if adapted or not by_epoch else hooks
    trainer = make_trainer(tmp_path, *callbacks, max_epochs=2)
    trainer.fit(Sampling(), make_loader(), make_loader(2))
    (folder,) = tmp_path.glob("**/tf_logs")
    rows, events = read_tensorboard(folder)
    validations = [step for step in rows if "val/val_loss" in rows[step]]
    assert validations == ([5, 9] if by_epoch else [4, 8])
    assert [event.step for event in events.Images("val/sample")] == validations
    shown = "| id | loss | label |\n| --- | --- | --- |\n| 1 | 0.5 | a\\|b |\n| 2 |  | <dog> |"
    assert tables_in(events, "val/worst") == [(step, shown) for step in validations]
    drawn = events.Images("train/batch")
    assert [(e.step, e.width, e.height) for e in drawn] == [(1, 5, 4), (5, 5, 4)]
    assert set(events.Tags()["histograms"]) == {
        f"{kind}/net.{part}" for kind in ("gradients", "parameters") for part in ("weight", "bias")
    }


@pytest.mark.parametrize("adapted", [False, True], ids=["bare", "adapter"])
@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iterations"])
def test_a_step_that_a_hook_runs_logs_none(tmp_path: Path, adapted: bool, by_epoch: bool) -> None:
    class Normed(TinyNormModule):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            log_image(self, "sample", IMAGE)
            log_table(self, "worst", WORST)
            return super().training_step(batch, batch_idx)

    hooks = [EMAHook(precise_bn=True), TensorboardLoggerHook(by_epoch=by_epoch)]
    callbacks = [HookAdapter(hooks, by_epoch=by_epoch)] if adapted or not by_epoch else hooks
    make_trainer(tmp_path, *callbacks).fit(Normed(), make_loader(3), make_loader(1))
    (folder,) = tmp_path.glob("**/tf_logs")
    _, events = read_tensorboard(folder)
    assert events.Tags()["images"] == ["train/sample"]
    assert [event.step for event in events.Images("train/sample")] == [1, 2, 3]
    assert [step for step, _ in tables_in(events, "train/worst")] == [1, 2, 3]


def test_the_raw_weights_validation_logs_none(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    hooks = [EMAHook(validate="both"), TensorboardLoggerHook(str(tmp_path / "tb"), interval=2)]
    make_trainer(tmp_path, *hooks).fit(Sampling(), make_loader(), make_loader(2))
    _, events = read_tensorboard(tmp_path / "tb")
    assert [event.step for event in events.Images("val/sample")] == [5]
    assert {*events.Tags()["scalars"]} >= {"val/val_loss", "raw/val_loss"}
    assert [str(each.message) for each in recwarn if "log_image" in str(each.message)] == []


def test_wandb_holds_all_of_them(work: Path) -> None:
    fit(work, WatchHook(100), WandbLoggerHook(interval=2), module=Sampling, epochs=1)
    rows = history(read_wandb(work))
    (folder,) = work.glob("wandb/offline-run-*/files")
    assert (rows[5]["val/sample.width"], rows[5]["val/sample.height"]) == (5, 4)
    assert (folder / str(rows[5]["val/sample.path"])).is_file()
    table = json.loads((folder / str(rows[5]["val/worst.path"])).read_text())
    assert table == {"columns": ["id", "loss", "label"], "data": ROWS, **table}
    assert sum(rows[1]["gradients/net.weight.values"]) == 8  # type: ignore[arg-type]
    assert rows[5]["val/val_loss"] > 0


@pytest.mark.slow
def test_clearml_holds_all_of_them(work: Path) -> None:
    pytest.importorskip("clearml")
    fit(work, WatchHook(100), ClearMLLoggerHook(interval=2), module=Sampling, epochs=1)
    assert read_clearml(work / "clearml")
    events = [
        event
        for path in (work / "clearml").glob("offline/*/metrics.jsonl")
        for line in path.read_text().splitlines()
        for event in json.loads(line)
    ]
    plots = {(e["iter"], e["metric"]): json.loads(e["plot_str"]) for e in events if "plot_str" in e}
    cells = plots[5, "val/worst"]["data"][0]["cells"]["values"]
    assert [*map(list, zip(*cells, strict=True))] == ROWS
    assert sum(plots[1, "parameters/net.bias"]["data"][0]["y"]) == 2
    (image,) = [e for e in events if e["type"] == "training_debug_image"]
    assert (image["iter"], image["metric"]) == (5, "val/sample")


def test_mlflow_holds_images_and_tables(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook = MlflowLoggerHook(interval=2, log_model=False)
    fit(work, WatchHook(100), hook, module=Sampling, epochs=1)
    client = client_of(work / "mlflow.db")
    run = run_of(client).info.run_id
    images = [each.path for each in client.list_artifacts(run, "images")]
    # in full and as a preview, in the form of MLflow's page
    assert sorted(path[-4:] for path in images) == [".png", "webp"]
    names = "images/val~sample+step+5+timestamp+", "images/val#sample%step%5%timestamp%"  # MLflow 2
    assert all(path.startswith(names) for path in images)
    stored = json.loads(Path(client.download_artifacts(run, "tables/val/worst/5.json")).read_text())
    assert stored == {"columns": ["id", "loss", "label"], "data": ROWS}
    (warning,) = warnings_in(caplog)
    assert warning.startswith("no logger of this run holds histograms: they are not logged; W&B, ")


def test_visdom_draws_images_and_tables(work: Path) -> None:
    pytest.importorskip("visdom")
    fit(work, VisdomLoggerHook(interval=2), module=Sampling, epochs=1)
    (log,) = (work / "visdom").glob("*.log")
    windows = {
        message["win"]: message["data"][0]
        for _, message in map(json.loads, log.read_text().splitlines())
        if "data" in message
    }
    assert windows["val/sample"]["type"] == "image"
    assert windows["val/worst"]["content"].endswith("<tr><td>2<td><td>&lt;dog&gt;")


class UnreachableWriter(Writer):
    """An unreachable backend with support for images, tables and histograms."""

    name = "unreachable"
    takes = ("images", "tables", "histograms")

    @classmethod
    def connect(cls, *, run: Any = None) -> Writer:
        raise ConnectionError("nobody there")


class Unreachable(TrackerHook):
    """A tracker with an ``UnreachableWriter``."""

    _writer_class = UnreachableWriter

    def _require_client(self) -> None:
        """Need no client."""

    def _target(self, runner: Any) -> dict[str, Any]:
        return {}


class Numbers(Unreachable):
    """A tracker whose backend supports only numbers."""

    _writer_class = type("NumbersWriter", (UnreachableWriter,), {"name": "numbers", "takes": ()})


def spool_of(work: Path) -> str:
    (path,) = work.glob("spool/*unreachable.jsonl")
    return str(path)


def test_a_spool_holds_plain_numbers_and_is_replayed(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fit(work, WatchHook(100), Unreachable(timeout=0), module=Sampling, epochs=1)
    records = StoredSpool(spool_of(work))
    counts = [
        r.histograms["gradients/net.bias"] for r in records if "gradients/net.bias" in r.histograms
    ]
    assert [sum(histogram.counts) for histogram in counts] == [2]
    text = Path(spool_of(work)).read_text()
    assert '"rows": [[1, 0.5, "a|b"], [2, null, "<dog>"]]' in text
    replay(spool_of(work), to="tensorboard", dir=str(work / "replayed"))
    _, events = read_tensorboard(work / "replayed")
    (event,) = events.Histograms("gradients/net.bias")
    assert event.histogram_value.bucket == pytest.approx(counts[0].counts)
    assert event.histogram_value.min == pytest.approx(counts[0].low)
    assert [e.step for e in events.Images("val/sample")] == [5]
    assert [step for step, _ in tables_in(events, "val/worst")] == [5]
    caplog.clear()
    replay(spool_of(work), to="dvclive", dir=str(work / "live"))
    assert warnings_in(caplog) == [
        "dvclive cannot hold histograms: they are left out",
        "dvclive cannot hold tables: they are left out",
    ]
    assert [*work.glob("live/plots/images/val/sample/*.png")]


@pytest.mark.parametrize(
    "fields",
    [
        {"tables": {"x": {"columns": ["a"], "rows": [[1, 2]]}}},
        {"tables": {"x": {"columns": ["a"], "rows": [[{"a": 1}]]}}},
        {"tables": {"x": {"columns": [1], "rows": []}}},
        {"tables": {"x": {"columns": ["a"], "rows": 3}}},
        {"histograms": {"x": {"low": 1, "high": 0, "counts": [1], "left_out": 0}}},
        {"histograms": {"x": {"low": 0, "high": "inf", "counts": [1], "left_out": 0}}},
        {"histograms": {"x": {"low": -1e308, "high": 1e308, "counts": [1], "left_out": 0}}},
        {"histograms": {"x": {"low": 0, "high": 1, "counts": [-1], "left_out": 0}}},
        {"histograms": {"x": {"low": 0, "high": 1, "counts": [1] * 5000, "left_out": 0}}},
        {"histograms": {"x": {"low": 0, "high": 1, "counts": [1], "code": "print()"}}},
    ],
)
def test_a_strangers_line_holds_a_sample_or_nothing(fields: dict[str, Any]) -> None:
    line = json.dumps({"seq": 0, "time": 1.0, "step": 1, **fields})
    with pytest.raises(ValueError, match="a line must hold a record"):
        from_line(line.encode())


def test_a_sample_comes_back_from_its_line() -> None:
    tables = {"worst": Table(("id", "label"), ((1, "cat"), (2, None)))}
    histograms = {"weights": Histogram(0.0, 1.0, (1, 2), left_out=3)}
    record = Record(0, 1.0, 2, tables=tables, histograms=histograms)
    assert from_line(to_line(record)) == record


def test_who_cannot_hold_a_kind_is_named_once(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    hooks = Numbers(timeout=0), Unreachable(timeout=0), TextLoggerHook()
    fit(work, *hooks, module=Sampling, epochs=2)
    found = [text for text in warnings_in(caplog) if "hold" in text]
    assert found == [
        "Numbers cannot hold images: the other trackers have them",
        "Numbers cannot hold tables: the other trackers have them",
    ]


@pytest.mark.parametrize("fitted", [False, True])
def test_an_evaluation_alone_logs_its_samples(tmp_path: Path, fitted: bool) -> None:
    trainer = make_trainer(tmp_path, TensorboardLoggerHook(str(tmp_path / "tb"), interval=2))
    module = Sampling()
    if fitted:
        trainer.fit(module, make_loader(), make_loader(2))
    trainer.test(module, make_loader(2), verbose=False)
    trainer.validate(module, make_loader(2), verbose=False)
    _, events = read_tensorboard(tmp_path / "tb")
    assert set(events.Tags()["images"]) == {"test/sample", "val/sample"}
    assert len(tables_in(events, "test/worst")) == 1
    assert len(tables_in(events, "val/worst")) == 1 + fitted


def test_the_sanity_check_and_a_prediction_log_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Predicting(Sampling):
        def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            log_image(self, "sample", IMAGE)
            return self.loss(batch)

    hook = TensorboardLoggerHook(str(tmp_path / "tb"), interval=2)
    trainer = make_trainer(tmp_path, hook, num_sanity_val_steps=2)
    trainer.fit(Predicting(), make_loader(), make_loader(2))
    trainer.predict(Predicting(), make_loader(2))
    _, events = read_tensorboard(tmp_path / "tb")
    assert [event.step for event in events.Images("val/sample")] == [5]
    assert warnings_in(caplog) == [
        "log_image and log_table log in fit, validate and test, not in predict"
    ]


def test_a_step_without_a_trainer_of_ours_warns(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="log_image: Sampling is attached to no Trainer of this"):
        log_image(Sampling(), "sample", IMAGE)
    with pytest.warns(UserWarning, match=r"write Trainer\(callbacks=\[WandbLoggerHook\(\)\]\)"):
        make_trainer(tmp_path).fit(Sampling(), make_loader(1), make_loader(1))
    with pytest.raises(TypeError, match=r"log_table\(self, name, ...\) begins with the Lightning"):
        log_table("worst", {}, {})  # type: ignore[arg-type]


def refusal_of(tmp_path: Path, log: Any, value: Any) -> str:
    """Return the error message of a step that logs a bad value."""

    class Wrong(TinyModule):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            log(self, "x", value)

    trainer = make_trainer(tmp_path, Numbers(timeout=0))
    with pytest.raises((TypeError, ValueError)) as caught:
        trainer.fit(Wrong(), make_loader(1), make_loader(1))
    return str(caught.value)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (torch.zeros(8, 5, 3), "got shape (8, 5, 3); write image.permute(2, 0, 1)"),
        (torch.zeros(2, 3, 4, 5), "write images[0], or log each under a name of its own"),
        ("cat.png", "the image 'x' must be a tensor or array [C, H, W] with 1, 3 or 4 channels"),
    ],
)
def test_what_is_no_image_is_refused_with_what_to_write(
    tmp_path: Path, image: Any, message: str
) -> None:
    assert message in refusal_of(tmp_path, log_image, image)


@pytest.mark.parametrize("table", [3, "cat", [1, 2], {"id": 3}])
def test_what_is_no_table_is_refused_with_what_to_write(tmp_path: Path, table: Any) -> None:
    message = refusal_of(tmp_path, log_table, table)
    assert message.startswith("the table 'x' must be a dict of columns, such as {'id': [1, 2]}")
    message = refusal_of(tmp_path, log_table, {"id": [1], "loss": [0.1, 0.2]})
    assert message.startswith("the columns of table 'x' must have one length, got {'id': 1")


@pytest.mark.parametrize("names", ["mmcv", "lightning"])
def test_samples_outside_of_the_epochs(
    names: Any, work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Early(TinyModule):
        def on_fit_start(self) -> None:
            log_image(self, "setup", IMAGE)

        def on_train_start(self) -> None:
            log_image(self, "first", IMAGE)

        def on_train_epoch_end(self) -> None:  # after the validation
            log_image(self, "last", IMAGE)

        def on_fit_end(self) -> None:
            log_image(self, "result", IMAGE)

    fit(work, TensorboardLoggerHook(interval=1, names=names), module=Early(), epochs=1)
    events = read_tensorboard(work / "tf_logs")[1]
    prefix = "train/" if names == "mmcv" else ""
    assert events.Tags()["images"] == [f"{prefix}first", f"{prefix}last"]
    assert [image.step for image in events.Images(f"{prefix}first")] == [0]
    told = [text for text in warnings_in(caplog) if "is not logged: a fit's samples" in text]
    assert [text.split()[1].rpartition("/")[2] for text in told] == ["setup", "result"]
