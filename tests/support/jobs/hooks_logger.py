"""Lightning's monitors and the user's ``self.logger`` on two ranks; for test_hooks_logger.py."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import LearningRateMonitor

from lightning_hooks import IterTimerHook, TensorboardLoggerHook, TextLoggerHook, hooks_logger
from support.processes import write_rank
from support.training import TinyModule, make_loader, make_trainer, two_ranks


class Calling(TinyModule):
    """Logs by ``self.logger`` on every rank."""

    def on_train_batch_end(self, *args: Any) -> None:
        self.logger.log_metrics({"user/rank": float(self.global_rank)})


def main(out: Path) -> None:
    torch.set_num_threads(1)
    hooks = [
        IterTimerHook(),
        TextLoggerHook(interval=1),
        TensorboardLoggerHook(interval=1, timings=True),
        LearningRateMonitor(),
    ]
    options: dict[str, Any] = two_ranks(timeout=timedelta(seconds=30))
    trainer = make_trainer(out, *hooks, logger=hooks_logger(), max_epochs=1, **options)
    module = Calling()
    trainer.fit(module, make_loader(8), make_loader(2))
    write_rank(out, {"steps": trainer.global_step})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
