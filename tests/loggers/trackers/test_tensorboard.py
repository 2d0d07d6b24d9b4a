"""TensorBoard with the real client: the tests read the logged values back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger

from lightning_hooks import BestCheckpointHook, CheckpointHook, HookAdapter, TensorboardLoggerHook
from support.logs.trackers import (
    REAL_CLIENTS,
    Pictures,
    Sent,
    Tuned,
    close,
    fit,
    in_hparams,
    quiet,
    read_tensorboard,
    replay_as_told,
    warnings_in,
)
from support.training import TinyModule, make_loader, make_trainer

pytestmark = REAL_CLIENTS


def test_tensorboard_is_read_back(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    sent = Sent(interval=2)
    module = Tuned(0.2, {"size": 8, "kind": dict})  # a class, which has the items of its instances
    fit(work, sent, TensorboardLoggerHook(interval=2), Pictures(), module=module)
    rows, events = read_tensorboard(work / "tf_logs")
    sent.rows = {
        s: {k: v for k, v in row.items() if sent.is_scalar(v)} for s, row in sent.rows.items()
    }
    assert close(rows, sent.rows)
    image = events.Images("val/sample")[0]
    assert (image.width, image.height, image.step) == (4, 4, 5)
    assert "val/best/text_summary" in events.Tags()["tensors"]
    found, _ = in_hparams(events)
    assert found["lr"].number_value == 0.2
    assert found["data/size"].number_value == 8
    assert found["data/kind"].string_value == "<class 'dict'>"
    assert quiet(caplog)


def test_departure_tensorboards_log_dir_is_that_of_each_run(work: Path, tmp_path: Path) -> None:
    hook = TensorboardLoggerHook(interval=2)
    for folder in ("a", "b"):
        fit(tmp_path / folder, hook, epochs=1)
        assert len(list((tmp_path / folder / "tf_logs").iterdir())) == 1
    assert hook.log_dir is None
    elsewhere = TensorboardLoggerHook(str(tmp_path / "else"), interval=2)
    fit(work, elsewhere, epochs=1)
    assert read_tensorboard(tmp_path / "else")[0].keys() == {2, 4, 5}


def test_tensorboard_shares_the_run_of_lightnings_logger(work: Path, tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, name="", version="tb")
    adapter = HookAdapter([TensorboardLoggerHook(interval=2, run=logger)], work_dir=str(work))
    trainer = make_trainer(tmp_path, adapter, logger=logger, log_every_n_steps=1)
    trainer.fit(TinyModule(), make_loader(4), make_loader(2))
    rows, _ = read_tensorboard(tmp_path / "tb")
    assert {"train_loss", "train/loss", "val/val_loss"} <= set().union(*rows.values())
    assert not (work / "tf_logs").exists()


def test_a_folder_that_is_removed_costs_a_warning(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (work / "tf_logs").write_text("no folder")
    module = fit(work, TensorboardLoggerHook(interval=1, timeout=0.5), epochs=1)
    assert len(module.losses) == 4
    assert not quiet(caplog)
    (path,) = work.glob("spool/*.jsonl")
    (work / "tf_logs").unlink()
    replay_as_told(caplog)
    assert read_tensorboard(work / "tf_logs")[0].keys() == {1, 2, 3, 4, 5}
    assert not path.exists()


def test_departure_tensorboardx_is_not_used(work: Path) -> None:
    hook = TensorboardLoggerHook(interval=2)
    fit(work, hook, epochs=1)
    assert type(hook.writer).__module__.startswith("torch.utils.tensorboard")


def test_tensorboard_uses_a_writer_that_is_given(work: Path, tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "mine")) as writer:
        fit(work, TensorboardLoggerHook(interval=2, run=writer), epochs=1)
        writer.add_scalar("mine", 1.0, 5)
    rows, _ = read_tensorboard(tmp_path / "mine")
    assert rows[5].keys() >= {"mine", "val/val_loss"}
    assert not (work / "tf_logs").exists()


@pytest.mark.parametrize("lightnings", [False, True])
def test_hparams_has_metrics(work: Path, lightnings: bool) -> None:
    keeper: Any = BestCheckpointHook("val_loss", rule="less")
    if lightnings:
        keeper = ModelCheckpoint(work / "kept", monitor="val_loss")
    first = TensorboardLoggerHook(str(work / "first"), interval=2)  # closes the runs of both
    hook = TensorboardLoggerHook(str(work / "tb"), interval=2)
    trainer = make_trainer(work, keeper, first, hook, max_epochs=3, enable_checkpointing=True)
    trainer.fit(Tuned(0.2), make_loader(4), make_loader(2))
    rows, events = read_tensorboard(work / "tb")
    _, metrics = in_hparams(events)
    assert metrics == ["hp_metric", "val/val_loss"]
    losses = [row["val/val_loss"] for row in rows.values() if "val/val_loss" in row]
    found = [row["hp_metric"] for row in rows.values() if "hp_metric" in row]
    assert found == [min(losses)]


class Drawn(TinyModule):
    """A module with an example input array and dropout."""

    example_input_array = torch.zeros(2, 4)

    def make_net(self) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Dropout())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace")  # torch's own writer traces
def test_the_graph_is_drawn_on_request_and_changes_nothing(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    losses = []
    for graph in (False, True):
        torch.manual_seed(0)
        hook = TensorboardLoggerHook(str(work / f"tb{graph}"), interval=2, graph=graph)
        losses.append(fit(work, hook, module=Drawn, epochs=1).losses)
        rows, events = read_tensorboard(work / f"tb{graph}")
        assert events.Tags()["graph"] is graph
        assert rows.keys() == {2, 4, 5}
    assert "Dropout" in str(events.Graph())
    assert losses[0] == losses[1]
    assert quiet(caplog)
    fit(work, TensorboardLoggerHook(interval=2, graph=True), epochs=1)
    (said,) = warnings_in(caplog)
    assert said == (
        "TensorboardLoggerHook: graph=True draws nothing "
        "(TypeError: module.example_input_array is None)"
    )


def test_a_further_fit_of_a_trainer_draws_over_no_other_run(work: Path) -> None:
    fit(work, TensorboardLoggerHook(interval=1))
    module = fit(work, TensorboardLoggerHook(interval=1), epochs=1)
    module.trainer.fit_loop.max_epochs = 2
    module.trainer.fit(module, make_loader(4), make_loader(1))
    folders = {path.parent for path in (work / "tf_logs").rglob("events.out.*")}
    steps = sorted([*read_tensorboard(folder)[0]] for folder in folders)
    assert steps == [[*range(1, 6)], [*range(1, 10)], [*range(5, 10)]]


def test_departure_a_second_run_has_a_folder_of_its_own(
    work: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saving = CheckpointHook(interval=1)
    for epochs in (2, 1):
        fit(work, saving, TensorboardLoggerHook(interval=1), epochs=epochs)
    last = str(work / "epoch_1.pth")  # of the second run
    fit(work, CheckpointHook(), TensorboardLoggerHook(interval=1), epochs=3, ckpt_path=last)
    folders = {path.parent for path in (work / "tf_logs").rglob("events.out.*")}
    steps = sorted(len(read_tensorboard(folder)[0]) for folder in folders)
    assert steps == [9, 13]
    assert "events of another run" not in caplog.text
    for _ in range(2):
        fit(work, TensorboardLoggerHook(str(tmp_path / "mine"), interval=1), epochs=1)
    assert "has events of another run" in caplog.text
    assert len([*(tmp_path / "mine").iterdir()]) == 2


def test_an_error_in_an_epochs_end_costs_no_validation(work: Path) -> None:
    class Failing(TinyModule):
        fails = True

        def on_train_epoch_end(self) -> None:
            if self.fails:
                raise RuntimeError("crash")

    def train(module: TinyModule, ckpt: str | None = None) -> None:
        hooks = CheckpointHook(interval=1, by_epoch=False), TensorboardLoggerHook(interval=2)
        trainer = make_trainer(work, *hooks, max_epochs=2, enable_checkpointing=True)
        trainer.fit(module, make_loader(4), make_loader(1), ckpt_path=ckpt)

    with pytest.raises(RuntimeError, match="crash"):
        train(Failing())
    Failing.fails = False
    train(Failing(), "last")
    rows, _ = read_tensorboard(work / "tf_logs")
    assert [step for step, row in rows.items() if "val/val_loss" in row] == [5, 9]
