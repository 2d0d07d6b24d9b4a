"""Trains in two processes, of which one has a bad batch, for test_invalid_loss_ddp.py."""

from __future__ import annotations

import json
import logging
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy

from lightning_hooks import (
    CheckInvalidLossHook,
    CheckpointHook,
    EMAHook,
    HookAdapter,
    InvalidLossError,
    OptimizerHook,
)
from support.torture.bad_batches import GOOD, INPUT, LOSS, NormModule, batches, loader


def mine(steps: int, bad: dict[int, float]) -> list[Any]:
    """Return the batches of this rank: two for each step, of which rank 1 gets the bad one."""
    made = batches(2 * steps, {2 * step + 1: kind for step, kind in bad.items()})
    return made[int(os.environ.get("LOCAL_RANK", 0)) :: 2]


def fit(out: Path, bad: dict[int, float], *hooks: Any, make: Any = None) -> dict[str, Any]:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("lightning_hooks").addHandler(handler)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_epochs=1,
        use_distributed_sampler=False,
        callbacks=[HookAdapter(list(hooks), work_dir=str(out))],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=out,
    )
    module = NormModule(make)
    found: dict[str, Any] = {"error": None}
    try:
        trainer.fit(module, loader(mine(6, bad)))
    except InvalidLossError as error:
        found["error"] = str(error)
    logging.getLogger("lightning_hooks").removeHandler(handler)
    found["weights"] = [p.tolist() for p in module.parameters()]
    found["finite"] = all(bool(v.isfinite().all()) for v in module.state_dict().values())
    found["seen"], found["said"] = module.seen, [text for text in said if "iter" in text]
    return found


def main(out: Path) -> None:
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    adam = partial(torch.optim.Adam, lr=0.05)
    fused = partial(torch.optim.Adam, lr=0.05, fused=True)
    bad = {1: LOSS, 3: INPUT}
    skip = partial(CheckInvalidLossHook, interval=4, action="skip")
    found["skip"] = fit(out, bad, skip(), make=adam)
    found["skip-fused"] = fit(out, bad, skip(), make=fused)
    found["skip-owned"] = fit(out, bad, OptimizerHook(), skip(), make=adam)
    found["stop"] = fit(
        out / "stop",
        {2: INPUT},
        CheckInvalidLossHook(interval=2, action="stop"),
        EMAHook(),
        CheckpointHook(interval=1),
    )
    found["restore"] = fit(out, bad, CheckInvalidLossHook(interval=2, action="restore"))
    file = [CheckInvalidLossHook(interval=6, action="restore"), EMAHook()]
    saver = CheckpointHook(interval=2, by_epoch=False)
    found["restore-file"] = fit(out / "restore", {2: INPUT}, *file, saver)
    found["raise"] = fit(out, {2: LOSS}, CheckInvalidLossHook(interval=2, dump_dir=str(out)))
    found["good"] = fit(out, {2: GOOD}, CheckInvalidLossHook(interval=2))
    (out / f"rank{os.environ.get('LOCAL_RANK', 0)}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
