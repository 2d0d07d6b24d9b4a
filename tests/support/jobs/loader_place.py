"""Train with one of many kinds of loaders, with a kill within an epoch.

A single argument is a JSON object of the arguments of :func:`train`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities import CombinedLoader
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from lightning_hooks import CheckpointHook, TimeLimitHook, newest_valid
from lightning_hooks.utils.process_age import process_age
from support.torture.kill_job import work
from support.training import NoValidation, make_trainer, two_ranks

EPOCHS, BATCHES = 3, 7


class Augmented(Dataset[Any]):
    """A dataset of numbered samples with noise from every random generator of the worker."""

    def __init__(self, size: int = 2 * BATCHES) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        noise = torch.rand(()) + random.random() + float(np.random.rand())
        return torch.full((4,), float(index)) + noise / 4, torch.zeros(2)


class Rows(Augmented):
    """Two samples for a list of two indices."""

    def __getitem__(self, index: Any) -> Any:
        rows = [super(Rows, self).__getitem__(i) for i in index]
        return [torch.stack(parts) for parts in zip(*rows, strict=True)]


class ByNumpy:
    """Lists of indices in an order of numpy's, drawn where a pass begins."""

    def __iter__(self) -> Iterator[list[int]]:
        return iter(np.random.permutation(2 * BATCHES).reshape(-1, 2).tolist())

    def __len__(self) -> int:
        return BATCHES


class OneByOne(ByNumpy):
    """A batch sampler that draws each batch from a generator of the sampler."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(3)

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(BATCHES):
            yield torch.randint(2 * BATCHES, (2,), generator=self.generator).tolist()


class EndlessOrder:
    """A stateful sampler whose order continues from pass to pass."""

    at = 0

    def __iter__(self) -> Iterator[int]:
        for _ in range(2 * BATCHES):
            self.at += 1
            yield self.at * 5 % 19 % (2 * BATCHES)

    def __len__(self) -> int:
        return 2 * BATCHES

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


class Stream(IterableDataset[Any]):
    """Samples with a length and a state."""

    at = 0

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.at + 1, 2 * BATCHES + 1):
            self.at = number % (2 * BATCHES)  # a loop may not ask for more than the length
            yield torch.full((4,), float(number)) + torch.rand(()) / 4, torch.zeros(2)

    def __len__(self) -> int:
        return 2 * BATCHES

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


def ordinary(**arguments: Any) -> DataLoader[Any]:
    return DataLoader(Augmented(), **{"batch_size": 2, **arguments})


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def workers(number: int, **arguments: Any) -> DataLoader[Any]:
    return ordinary(shuffle=True, num_workers=number, **arguments)


def several(mode: Any) -> CombinedLoader:
    short = DataLoader(Augmented(6), batch_size=2, shuffle=True)
    return CombinedLoader([workers(0), short], mode)


KINDS: dict[str, Callable[[], Any]] = {
    "sequential": ordinary,
    "shuffled": lambda: ordinary(shuffle=True),
    "own generator": lambda: ordinary(shuffle=True, generator=seeded()),
    "with replacement": lambda: ordinary(
        sampler=RandomSampler(Augmented(), True, 2 * BATCHES, seeded())
    ),
    "weighted": lambda: ordinary(
        sampler=WeightedRandomSampler([*range(1, 2 * BATCHES + 1)], 2 * BATCHES)
    ),
    "subset": lambda: ordinary(sampler=SubsetRandomSampler(range(2 * BATCHES))),
    "batches by numpy": lambda: DataLoader(Augmented(), batch_sampler=ByNumpy()),
    "batches one by one": lambda: DataLoader(Augmented(), batch_sampler=OneByOne()),
    "no batch size": lambda: DataLoader(
        Rows(), None, sampler=BatchSampler(RandomSampler(range(2 * BATCHES)), 2, False)
    ),
    "sampler with a state": lambda: ordinary(sampler=EndlessOrder()),
    "stream with a state": lambda: DataLoader(Stream(), batch_size=2),
    "workers": lambda: workers(2),
    "three workers": lambda: workers(3, prefetch_factor=1, generator=seeded()),
    "persistent workers": lambda: workers(2, persistent_workers=True),
    "persistent, by numpy": lambda: DataLoader(
        *(Augmented(), 1, None, None, ByNumpy()), num_workers=2, persistent_workers=True
    ),
    "shortest of two": lambda: several("min_size"),
    "shorter cycles": lambda: several("max_size_cycle"),
    "longest of two": lambda: several("max_size"),
    "accumulated": lambda: workers(0),
    "reloaded": lambda: workers(0),
    "limited": lambda: workers(0),
    "limited, persistent": lambda: workers(2, persistent_workers=True),
    "two ranks": lambda: workers(0),
    "two ranks, workers": lambda: workers(2),
}

TRAINER: dict[str, dict[str, Any]] = {
    "accumulated": {"accumulate_grad_batches": 2},
    "reloaded": {"reload_dataloaders_every_n_epochs": 1},
    "limited": {"limit_train_batches": 5},
    "limited, persistent": {"limit_train_batches": 5},
}


class Seen(NoValidation):
    """Records the inputs of each step in a file at once; has dropout."""

    def __init__(self, path: Path, kind: str) -> None:
        super().__init__()
        self.path, self.kind = path, kind

    def make_net(self) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Dropout(0.3))

    def train_dataloader(self) -> Any:
        return KINDS[self.kind]()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        parts = batch if isinstance(batch[0], list) else [batch]
        seen = [None if part is None else part[0][:, 0].tolist() for part in parts]
        with self.path.open("a") as file:
            file.write(json.dumps(seen) + "\n")
        return torch.stack([self.loss(part) for part in parts if part is not None]).sum()


class Kills(Callback):
    """Kills the process before a batch, or sends SIGTERM before the batch of a negative number.

    Draws random numbers before the first epoch.
    """

    def __init__(self, at: int) -> None:
        self.at = at

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        torch.rand(2)

    def on_train_batch_start(self, trainer: L.Trainer, *args: Any) -> None:
        if trainer.fit_loop.epoch_loop.batch_progress.total.ready == abs(self.at):
            os.kill(os.getpid(), signal.SIGKILL if self.at > 0 else signal.SIGTERM)


def seed(number: int) -> None:
    """Seed the generators of the process."""
    for set_seed in (torch.manual_seed, random.seed, np.random.seed):
        set_seed(number)


class Slow(Callback):
    """Makes each batch take a while."""

    def on_train_batch_start(self, *args: Any) -> None:
        time.sleep(0.25)


def limited(rank: int, seconds: float) -> list[Callback]:
    """Return callbacks for a job with little time left by rank 0's clock."""
    hook = TimeLimitHook(hours=1)
    hook.seconds = process_age() + seconds + 1000 * rank
    return [hook, Slow()]


def train(directory: str, kind: str, kill_at: int = 0, every: int = 2, seconds: float = 0) -> None:
    """Train to the end, from the newest valid file on, or until the kill or the time's end."""
    rank = int(os.environ.get("LOCAL_RANK", 0))
    folder = Path(directory)
    resumes = newest_valid(directory) is not None
    seed(5 + rank if resumes else rank)  # another process is in another state
    options = {"by_epoch": False, "max_keep_ckpts": 2, "on_exception": True}
    hook = CheckpointHook(every, **options)
    ranks = two_ranks() if "LOCAL_RANK" in os.environ else {}
    given = {"max_epochs": EPOCHS, "enable_checkpointing": True, **TRAINER.get(kind, {}), **ranks}
    ends = [Kills(kill_at), *(limited(rank, seconds) if seconds else [])]
    trainer = make_trainer(folder, hook, *ends, **given)
    trainer.fit(Seen(folder / f"seen{rank}", kind), ckpt_path="last" if resumes else None)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        train(sys.argv[1], sys.argv[2], int(sys.argv[3]), seconds=float(sys.argv[4]))
    else:
        work({"train": train}, **json.loads(sys.argv[1]))
