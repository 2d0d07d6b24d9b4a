"""Lightning's callbacks receive the values of hooks: EarlyStopping, ModelCheckpoint, pruning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torchmetrics
from lightning.pytorch.callbacks import (
    Callback,
    EarlyStopping,
    ModelCheckpoint,
    TQDMProgressBar,
)

from lightning_hooks import (
    CheckpointHook,
    EvalHook,
    GradientCumulativeOptimizerHook,
    Hook,
    IterTimerHook,
    OptimizerHook,
    StepTimeHook,
    TextLoggerHook,
)
from support.foreign_hooks import OptimizerHook as OldOptimizerHook
from support.training import NoValidation, TinyModule, fit, make_loader, make_trainer

hosted = pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])
loggers = pytest.mark.parametrize("logs", [False, True], ids=["no logger", "logger"])


class Scores(Hook):
    """Sets scores as an evaluation does; the scores decrease after the second epoch."""

    _reads_step = False

    def after_train_epoch(self, runner: Any) -> None:
        runner.log_buffer.output["acc"] = (0.5, 0.8, 0.7, 0.6, 0.5)[runner.epoch]
        runner.log_buffer.ready = True


class Every(Hook):
    """Logs the number of each iteration."""

    def after_train_iter(self, runner: Any) -> None:
        runner.log_buffer.update({"number": float(runner.iter)})


class Seen(Callback):
    """Records the metrics at the events of EarlyStopping, ModelCheckpoint and Optuna's callback."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.at_val: list[Any] = []
        self.at_end: list[Any] = []

    def _read(self, trainer: Any) -> Any:
        found = trainer.callback_metrics
        return tuple(found[name].item() if name in found else None for name in self.names)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self.at_val.append(self._read(trainer))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.at_end.append(self._read(trainer))


def text(logs: bool) -> list[Any]:
    return [TextLoggerHook(interval=3)] if logs else []


@hosted
@loggers
@pytest.mark.parametrize("val", [0, 1])
def test_early_stopping_and_model_checkpoint_monitor_a_score(
    tmp_path: Path, host: bool, logs: bool, val: int
) -> None:
    stop = EarlyStopping("acc", mode="max", patience=2)
    best = ModelCheckpoint(tmp_path / "best", monitor="acc", mode="max", filename="{epoch}-{acc}")
    module = TinyModule if val else NoValidation
    options: dict[str, Any] = {"max_epochs": 5, "host": host, "val": val}
    trainer = fit(tmp_path, Scores(), *text(logs), module=module, callbacks=[stop, best], **options)
    assert trainer.current_epoch == 4, "0.8 in the second epoch, and two that are worse"
    assert best.best_model_score == torch.tensor(0.8, dtype=torch.float64)
    assert Path(best.best_model_path).name == "epoch=1-acc=0.8.ckpt"
    assert trainer.callback_metrics["acc"] == 0.6
    assert "acc" not in trainer.progress_bar_metrics


@hosted
def test_a_score_of_an_eval_hook_stops_early(tmp_path: Path, host: bool) -> None:
    class Predicts(NoValidation):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

    def pairs(model: torch.nn.Module, loader: Any) -> Any:
        return [(model(x), y) for x, y in loader]

    metric = torchmetrics.MeanSquaredError()
    hook = EvalHook(make_loader(1), test_fn=pairs, metric=metric)
    stop = EarlyStopping("MeanSquaredError", stopping_threshold=1e9)
    trainer = fit(tmp_path, hook, module=Predicts, callbacks=[stop], host=host, max_epochs=3)
    assert trainer.current_epoch == 1
    assert trainer.callback_metrics["MeanSquaredError"] > 0


class Bar(TQDMProgressBar):
    """A progress bar that records the names of all metrics shown."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def get_metrics(self, trainer: Any, pl_module: Any) -> Any:
        found = super().get_metrics(trainer, pl_module)
        self.seen |= set(found)
        return found


class Asks(Hook):
    def after_train_iter(self, runner: Any) -> None:
        runner.module.log("asked", 1.0, prog_bar=True)


@hosted
def test_a_progress_bar_shows_what_was_asked_for(tmp_path: Path, host: bool) -> None:
    bar, timer = Bar(), StepTimeHook(interval=2, log=True, table=False)
    hooks = [IterTimerHook(), timer, Scores(), TextLoggerHook(interval=1), Asks()]
    options: dict[str, Any] = {"max_epochs": 2, "host": host, "enable_progress_bar": True}
    trainer = fit(tmp_path, *hooks, val=1, callbacks=[bar], **options)
    assert {"time", "data_time", "acc", "step_time/forward"} <= trainer.callback_metrics.keys()
    assert bar.seen == {"asked"}


@hosted
@loggers
def test_the_epochs_averages_with_rates(tmp_path: Path, host: bool, logs: bool) -> None:
    seen = Seen("number", "lr", "momentum")
    hooks = [Every(), *text(logs)]
    fit(tmp_path, *hooks, val=1, host=host, callbacks=[seen], max_epochs=2)
    assert seen.at_val == seen.at_end == [(1.5, 0.1, 0.9), (5.5, 0.1, 0.9)]


@loggers
def test_by_iteration(tmp_path: Path, logs: bool) -> None:
    seen = Seen("number", "acc")
    hooks = [Every(), *text(logs)]
    fit(tmp_path, *hooks, by_epoch=False, val=1, callbacks=[seen], max_epochs=2)
    assert seen.at_val == seen.at_end == [(1.5, None), (5.5, None)]


@loggers
def test_within_an_epoch(tmp_path: Path, logs: bool) -> None:
    seen = Seen("number")
    hooks = [Every(), *text(logs)]
    fit(tmp_path, *hooks, val=1, callbacks=[seen], val_check_interval=2)
    assert (seen.at_val, seen.at_end) == ([(0.5,), (1.5,)], [(1.5,)])


def test_a_line_updates_them_within_the_epoch(tmp_path: Path) -> None:
    found = []

    class Reads(Callback):
        def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
            value = trainer.callback_metrics.get("number")
            found.append(value if value is None else value.item())

    hooks = [Every(), TextLoggerHook(interval=2)]
    fit(tmp_path, *hooks, module=NoValidation, batches=5, callbacks=[Reads()])
    assert found == [None, 0.5, 0.5, 2.5, 2.5]


@pytest.mark.parametrize(
    "hook",
    [
        OptimizerHook(grad_clip={"max_norm": 1e3}),
        GradientCumulativeOptimizerHook(2, grad_clip={"max_norm": 1e3}),
    ],
    ids=["each step", "accumulated"],
)
def test_the_norm_of_the_gradients(tmp_path: Path, hook: Any) -> None:
    seen = Seen("grad_norm", "time", "data_time")
    fit(tmp_path, hook, IterTimerHook(), module=NoValidation, host=True, callbacks=[seen])
    assert all(value > 0 for value in seen.at_end[0])


def test_values_of_an_old_hook(tmp_path: Path) -> None:
    class Old:
        """A hook with mmcv's interface and without a base class."""

        def after_train_iter(self, runner: Any) -> None:
            runner.log_buffer.update({"old": runner.iter}, 1)

    seen = Seen("old")
    hooks = [Old(), OldOptimizerHook()]
    fit(tmp_path, *hooks, module=NoValidation, host=True, callbacks=[seen])
    assert seen.at_end == [(1.5,)]


def test_the_modules_own_values_stay_its_own(tmp_path: Path) -> None:
    class Rival(Hook):
        def after_train_iter(self, runner: Any) -> None:
            runner.log_buffer.update({"train_loss": -1.0, "val_loss": -1.0})

    seen = Seen("train_loss", "val_loss")
    module = TinyModule()
    fit(tmp_path, Rival(), module=module, val=1, callbacks=[seen])
    assert seen.at_end[0][0] == pytest.approx(module.losses[-1])
    assert seen.at_end[0][1] > 0


def test_a_value_logged_before_a_resume_stays_the_modules_own(tmp_path: Path) -> None:
    forms = "own", "own_step", "own_epoch", "val_own/dataloader_idx_1"

    class InFirstEpoch(TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.current_epoch == 0:
                self.log("own", 1.0, on_step=True, on_epoch=True)
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            if self.current_epoch == 0:
                self.log("val_own", 1.0)

    class Rival(Hook):
        def after_train_iter(self, runner: Any) -> None:
            runner.log_buffer.update(dict.fromkeys((*forms, "of_the_hook"), -1.0))

    def train(**words: Any) -> Any:
        hooks = Rival(), CheckpointHook(1)
        options = {"max_epochs": 2, "enable_checkpointing": True, **words}
        path = options.pop("ckpt_path", None)
        trainer = make_trainer(tmp_path, *hooks, **options)
        loaders = make_loader(4), [make_loader(1), make_loader(1)]
        trainer.fit(InFirstEpoch(), *loaders, ckpt_path=path)
        return {name: float(trainer.callback_metrics[name]) for name in (*forms, "of_the_hook")}

    whole = train()
    assert whole == {**dict.fromkeys(forms, 1.0), "of_the_hook": -1.0}
    assert train(ckpt_path=tmp_path / "epoch_1.pth") == whole
    file = torch.load(tmp_path / "epoch_1.pth", weights_only=True)["lightning_hooks"]
    of_loaders = [f"val_own/dataloader_idx_{loader}" for loader in (0, 1)]
    assert file["logged"] == ["own", "train_loss", *of_loaders]


def test_a_whole_number_reaches_a_second_fit_of_the_trainer(tmp_path: Path) -> None:
    class Missed(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            runner.log_buffer.output["missed"] = 3  # Python has one object per small int
            runner.log_buffer.ready = True

    stop = EarlyStopping("missed", patience=9, check_on_train_epoch_end=True)
    hooks = Missed(), TextLoggerHook(interval=2)
    trainer = fit(tmp_path, *hooks, module=NoValidation, callbacks=[stop])
    trainer.fit_loop.max_epochs = 2
    trainer.fit(trainer.lightning_module, make_loader())
    assert trainer.callback_metrics["missed"] == 3
