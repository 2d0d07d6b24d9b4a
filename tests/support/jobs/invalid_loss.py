"""Train in two processes with bad batches on one rank, for test_invalid_loss_ddp.py."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.utils import _pytree as pytree

from lightning_hooks import (
    CheckInvalidLossHook,
    CheckpointHook,
    EMAHook,
    InvalidLossError,
    OptimizerHook,
)
from support.processes import write_rank
from support.torture.bad_batches import GOOD, INPUT, LOSS, SPIKE, NormModule, batches, loader
from support.training import fit, two_ranks


class SentTensors(ExitStack):
    """Counts tensors with values in the objects broadcast by rank 0."""

    found = 0

    def __enter__(self) -> SentTensors:
        send = torch.distributed.broadcast_object_list

        def count(objects: list[Any], *args: Any, **kwargs: Any) -> None:
            leaves = pytree.tree_leaves(objects)
            self.found += sum(
                isinstance(leaf, torch.Tensor) and not leaf.is_meta for leaf in leaves
            )
            send(objects, *args, **kwargs)

        for module in (torch.distributed, torch.distributed.distributed_c10d):
            self.enter_context(mock.patch.object(module, "broadcast_object_list", count))
        return self


def mine(steps: int, bad: dict[int, float]) -> list[Any]:
    """Return the rank's batches: one for each step, with the bad batches on rank 1."""
    made = batches(2 * steps, {2 * step + 1: kind for step, kind in bad.items()})
    return made[int(os.environ.get("LOCAL_RANK", 0)) :: 2]


def results(out: Path, bad: dict[int, float], *hooks: Any, make: Any = None) -> dict[str, Any]:
    """Train with some bad batches; return the results of the rank."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("lightning_hooks").addHandler(handler)
    options = {"work_dir": str(out), "use_distributed_sampler": False, **two_ranks()}
    module = NormModule(make)
    found: dict[str, Any] = {"error": None}
    try:
        fit(out, *hooks, module=module, batches=loader(mine(6, bad)), **options)
    except InvalidLossError as error:
        found["error"] = str(error)
    logging.getLogger("lightning_hooks").removeHandler(handler)
    states = [o.state_dict()["state"] for o in module.trainer.optimizers]
    found["optimizers"] = repr(states)
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
    found["skip"] = results(out, bad, skip(), make=adam)
    found["skip-fused"] = results(out, bad, skip(), make=fused)
    found["skip-owned"] = results(out, bad, OptimizerHook(), skip(), make=adam)
    spike = {"window": 3, "ratio": 50.0}
    found["skip-spike"] = results(out, {4: SPIKE}, skip(spike=spike), make=adam)
    found["stop"] = results(
        out / "stop",
        {2: INPUT},
        CheckInvalidLossHook(interval=2, action="stop"),
        EMAHook(after_fit="raw"),
        CheckpointHook(interval=1),
    )
    found["restore"] = results(out, bad, CheckInvalidLossHook(interval=2, action="restore"))
    file = [CheckInvalidLossHook(interval=6, action="restore"), average := EMAHook()]
    saver = CheckpointHook(interval=2, by_epoch=False)
    with SentTensors() as sent:
        found["restore-file"] = results(out / "restore", {2: INPUT}, *file, saver, make=adam)
    found["restore-file"]["average"] = {
        key: value.tolist()  # without BatchNorm's statistics, which differ between ranks
        for key, value in average.ema_state_dict().items()
        if key.endswith(("weight", "bias"))
    }
    found["restore-file"]["sent in objects"] = sent.found
    found["raise"] = results(out, {2: LOSS}, CheckInvalidLossHook(interval=2, dump_dir=str(out)))
    found["good"] = results(out, {2: GOOD}, CheckInvalidLossHook(interval=2))
    write_rank(out, found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
