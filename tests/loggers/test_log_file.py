"""The text log of a resumed run: the same files, truncated to the checkpoint."""

from __future__ import annotations

import logging
import time
import zlib
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks import CheckpointHook, HookAdapter, IterTimerHook, TextLoggerHook
from lightning_hooks.loggers.run_files import LogFile, append
from support.logs.text import read_logs
from support.training import NoValidation, TinyModule, fit, make_loader, make_trainer

STAMP = "20300101_000000"


def run(work: Path | str, epochs: int = 3, ckpt: Any = None, **settings: Any) -> None:
    """Train with epochs of 4 batches, optionally from a checkpoint."""
    hooks = [CheckpointHook(interval=1), IterTimerHook(), TextLoggerHook(interval=2)]
    adapter = HookAdapter(hooks, **{"work_dir": str(work), "meta": {"seed": 7}, **settings})
    trainer = make_trainer("unused", adapter, max_epochs=epochs)
    torch.manual_seed(0)
    trainer.fit(TinyModule(), make_loader(4), make_loader(1), ckpt_path=ckpt)


def names(work: Path) -> list[str]:
    return sorted(path.name for path in work.glob("2*.log*"))


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """The work dir of an uninterrupted run."""
    run(tmp_path, attributes={"timestamp": STAMP})
    return tmp_path


def test_departure_a_resumed_run_goes_on_in_the_same_files_cut_back(whole: Path) -> None:
    wanted = read_logs(whole)
    assert [row.get("mode", "meta") for row in wanted[0]] == [
        "meta",
        *["train", "train", "val"] * 3,
    ]
    assert [" INFO - Epoch" in line for line in wanted[1]] == [True] * 9
    run(whole, ckpt=whole / "epoch_1.pth")
    assert names(whole) == [f"{STAMP}.log", f"{STAMP}.log.json"]
    assert read_logs(whole) == wanted
    run(whole, ckpt=whole / "epoch_2.pth")  # a resumed run can be resumed again
    assert read_logs(whole) == wanted


def test_a_resumed_run_goes_on_in_the_file_of_two_hooks(tmp_path: Path) -> None:
    for ckpt in (None, tmp_path / "epoch_1.pth"):
        logs = [TextLoggerHook(interval=n, ignore_last=False) for n in (2, 3)]
        trainer = make_trainer(
            tmp_path, *logs, CheckpointHook(1), max_epochs=2, enable_checkpointing=True
        )
        trainer.fit(NoValidation(), make_loader(5), ckpt_path=ckpt)
        rows = [(row["epoch"], row["iter"]) for row in read_logs(tmp_path)[0]]
        assert rows == [(epoch, i) for epoch in (1, 2) for i in (2, 3, 4, 5, 5)]


class Stops(Callback):
    """Stops the run at the given event of the first validation."""

    def __init__(self, event: str) -> None:
        setattr(self, event, self.stop)

    def stop(self, trainer: Any, *_: Any) -> None:
        if not trainer.sanity_checking:
            raise InterruptedError


@pytest.mark.parametrize("event", ["on_validation_start", "on_validation_end"])
@pytest.mark.parametrize("by_epoch", [True, False])
def test_a_repeated_validation_has_one_line(tmp_path: Path, event: str, by_epoch: bool) -> None:
    def train(folder: str, *callbacks: Any, **words: Any) -> list[Any]:
        hooks = CheckpointHook(2, by_epoch), TextLoggerHook(interval=3, by_epoch=by_epoch)
        options = {"by_epoch": by_epoch, "val": 1, "val_check_interval": 2, **words}
        length = {"max_epochs": 2} if by_epoch else {"max_steps": 8}
        callbacks = (*callbacks, CheckpointHook(interval=-1, on_exception=True))
        fit(tmp_path / folder, *hooks, callbacks=callbacks, **options, **length)
        return read_logs(tmp_path / folder)[0]

    whole = train("a")
    with pytest.raises(InterruptedError):
        train("b", Stops(event))
    assert train("b", ckpt_path="last") == whole


class StepsRates(TinyModule):
    """Has another rate after each batch."""

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


def test_a_repeated_validation_has_the_rate_of_the_last_step(tmp_path: Path) -> None:
    def train(folder: str, *callbacks: Any, **words: Any) -> list[Any]:
        hooks = CheckpointHook(1, by_epoch=False), TextLoggerHook(), *callbacks
        fit(tmp_path / folder, *hooks, module=StepsRates, val=1, **words)
        return read_logs(tmp_path / folder)[0]

    whole = train("a")
    assert whole[-1]["mode"] == "val"
    assert whole[-1]["lr"] == 0.1 * 0.5**3
    with pytest.raises(InterruptedError):
        train("b", Stops("on_validation_start"))
    assert train("b", ckpt_path="last") == whole


def test_nothing_is_cut_off_where_nothing_was_lost(whole: Path) -> None:
    before = (whole / f"{STAMP}.log.json").read_bytes()
    run(whole, epochs=4, ckpt=whole / "epoch_3.pth")
    after = (whole / f"{STAMP}.log.json").read_bytes()
    assert after.startswith(before)
    assert len(read_logs(whole)[0]) == 1 + 4 * 3


def test_departure_a_timestamp_that_is_given_names_new_files(whole: Path) -> None:
    before = (whole / f"{STAMP}.log.json").read_bytes()
    run(whole, ckpt=whole / "epoch_1.pth", attributes={"timestamp": "20300101_000001"})
    assert len(names(whole)) == 4
    assert (whole / f"{STAMP}.log.json").read_bytes() == before
    assert (whole / "20300101_000001.log.json").read_text().startswith('{"')  # the meta


def test_a_file_that_was_changed_is_not_cut_back(
    whole: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("lightning_hooks"), "propagate", True)
    (whole / f"{STAMP}.log.json").write_text("mine\n")
    run(whole, ckpt=whole / "epoch_1.pth")
    lines = (whole / f"{STAMP}.log.json").read_text().splitlines()
    assert lines[0] == "mine"
    assert len(lines) == 1 + 2 * 3
    (told,) = [m for m in caplog.messages if "is not cut back" in m]
    assert f"{STAMP}.log.json" in told


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("stamp", ["mine", STAMP])
def test_a_strangers_checkpoint_names_no_file_to_cut(whole: Path, stamp: str, link: bool) -> None:
    checkpoint = torch.load(whole / "epoch_1.pth", weights_only=True)
    entry = checkpoint["lightning_hooks"]
    states = {f"{stamp}.log{end}": {"size": 0, "crc32": 0} for end in ("", ".json")}
    entry.update(run="0" * 12, timestamp=stamp, text_logs=states)
    torch.save(checkpoint, whole / "forged.ckpt")
    for name in states:
        (whole / f"kept.{name}").write_text("kept")
        (whole / name).unlink(missing_ok=True)
        if link:
            (whole / name).symlink_to(f"kept.{name}")
        else:
            (whole / name).write_text("kept")
    run(whole, ckpt=whole / "forged.ckpt")
    assert [(whole / name).read_text() for name in states] == ["kept", "kept"]
    assert len([name for name in names(whole) if not name.startswith(STAMP)]) == 2


def test_a_link_of_the_own_log_is_not_followed(
    whole: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("lightning_hooks"), "propagate", True)
    (whole / "mine.txt").write_text("mine")
    (whole / f"{STAMP}.log.json").unlink()
    (whole / f"{STAMP}.log.json").symlink_to("mine.txt")
    run(whole, ckpt=whole / "epoch_1.pth")
    assert (whole / "mine.txt").read_text() == "mine"
    assert len([m for m in caplog.messages if ".log.json cannot be written" in m]) == 1


def test_in_a_remote_work_dir_too(tmp_path: Path) -> None:
    work = f"memory://{tmp_path.name}"
    run(work, attributes={"timestamp": STAMP})
    fs = fsspec.filesystem("memory")
    before = fs.cat_file(f"/{tmp_path.name}/{STAMP}.log.json").splitlines()
    run(work, ckpt=f"{work}/epoch_2.pth")
    after = fs.cat_file(f"/{tmp_path.name}/{STAMP}.log.json").splitlines()
    assert after[:7] == before[:7]
    assert len(after) == len(before) == 1 + 3 * 3


def test_a_log_that_cannot_be_read_at_a_save_loses_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory, work = type(fsspec.filesystem("memory")), f"memory://{tmp_path.name}"
    open_file = memory._open

    def expired(self: Any, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if mode == "rb" and path.endswith(".log.json"):
            raise PermissionError("the token has expired")
        return open_file(self, path, mode, **kwargs)

    monkeypatch.setattr(memory, "_open", expired)
    run(work, attributes={"timestamp": STAMP})
    text = f"{work}/{STAMP}.log.json cannot be read (PermissionError: the token has expired)"
    assert text in caplog.text
    monkeypatch.undo()
    log = f"/{tmp_path.name}/{STAMP}.log.json"
    before = memory().cat_file(log)
    run(work, ckpt=f"{work}/epoch_2.pth")
    assert memory().cat_file(log).startswith(before)


def test_a_remote_log_begins_where_only_files_are_appended_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = type(fsspec.filesystem("memory"))
    open_file = memory._open

    def older(self: Any, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if mode == "ab" and path not in self.store:  # as fsspec of 2025
            raise FileNotFoundError(path)
        return open_file(self, path, mode, **kwargs)

    monkeypatch.setattr(memory, "_open", older)
    append(f"memory://{tmp_path.name}/a.log", b"one\n", local=False)
    append(f"memory://{tmp_path.name}/a.log", b"two\n", local=False)
    assert fsspec.filesystem("memory").cat_file(f"/{tmp_path.name}/a.log") == b"one\ntwo\n"


def test_departure_a_log_that_the_logger_writes_is_left_to_it(tmp_path: Path) -> None:
    logger = logging.Logger("mine")
    handler = logging.FileHandler(tmp_path / f"{STAMP}.log")
    logger.addHandler(handler)
    run(tmp_path, attributes={"timestamp": STAMP, "logger": logger})
    handler.close()
    lines = (tmp_path / f"{STAMP}.log").read_text().splitlines()
    assert sum(line.startswith("Epoch [1][2/4]") for line in lines) == 1


def test_a_validation_from_a_file_is_no_resume(tmp_path: Path) -> None:
    hook = TextLoggerHook(interval=2)
    hooks = hook, CheckpointHook(interval=1)
    trainer = make_trainer(tmp_path, *hooks, enable_checkpointing=True, max_epochs=2)
    loaders = make_loader(4), make_loader(1)
    trainer.fit(TinyModule(), *loaders)
    trainer.validate(TinyModule(), loaders[1], ckpt_path=tmp_path / "epoch_1.pth", verbose=False)
    trainer.fit_loop.max_epochs = 3
    trainer.fit(trainer.lightning_module, *loaders)
    rows = read_logs(tmp_path)[0]
    assert [row["epoch"] for row in rows if row.get("mode") == "train"] == [1, 1, 2, 2, 3, 3]
    assert torch.load(tmp_path / "epoch_3.pth", weights_only=True)["meta"]["iter"] == 12


def test_runs_that_begin_in_the_same_second_have_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "strftime", lambda *args: STAMP)
    run(tmp_path, epochs=1)
    first, second = tmp_path / f"{STAMP}.log.json", tmp_path / f"{STAMP}_2.log.json"
    before = first.read_bytes()
    run(tmp_path, epochs=2)
    assert {*names(tmp_path)} == {
        f"{STAMP}{n}.log{end}" for n in ("", "_2") for end in ("", ".json")
    }
    assert first.read_bytes() == before
    assert len(second.read_bytes().splitlines()) == 1 + 2 * 3
    run(tmp_path, epochs=3, ckpt=tmp_path / "epoch_2.pth")  # goes on in the files of the second
    assert len(names(tmp_path)) == 4
    assert len(second.read_bytes().splitlines()) == 1 + 3 * 3


def test_several_loggers_of_a_run_share_its_files(tmp_path: Path) -> None:
    hooks = [TextLoggerHook(interval=2), TextLoggerHook(interval=4)]
    trainer = make_trainer("unused", HookAdapter(hooks, work_dir=str(tmp_path)))
    trainer.fit(TinyModule(), make_loader(4), make_loader(1))
    assert len(names(tmp_path)) == 2


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_long_log_is_read_once_and_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_remote: bool
) -> None:
    path = f"memory://{tmp_path.name}/long.log" if is_remote else str(tmp_path / "long.log")
    logger = logging.getLogger(__name__)
    line = "x" * (1 << 20)
    before = LogFile(path)
    for _ in range(3):
        before.append(line, logger)
    state = before.state(logger)
    assert state is not None
    before.append("of the time after the checkpoint", logger)

    blocks: list[int] = []
    crc32 = zlib.crc32

    def noting_crc32(data: bytes, value: int = 0) -> int:
        blocks.append(len(data))
        return crc32(data, value)

    monkeypatch.setattr("lightning_hooks.loggers.run_files.zlib.crc32", noting_crc32)
    resumed = LogFile(path)
    assert resumed.cut_back(state, logger)
    assert resumed.state(logger) == state
    resumed.append("one", logger)
    later = resumed.state(logger)
    assert later is not None
    assert (sum(blocks), later["size"]) == (state["size"] + 4, state["size"] + 4)
    assert max(blocks) <= 1 << 20
