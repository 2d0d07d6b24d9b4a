"""Persistent workers of a resumed run continue in the state of the uninterrupted run's workers."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from lightning_hooks import CheckpointHook, ClosureHook, newest_valid
from support.training import NoValidation, fit


class Augmented(Dataset[Any]):
    """Samples with noise from every generator of the worker."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        noise = torch.rand(()) + random.random() + float(np.random.rand())
        return torch.full((4,), float(index)) + noise, torch.zeros(2)


class Seen(NoValidation):
    """Records the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Any] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.batches.append(batch[0][:, 0].tolist())
        return super().training_step(batch, batch_idx)


class SeenAndValidated(Seen):
    """Raises an error in the validation of the given epoch."""

    dies_in: int | None = None

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        torch.rand(())
        if self.current_epoch == self.dies_in:
            raise InterruptedError


@pytest.mark.parametrize(
    ("by_epoch", "generator"), [(True, False), (False, True)], ids=["global", "own"]
)
def test_the_same_order_and_augmentations(tmp_path: Path, by_epoch: bool, generator: bool) -> None:
    def run(folder: Path, ckpt_path: Any = None) -> Any:
        for seed in (torch.manual_seed, random.seed, np.random.seed):
            seed(0 if ckpt_path is None else 5)
        own = torch.Generator().manual_seed(torch.initial_seed()) if generator else None
        workers = {"num_workers": 1, "persistent_workers": True, "generator": own}
        loader = DataLoader(Augmented(), batch_size=2, shuffle=True, **workers)
        unit = {} if by_epoch else {"by_epoch": False}
        hook = CheckpointHook(interval=1 if by_epoch else 3, **unit)
        module = Seen()
        fit(folder, hook, module=module, batches=loader, max_epochs=3, ckpt_path=ckpt_path, **unit)
        return module

    whole = run(tmp_path / "whole")
    name = "epoch_{}.pth" if by_epoch else "iter_{}.pth"
    for done in (1, 2):
        path = tmp_path / "whole" / name.format(done if by_epoch else 3 * done)
        again = run(tmp_path / str(done), path)
        assert again.batches == whole.batches[3 * done :]
        assert again.losses == whole.losses[3 * done :]


def test_a_death_in_a_validation_costs_no_epoch(tmp_path: Path) -> None:
    def run(folder: Path, dies_in: int | None = None, ckpt_path: Any = None) -> Any:
        torch.manual_seed(0 if ckpt_path is None else 5)
        workers = {"num_workers": 2, "persistent_workers": True}
        loader = DataLoader(Augmented(), batch_size=2, shuffle=True, **workers)
        module = SeenAndValidated()
        module.dies_in = dies_in
        hooks = [CheckpointHook(interval=1), ClosureHook("before_train_epoch", draw)]
        arguments = {"module": module, "batches": loader, "val": 1, "num_sanity_val_steps": 0}
        try:
            fit(folder, *hooks, max_epochs=3, host=True, ckpt_path=ckpt_path, **arguments)
        except InterruptedError:
            assert dies_in is not None
        return module

    def draw(runner: Any) -> None:
        torch.rand(())

    whole = run(tmp_path / "whole")
    run(tmp_path, dies_in=1)
    again = run(tmp_path, ckpt_path=newest_valid(tmp_path))
    assert again.batches == whole.batches[6:]


def test_a_loader_without_them_is_left_alone(tmp_path: Path) -> None:
    loader = DataLoader(Augmented(), batch_size=2)
    collate = loader.collate_fn
    fit(tmp_path, CheckpointHook(interval=1), module=NoValidation, batches=loader)
    assert loader.collate_fn is collate
    entry = torch.load(tmp_path / "epoch_1.pth", weights_only=True)["lightning_hooks"]
    assert entry["loaders"] == [[]]


def test_a_second_fit_goes_on_with_the_same_workers(tmp_path: Path) -> None:
    loader = DataLoader(Augmented(), batch_size=2, num_workers=1, persistent_workers=True)
    trainer = fit(tmp_path, CheckpointHook(interval=1), module=NoValidation, batches=loader)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(trainer.lightning_module, loader)
    files = [torch.load(tmp_path / f"epoch_{n}.pth", weights_only=True) for n in (1, 2)]
    places = [file["lightning_hooks"]["loaders"][0][0] for file in files]
    assert not torch.equal(*[place["workers"][0]["torch"] for place in places])


class Interrupted(NoValidation):
    """Fails in a step."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        raise InterruptedError


@pytest.mark.parametrize("module", [NoValidation, Interrupted])
def test_a_loader_has_its_own_collate_function_after_the_fit(tmp_path: Path, module: Any) -> None:
    workers = {"num_workers": 1, "persistent_workers": True}
    loader = DataLoader(Augmented(), batch_size=2, **workers)
    collate = loader.collate_fn
    with contextlib.suppress(InterruptedError):
        fit(tmp_path, CheckpointHook(interval=1), module=module, batches=loader)
    assert loader.collate_fn is collate


def test_a_file_saved_after_the_fit_has_the_workers_states(tmp_path: Path) -> None:
    def run(max_epochs: int, ckpt_path: Any = None) -> Any:
        torch.manual_seed(0 if ckpt_path is None else 5)
        workers = {"num_workers": 1, "persistent_workers": True}
        loader = DataLoader(Augmented(), batch_size=2, shuffle=True, **workers)
        module, hook = Seen(), CheckpointHook(interval=9)
        arguments = {"module": module, "batches": loader, "ckpt_path": ckpt_path}
        trainer = fit(tmp_path, hook, max_epochs=max_epochs, **arguments)
        return module, trainer

    whole, _ = run(2)
    _, trainer = run(1)
    trainer.save_checkpoint(tmp_path / "after.ckpt")
    again, _ = run(2, tmp_path / "after.ckpt")
    assert again.batches == whole.batches[3:]
