"""The table of docs/guides/resuming.md: what the end of a run loses; where bit-equality ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import CheckpointHook, ClosureHook, newest_valid
from support.training import NoValidation, TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings(
    "ignore:You're resuming from a checkpoint", "ignore:the run goes on in epoch"
)

BATCHES = 4
PLAIN: dict[str, Any] = {}
MINUTES = {"every_minutes": 1e-9}  # over at each iteration
EXCEPTION = {"on_exception": True}


def run(folder: Path, how: str | None, options: dict[str, Any], **words: Any) -> NoValidation:
    """Train three epochs; end the run in the seventh iteration."""

    def end(runner: Any) -> None:
        if how is not None and runner.iter == 6:
            if how == "exception":
                raise RuntimeError("ended")
            os.kill(os.getpid(), getattr(signal, how))

    module = NoValidation()
    hooks = CheckpointHook(interval=1, **options), ClosureHook("before_train_iter", end)
    trainer = make_trainer(folder, *hooks, max_epochs=3, enable_checkpointing=True)
    trainer.fit(module, make_loader(BATCHES), **words)
    return module


def run_in_a_process(folder: Path, how: str, options: dict[str, Any]) -> int:
    script = f"""
        from pathlib import Path
        from hooks.saving.test_resuming_page import run
        run(Path({str(folder)!r}), {how!r}, {options!r})
    """
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": path}).returncode


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Let SIGINT interrupt, also where a shell has started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("how", "options", "newest"),
    [
        ("exception", PLAIN, "epoch_1.pth"),
        ("exception", MINUTES, "iter_6.pth"),
        ("exception", EXCEPTION, "iter_6.pth"),
        ("SIGINT", PLAIN, "epoch_1.pth"),
        ("SIGINT", MINUTES, "iter_6.pth"),
        ("SIGINT", EXCEPTION, "iter_6.pth"),
        ("SIGTERM", PLAIN, "epoch_1.pth"),
        ("SIGTERM", MINUTES, "iter_7.pth"),  # Lightning finishes the batch
        ("SIGTERM", EXCEPTION, "iter_7.pth"),
        ("SIGKILL", PLAIN, "epoch_1.pth"),
        ("SIGKILL", MINUTES, "iter_6.pth"),
        ("SIGKILL", EXCEPTION, "epoch_1.pth"),
    ],
)
def test_what_the_end_of_a_run_loses(
    tmp_path: Path, how: str, options: dict[str, Any], newest: str, ctrl_c: None
) -> None:
    if how == "SIGKILL":
        assert run_in_a_process(tmp_path, how, options) == -signal.SIGKILL
    else:
        with pytest.raises((RuntimeError, SystemExit)):
            run(tmp_path, how, options)
    assert newest_valid(tmp_path) == str(tmp_path / newest)
    done = torch.load(tmp_path / newest, weights_only=True)["meta"]["iter"]
    module = run(tmp_path, None, options, ckpt_path="last")  # the line to type
    assert len(module.losses) == 3 * BATCHES - done
    assert newest_valid(tmp_path) == str(tmp_path / "epoch_3.pth")
    if newest == "epoch_1.pth":
        whole = run(tmp_path / "whole", None, options)
        assert all(map(torch.equal, module.parameters(), whole.parameters()))


class Plateau(TinyModule):
    frequency = 1

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)
        config = {"scheduler": scheduler, "monitor": "val_loss", "frequency": self.frequency}
        return [optimizer], [config]


class SteppedByAHook(Plateau):
    frequency = sys.maxsize


def step(runner: Any) -> None:
    runner.module.lr_schedulers().step(runner.trainer.callback_metrics["val_loss"])


@pytest.mark.parametrize(("kind", "is_equal"), [(Plateau, False), (SteppedByAHook, True)])
def test_where_bit_equality_ends(tmp_path: Path, kind: Any, is_equal: bool) -> None:
    def train(folder: str, epochs: int, **words: Any) -> float:
        hooks = [CheckpointHook(interval=1)]
        hooks += [ClosureHook("after_val_epoch", step)] if is_equal else []
        options = {"max_epochs": epochs, "enable_checkpointing": True}
        trainer = make_trainer(tmp_path / folder, *hooks, **options)
        trainer.fit(kind(), make_loader(), make_loader(1), **words)
        return float(trainer.optimizers[0].param_groups[0]["lr"])

    whole = train("whole", 6)
    train("stopped", 3)
    assert (train("stopped", 6, ckpt_path="last") == whole) is is_equal
