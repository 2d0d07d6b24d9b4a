"""After a kill at any change of the disk, the best files and their list are as without the kill."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import BestCheckpointHook, CheckpointHook
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*is taken instead")
SCORES = [0.1, 0.5, 0.3, 0.7, 0.6]


class Scores(TinyModule):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("acc", SCORES[self.trainer.current_epoch])


def hooks(order: str, keep: int, background: bool) -> list[Any]:
    options: dict[str, Any] = {"background": background}
    last = CheckpointHook(1, max_keep_ckpts=2, **options)
    best = BestCheckpointHook("acc", keep_best=keep, **options)
    one = CheckpointHook(1, max_keep_ckpts=2, save_best="acc", keep_best=keep, **options)
    return {"last first": [last, best], "best first": [best, last], "one": [one]}[order]


def train(folder: Path, *args: Any, **words: Any) -> None:
    options = {"max_epochs": 5, "num_sanity_val_steps": 0, "enable_checkpointing": True}
    trainer = make_trainer(folder, *hooks(*args), **options)
    trainer.fit(Scores(), make_loader(2), make_loader(1), **words)


def result(folder: Path) -> tuple[Any, ...]:
    """Return the best files, and the list in the newest file."""
    newest = folder / "epoch_5.pth"
    if not newest.exists():  # killed after the best of the last epoch
        newest = folder / "best_acc_epoch_5.pth"
    meta = torch.load(newest, weights_only=True)["meta"]["hook_msgs"]
    ranking = [(score, Path(path).name) for score, path in meta["best_ckpts"]["acc"]]
    return ranking, Path(meta["best_ckpt"]).name, {path.name for path in folder.glob("best_*.pth")}


@pytest.mark.parametrize(
    ("order", "keep", "background"),
    [
        ("last first", 1, False),
        ("last first", 2, True),
        pytest.param("last first", 1, True, marks=pytest.mark.slow),
        pytest.param("last first", 2, False, marks=pytest.mark.slow),
        pytest.param("best first", 2, False, marks=pytest.mark.slow),
        pytest.param("one", 1, True, marks=pytest.mark.slow),
    ],
)
def test_the_best_are_those_of_a_run_without_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, keep: int, background: bool
) -> None:
    folder, states = tmp_path / "run", list[Path]()

    def copied_before(change: Callable[..., None]) -> Callable[..., None]:
        def keep_state(*args: Any, **kwargs: Any) -> None:
            if str(folder) in str(args[-1]):
                states.append(tmp_path / f"state {len(states)}")
                shutil.copytree(folder, states[-1], symlinks=True)
            change(*args, **kwargs)

        return keep_state

    with monkeypatch.context() as patch:
        for name in ("replace", "unlink"):
            patch.setattr(os, name, copied_before(getattr(os, name)))
        train(folder, order, keep, background)
    want = result(folder)
    assert len(want[0]) == keep
    assert len(states) > 20
    for state in states[10:]:  # from the second epoch on
        shutil.rmtree(folder)
        shutil.copytree(state, folder, symlinks=True)
        train(folder, order, keep, background, ckpt_path="last")
        assert result(folder) == want, state
