"""Statements of the documentation about Lightning's step, torch and glibc, tested with both.

A test's docstring is the sentence of the page, as in ``test_peers.py``.
"""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loops import training_epoch_loop

from support.training import NoValidation, TinyModule, make_loader, make_trainer


def in_a_step(count: Any) -> int:
    """Return the difference of a count between a run of four batches and a run of three."""
    return int(count(4) - count(3))


def test_names_of_events() -> None:
    """Before and after each event Lightning assigns its name, `module._current_fx_name`, which goes
    through `torch.nn.Module.__setattr__`: 44 searches in a step for a parameter, a buffer or a
    submodule of that name.
    """

    def count(batches: int) -> int:
        with mock.patch.object(
            torch.nn.Module, "__setattr__", autospec=True, side_effect=torch.nn.Module.__setattr__
        ) as assigned:
            make_trainer(None, max_epochs=1).fit(NoValidation(), make_loader(batches))
        return [call.args[1] for call in assigned.call_args_list].count("_current_fx_name")

    assert in_a_step(count) == 44


def test_signature_of_the_step() -> None:
    """`training_step` is inspected in each step for whether it takes `batch_idx`."""
    name = "is_param_in_hook_signature"

    def count(batches: int) -> int:
        inspects = getattr(training_epoch_loop, name)
        with mock.patch.object(training_epoch_loop, name, side_effect=inspects) as inspected:
            make_trainer(None, max_epochs=1).fit(NoValidation(), make_loader(batches))
        return sum(call.args[1] == "batch_idx" for call in inspected.call_args_list)

    assert in_a_step(count) == 1


def test_events_of_a_batch() -> None:
    """Lightning calls both for all six events of a batch."""
    events = [name for name in vars(Callback) if name.startswith("on_")]

    def count(batches: int) -> int:
        callback = Callback()
        with mock.patch.multiple(callback, **{name: mock.Mock() for name in events}):
            make_trainer(None, callback, max_epochs=1).fit(NoValidation(), make_loader(batches))
            return sum(getattr(callback, name).call_count for name in events)

    assert in_a_step(count) == 6


def test_end_of_an_epoch() -> None:
    """Lightning validates inside its training epoch and ends that epoch afterwards, so
    `on_train_epoch_end` comes last.
    """
    seen: list[str] = []

    class Ends(Callback):
        def on_validation_end(self, *_: Any) -> None:
            seen.append("validation")

        def on_train_epoch_end(self, *_: Any) -> None:
            seen.append("epoch")

    trainer = make_trainer(None, Ends(), max_epochs=1, num_sanity_val_steps=0)
    trainer.fit(TinyModule(), make_loader(1), make_loader(1))
    assert seen == ["validation", "epoch"]


@pytest.mark.filterwarnings(
    "ignore:You're resuming from a checkpoint that ended", "ignore:Checkpoint directory"
)
def test_values_of_an_epoch_in_two_parts(tmp_path: Path) -> None:
    """After a resume inside an epoch, Lightning computes the values of that epoch over the batches
    since.
    """

    class Numbers(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            self.log("index", float(batch_idx), on_step=False, on_epoch=True)
            return super().training_step(batch, batch_idx)

    def value(path: Path | None = None) -> float:
        saver = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=2, save_top_k=-1)
        trainer = make_trainer(tmp_path, saver, enable_checkpointing=True)
        trainer.fit(Numbers(), make_loader(4), ckpt_path=path)
        return trainer.callback_metrics["index"].item()

    assert value() == 1.5
    assert value(tmp_path / "step=2.ckpt") == 2.5


def test_setuptools() -> None:
    """`distutils`, dropped in Python 3.12, comes with setuptools, which torch installs."""
    needed = importlib.metadata.requires("torch") or []
    assert any(package.startswith("setuptools") for package in needed)
    assert importlib.util.find_spec("setuptools._distutils")


FREED = """
import resource
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def step():
    del [bytearray(b"1") * 8_000_000 for _ in range(8)][:]
step()
before = faults()
step()
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")
def test_freed_memory() -> None:
    """By default glibc gives it back to the system and asks for it again."""
    keeping = {"MALLOC_TRIM_THRESHOLD_": "2147483647", "MALLOC_MMAP_THRESHOLD_": "33554432"}
    faults = [
        int(subprocess.check_output([sys.executable, "-IS", "-c", FREED], env=env))
        for env in ({}, keeping)
    ]
    assert faults[0] > 1000 > faults[1]
