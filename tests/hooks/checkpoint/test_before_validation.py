"""A process that dies in a validation loses no training: its file was written before."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from lightning_hooks import CheckpointHook, Hook, newest_valid
from support import forks
from support.jobs.dying_validation import BATCHES, DiedError, Validated, last_state, train
from support.processes import environment
from support.torture.kills import flatten, same
from support.training import NoValidation, TinyModule, fit

pytestmark = [
    pytest.mark.filterwarnings("ignore:Your `val_dataloader`'s sampler has shuffling"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
]


def check_resumed(folder: Path, whole: Validated, path: str, done: int, **arguments: Any) -> None:
    """Resume from a file, and compare with the uninterrupted run beside it."""
    again = Validated()
    train(folder, again, ckpt_path=path, **arguments)
    assert again.losses == whole.losses[done:]
    assert again.seen == whole.seen[-len(again.seen) :]
    found, expected = (flatten(last_state(f)) for f in (folder, folder.parent / "whole"))
    assert found.keys() == expected.keys()
    assert [name for name in found if not same(found[name], expected[name])] == []


def run_whole(tmp_path: Path, **arguments: Any) -> Validated:
    whole = Validated()
    train(tmp_path / "whole", whole, **arguments)
    return whole


def test_a_sigkill_in_the_validation_that_ends_an_epoch(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    command = ["-m", "support.jobs.dying_validation", str(folder), "2"]
    killed = forks.start(command, environment(), tmp_path / "output", tmp_path)
    assert forks.wait([killed], 240) == [-signal.SIGKILL], (tmp_path / "output").read_text()
    path = newest_valid(folder)
    assert path == str(folder / "epoch_2.pth")
    meta = torch.load(path, weights_only=True)["meta"]
    assert (meta["epoch"], meta["iter"]) == (2, 2 * BATCHES)
    check_resumed(folder, run_whole(tmp_path), path, 2 * BATCHES)


@pytest.mark.parametrize(
    ("arguments", "host", "dies_in"),
    [
        ({}, False, 1),
        ({}, True, 3),
        ({"background": True}, False, 2),
        ({"accumulate_grad_batches": 3}, True, 1),
        ({"evaluates": True}, False, 2),
        ({"evaluates": True}, True, 3),
        ({"by_epoch": False}, True, 1),
        ({"by_epoch": False, "max_steps": 12, "max_epochs": -1}, True, 3),
    ],
)
def test_the_run_goes_on_bit_for_bit(
    tmp_path: Path, arguments: dict[str, Any], host: bool, dies_in: int
) -> None:
    arguments = {**arguments, "host": host}
    folder = tmp_path / "killed"
    with pytest.raises(DiedError):
        train(folder, Validated(dies_in), **arguments)
    path = newest_valid(folder)
    assert path is not None
    done = dies_in * BATCHES
    assert torch.load(path, weights_only=True)["meta"]["iter"] == done
    check_resumed(folder, run_whole(tmp_path, **arguments), path, done, **arguments)


class Calls(Hook):
    """Notes the points outside iterations."""

    def __init__(self) -> None:
        self.calls: list[Any] = []


def _noting(point: str) -> Any:
    def note(self: Calls, runner: Any) -> None:
        self.calls.append((point, runner.epoch, runner.iter))

    return note


for _point in ("before_train_epoch", "after_train_epoch", "before_val_epoch", "after_val_epoch"):
    setattr(Calls, _point, _noting(_point))


@pytest.mark.parametrize("host", [False, True], ids=["bare", "hosted"])
def test_every_point_after_the_batch_is_called(tmp_path: Path, host: bool) -> None:
    class Dies(TinyModule):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            if self.trainer.current_epoch == 1 and dying:
                raise DiedError

    def run(folder: Path, path: str | None = None) -> list[Any]:
        calls = Calls()
        saves = CheckpointHook(interval=1)
        fit(folder, calls, saves, module=Dies, val=1, max_epochs=3, host=host, ckpt_path=path)
        return calls.calls

    dying = False
    whole = run(tmp_path / "whole")
    dying = True
    with pytest.raises(DiedError):
        run(tmp_path)
    dying = False
    again = run(tmp_path, newest_valid(tmp_path))
    assert again[0] == ("before_train_epoch", 1, 8)  # the epoch is opened again, as in mid-epoch
    assert again[1:] == whole[whole.index(("after_train_epoch", 1, 8)) :]


def test_the_file_is_written_before_and_after_and_reported_once(
    tmp_path: Path, caplog: Any
) -> None:
    written: list[tuple[bool, str]] = []
    uploaded: list[str] = []

    class Noting(CheckpointHook):
        def _write_file(self, trainer: Any, path: str, *args: Any, **kwargs: Any) -> None:
            super()._write_file(trainer, path, *args, **kwargs)
            pending = "pending" in torch.load(path, weights_only=True)["lightning_hooks"]
            written.append((pending, Path(path).name))

    hook = Noting(interval=1, max_keep_ckpts=1, on_saved=uploaded.append)
    with caplog.at_level(logging.INFO, "lightning_hooks"):
        fit(tmp_path, hook, val=1, max_epochs=2)
    names = [f"epoch_{n}.pth" for n in (1, 2)]
    assert written == [(ahead, name) for name in names for ahead in (True, False)]
    assert [Path(path).name for path in uploaded] == names
    saved = [message for message in caplog.messages if "Saving checkpoint" in message]
    assert saved == ["Saving checkpoint at 1 epochs", "Saving checkpoint at 2 epochs"]
    assert [path.name for path in tmp_path.glob("epoch*")] == names[1:]


class Counting(TorchCheckpointIO):
    """A writer of the user's."""

    paths: list[str] = []  # noqa: RUF012

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        self.paths.append(Path(path).name)
        super().save_checkpoint(checkpoint, path, storage_options)


@pytest.mark.parametrize("kind", ["no validation", "no optimizer", "own writer"])
def test_one_file_is_written_where_none_would_help(tmp_path: Path, kind: str) -> None:
    Counting.paths.clear()
    hook = CheckpointHook(interval=1, save_optimizer=kind != "no optimizer")
    sizes: list[Any] = []
    hook._write_file = lambda *a, **k: (  # type: ignore[method-assign]
        sizes.append(a),
        CheckpointHook._write_file(hook, *a, **k),
    )
    plugins = [Counting()] if kind == "own writer" else []
    no_validation = kind == "no validation"
    module = NoValidation if no_validation else TinyModule
    fit(tmp_path, hook, module=module, val=0 if no_validation else 1, plugins=plugins)
    assert len(sizes) == 1
    assert Counting.paths == (["epoch_1.pth"] if plugins else [])
