"""A run that is killed within an epoch goes on exactly with torch's ordinary ``DataLoader``."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

from lightning_hooks import newest_valid
from support.jobs import loader_place
from support.processes import Job
from support.torture.kills import Server, flatten, same
from support.training import NoValidation, make_trainer

RANKS = [kind for kind in loader_place.KINDS if "ranks" in kind]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server(loader_place.__name__)
    yield server
    server.close()


def steps(folder: Path, rank: int = 0) -> list[Any]:
    return [json.loads(line) for line in (folder / f"seen{rank}").read_text().splitlines()]


def last_of(folder: Path) -> dict[str, Any]:
    file: dict[str, Any] = torch.load(str(newest_valid(str(folder))), weights_only=True)
    parts = "state_dict", "optimizer_states", "loops", "global_step"
    own = {key: file["lightning_hooks"][key] for key in ("rng", "iter")}
    values: dict[str, Any] = flatten({**own, **{part: file[part] for part in parts}})
    return values


def check_equal(whole: Path, killed: Path, kill_at: int, ranks: int = 1) -> None:
    """Check that what follows the file before the kill, and the end, are the whole run's."""
    for rank in range(ranks):
        expected, seen = steps(whole, rank), steps(killed, rank)
        resumed = seen[kill_at - 1 :]
        assert seen[: kill_at - 1] == expected[: kill_at - 1]
        assert 0 < len(expected) - len(resumed) < kill_at
        assert resumed == expected[-len(resumed) :]
    end, found = last_of(whole), last_of(killed)
    assert [key for key in end if not same(found[key], end[key])] == []


@pytest.mark.parametrize("kind", [kind for kind in loader_place.KINDS if kind not in RANKS])
def test_a_killed_run_sees_the_same_samples(server: Server, tmp_path: Path, kind: str) -> None:
    draw = random.Random(kind)

    def run(name: str, kill_at: int = 0) -> None:
        (tmp_path / name).mkdir(exist_ok=True)
        server.start(directory=str(tmp_path / name), kind=kind, kill_at=kill_at)
        status, error = server.answer(), tmp_path / name / "error.txt"
        assert status == (-9 if kill_at else 0), error.exists() and error.read_text()

    run("whole")
    batches = len(steps(tmp_path / "whole")) // loader_place.EPOCHS
    kill_at = draw.randrange(3, batches * loader_place.EPOCHS)
    run("killed", kill_at)
    run("killed")
    check_equal(tmp_path / "whole", tmp_path / "killed", kill_at)


@pytest.mark.parametrize("kind", RANKS)
def test_each_rank_sees_the_same_samples(tmp_path: Path, kind: str) -> None:
    whole, killed, kill_at = tmp_path / "whole", tmp_path / "killed", 7
    for folder in (whole, killed):
        folder.mkdir()
    Job("loader_place", whole, kind, 0).wait()
    Job("loader_place", killed, kind, kill_at).wait_for_all(240)
    Job("loader_place", killed, kind, 0).wait()
    check_equal(whole, killed, kill_at, ranks=2)


class Inputs(NoValidation):
    """Notes the inputs of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[list[float]] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.inputs.append(batch[0][:, 0].tolist())
        return super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint")
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
@pytest.mark.parametrize("stateful", [False, True])
def test_lightning_alone_does_what_the_table_of_the_docs_says(
    tmp_path: Path, stateful: bool
) -> None:
    kind: Any = DataLoader
    if stateful:
        kind = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def run(seed: int, ckpt_path: Any = None) -> list[list[float]]:
        torch.manual_seed(seed)
        module, saves = (
            Inputs(),
            ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=2, save_top_k=-1),
        )
        arguments = {"enable_checkpointing": True, "max_epochs": 2}
        trainer = make_trainer(tmp_path, saves, **arguments)
        loader = kind(loader_place.Augmented(), batch_size=2, shuffle=True)
        trainer.fit(module, loader, ckpt_path=ckpt_path)
        return module.inputs

    whole = run(0)
    expected = whole[10:]
    resumed = run(5, tmp_path / "step=10.ckpt")
    assert resumed != expected  # random augmentations are never the same
    samples = [[[*map(int, batch)] for batch in part] for part in (expected, resumed)]
    assert (samples[0] == samples[1]) is stateful
