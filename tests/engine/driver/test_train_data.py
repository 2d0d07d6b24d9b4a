"""An epoch iterates the loader and dataset set by hooks, in the order of a run without hooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler

from lightning_hooks import CheckpointHook, Hook, HookAdapter
from support.probes import Numbers, Seen
from support.training import make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")


class Nothing(Hook):
    """A hook with the points at which data may change; changes nothing."""

    def before_run(self, runner: Any) -> None: ...

    def before_train_epoch(self, runner: Any) -> None: ...


def loader(workers: int = 0, **kwargs: Any) -> DataLoader[Any]:
    return DataLoader(Numbers(size=8), batch_size=2, num_workers=workers, **kwargs)


@pytest.mark.parametrize(("own_generator", "workers"), [(False, 0), (True, 2)])
def test_shuffled_order_is_that_of_a_run_without_hooks(
    own_generator: bool, workers: int, tmp_path: Path
) -> None:
    orders = []
    for hooks in ([], [Nothing()]):
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(1) if own_generator else None
        module = Seen()
        trainer = make_trainer(tmp_path, *hooks, max_epochs=3)
        trainer.fit(module, loader(workers, shuffle=True, generator=generator))
        orders.append((module.epochs, torch.rand(1).item()))
    assert orders[0] == orders[1]
    assert orders[0][0][0] != orders[0][0][1]


@pytest.mark.parametrize("point", ["before_run", "before_train_epoch"])
def test_a_replaced_loader_is_iterated_from_the_first_epoch_on(point: str, tmp_path: Path) -> None:
    class Replace(Hook):
        def replace(self, runner: Any) -> None:
            runner.data_loader = DataLoader(Numbers(10.0 * runner.epoch + 10, 2), batch_size=1)

        def after_train_iter(self, runner: Any) -> None:
            self.lengths.append((len(runner.data_loader), runner.max_iters))
            assert runner.data_loader is runner.trainer.train_dataloader

        lengths: list[Any]

    hook = type("R", (Replace,), {point: Replace.replace})()
    hook.lengths = []
    module = Seen()
    make_trainer(tmp_path, hook, max_epochs=2).fit(module, loader())
    first = [10.0, 11.0]
    assert module.epochs == [first, first if point == "before_run" else [20.0, 21.0]]
    assert hook.lengths == [(2, 4)] * 4


def test_loaders_among_the_attributes_are_for_before_run_alone(tmp_path: Path) -> None:
    class Asks(Hook):
        def before_run(self, runner: Any) -> None:
            self.steps = len(runner.data_loader[0])  # as self-supervised hooks of EasyCV ask

        def before_train_epoch(self, runner: Any) -> None:
            assert runner.data_loader is data

    module, data, hook = Seen(), loader(), Asks()
    adapter = HookAdapter([hook], attributes={"data_loader": [data]})
    make_trainer(tmp_path, adapter, max_epochs=2).fit(module, data)
    assert hook.steps == 4
    assert module.epochs == [[float(i) for i in range(8)]] * 2


def test_a_replaced_loader_is_iterated_by_iteration(tmp_path: Path) -> None:
    class Replace(Hook):
        def before_run(self, runner: Any) -> None:
            runner.data_loader = DataLoader(Numbers(10.0, 2), batch_size=1)

    module = Seen()
    adapter = HookAdapter([Replace()], by_epoch=False)
    make_trainer(tmp_path, adapter, max_steps=4).fit(module, loader())
    assert module.epochs == [[10.0, 11.0], [10.0, 11.0]]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_changed_data_set_is_seen_in_every_epoch(workers: int, tmp_path: Path) -> None:
    """Worker processes see the change too, in the first epoch and after a resume."""

    class Change(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            runner.data_loader.dataset.start = 100.0 * (runner.epoch + 1)

    class Save(Hook):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            trainer.save_checkpoint(tmp_path / f"{trainer.current_epoch}.ckpt")

    module = Seen()
    make_trainer(tmp_path, Change(), Save(), max_epochs=3).fit(module, loader(workers))
    assert [epoch[0] for epoch in module.epochs] == [100.0, 200.0, 300.0]
    again = Seen()
    trainer = make_trainer(tmp_path, Change(), max_epochs=3)
    trainer.fit(again, loader(workers), ckpt_path=tmp_path / "0.ckpt")
    assert [epoch[0] for epoch in again.epochs] == [200.0, 300.0]


class Stream(IterableDataset[Any]):
    """A stream without length; with ``once``, a new iterator continues where the last stopped."""

    def __init__(self, once: bool = False) -> None:
        self.start, self.once, self.given = 0.0, once, 0

    def __iter__(self) -> Any:
        first = self.given if self.once else 0
        for index in range(first, first + 8):
            self.given += 1
            noise = torch.rand(()) / 2 if self.once else 0.0
            yield torch.full((4,), self.start + index + noise), torch.zeros(2)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_changed_data_set_without_length_is_seen_in_the_first_epoch(
    workers: int, tmp_path: Path
) -> None:
    class Change(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            runner.data_loader.dataset.start = 100.0 * (runner.epoch + 1)

    module = Seen()
    data = DataLoader(Stream(), batch_size=2, num_workers=workers)
    make_trainer(tmp_path, Change(), max_epochs=2).fit(module, data)
    assert [epoch[0] for epoch in module.epochs] == [100.0, 200.0]
    assert [len(epoch) for epoch in module.epochs] == [8, 8]
    assert type(data) is DataLoader


@pytest.mark.parametrize("draws", [False, True])
def test_a_stream_loses_nothing_and_its_order_is_that_without_hooks(
    draws: bool, tmp_path: Path
) -> None:
    class Draw(Nothing):
        def before_run(self, runner: Any) -> None:
            if draws:
                torch.rand(3)

    found = []
    for hooks in ([], [Draw()]):
        torch.manual_seed(0)
        module = Seen()
        trainer = make_trainer(tmp_path, *hooks, max_epochs=2)
        trainer.fit(module, DataLoader(Stream(once=True), batch_size=2))
        found.append((module.epochs, torch.rand(1)))
    assert found[0][0][0][0] == found[1][0][0][0]
    assert [int(x) for x in found[1][0][0]] == list(range(8))
    if not draws:
        assert found[0] == found[1]


class Stateful:
    """A stateful loader, as in torchdata."""

    def __init__(self) -> None:
        self.data, self.at, self.given = Numbers(size=4), 0, 0

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Any:
        self.given, self.at = self.at, 0
        while self.given < 4:
            self.given += 1
            x, y = self.data[self.given - 1]
            yield x[None], y[None]

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["given"]


def test_a_loader_with_a_state_goes_on_where_it_stood(tmp_path: Path) -> None:
    class Change(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            runner.data_loader.data.start = 100.0 * (runner.epoch + 1)

    class Save(Hook):
        def after_train_iter(self, runner: Any) -> None:
            self.due = runner.iter == 1

        def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
            if self.due:
                trainer.save_checkpoint(tmp_path / "mid.ckpt")

    whole, again = Seen(), Seen()
    make_trainer(tmp_path, Change(), Save(), max_epochs=2).fit(whole, Stateful())
    assert whole.epochs == [[100.0, 101, 102, 103], [200.0, 201, 202, 203]]
    trainer = make_trainer(tmp_path, Change(), max_epochs=2)
    trainer.fit(again, Stateful(), ckpt_path=tmp_path / "mid.ckpt")
    assert again.epochs == [[102.0, 103], [200.0, 201, 202, 203]]


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("iteration", [2, 5])
def test_with_torchdatas_loader_a_run_goes_on_from_any_iteration(
    tmp_path: Path, iteration: int
) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def fit(name: str, seed: int, ckpt_path: Any = None) -> tuple[list[Any], torch.Tensor]:
        torch.manual_seed(seed)
        module, saves = Seen(), CheckpointHook(interval=1, by_epoch=False)
        trainer = make_trainer(tmp_path / name, saves, max_epochs=3, enable_checkpointing=True)
        data = stateful.StatefulDataLoader(Numbers(size=8), batch_size=2, shuffle=True)
        trainer.fit(module, data, ckpt_path=ckpt_path)
        return [x for epoch in module.epochs for x in epoch], torch.rand(1)

    whole, drawn = fit("a", 0)
    again, drawn_again = fit("b", 9, tmp_path / "a" / f"iter_{iteration}.pth")
    assert again == whole[2 * iteration :]
    assert drawn == drawn_again


def test_a_hook_that_draws_random_numbers_does_not_change_the_order_of_its_loader(
    tmp_path: Path,
) -> None:
    class Draw(Hook):
        def before_run(self, runner: Any) -> None:
            torch.rand(7)

    orders = []
    for hooks in ([Nothing()], [Draw()]):
        generator = torch.Generator().manual_seed(1)
        module = Seen()
        trainer = make_trainer(tmp_path, *hooks, max_epochs=2)
        trainer.fit(module, loader(shuffle=True, generator=generator))
        orders.append(module.epochs)
    assert orders[0] == orders[1]


def test_next_on_the_loader_of_an_iteration_based_run_takes_nothing_from_training(
    tmp_path: Path,
) -> None:
    class Peek(Hook):
        seen: Any = None

        def after_train_iter(self, runner: Any) -> None:
            self.seen = next(runner.data_loader)[0][0, 0].item()
            assert runner.data_loader._dataloader.dataset.size == 8
            assert len(runner.data_loader) == 4

    module, hook = Seen(), Peek()
    make_trainer(tmp_path, HookAdapter([hook], by_epoch=False), max_steps=4).fit(module, loader())
    assert module.epochs == [[float(i) for i in range(8)]]
    assert hook.seen == 6.0


class Shuffled(Sampler[int]):
    """Draws the order from numpy."""

    def __init__(self) -> None:
        self.asked = 0

    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Any:
        self.asked += 1
        return iter(np.random.permutation(8).tolist())


@pytest.mark.parametrize("hosted", [False, True])
@pytest.mark.parametrize(("workers", "draws"), [(0, False), (1, False), (1, True)])
def test_a_sampler_that_draws_from_numpy_is_asked_once_an_epoch(
    workers: int, draws: bool, hosted: bool, tmp_path: Path
) -> None:
    class Draw(Nothing):
        def before_run(self, runner: Any) -> None:
            if draws:
                np.random.random(3)

    orders, numbers = [], []
    for hooks in ([], [HookAdapter([Draw()]) if hosted else Draw()]):
        np.random.seed(0)
        module, sampler = Seen(), Shuffled()
        data = DataLoader(Numbers(size=8), batch_size=2, num_workers=workers, sampler=sampler)
        make_trainer(tmp_path, *hooks, max_epochs=2).fit(module, data)
        assert sampler.asked == 2
        orders.append(module.epochs[: 1 if draws else 2])
        numbers.append(np.random.random())
    assert orders[0] == orders[1]
    assert draws or numbers[0] == numbers[1]


def test_a_seed_of_lightnings_reaches_the_workers_of_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PL_SEED_WORKERS", "1")
    data = DataLoader(Stream(), batch_size=2, num_workers=1)
    make_trainer(tmp_path, Nothing()).fit(Seen(), data)
    assert data.worker_init_fn is not None
