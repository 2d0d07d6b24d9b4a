"""Train with every hook in two processes, for test_contract_matrix.py.

python -m support.jobs.contract DIRECTORY together|each
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from lightning_hooks import HookAdapter
from support.contract import CASES, TRACKERS, build
from support.contract.situations import train
from support.processes import write_rank
from support.training import TinyNormModule, two_ranks

# one hook of a kind, because two would conflict
KINDS = ("LrUpdaterHook", "MomentumUpdaterHook", "OptimizerHook")
CHOSEN = {"CosineAnnealingLrUpdaterHook", "StepMomentumUpdaterHook", "OptimizerHook"}


def results(out: Path, *names: str) -> dict[str, Any]:
    """Train with hooks; return the rank's results, which must be equal on all ranks."""
    module = TinyNormModule()
    adapter = HookAdapter([build(name) for name in names], work_dir=str(out))
    trainer, begun = train(out, module, "plain", adapter, host=False, **two_ranks())
    weights = {name: value.tolist() for name, value in module.named_parameters()}
    return {"steps": trainer.global_step, "batches": begun.batches, "weights": weights}


def main(out: Path, how: str) -> None:
    torch.set_num_threads(1)
    names = [name for name in CASES if name not in TRACKERS]
    if how == "together":
        names = [name for name in names if name in CHOSEN or not name.endswith(KINDS)]
        found = {how: results(out, *names)}
    else:
        names = [name for name in names if "Fp16" not in name]  # asks for a scaler of the Trainer's
        found = {name: results(out / name, name) for name in names}
    write_rank(out, found, how)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
