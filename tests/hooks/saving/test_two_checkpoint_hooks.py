"""Several hooks or runs that write to one directory leave the files of the others alone."""

from __future__ import annotations

import logging
import os
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lightning_hooks import BestCheckpointHook, CheckpointHook, EvalHook, newest_valid
from lightning_hooks.storage import checkpoints, find_checkpoints, manifest
from support.training import NoValidation, TinyModule, fit, make_loader

START = datetime(2024, 1, 1)
hosts = pytest.mark.parametrize("host", [False, True], ids=["bare", "hosted"])
writers = pytest.mark.parametrize("background", [False, True], ids=["sync", "background"])


def names(folder: Path) -> list[str]:
    found = [path.name for path in folder.glob("*.pth") if not path.is_symlink()]
    return sorted(found, key=lambda name: (len(name), name))


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names(folder)}


class Falling(TinyModule):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", -self.current_epoch)


# -- two hooks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("host", "background"), [(False, True), (True, False)])
def test_a_file_goes_when_no_hook_wants_it_any_more(
    tmp_path: Path, host: bool, background: bool
) -> None:
    def hooks() -> list[Any]:
        last = CheckpointHook(interval=1, max_keep_ckpts=1, background=background)
        return [last, CheckpointHook(interval=2, background=background)]

    fit(tmp_path, *hooks(), module=NoValidation, max_epochs=5, host=host)
    assert names(tmp_path) == ["epoch_2.pth", "epoch_4.pth", "epoch_5.pth"]
    # in the other order, after a resume
    again = {"module": NoValidation, "max_epochs": 7, "ckpt_path": newest_valid(tmp_path)}
    fit(tmp_path, *reversed(hooks()), host=host, **again)
    assert names(tmp_path) == [f"epoch_{n}.pth" for n in (2, 4, 5, 6, 7)]


def test_by_iteration_too_and_each_with_a_limit(tmp_path: Path) -> None:
    hooks = [
        CheckpointHook(interval=every, by_epoch=False, max_keep_ckpts=kept, save_last=False)
        for every, kept in ((1, 2), (3, 2))
    ]
    fit(tmp_path, *hooks, module=NoValidation, max_epochs=2, batches=5)
    assert names(tmp_path) == ["iter_6.pth", "iter_9.pth", "iter_10.pth"]


def test_a_clock_set_back_does_not_change_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=lambda: START - timedelta(hours=len(os.listdir(tmp_path))))
    monkeypatch.setattr(checkpoints, "datetime", SimpleNamespace(datetime=clock))
    hooks = CheckpointHook(interval=1), CheckpointHook(interval=3, by_epoch=False, save_last=False)
    fit(tmp_path, *hooks, module=NoValidation, max_epochs=2)
    iterations = [entry.iter for entry in manifest.read(str(tmp_path))]
    assert iterations == [3, 4, 6, 8]
    assert newest_valid(tmp_path) == str((tmp_path / "latest.pth").resolve())
    # a run resumed from an older file does not treat the later files as newer
    again = {"module": NoValidation, "max_steps": 6, "max_epochs": -1}
    hook = CheckpointHook(interval=6, by_epoch=False, filename_tmpl="again_{}.pth")
    fit(tmp_path, hook, ckpt_path=str(tmp_path / "epoch_1.pth"), **again)
    assert newest_valid(tmp_path) == str(tmp_path / "again_6.pth")


@pytest.mark.parametrize("first", [False, True])
def test_last_is_no_best_file_of_the_same_iteration(tmp_path: Path, first: bool) -> None:
    hooks = [CheckpointHook(interval=1), BestCheckpointHook("val_loss", keep_best=9)]
    fit(tmp_path, *(hooks if first else hooks[::-1]), module=Falling, val=1, max_epochs=2)
    assert (tmp_path / "best_val_loss_epoch_2.pth").is_file()
    assert newest_valid(tmp_path) == str(tmp_path / "epoch_2.pth")


def test_a_file_that_two_hooks_want_is_written_once(tmp_path: Path, caplog: Any) -> None:
    seen: list[list[str]] = [[], []]
    hooks = [CheckpointHook(interval=n + 1, on_saved=seen[n].append) for n in (0, 1)]
    with caplog.at_level(logging.INFO, "lightning_hooks"):
        fit(tmp_path, *hooks, module=NoValidation, max_epochs=2)
    saved = [message for message in caplog.messages if "Saving checkpoint" in message]
    assert saved == ["Saving checkpoint at 1 epochs", "Saving checkpoint at 2 epochs"]
    paths = [str(tmp_path / f"epoch_{n}.pth") for n in (1, 2)]
    assert seen == [paths, paths[1:]]


class FailsOnce(NoValidation):
    """A module that raises an error in its first ``on_save_checkpoint``."""

    saves = 0

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.saves += 1
        if self.saves == 1:
            raise InterruptedError


def test_the_second_hook_writes_a_file_that_the_first_has_failed_to(
    tmp_path: Path, caplog: Any
) -> None:
    with pytest.raises(InterruptedError):
        fit(tmp_path, CheckpointHook(1), CheckpointHook(1, max_keep_ckpts=1), module=FailsOnce)
    assert names(tmp_path) == ["epoch_1.pth"]
    assert "was not written" not in caplog.text


def test_a_file_of_the_fit_before_is_not_kept_as_this_fits(tmp_path: Path) -> None:
    hooks = [CheckpointHook(interval=1, max_keep_ckpts=kept) for kept in (1, 2)]
    for value in (1.0, 2.0):
        module = NoValidation(lr=0.0)
        torch.nn.init.constant_(module.net.weight, value)
        fit(tmp_path, *hooks, module=module)
        saved = torch.load(tmp_path / "epoch_1.pth", weights_only=True)["state_dict"]
        assert torch.all(saved["net.weight"] == value)


@pytest.mark.parametrize("resumable_first", [False, True])
def test_of_two_hooks_the_one_that_writes_the_optimizer_wins(
    tmp_path: Path, resumable_first: bool
) -> None:
    hooks = [CheckpointHook(interval=2), CheckpointHook(interval=1, save_optimizer=False)]
    if not resumable_first:
        hooks.reverse()
    fit(tmp_path, *hooks, module=NoValidation, max_epochs=2)
    assert "optimizer_states" in torch.load(tmp_path / "epoch_2.pth", weights_only=True)
    newest = find_checkpoints.newest_valid(str(tmp_path), resumable=True)
    assert newest == str(tmp_path / "epoch_2.pth")
    assert {entry.resumable for entry in manifest.read(str(tmp_path))[1:]} == {True}


@hosts
def test_the_best_and_the_last_in_one_folder_stay_each_others(tmp_path: Path, host: bool) -> None:
    best = BestCheckpointHook("val_loss", rule="less", keep_best=1)
    last = CheckpointHook(interval=1, max_keep_ckpts=1)
    scores = EvalHook(make_loader(1), save_best="score", rule="greater", test_fn=no_results)
    scores.dataloader.dataset.evaluate = lambda results, logger=None: {"score": 1.0}
    fit(tmp_path, best, last, scores, max_epochs=3, val=1, host=host)
    kept = names(tmp_path)
    assert kept[0] == "epoch_3.pth"
    assert [name.rpartition("_epoch")[0] for name in kept[1:]] == ["best_score", "best_val_loss"]


def no_results(model: Any, loader: Any) -> list[Any]:
    return []


# -- two runs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("host", "kept"), [(False, 1), (True, -1)])
def test_another_runs_files_are_reported_once_and_stay(
    tmp_path: Path, host: bool, kept: int, caplog: Any
) -> None:
    fit(tmp_path, CheckpointHook(interval=2), module=NoValidation, max_epochs=4, host=host)
    (first,) = {entry.run for entry in manifest.read(str(tmp_path))}
    (tmp_path / "epoch_9.pth").write_bytes(b"in no list")
    before, reports = contents(tmp_path), []

    class Reported(CheckpointHook):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            reports.append([m for m in caplog.messages if "another run" in m])
            super().on_train_epoch_end(trainer, pl_module)

    hooks = [Reported(interval=1, max_keep_ckpts=kept), CheckpointHook(filename_tmpl="x{}.pth")]
    hooks[0].save_last = False
    caplog.clear()
    fit(tmp_path, *hooks, module=NoValidation, max_epochs=3, host=host)
    assert [len(found) for found in reports] == [1] * 3  # before the first file, and once
    (message,) = reports[-1]
    assert f"{tmp_path} holds checkpoints of another run" in message
    assert f"epoch_2.pth, epoch_4.pth of run {first}" in message
    assert "epoch_9.pth of a run without a list" in message
    for advice in ('ckpt_path="last"', "out_dir=", "work_dir=", "default_root_dir="):
        assert advice in message
    after = contents(tmp_path)
    assert {name: after[name] for name in ("epoch_4.pth", "epoch_9.pth")} == {
        name: before[name] for name in ("epoch_4.pth", "epoch_9.pth")
    }


def test_a_resumed_run_and_a_second_fit_report_nothing(tmp_path: Path, caplog: Any) -> None:
    fit(tmp_path, CheckpointHook(interval=1), module=NoValidation)
    hook = CheckpointHook(interval=1)
    trainer = fit(tmp_path, hook, module=NoValidation, max_epochs=2, ckpt_path="last")
    trainer.fit_loop.max_epochs = 3
    trainer.fit(trainer.lightning_module, make_loader())
    assert not [message for message in caplog.messages if "another run" in message]


def test_a_best_hook_alone_reports_them_too(tmp_path: Path, caplog: Any) -> None:
    for _ in range(2):
        fit(tmp_path, BestCheckpointHook("val_loss", rule="less"), val=1)
    reported = [message for message in caplog.messages if "another run" in message]
    assert len(reported) == 1
    assert "best_val_loss_epoch_1.pth of run" in reported[0]


# -- when a save is reported -------------------------------------------------------------------


@pytest.mark.parametrize(("background", "by_epoch"), [(False, True), (True, False)])
def test_saving_is_logged_when_the_file_is_durable(
    tmp_path: Path, monkeypatch: Any, background: bool, by_epoch: bool
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noting_fsync(descriptor: int) -> None:
        fsync(descriptor)
        steps.append("fsync")

    def noting_replace(source: Any, path: Any) -> None:
        replace(source, path)
        steps.append(Path(path).name)

    class Log(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "Saving checkpoint" in record.getMessage():
                steps.append(record.getMessage())

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "replace", noting_replace)
    logger, log = logging.getLogger("lightning_hooks"), Log()
    monkeypatch.setattr(logger, "handlers", [log])
    monkeypatch.setattr(logger, "level", logging.INFO)
    hook = CheckpointHook(interval=2, by_epoch=by_epoch, background=background)
    fit(tmp_path, hook, module=NoValidation, max_epochs=2, batches=1)
    unit = ("epoch", "epochs") if by_epoch else ("iter", "iterations")
    logged = steps.index(f"Saving checkpoint at 2 {unit[1]}")
    renamed = steps.index(f"{unit[0]}_2.pth")
    assert "fsync" in steps[:renamed]
    assert "fsync" in steps[renamed:logged]  # of the directory: the new name too
    assert [step for step in steps if "Saving" in step] == [steps[logged]]


def test_a_save_that_fails_is_not_logged(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    hook = CheckpointHook(interval=1)
    hook.after_train_epoch = lambda runner: (  # type: ignore[method-assign]
        monkeypatch.setattr(os, "fsync", full),
        CheckpointHook.after_train_epoch(hook, runner),
    )
    with caplog.at_level(logging.INFO, "lightning_hooks"), pytest.raises(OSError, match="No space"):
        fit(tmp_path, hook, module=NoValidation)
    assert not [message for message in caplog.messages if "Saving checkpoint" in message]
