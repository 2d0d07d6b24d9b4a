"""A run killed within an epoch resumes exactly with torch's ordinary ``DataLoader``."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, IterableDataset, Sampler

from lightning_hooks import CheckpointHook, ClosureHook, EMAHook, newest_valid
from lightning_hooks.engine.lightning_api import loader_place as place
from support.jobs import loader_place
from support.jobs.loader_place import Seen
from support.paths import ROOT
from support.processes import Job
from support.torture.kills import JobStarter, flatten, same
from support.training import NoValidation, make_loader, make_trainer

RANKS = [kind for kind in loader_place.KINDS if "ranks" in kind]


def steps(folder: Path, rank: int = 0) -> list[Any]:
    return [json.loads(line) for line in (folder / f"seen{rank}").read_text().splitlines()]


def last_of(folder: Path) -> dict[str, Any]:
    file: dict[str, Any] = torch.load(str(newest_valid(str(folder))), weights_only=True)
    parts = "state_dict", "optimizer_states", "loops", "global_step"
    own = {key: file["lightning_hooks"][key] for key in ("rng", "iter")}
    values: dict[str, Any] = flatten({**own, **{part: file[part] for part in parts}})
    return values


def check_equal(whole: Path, killed: Path, kill_at: int, ranks: int = 1) -> None:
    """Check that the killed and resumed run made the same steps as the whole run."""
    for rank in range(ranks):
        expected, seen = steps(whole, rank), steps(killed, rank)
        resumed = seen[kill_at - 1 :]
        assert seen[: kill_at - 1] == expected[: kill_at - 1]
        assert 0 < len(expected) - len(resumed) < kill_at
        assert resumed == expected[-len(resumed) :]
    end, found = last_of(whole), last_of(killed)
    assert [key for key in end if not same(found[key], end[key])] == []


@pytest.mark.parametrize("kind", [kind for kind in loader_place.KINDS if kind not in RANKS])
def test_a_killed_run_sees_the_same_samples(tmp_path: Path, kind: str) -> None:
    draw, starter = random.Random(kind), JobStarter(loader_place.__name__)

    def run(name: str, kill_at: int = 0) -> None:
        (tmp_path / name).mkdir(exist_ok=True)
        starter.start(directory=str(tmp_path / name), kind=kind, kill_at=kill_at)
        status, error = starter.answer(), tmp_path / name / "error.txt"
        assert status == (-9 if kill_at else 0), error.exists() and error.read_text()

    run("whole")
    batches = len(steps(tmp_path / "whole")) // loader_place.EPOCHS
    kill_at = draw.randrange(3, batches * loader_place.EPOCHS)
    run("killed", kill_at)
    run("killed")
    check_equal(tmp_path / "whole", tmp_path / "killed", kill_at)


@pytest.fixture(scope="module", params=RANKS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an uninterrupted run in two processes, by kind of loader."""
    folder = tmp_path_factory.mktemp("whole") / request.param
    folder.mkdir()
    Job("loader_place", folder, folder.name, 0, 0).wait()
    return folder


def test_each_rank_sees_the_same_samples(whole: Path, tmp_path: Path) -> None:
    kind, kill_at = whole.name, 7
    Job("loader_place", tmp_path, kind, kill_at, 0).wait_for_all(240)
    Job("loader_place", tmp_path, kind, 0, 0).wait()
    check_equal(whole, tmp_path, kill_at, ranks=2)


def test_each_rank_sees_the_same_samples_after_sigterm(whole: Path, tmp_path: Path) -> None:
    cut, kind = tmp_path, whole.name
    Job("loader_place", cut, kind, -7, 0).wait_for_all(240)
    assert newest_valid(cut) == str(cut / "iter_7.pth")
    Job("loader_place", cut, kind, 0, 0).wait()
    assert steps(cut) == steps(whole)
    for rank in (0, 1):  # a file of rank 0 alone lacks the other rank's random state
        orders = [
            [int(x) for step in steps(folder, rank) for x in step[0]] for folder in (whole, cut)
        ]
        assert orders[0] == orders[1]


@pytest.mark.parametrize("whole", ["two ranks"], indirect=True)
def test_ranks_end_together_when_the_time_of_rank_0_is_over(whole: Path, tmp_path: Path) -> None:
    limited = tmp_path
    assert Job("loader_place", limited, "two ranks", 0, 2).wait_for_all(240) == [85, 85]
    done = len(steps(limited))
    assert 2 <= done == len(steps(limited, 1)) < loader_place.EPOCHS * loader_place.BATCHES
    assert newest_valid(limited) == str(limited / f"iter_{done}.pth")
    Job("loader_place", limited, "two ranks", 0, 0).wait()
    assert all(steps(limited, rank) == steps(whole, rank) for rank in (0, 1))
    end, found = last_of(whole), last_of(limited)
    assert [key for key in end if not same(found[key], end[key])] == []


class Inputs(NoValidation):
    """Records the inputs of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[list[float]] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.inputs.append(batch[0][:, 0].tolist())
        return super().training_step(batch, batch_idx)


class CountsPasses(Sampler[int]):
    """A stateful sampler whose order depends on the number of passes."""

    def __init__(self) -> None:
        self.passes = 0

    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        order = torch.Generator().manual_seed(self.passes)
        return iter(torch.randperm(8, generator=order).tolist())

    def state_dict(self) -> dict[str, int]:
        return {"passes": self.passes}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.passes = state["passes"]


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_after_a_whole_epoch_a_sampler_goes_on_from_its_state(tmp_path: Path, workers: int) -> None:
    found = []
    for ckpt in (None, tmp_path / "epoch_1.pth"):
        trainer, module = (
            make_trainer(tmp_path, CheckpointHook(1), max_epochs=3, enable_checkpointing=True),
            Inputs(),
        )
        data = make_loader(4).dataset
        loader = DataLoader(data, 2, sampler=CountsPasses(), num_workers=workers)
        trainer.fit(module, loader, ckpt_path=ckpt)
        found.append(module.inputs)
    assert found[1] == found[0][4:]


class Once:
    """Begins one pass at the loaded state, and every other pass at the start."""

    begin = at = 0

    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Iterator[Any]:
        begin, self.begin = self.begin, 0
        for number in range(begin, 8):
            self.at = number + 1
            yield self.item(number)

    def item(self, number: int) -> Any:
        return number

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.begin = self.at = state["at"]


class OnceInOrder(Once, Sampler[int]):
    """A stateful sampler."""


class OnceStreamed(Once, IterableDataset[Any]):
    """A stateful iterable dataset."""

    def item(self, number: int) -> Any:
        return torch.full((4,), float(number)) + torch.rand(()) / 4, torch.zeros(2)


@pytest.mark.filterwarnings("ignore:Your .IterableDataset. has .__len__. defined")
@pytest.mark.parametrize("kind", [OnceInOrder, OnceStreamed])
def test_after_a_whole_epoch_its_end_is_no_place_to_go_on(tmp_path: Path, kind: Any) -> None:
    found = []
    for ckpt in (None, tmp_path / "epoch_1.pth"):
        torch.manual_seed(0 if ckpt is None else 5)
        hook, module = CheckpointHook(1), Inputs()
        trainer = make_trainer(tmp_path, hook, max_epochs=3, enable_checkpointing=True)
        if kind is OnceStreamed:
            loader = DataLoader(OnceStreamed(), 2)
        else:
            loader = DataLoader(make_loader(4).dataset, 2, sampler=OnceInOrder())
        trainer.fit(module, loader, ckpt_path=ckpt)
        found.append(module.inputs)
    assert found[1] == found[0][4:]


class WithoutLength(OnceStreamed):
    """An iterable dataset of unknown length."""

    __len__ = None  # type: ignore[assignment]


class FailsAtTheEnd(Inputs):
    """Raises an error at the end of an epoch."""

    def on_train_epoch_end(self) -> None:
        raise InterruptedError


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint")
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_pass_shorter_than_its_limit_is_over_at_the_end_of_the_epoch(
    tmp_path: Path, is_cut: bool
) -> None:
    """Lightning takes the limit as the length of the epoch, so no batch counts as the last."""

    def run(module: Inputs, ckpt: Any = None) -> list[list[float]]:
        hook = CheckpointHook(1, on_exception=True)
        options = {"max_epochs": 3, "limit_train_batches": 9, "enable_checkpointing": True}
        torch.manual_seed(0 if ckpt is None else 5)
        loader = DataLoader(WithoutLength(), 2)
        make_trainer(tmp_path, hook, **options).fit(module, loader, ckpt_path=ckpt)
        return module.inputs

    whole = run(Inputs())
    if is_cut:
        with pytest.raises(InterruptedError):
            run(FailsAtTheEnd())
    assert run(Inputs(), tmp_path / "epoch_1.pth") == whole[4:]


class Endless(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return itertools.cycle(range(8))


def test_a_line_tells_of_a_long_way_to_the_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "PATIENCE", -1)
    for ckpt in (None, tmp_path / "iter_4.pth"):
        hook, module = CheckpointHook(4, by_epoch=False), Inputs()
        trainer = make_trainer(tmp_path, hook, max_steps=6, enable_checkpointing=True)
        loader = DataLoader(make_loader(4).dataset, 2, sampler=Endless())
        trainer.fit(module, loader, ckpt_path=ckpt)
    told = [line for line in caplog.messages if "skipping the indices" in line]
    assert [line.partition(";")[0].rpartition(",")[2] for line in told] == [
        " 2 of 4 batches so far"
    ]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # of torchdata
@pytest.mark.parametrize(("file", "lost"), [(3, "random aug"), (4, "with persistent workers, the")])
def test_a_line_says_what_a_stateful_loader_loses_of_its_workers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, file: int, lost: str
) -> None:
    kind = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    for ckpt in (None, tmp_path / f"iter_{file}.pth"):
        assert "saves no states of its workers" not in caplog.text
        hook = CheckpointHook(1, by_epoch=False)
        trainer = make_trainer(tmp_path, hook, max_epochs=2, enable_checkpointing=True)
        workers = {"num_workers": 1, "persistent_workers": True}
        trainer.fit(Inputs(), kind(make_loader(4).dataset, 2, **workers), ckpt_path=ckpt)
    assert f"saves no states of its workers: {lost}" in caplog.text


class Reloads(L.LightningDataModule):
    """A data module with random data for each loader, which records the epochs of the loaders."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[int] = []

    def train_dataloader(self) -> Any:
        self.epochs.append(self.trainer.current_epoch)  # type: ignore[union-attr]
        return make_loader(3, seed=int(torch.randint(1000, ())), shuffle=True)


@pytest.mark.parametrize("every", [1, 2])
def test_reloaded_loaders_are_those_of_the_whole_run(tmp_path: Path, every: int) -> None:
    def run(ckpt: Path | None) -> tuple[list[list[float]], list[int]]:
        module, data = Inputs(), Reloads()
        trainer = make_trainer(
            tmp_path,
            CheckpointHook(3, by_epoch=False),
            max_epochs=5,
            enable_checkpointing=True,
            reload_dataloaders_every_n_epochs=every,
        )
        torch.manual_seed(0 if ckpt is None else 77)
        trainer.fit(module, datamodule=data, ckpt_path=ckpt)
        return module.inputs, data.epochs

    inputs, epochs = run(None)
    assert epochs == [*range(0, 5, every)]
    for done in range(3, 15, 3):
        file = tmp_path / f"iter_{done}.pth"
        if every > 1 and (done // 3) % every:
            continue  # the previous epoch's loader drew its data in another process
        found, reloaded = run(file)
        assert found == inputs[done:]
        assert reloaded[-1] == epochs[-1]


def assert_same(module: torch.nn.Module, other: torch.nn.Module) -> None:
    torch.testing.assert_close(module.state_dict(), other.state_dict(), rtol=0, atol=0)


class Fails(Inputs):
    """A module that raises an error in one step or event."""

    def __init__(self, event: str, at: int) -> None:
        super().__init__()
        self.event, self.at = event, at

    def fail(self, event: str) -> None:
        batch = self.trainer.fit_loop.epoch_loop.batch_progress.total.ready - 1
        if self.event == event and self.at == batch:
            raise RuntimeError("on purpose")

    def on_train_batch_start(self, *args: Any) -> None:
        self.fail("start")

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.fail("step")
        return super().training_step(batch, batch_idx)

    def on_train_batch_end(self, *args: Any) -> None:
        self.fail("end")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("event", ["start", "step", "end"])
@pytest.mark.parametrize("at", [1, 6, 7])  # 6 is the last batch of an epoch
def test_after_an_error_the_run_goes_on_with_the_failed_batch(
    tmp_path: Path, at: int, event: str, workers: int
) -> None:
    def run(folder: str, module: Inputs, ckpt_path: Any = None, every: int = -1) -> Any:
        torch.manual_seed(0 if ckpt_path is None else 5)
        hook = CheckpointHook(every, by_epoch=False, on_exception=True)
        trainer = make_trainer(tmp_path / folder, hook, max_epochs=3, enable_checkpointing=True)
        data = make_loader(loader_place.BATCHES).dataset
        loader = DataLoader(data, batch_size=2, shuffle=True, num_workers=workers)
        trainer.fit(module, loader, ckpt_path=ckpt_path)
        return module

    whole = run("whole", Inputs())
    with pytest.raises(RuntimeError, match="on purpose"):
        run("cut", Fails(event, at))
    done = at + (event == "end")
    resumed = run("cut", Inputs(), tmp_path / "cut" / f"iter_{done}.pth", every=3)
    assert resumed.inputs == whole.inputs[done:]
    assert_same(resumed, whole)
    again = run("again", Inputs(), tmp_path / "cut" / "iter_9.pth")  # a later file is whole too
    assert again.inputs == whole.inputs[9:]
    assert_same(again, whole)


def test_a_run_ended_by_sigterm_goes_on_with_the_same_noise(tmp_path: Path) -> None:
    class Ends(Seen):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            if self.trainer.global_step == 9 and not (tmp_path / "cut" / "iter_10.pth").exists():
                os.kill(os.getpid(), signal.SIGTERM)

    def run(folder: str, kind: Any, ckpt_path: Any = None) -> None:
        (tmp_path / folder).mkdir(exist_ok=True)
        loader_place.seed(0 if ckpt_path is None else 5)
        hook = CheckpointHook(-1, by_epoch=False, on_exception=True)
        trainer = make_trainer(tmp_path / folder, hook, max_epochs=3, enable_checkpointing=True)
        trainer.fit(kind(tmp_path / folder / "seen0", "shuffled"), ckpt_path=ckpt_path)

    run("whole", Seen)
    with pytest.raises(SystemExit):
        run("cut", Ends)
    run("cut", Ends, "last")
    assert steps(tmp_path / "cut") == steps(tmp_path / "whole")
    end, found = last_of(tmp_path / "whole"), last_of(tmp_path / "cut")
    assert [key for key in end if not same(found[key], end[key])] == []


@pytest.mark.parametrize("stops", [{"max_steps": 10}, {"max_epochs": 3}], ids=str)
def test_a_pass_that_the_end_of_a_run_has_cut_short_is_over(
    tmp_path: Path, stops: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    def run(hooks: list[Any], ckpt_path: Any = None, **length: int) -> Inputs:
        module, hook = Inputs(), CheckpointHook(-1, by_epoch=False)
        trainer = make_trainer(tmp_path, hook, *hooks, enable_checkpointing=True, **length)
        trainer.fit(module, make_loader(7, shuffle=True), ckpt_path=ckpt_path)
        return module

    def stop(runner: Any) -> None:
        runner.should_stop = runner.iter == 9

    run([ClosureHook("after_train_iter", stop)], **stops)
    resumed = run([], "last", max_epochs=3)
    assert len(resumed.inputs) == 7
    assert "ended within epoch 2, after 3 batches of 7; to Lightning that epoch is" in caplog.text


def test_workers_that_run_before_the_fit_are_told_of(tmp_path: Path) -> None:
    loader = loader_place.workers(2, persistent_workers=True)
    next(iter(loader))
    with pytest.warns(UserWarning, match="workers of a training loader were started before the"):
        make_trainer(tmp_path, EMAHook()).fit(NoValidation(), loader)


class InOrder(Sampler[int]):
    """A sampler with a given order of indices."""

    def __init__(self, order: list[int]) -> None:
        self.order = order

    def __iter__(self) -> Iterator[int]:
        return iter(self.order)


class Drawn(Sampler[int]):
    """Draws each index from the generator of the process."""

    def __iter__(self) -> Iterator[int]:
        return (int(torch.randint(8, ())) for _ in range(8))


class Batches:
    """A loader that is not a torch ``DataLoader``."""

    def __iter__(self) -> Iterator[Any]:
        return iter(plain())

    def __len__(self) -> int:
        return 4


def plain(**arguments: Any) -> DataLoader[Any]:
    return DataLoader(make_loader(4).dataset, 2, **arguments)


CHANGED: dict[str, tuple[Any, Any, str]] = {
    "another order": (
        *(plain(sampler=InOrder([*range(8)])), plain(sampler=InOrder([*range(7, -1, -1)]))),
        "InOrder gives other indices than in the run that wrote the file",
    ),
    "drawn one by one": (
        *(plain(sampler=Drawn()), plain(sampler=Drawn())),
        "Drawn draws random numbers for each batch from a generator of the process",
    ),
    "another number of workers": (
        *(plain(num_workers=1), plain(num_workers=2)),
        "a training loader has another number of workers than before the resume",
    ),
    "another kind of loader": (
        *(Batches(), Batches()),
        "The reason: Batches is no DataLoader of torch and saves no state",
    ),
    "a loader of torch's in its place": (
        *(Batches(), plain()),
        "The reason: the file does not have its place",
    ),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_line_says_why_the_rest_of_a_pass_may_have_other_samples(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder, case: str
) -> None:
    *loaders, line = CHANGED[case]
    for loader, ckpt in zip(loaders, (None, tmp_path / "iter_2.pth"), strict=True):
        torch.manual_seed(0 if ckpt is None else 5)
        hook = CheckpointHook(2, by_epoch=False)
        trainer = make_trainer(tmp_path, hook, enable_checkpointing=True)
        trainer.fit(Inputs(), loader, ckpt_path=ckpt)
    told = [*caplog.messages, *(str(each.message) for each in recwarn)]
    assert sum(line in each for each in told) == 1


def stateful() -> Any:
    kind = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    return kind(loader_place.Augmented(), batch_size=2, shuffle=True)


NEW_PASS = "a new pass: samples repeat, others are never seen"
WITH_LIGHTNING: dict[str, tuple[Any, str]] = {
    "torch's `DataLoader`, with torch's": (loader_place.KINDS["shuffled"], NEW_PASS),
    "the same with workers": (loader_place.KINDS["workers"], "a new pass"),
    "with a sampler or batch sampler of your own": (
        loader_place.KINDS["batches by numpy"],
        "a new pass",
    ),
    "torchdata's `StatefulDataLoader`": (
        stateful,
        "with the same samples and other random augmentations",
    ),
    "an iterable data set with a length": (loader_place.KINDS["stream with a state"], "a new pass"),
}
"""The rows of the table in docs/guides/resuming.md by first words."""


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint")
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
@pytest.mark.filterwarnings("ignore:Your .IterableDataset. has .__len__. defined")
@pytest.mark.parametrize("row", WITH_LIGHTNING)
def test_lightning_alone_does_what_the_table_of_the_docs_says(tmp_path: Path, row: str) -> None:
    make, said = WITH_LIGHTNING[row]
    page = (ROOT / "docs/guides/resuming.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {row}")]
    assert line.split("|")[3].strip() == said

    def run(seed: int, ckpt_path: Any = None) -> list[list[float]]:
        loader_place.seed(seed)
        saves = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=2, save_top_k=-1)
        trainer = make_trainer(tmp_path, saves, enable_checkpointing=True, max_epochs=2)
        module = Inputs()
        trainer.fit(module, make(), ckpt_path=ckpt_path)
        return module.inputs

    whole = run(0)
    expected = whole[10:]
    resumed = run(5, tmp_path / "step=10.ckpt")
    assert resumed != expected  # random augmentations are never the same
    samples = [[[*map(int, batch)] for batch in part] for part in (expected, resumed)]
    assert (samples[0] == samples[1]) is ("the same samples" in said)
