"""Train with hooks of all dialects and of mmcv in one adapter, in two processes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import lightning as L

from lightning_hooks import (
    CheckInvalidLossHook,
    CheckpointHook,
    CosineAnnealingLrUpdaterHook,
    EMAHook,
    HookAdapter,
    TextLoggerHook,
)
from lightning_hooks.dialects import cvpods, pet
from lightning_hooks.dialects import detectron2 as d2
from support.dialect_hooks import mmengine_style, pointrix_style
from support.processes import write_rank
from support.training import TinyModule, make_loader

seen: dict[str, Any] = {}


class Pods(cvpods.HookBase):
    """Records the last loss in cvpods' storage."""

    def after_step(self) -> None:
        seen["cvpods"] = cvpods.get_event_storage().latest()["total_loss"]


class Pet(pet.TrainHook):
    """Records the last loss in Pet's storage."""

    def after_step(self, storage: Any, **kwargs: Any) -> None:  # type: ignore[override]
        seen["pet"] = storage.latest()["total_loss"]


class Seen(d2.HookBase):
    """Records the last losses of the module and of detectron2's storage, and traced calls."""

    def after_train(self) -> None:
        seen["own"] = self.trainer.model.losses[-1]
        seen["logged"] = self.trainer.storage.history("train_loss").latest()
        seen["detectron2"] = self.trainer.storage.latest()["total_loss"]
        for hook in self.trainer.hooks:
            if type(hook).__name__ == "Trace":
                seen[type(hook).__module__] = [call[:3] for call in hook.calls]


def main(out: Path) -> None:
    """Train for an epoch; files of the hooks and the notes of each rank are in ``out``."""
    writer = d2.PeriodicWriter([d2.JSONWriter(str(out / "metrics.json"))], period=2)
    traces = [mmengine_style.Trace(), pointrix_style.Trace()]
    hooks = [d2.IterationTimer(), writer, Pods(), Pet(), *traces, Seen()]
    ours = [
        CheckpointHook(interval=1),
        EMAHook(),
        TextLoggerHook(interval=2),
        CosineAnnealingLrUpdaterHook(min_lr=0.0),
        CheckInvalidLossHook(),
    ]
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        max_epochs=1,
        strategy="ddp",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=out,
        callbacks=[HookAdapter(hooks), *ours],
    )
    trainer.fit(TinyModule(), make_loader(8), make_loader(2))
    write_rank(out, seen)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
