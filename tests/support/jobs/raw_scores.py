"""Validates the raw weights beside the average in two processes, for test_raw_scores.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from lightning_hooks import EMAHook
from support.processes import write_rank
from support.training import TinyModule, fit, make_loader, two_ranks


class Module(TinyModule):
    """Logs the mean over the ranks."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch), sync_dist=True, batch_size=len(batch[0]))


def main(out: Path) -> None:
    """Train with each value of ``validate``."""
    found = {}
    for validate in ("average", "raw", "both"):
        ema = EMAHook(momentum=0.1, warm_up=0, validate=validate)  # type: ignore[arg-type]
        options: dict[str, Any] = {"max_epochs": 2, "val": make_loader(4, seed=1), **two_ranks()}
        trainer = fit(out, ema, module=Module, **options)
        metrics = trainer.callback_metrics.items()
        found[validate] = {name: float(value) for name, value in metrics if "val" in name}
    write_rank(out, found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
