"""Lightning's callbacks and the user's ``trainer.logger`` in the trackers of the hooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import (
    Callback,
    DeviceStatsMonitor,
    LearningRateMonitor,
    ThroughputMonitor,
)
from lightning.pytorch.loggers import CSVLogger

from lightning_hooks import (
    CheckpointHook,
    ClearMLLoggerHook,
    DvcliveLoggerHook,
    IterTimerHook,
    LightningLoggerHook,
    LoggerHook,
    MlflowLoggerHook,
    NeptuneLoggerHook,
    TensorboardLoggerHook,
    TextLoggerHook,
    VisdomLoggerHook,
    WandbLoggerHook,
    hooks_logger,
)
from support.logs.trackers import (
    REAL_CLIENTS,
    Tuned,
    client_of,
    fit,
    history,
    points,
    quiet,
    read_clearml,
    read_dvclive,
    read_neptune,
    read_tensorboard,
    read_visdom_server,
    read_wandb,
    run_of,
    series,
    warnings_in,
)
from support.processes import read_ranks, run_job
from support.training import NoValidation, TinyModule, make_loader, make_trainer

pytestmark = REAL_CLIENTS


class Calling(TinyModule):
    """A module that logs by ``self.logger`` before and after each batch, and by ``self.log``."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self.logger.log_metrics({"user/before": 10.0 + self.global_step})  # type: ignore[union-attr]

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        self.log("train_acc", 0.5)
        self.log_dict({"train/f1": 0.25})
        return loss

    def on_train_batch_end(self, *args: Any) -> None:
        self.logger.log_metrics({"user/after": 20.0 + self.global_step})  # type: ignore[union-attr]


def lines(work: Path) -> list[dict[str, Any]]:
    (path,) = work.glob("**/*.log.json")
    return [json.loads(line) for line in path.read_text().splitlines()]


def of_user(rows: dict[int, dict[str, float]]) -> dict[int, dict[str, float]]:
    """Return by step the values whose name begins with ``user/``."""
    found = {
        step: {name: value for name, value in row.items() if name.startswith("user/")}
        for step, row in rows.items()
    }
    return {step: row for step, row in found.items() if row}


WANTED = {i: {"user/before": 9.0 + i, "user/after": 20.0 + i} for i in range(1, 9)}


def test_all_eight_have_what_the_user_logs(
    work: Path, tmp_path: Path, visdom_server: int, caplog: pytest.LogCaptureFixture
) -> None:
    for package in ("clearml", "dvclive"):
        pytest.importorskip(package)
    server = {"server": "http://127.0.0.1", "port": visdom_server, "env": "digits"}
    how: dict[str, Any] = {"interval": 2, "by_epoch": False}
    trackers = [ClearMLLoggerHook, DvcliveLoggerHook, NeptuneLoggerHook, TensorboardLoggerHook]
    hooks = [make(**how) for make in (*trackers, TextLoggerHook, WandbLoggerHook)]
    hooks += [MlflowLoggerHook(**how, log_model=False), VisdomLoggerHook(server, **how)]
    options = {"logger": hooks_logger(), "log_every_n_steps": 1}
    fit(work, *hooks, module=Calling, **options)
    assert of_user(read_clearml(work / "clearml")) == WANTED
    assert of_user(read_dvclive(work / "dvclive")) == WANTED
    stored = points(work / "mlflow.db")
    assert of_user(stored) == WANTED
    assert of_user(series(read_neptune(work))) == WANTED
    assert of_user(read_tensorboard(work / "tf_logs")[0]) == WANTED
    assert of_user(read_visdom_server(tmp_path / "digits.json")) == WANTED
    assert of_user(history(read_wandb(work))) == WANTED
    in_text = [row for row in lines(work) if "user/after" in row]
    assert {row["iter"]: (row["user/before"], row["user/after"]) for row in in_text} == {
        step: tuple(row.values()) for step, row in WANTED.items()
    }
    # values of self.log appear once, from the hooks
    names = set().union(*stored.values())
    assert {"train/train_acc", "train/f1", "train/loss"} <= names
    assert not {"train_acc", "train_loss", "val_loss"} & names
    assert quiet(caplog)


def test_mlflow_has_each_point_once(work: Path) -> None:
    hook = MlflowLoggerHook(interval=2, log_model=False)
    fit(work, hook, module=Calling, logger=hooks_logger(), log_every_n_steps=1)
    client = client_of(work / "mlflow.db")
    run = run_of(client).info.run_id
    for name in ("user/after", "train/train_acc", "train/loss", "epoch"):
        steps = [point.step for point in client.get_metric_history(run, name)]
        assert len(steps) == len(set(steps)), name


@pytest.mark.filterwarnings("ignore:When using the `ThroughputMonitor`")
@pytest.mark.filterwarnings("ignore:Found .* batch size")
def test_lightnings_monitors_reach_trackers_and_text(work: Path) -> None:
    pytest.importorskip("psutil")
    monitors = [
        ThroughputMonitor(batch_size_fn=lambda batch: len(batch[0]), window_size=2),
        DeviceStatsMonitor(cpu_stats=True),
        LearningRateMonitor("step"),
    ]
    hooks = [TensorboardLoggerHook(interval=4), TextLoggerHook(interval=4)]
    options = {"logger": hooks_logger(), "log_every_n_steps": 2, "batches": 8}
    fit(work, *hooks, callbacks=monitors, epochs=1, **options)
    rows, _ = read_tensorboard(work / "tf_logs")
    text = {row["iter"]: row for row in lines(work) if "lr-SGD" in row}
    assert sorted(text) == [2, 4, 6, 8]
    cpu = "DeviceStatsMonitor.on_train_batch_{}/cpu_percent"
    for step, line in text.items():
        assert line["lr-SGD"] == pytest.approx(rows[step]["lr-SGD"]) == 0.1
        assert {cpu.format("start"), cpu.format("end")} <= line.keys() & rows[step].keys()
        assert "loss" not in line
    rate = "train/device/samples_per_sec"
    measured = [step for step, line in text.items() if rate in line]
    assert measured == [step for step, row in rows.items() if rate in row]
    assert measured[-1] == 8
    # each name has one value per validation, at the validation's step
    assert "DeviceStatsMonitor.on_validation_batch_end/cpu_percent" in rows[9]


class Overlapping(TinyModule):
    """Logs by ``self.logger`` under names of the hooks' lines."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.logger.log_metrics({"train/loss": -1.0, "learning_rate": -2.0, "loss": -3.0})  # type: ignore[union-attr]
        return super().training_step(batch, batch_idx)


def test_two_sources_of_a_key_are_both_kept(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    hooks = [TensorboardLoggerHook(interval=2), TextLoggerHook(interval=2)]
    fit(work, *hooks, module=Overlapping, epochs=1, logger=hooks_logger())
    rows, _ = read_tensorboard(work / "tf_logs")
    assert [row.get("train/loss_2") for _, row in sorted(rows.items())][:4] == [-1.0] * 4
    assert [step for step, row in rows.items() if row.get("train/loss", -1) >= 0] == [2, 4]
    assert all(row["learning_rate_2"] == -2.0 for step, row in rows.items() if step <= 4)
    assert [row["loss_2"] for row in lines(work) if "loss_2" in row] == [-3.0] * 4
    assert [text.partition(" is a name")[0] for text in warnings_in(caplog)] == [
        "'train/loss'",
        "'learning_rate'",
        "'loss'",
    ]


def test_hyper_parameters_of_both_sources(work: Path) -> None:
    class Further(Tuned):
        def on_train_batch_end(self, *args: Any) -> None:
            self.logger.log_hyperparams({"seen": 3})  # type: ignore[union-attr]

    class Data(L.LightningDataModule):
        def __init__(self, size: int = 8) -> None:
            super().__init__()
            self.save_hyperparameters()

        def train_dataloader(self) -> Any:
            return make_loader(2)

        def val_dataloader(self) -> Any:
            return make_loader(1)

    hooks = [MlflowLoggerHook(interval=2, log_model=False), WandbLoggerHook(interval=2)]
    trainer = make_trainer(work, *hooks, logger=hooks_logger())
    trainer.logger.log_hyperparams({"early": "yes", "token": "abc"})
    trainer.fit(Further(0.2), datamodule=Data())
    stored = {"early": "yes", "token": "***", "lr": "0.2", "data": "None", "size": "8", "seen": "3"}
    assert run_of(client_of(work / "mlflow.db")).data.params == stored
    config: dict[str, Any] = {}
    for record in read_wandb(work):
        config |= record.get("config", {}).get("update", {})
    assert {name: str(config.get(name)) for name in stored} == stored


def test_an_image_of_the_experiment_is_the_hooks(work: Path) -> None:
    class Drawing(TinyModule):
        def on_train_batch_end(self, *args: Any) -> None:
            self.logger.experiment.log_image("sample", torch.zeros(3, 4, 5))  # type: ignore[union-attr]

    fit(work, TensorboardLoggerHook(interval=2), module=Drawing, epochs=1, logger=hooks_logger())
    _, events = read_tensorboard(work / "tf_logs")
    assert [event.step for event in events.Images("train/sample")] == [1, 2, 3, 4]


def test_names_and_steps_of_lightning(work: Path, tmp_path: Path) -> None:
    csv = CSVLogger(tmp_path)
    hook = TensorboardLoggerHook(interval=2, names="lightning")
    options: dict[str, Any] = {"logger": [csv, hooks_logger()], "log_every_n_steps": 2}
    fit(work, hook, callbacks=[LearningRateMonitor("step")], epochs=1, **options)
    rows, _ = read_tensorboard(work / "tf_logs")
    logged = {row["step"] for row in csv.experiment.metrics} if csv.experiment.metrics else {1, 3}
    assert {step for step, row in rows.items() if "lr-SGD" in row} == logged


def test_a_run_of_epochs_in_dvclive_has_the_last_values(work: Path) -> None:
    pytest.importorskip("dvclive")
    fit(work, DvcliveLoggerHook(), module=Calling, logger=hooks_logger(), log_every_n_steps=1)
    assert of_user(read_dvclive(work / "dvclive")) == {
        1: {"user/before": 13.0, "user/after": 24.0},
        2: {"user/before": 17.0, "user/after": 28.0},
    }


def test_an_evaluation_alone_logs_them_at_its_end(work: Path) -> None:
    class Tested(TinyModule):
        def test_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            self.logger.log_metrics({"user/test": float(batch_idx)})  # type: ignore[union-attr]
            return self.loss(batch)

    hooks = [TensorboardLoggerHook(str(work / "tb")), TextLoggerHook()]
    trainer = make_trainer(work, *hooks, logger=hooks_logger())
    trainer.test(Tested(), make_loader(3), verbose=False)
    rows, _ = read_tensorboard(work / "tb")
    assert [row["user/test"] for row in rows.values()] == [2.0]
    assert [row["user/test"] for row in lines(work)] == [2.0]


def test_a_failed_run_keeps_the_last_values(work: Path) -> None:
    class Failing(Calling):
        def on_train_batch_end(self, *args: Any) -> None:
            super().on_train_batch_end(*args)
            if self.global_step == 3:
                raise RuntimeError("crash")

    hooks = [TensorboardLoggerHook(interval=2), TextLoggerHook(interval=2)]
    with pytest.raises(RuntimeError, match="crash"):
        fit(work, *hooks, module=Failing, logger=hooks_logger())
    rows, _ = read_tensorboard(work / "tf_logs")
    assert of_user(rows) == {step: WANTED[step] for step in (1, 2, 3)}
    assert [row["user/after"] for row in lines(work) if "user/after" in row] == [21, 22, 23]


def test_values_after_a_validation_have_a_line_of_their_own(work: Path) -> None:
    class Validating(Calling):
        def validation_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            self.logger.log_metrics({"user/val": float(self.global_step)})  # type: ignore[union-attr]
            return super().validation_step(batch, batch_idx)

    hooks = [TensorboardLoggerHook(interval=2), TextLoggerHook(interval=2)]
    options: dict[str, Any] = {"logger": hooks_logger(), "val_check_interval": 2}
    fit(work, *hooks, module=Validating, **options)
    rows = of_user(read_tensorboard(work / "tf_logs")[0])
    validated = {step: {"user/val": float(step)} for step in (2, 4, 6, 8)}
    assert rows == {step: {**row, **validated.get(step, {})} for step, row in WANTED.items()}
    in_text = [(row["mode"], row["user/after"]) for row in lines(work) if "user/after" in row]
    assert in_text == [("train", 20.0 + step) for step in WANTED]


class Monitored(TinyModule):
    """A module that logs by ``self.logger``, and is cut in a given event."""

    def __init__(self, cut_in: str = "") -> None:
        super().__init__()
        self.cut_in = cut_in

    def cut(self, event: str) -> None:
        if event == self.cut_in and self.trainer.fit_loop.total_batch_idx >= 5:
            raise RuntimeError("cut")

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.logger.log_metrics({"user/step": float(self.global_step)})  # type: ignore[union-attr]
        self.cut("training_step")
        return super().training_step(batch, batch_idx)

    def on_before_zero_grad(self, optimizer: Any) -> None:
        self.cut("on_before_zero_grad")

    def validation_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.logger.log_metrics({"user/val": float(self.global_step)})  # type: ignore[union-attr]
        self.cut("validation_step")
        return super().validation_step(batch, batch_idx)

    def on_train_epoch_end(self) -> None:
        self.logger.log_metrics({"user/epoch": float(self.current_epoch)})  # type: ignore[union-attr]
        self.cut("on_train_epoch_end")


@pytest.mark.parametrize(
    "event", ["training_step", "on_before_zero_grad", "validation_step", "on_train_epoch_end"]
)
@pytest.mark.parametrize("on_exception", [False, True])
def test_a_resumed_run_has_each_value_once(work: Path, event: str, on_exception: bool) -> None:
    def train(folder: Path, cut_in: str = "", ckpt: str | None = None) -> None:
        hooks = [TensorboardLoggerHook(interval=2), TextLoggerHook(interval=2)]
        saving = CheckpointHook(interval=1, by_epoch=False, on_exception=on_exception)
        options: dict[str, Any] = {"logger": hooks_logger(), "enable_checkpointing": True}
        trainer = make_trainer(folder, saving, *hooks, max_epochs=2, **options)
        trainer.fit(Monitored(cut_in), make_loader(4), make_loader(2), ckpt_path=ckpt)

    whole, resumed = work / "whole", work / "resumed"
    train(whole)
    with pytest.raises(RuntimeError, match="cut"):
        train(resumed, event)
    train(resumed, ckpt="last")

    def of_user_in_text(folder: Path) -> list[dict[str, float]]:
        rows = [{k: v for k, v in r.items() if k.startswith("user/")} for r in lines(folder)]
        return [row for row in rows if row]

    assert of_user_in_text(resumed) == of_user_in_text(whole)
    assert of_user(read_tensorboard(resumed / "tf_logs")[0]) == of_user(
        read_tensorboard(whole / "tf_logs")[0]
    )


def test_a_fit_that_fails_at_its_start_keeps_its_error_and_its_values(work: Path) -> None:
    class Failing(TinyModule):
        def on_train_start(self) -> None:
            self.logger.log_metrics({"user/start": 1.0})  # type: ignore[union-attr]
            raise RuntimeError("crash")

    hooks = [TensorboardLoggerHook(), TextLoggerHook()]
    with pytest.raises(RuntimeError, match="crash"):
        fit(work, *hooks, module=Failing, logger=hooks_logger())
    assert of_user(read_tensorboard(work / "tf_logs")[0]) == {1: {"user/start": 1.0}}
    assert [row["user/start"] for row in lines(work)] == [1.0]


def test_what_comes_after_the_run_is_named(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Late(TinyModule):
        def on_train_end(self) -> None:
            self.logger.log_metrics({"late": 1.0})  # type: ignore[union-attr]

    fit(work, TensorboardLoggerHook(), module=Late, epochs=1, logger=hooks_logger())
    (warning,) = warnings_in(caplog)
    assert warning == "hooks_logger: late came after the run's end, and is left out"


def test_what_is_no_number_and_a_step_are_named(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(TinyModule):
        def on_train_batch_end(self, *args: Any) -> None:
            self.logger.log_metrics({"word": "cat", "n": torch.tensor(2.0)}, step=77)  # type: ignore[union-attr]

    fit(work, TensorboardLoggerHook(interval=2), module=Odd, epochs=1, logger=hooks_logger())
    assert read_tensorboard(work / "tf_logs")[0][1]["n"] == 2.0
    assert warnings_in(caplog) == [
        "hooks_logger: only numbers are logged, word is none",
        "hooks_logger: the step given with n is not kept, the values have the hooks' iteration",
    ]


def test_without_a_logger_hook_a_warning(work: Path) -> None:
    trainer = make_trainer(work, logger=hooks_logger())
    with pytest.warns(UserWarning, match="hooks_logger: the Trainer has no logger hook"):
        trainer.fit(Calling(), make_loader(2), make_loader(1))


def test_lightnings_loggers_get_no_value_twice(work: Path, tmp_path: Path) -> None:
    csv = CSVLogger(tmp_path)
    options: dict[str, Any] = {"logger": [csv, hooks_logger()], "log_every_n_steps": 1}
    fit(work, LightningLoggerHook(interval=2), module=Calling, epochs=1, **options)
    (file,) = tmp_path.rglob("metrics.csv")
    head, *rows = [line.split(",") for line in file.read_text().splitlines()]
    column = head.index("user/after")
    assert sum(bool(row[column]) for row in rows) == 4


def test_a_logger_of_the_users_gets_them_too(work: Path) -> None:
    class Own(LoggerHook):
        def __init__(self) -> None:
            super().__init__(interval=2)
            self.seen: list[tuple[int, dict[str, float]]] = []

        def log(self, runner: Any) -> None:
            self.seen.append((self.get_iter(runner), self.get_loggable_tags(runner)))

    own = Own()
    fit(work, IterTimerHook(), own, module=Calling, epochs=1, logger=hooks_logger())
    given = [(step, tags) for step, tags in own.seen if "user/after" in tags]
    assert given == [(i, WANTED[i]) for i in range(1, 5)]


def test_a_checkpoint_of_lightnings_stands_where_it_stood(work: Path) -> None:
    saving = L.pytorch.callbacks.ModelCheckpoint()
    options: dict[str, Any] = {"logger": hooks_logger(), "enable_checkpointing": True}
    trainer = make_trainer(work, TextLoggerHook(), saving, **options)
    trainer.fit(NoValidation(), make_loader(2))
    assert Path(saving.best_model_path).parent == work / "checkpoints"


def test_callbacks_see_no_score_of_the_logger(work: Path) -> None:
    class Scores(Callback):
        def __init__(self) -> None:
            self.names: set[str] = set()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self.names = {*trainer.callback_metrics}

    scores = Scores()
    fit(work, TextLoggerHook(), callbacks=[scores], module=Calling, logger=hooks_logger())
    assert "train_acc" in scores.names
    assert not [name for name in scores.names if name.startswith("user/")]


def test_two_ranks_log_the_values_of_rank_0(tmp_path: Path) -> None:
    """Lightning's monitors log on rank 0 alone, which must not deadlock."""
    pytest.importorskip("tensorboard")
    run_job("hooks_logger", tmp_path)
    assert read_ranks(tmp_path) == [{"steps": 4}] * 2
    rows = [row for row in lines(tmp_path) if "user/rank" in row]
    assert [row["user/rank"] for row in rows] == [0.0] * 4
    assert of_user(read_tensorboard(tmp_path / "tf_logs")[0]) == {
        step: {"user/rank": 0.0} for step in range(1, 5)
    }
    assert any("lr-SGD" in row for row in lines(tmp_path))
