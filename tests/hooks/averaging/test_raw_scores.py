"""``validate="both"`` and ``"raw"``: the scores of the raw weights."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torchmetrics import MeanSquaredError

from lightning_hooks import (
    BestCheckpointHook,
    CheckpointHook,
    EMAHook,
    IterTimerHook,
    MomentumAnnealingEMAHook,
    TextLoggerHook,
    TrainStepModule,
)
from lightning_hooks.engine.lightning_api.validation import SecondValidation
from support.probes import equal
from support.processes import read_ranks, run_job
from support.training import TinyModule, TinyNormModule, fit, make_loader

pytestmark = pytest.mark.filterwarnings("ignore:Your `val_dataloader`'s sampler has shuffling")


class Scores(Callback):
    """Records the logged metrics of each validation and the weights after each step."""

    def __init__(self) -> None:
        self.scores: list[dict[str, float]] = []
        self.weights: list[dict[str, Any]] = []
        self.validations = 0

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.validations += not trainer.sanity_checking

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        self._note(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        state = pl_module.state_dict().items()
        self.weights.append({key: value.clone() for key, value in state})

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._note(trainer)

    def _note(self, trainer: Any) -> None:
        metrics = {k: float(v) for k, v in trainer.callback_metrics.items() if "val" in k}
        if metrics and self.scores[-1:] != [metrics]:
            self.scores.append(metrics)


class Noisy(TinyNormModule):
    """Has dropout in training, noise in validation, and a metric of torchmetrics'."""

    def __init__(self) -> None:
        super().__init__()
        self.mse = MeanSquaredError()
        self.seen: list[float] = []
        self.ends = 0

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return super().training_step((torch.nn.functional.dropout(x), y), batch_idx)

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        x, y = batch
        x = x + torch.randn_like(x)
        self.seen.append(float(x.sum()))
        self.mse(self.net(x), y)
        self.log("val_mse", self.mse)
        self.log("val_loss", self.loss((x, y)), batch_size=len(x))

    def on_validation_epoch_end(self) -> None:
        self.ends += 1


def run(folder: Path, validate: str, seed: int = 0, **arguments: Any) -> Any:
    torch.manual_seed(seed)
    scores, module = Scores(), arguments.pop("module", Noisy)()
    ema = EMAHook(momentum=0.1, warm_up=0, validate=validate)
    options = {"max_epochs": 3, **arguments}
    loaders = [make_loader(n, seed=n, shuffle=True) for n in options.pop("val", (2,))]
    options["val"] = loaders if len(loaders) > 1 else loaders[0]
    fit(folder, ema, *options.pop("hooks", []), module=module, callbacks=[scores], **options)
    return scores, module, ema


def values(scores: list[dict[str, float]], prefix: str = "") -> list[dict[str, float]]:
    return [
        {k.removeprefix(prefix): v for k, v in one.items() if k.startswith("raw/") is bool(prefix)}
        for one in scores
    ]


WHEN: dict[str, dict[str, Any]] = {
    "each epoch": {},
    "each second epoch": {"max_epochs": 4, "check_val_every_n_epoch": 2},
    "within epochs": {"val_check_interval": 2},
    "by batches": {"val_check_interval": 3, "check_val_every_n_epoch": None},
    "several loaders": {"val": (2, 3)},
    "a part": {"num_sanity_val_steps": 0, "limit_val_batches": 1},
}


@pytest.mark.parametrize("when", WHEN)
def test_both_scores_are_those_of_a_run_of_each(tmp_path: Path, when: str) -> None:
    options = WHEN[when]
    both, module, _ = run(tmp_path, "both", **options)
    random = torch.rand(3)
    average, alone, _ = run(tmp_path, "average", **options)
    assert equal({"": random}, {"": torch.rand(3)})
    raw, _, _ = run(tmp_path, "raw", **options)
    assert values(both.scores) == average.scores
    assert values(both.scores, "raw/") == raw.scores
    assert raw.scores != average.scores
    assert both.validations == average.validations
    assert all(equal(a, b) for a, b in zip(both.weights, average.weights, strict=True))
    assert {*module.seen} == {*alone.seen}  # the data and the noise
    sanity = options.get("num_sanity_val_steps") != 0
    assert module.ends == 2 * alone.ends - sanity


def lines_of(folder: Path) -> list[dict[str, Any]]:
    text = next(folder.glob("*.log.json")).read_text().splitlines()
    return [json.loads(line) for line in text]


@pytest.mark.parametrize("host", [False, True])
def test_every_logger_has_both_scores(tmp_path: Path, host: bool) -> None:
    logger = CSVLogger(tmp_path)
    hooks = [EMAHook(momentum=0.1, warm_up=0, validate="both"), TextLoggerHook(interval=2)]
    trainer = fit(
        *(tmp_path, *hooks), val=make_loader(2, seed=1), max_epochs=2, logger=logger, host=host
    )
    raw = float(trainer.callback_metrics["raw/val_loss"])
    logged = [line for line in lines_of(tmp_path) if line.get("mode") == "val"]
    assert [{*line} - {"val_loss"} for line in logged[::2]] == [{"mode", "epoch", "iter", "lr"}] * 2
    assert [line["epoch"] for line in logged] == [1, 1, 2, 2]
    assert logged[0]["iter"] == logged[1]["iter"]
    assert logged[3]["raw/val_loss"] == pytest.approx(raw, abs=1e-5)
    assert all("val_loss" not in line for line in logged[1::2])
    logger.save()
    with open(Path(logger.log_dir) / "metrics.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["val_loss"] or row["raw/val_loss"]]
    assert float(rows[-1]["raw/val_loss"] or rows[-2]["raw/val_loss"]) == pytest.approx(raw)
    assert {row["step"] for row in rows} == {"3", "7"}


def test_no_callback_reads_the_raw_scores_of_an_earlier_validation(tmp_path: Path) -> None:
    class Reads(Callback):
        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            found.append(trainer.callback_metrics.get("raw/val_loss"))

    found: list[Any] = []
    run = {"val": 1, "max_epochs": 2, "val_check_interval": 2, "num_sanity_val_steps": 0}
    trainer = fit(tmp_path, EMAHook(validate="both"), callbacks=[Reads()], **run)
    assert found == [None] * 4
    assert trainer.callback_metrics["raw/val_loss"] > 0
    with (
        pytest.warns(UserWarning, match="Nothing is compared where it is not logged"),
        pytest.raises(KeyError, match="save_best='raw/val_loss' is no score"),
    ):
        fit(tmp_path, EMAHook(validate="both"), BestCheckpointHook("raw/val_loss"), **run)


def test_a_resumed_run_keeps_the_raw_scores_in_its_log(tmp_path: Path) -> None:
    def run(ckpt_path: Path | None = None) -> list[Any]:
        files = CheckpointHook(2, by_epoch=False), BestCheckpointHook("val_loss")
        hooks = EMAHook(validate="both"), TextLoggerHook(interval=2), *files
        options = {"val": 1, "val_check_interval": 2, "ckpt_path": ckpt_path}
        fit(tmp_path, *hooks, **options)
        return lines_of(tmp_path)

    whole = run()
    assert sum("raw/val_loss" in line for line in whole) == 2
    assert run(tmp_path / "iter_2.pth") == whole


def test_files_are_written_where_no_second_validation_is_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a Lightning release without a private name
    monkeypatch.setattr(SecondValidation, "_patch", lambda *_: None)
    files = CheckpointHook(2, by_epoch=False, save_last=False)
    fit(tmp_path, EMAHook(validate="both"), files, val=1, batches=5, val_check_interval=2)
    for step in (2, 4):
        saved = torch.load(tmp_path / f"iter_{step}.pth", weights_only=True)
        assert saved["global_step"] == step


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_log_vars_of_old_models_have_both_scores(tmp_path: Path) -> None:
    class Model(torch.nn.Linear):
        def train_step(self, data: Any, optimizer: Any) -> Any:
            loss = (self(data[0]) - data[1]).square().mean()
            return {"loss": loss, "log_vars": {"loss": loss.item()}, "num_samples": len(data[0])}

        val_step = train_step

    model = Model(4, 2)
    module = TrainStepModule(model, torch.optim.SGD(model.parameters(), lr=0.1))
    hooks = [EMAHook(momentum=0.1, warm_up=0, validate="both"), TextLoggerHook()]
    trainer = fit(tmp_path, *hooks, module=module, val=make_loader(2, seed=1), host=True)
    _, raw = [line for line in lines_of(tmp_path) if line.get("mode") == "val"]
    assert raw["raw/loss"] > 0
    assert float(trainer.callback_metrics["raw/loss"]) == pytest.approx(raw["raw/loss"], abs=1e-5)


class Rising(TinyModule):
    """A module with rising weights, whose average is worse by one score and better by another."""

    def on_after_backward(self) -> None:
        with torch.no_grad():
            self.net.weight.add_(1.0)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.net.weight.mean())
        self.log("val_gain", -self.net.weight.mean())


def test_the_first_validation_alone_decides_best_files_and_stops(tmp_path: Path) -> None:
    found = []
    for validate in ("average", "both"):
        folder = tmp_path / validate
        best, stop = BestCheckpointHook("val_loss"), EarlyStopping("val_loss", patience=2)
        lightnings = ModelCheckpoint(folder / "lightning", monitor="val_loss", filename="{epoch}")
        ema = EMAHook(momentum=0.5, warm_up=0, validate=validate)
        callbacks = [stop, lightnings]
        trainer = fit(*(folder, ema, best), module=Rising, val=1, max_epochs=9, callbacks=callbacks)
        found.append(
            (
                trainer.current_epoch,
                Path(best.best_model_path).name,
                float(best.best_model_score),
                Path(lightnings.best_model_path).name,
                float(lightnings.best_model_score),
            )
        )
    assert found[0] == found[1]


@pytest.mark.parametrize("make", [EMAHook, MomentumAnnealingEMAHook])
def test_with_raw_everything_but_the_average_is_raw(tmp_path: Path, make: Any) -> None:
    class Seen(Callback):
        def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
            self.weight = pl_module.net.weight.detach().clone()

    seen, hook = Seen(), make(momentum=0.1, validate="raw")
    files = CheckpointHook(interval=1)
    trainer = fit(tmp_path, hook, files, val=1, max_epochs=2, callbacks=[seen])
    module = trainer.lightning_module
    saved = torch.load(tmp_path / "epoch_2.pth", weights_only=True)
    assert torch.equal(seen.weight, module.net.weight)
    assert equal(saved["state_dict"], module.state_dict())
    assert not equal(hook.ema_state_dict(), module.state_dict())
    whole = make(momentum=0.1, validate="raw")
    fit(tmp_path / "whole", whole, val=1, max_epochs=3)
    resumed = make(momentum=0.1, validate="raw")
    fit(tmp_path / "on", resumed, val=1, max_epochs=3, ckpt_path=tmp_path / "epoch_2.pth")
    assert equal(resumed.ema_state_dict(), whole.ema_state_dict())


def test_of_several_the_first_that_is_not_raw_is_evaluated(tmp_path: Path) -> None:
    hooks = [EMAHook(0.1, warm_up=0, validate="raw"), EMAHook(0.2, warm_up=0, validate="both")]
    trainer = fit(tmp_path, *hooks, val=1, max_epochs=2)
    assert equal(trainer.lightning_module.state_dict(), hooks[1].ema_state_dict())
    assert not equal(hooks[0].ema_state_dict(), hooks[1].ema_state_dict())
    assert "raw/val_loss" in trainer.callback_metrics


def test_a_bad_value_is_refused() -> None:
    with pytest.raises(ValueError, match="validate must be one of average, both, raw, got 'ema'"):
        EMAHook(validate="ema")  # type: ignore[arg-type]


def test_two_ranks_have_both_scores(tmp_path: Path) -> None:
    run_job("raw_scores", tmp_path, ranks=2)
    first, second = read_ranks(tmp_path)
    assert first == second
    assert first["both"] == {**first["average"], "raw/val_loss": first["raw"]["val_loss"]}
    assert first["raw"] != first["average"]


def test_persistent_workers_go_on_as_if_there_were_one(tmp_path: Path) -> None:
    found = {}
    for validate in ("average", "both"):
        torch.manual_seed(0)
        loader = torch.utils.data.DataLoader(
            NoisyData(), batch_size=2, num_workers=1, persistent_workers=True
        )
        ema, module = EMAHook(momentum=0.1, warm_up=0, validate=validate), Keeps()
        fit(tmp_path, ema, module=module, val=loader, max_epochs=2, num_sanity_val_steps=0)
        found[validate] = module.seen
    first, second = found["average"][:2], found["average"][2:]
    assert found["both"][:2] + found["both"][4:6] == first + second


class NoisyData(torch.utils.data.Dataset[Any]):
    """A dataset that draws random samples in the worker process."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return torch.randn(4), torch.randn(2)


class Keeps(TinyModule):
    """A module that records the sum of every validation batch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        self.seen.append(float(batch[0].sum()))
        return super().validation_step(batch, batch_idx)


class Slow(TinyModule):
    """A module with a slow validation step."""

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        time.sleep(0.3)
        return super().validation_step(batch, batch_idx)


def test_the_times_of_an_iteration_are_without_the_raw_weights_validation(tmp_path: Path) -> None:
    hooks = [EMAHook(momentum=0.1, validate="both"), IterTimerHook(), TextLoggerHook(interval=1)]
    fit(tmp_path, *hooks, module=Slow, val=1, val_check_interval=2)
    [log] = tmp_path.glob("*.log.json")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    waits = [row["data_time"] for row in rows if row.get("mode") == "train"]
    assert len(waits) == 4
    assert max(waits) < 0.2


class Names(Callback):
    """Records the names of the raw weights' metrics after each validation."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.names += [name for name in trainer.callback_metrics if name.startswith("raw/")]


def test_no_validation_of_a_resumed_run_finds_raw_scores_of_one_before(tmp_path: Path) -> None:
    for epochs in (1, 3):
        hooks, names = [EMAHook(momentum=0.1, validate="both"), CheckpointHook(1)], Names()
        ckpt_path = None if epochs == 1 else tmp_path / "epoch_1.pth"
        options = {"callbacks": [names], "max_epochs": epochs, "ckpt_path": ckpt_path}
        trainer = fit(tmp_path, *hooks, val=1, **options)
        assert "raw/val_loss" in trainer.callback_metrics
        assert names.names == []
