"""Hooks of research repositories record the same values in a plain Trainer as under real mmcv."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import job
import lightning as L
import pytest
import torch
from mmcv import FileClient
from oracle import Hook, make_runner, mmcv_runner, run
from torch.utils.data import DataLoader, TensorDataset

from lightning_hooks import GradientCumulativeOptimizerHook, HookAdapter, TrainStepModule
from lightning_hooks.standin._hooks.checkpoint import CheckpointHook
from lightning_hooks.standin.fileio import file_client
from support import research_hooks

EPOCHS, BATCHES = 3, 5


class Flagged(torch.optim.SGD):
    """An optimizer that scales its step by an attribute, as SAM."""

    scale, used = 1.0, 0

    def step(self, closure: Any = None) -> Any:
        """Step with a part of the rate."""
        self.used += 1
        rate, self.param_groups[0]["lr"] = self.param_groups[0]["lr"], self.scale * 0.1
        found = super().step(closure)
        self.param_groups[0]["lr"] = rate
        return found


def loader() -> DataLoader[Any]:
    images = torch.arange(BATCHES * 2 * 64.0).reshape(BATCHES * 2, 1, 8, 8).sin()
    return DataLoader(TensorDataset(images, torch.arange(BATCHES * 2) % 10), batch_size=2)


def optimizer_hook() -> Any:
    return mmcv_runner.OptimizerHook(), "ABOVE_NORMAL"


def under_mmcv(
    hook: Any, folder: Path, *, by_epoch: bool, steps: bool = True, priority: str = "NORMAL"
) -> Any:
    """Train with a hook under mmcv's runner; return the model."""
    model = job.make_model()
    kind, limit = (
        ("EpochBasedRunner", EPOCHS) if by_epoch else ("IterBasedRunner", EPOCHS * BATCHES)
    )
    optimizer = Flagged(model.parameters(), lr=0.1)
    runner = make_runner(kind, limit, model, optimizer=optimizer, work_dir=str(folder), meta={})
    if steps:
        runner.register_hook(*optimizer_hook())
    runner.register_hook(hook, priority)
    flow = [("train", 1), ("val", 1)] if by_epoch else [("train", 1)]
    run(runner, [loader() for _ in flow], flow)
    return model


def in_a_trainer(
    hook: Any, folder: Path, *, by_epoch: bool, steps: bool = True, priority: str = "NORMAL"
) -> Any:
    """Train with a hook in a plain Trainer; return the model."""
    model = job.make_model()
    hooks = [*([optimizer_hook()] if steps else []), (hook, priority)]
    trainer = L.Trainer(
        max_epochs=EPOCHS if by_epoch else -1,
        max_steps=-1 if by_epoch else EPOCHS * BATCHES,
        callbacks=[HookAdapter(hooks, by_epoch=by_epoch, owns_backward=True, meta={})],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        num_sanity_val_steps=0,
    )
    module = TrainStepModule(model, Flagged(model.parameters(), lr=0.1))
    trainer.fit(module, loader(), loader() if by_epoch else None)
    return model


def assert_same(
    make: Any, tmp_path: Path, *, by_epoch: bool = True, ours: Any = Hook, priority: str = "NORMAL"
) -> None:
    options: Any = {"by_epoch": by_epoch, "steps": ours is Hook, "priority": priority}
    theirs, hook = make(getattr(mmcv_runner, ours.__name__)), make(ours)
    expected = under_mmcv(theirs, tmp_path / "mmcv", **options)
    found = in_a_trainer(hook, tmp_path / "ours", **options)
    assert hook.seen == theirs.seen != []
    for name, value in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], value), name


COUNTERS = ("_epoch", "_iter", "_max_epochs", "_max_iters")


@pytest.mark.parametrize("by_epoch", [True, False])
def test_a_counter_written_back(by_epoch: bool, tmp_path: Path) -> None:
    make = lambda base: research_hooks.writes_back(base, COUNTERS)  # noqa: E731
    assert_same(make, tmp_path, by_epoch=by_epoch)


def test_an_epoch_moved_back_and_forth(tmp_path: Path) -> None:
    assert_same(research_hooks.names_by_epoch, tmp_path)


@pytest.mark.parametrize("by_epoch", [True, False])
def test_the_loss_in_words(by_epoch: bool, tmp_path: Path) -> None:
    assert_same(research_hooks.shows_loss, tmp_path, by_epoch=by_epoch, priority="HIGH")


def test_the_data_set_of_an_iter_loader(tmp_path: Path) -> None:
    assert_same(research_hooks.reads_iter_loader, tmp_path, by_epoch=False)


def test_an_attribute_of_the_optimizer(tmp_path: Path) -> None:
    assert_same(research_hooks.flags_optimizer, tmp_path)


def test_accumulation_in_the_older_body(tmp_path: Path) -> None:
    make = lambda base: research_hooks.old_body(base, 4)  # noqa: E731
    assert_same(make, tmp_path, ours=GradientCumulativeOptimizerHook)


def files_of(folder: Path) -> list[str]:
    names = {name for _, _, found in os.walk(folder) for name in found}
    return sorted(names - {"latest.pth", "checkpoints.json"})


def test_a_checkpoint_hook_that_opens_its_directory(tmp_path: Path) -> None:
    theirs = research_hooks.opens_itself(mmcv_runner.CheckpointHook, FileClient)
    under_mmcv(theirs, tmp_path / "mmcv", by_epoch=True)
    ours = research_hooks.opens_itself(CheckpointHook, file_client.FileClient)
    in_a_trainer(ours, tmp_path / "ours", by_epoch=True)
    assert files_of(tmp_path / "ours") == files_of(tmp_path / "mmcv")


def test_a_checkpoint_hook_that_saves_when_it_likes(tmp_path: Path) -> None:
    theirs = research_hooks.saves_when_it_likes(mmcv_runner.CheckpointHook)
    under_mmcv(theirs, tmp_path / "mmcv", by_epoch=False)
    ours = research_hooks.saves_when_it_likes(CheckpointHook)
    in_a_trainer(ours, tmp_path / "ours", by_epoch=False)
    assert files_of(tmp_path / "ours") == files_of(tmp_path / "mmcv") != []
