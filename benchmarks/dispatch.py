"""What it costs to call hooks: the callback events of one training batch, without a model.

All cases run in one process, in turns; a figure is the minimum over the rounds, and a ratio that
of two minima of the same run. Lightning's own no-op callback is the peer.

    python -m benchmarks.dispatch
"""

from __future__ import annotations

import gc
import logging
import tempfile
import time
from collections.abc import Callable
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer import call
from rich.console import Console
from rich.table import Table

from lightning_hooks import Hook, HookAdapter

EVENTS = (
    "on_train_batch_start",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
)
ROUNDS, REPEATS = 15, 300


class Stock(Callback):
    """A callback that does nothing: Lightning pays for each of its events all the same."""


class Light(Hook):
    """One live point, and no use for the step's outputs."""

    reads_step = False

    def after_train_iter(self, runner: Any) -> None:
        self.last = runner


class Old:
    """A foreign hook that does next to nothing."""

    reads_step = False

    def before_train_iter(self, runner: Any) -> None:
        self.last = runner

    def after_train_iter(self, runner: Any) -> None:
        self.last = runner


class Idle:
    """A foreign hook without a point of the batch."""

    reads_step = False

    def before_run(self, runner: Any) -> None: ...


CASES: dict[str, Callable[[], list[Any]]] = {
    "no callback": list,
    "1 stock callback": lambda: [Stock()],
    "20 stock callbacks": lambda: [Stock() for _ in range(20)],
    "1 native hook, one live point": lambda: [Light()],
    "20 native hooks, one live point each": lambda: [Light() for _ in range(20)],
    "adapter, 1 old hook": lambda: [HookAdapter([Old()])],
    "adapter, 20 old hooks": lambda: [HookAdapter([Old() for _ in range(20)])],
    "adapter, 20 old hooks without a batch point": lambda: [
        HookAdapter([Idle() for _ in range(20)])
    ],
}


class Module(L.LightningModule):
    """The least that fits."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.layer(batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Measure(Callback):
    """Times the six events of a batch in the middle of a fit."""

    best = float("inf")

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        callbacks = trainer.callbacks  # type: ignore[attr-defined]
        trainer.callbacks = [c for c in callbacks if c is not self]  # type: ignore[attr-defined]
        arguments: dict[str, tuple[Any, ...]] = {
            "on_train_batch_start": (batch, batch_idx),
            "on_train_batch_end": (outputs, batch, batch_idx),
        }
        arguments["on_after_backward"] = ()
        plan = [(name, arguments.get(name, (None,))) for name in EVENTS]
        start = time.perf_counter()
        for _ in range(REPEATS):
            for name, given in plan:
                call._call_callback_hooks(trainer, name, *given)
        self.best = min(self.best, (time.perf_counter() - start) / REPEATS)
        trainer.callbacks = callbacks  # type: ignore[attr-defined]


def measure(make: Callable[[], list[Any]], directory: str) -> float:
    """Return the microseconds of one batch's events."""
    timer = Measure()
    trainer = L.Trainer(
        max_epochs=1,
        callbacks=[*make(), timer],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=directory,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(3, 1)))
    return timer.best * 1e6


def main() -> None:
    """Measure all cases in turns and print the table."""
    for name in ("lightning.pytorch", "lightning_hooks"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_num_threads(1)
    best = dict.fromkeys(CASES, float("inf"))
    gc.disable()
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(ROUNDS):
            for case, make in CASES.items():
                best[case] = min(best[case], measure(make, directory))
            gc.collect()
    none, one, twenty = (best[c] for c in ("no callback", "1 stock callback", "20 stock callbacks"))
    table = Table("case", "us per batch", "over none", "x 1 stock", "x 20 stock", title="Dispatch")
    for case, value in best.items():
        extra = value - none
        ratios = [f"{extra / (peer - none):.3f}" for peer in (one, twenty)]
        table.add_row(case, f"{value:.2f}", f"{extra:.2f}", *ratios)
    Console().print(table)


if __name__ == "__main__":
    main()
