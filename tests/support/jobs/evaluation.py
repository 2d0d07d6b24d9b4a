"""Evaluate in two processes, for test_evaluation.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Subset
from torch.utils.data.distributed import DistributedSampler
from torchmetrics import MeanMetric, SumMetric

from lightning_hooks.hooks.saving.evaluation import DistEvalHook, EvalHook
from support.processes import write_rank
from support.training import TinyNormModule, fit, two_ranks

RANK = int(os.environ.get("LOCAL_RANK", 0))


class Module(TinyNormModule):
    """A module that returns the sum of each sample; the validation loss differs between ranks."""

    def forward(self, img: Any, return_loss: bool = True) -> Any:
        return img.sum(1)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        rises = 1.0 + self.current_epoch
        self.log("val_loss", rises if self.global_rank == 0 else -rises)


class Images(Dataset[Any]):
    """A dataset of five images whose score counts the evaluations."""

    count = 0

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"img": torch.full((3,), float(index))}

    def evaluate(self, results: Any, logger: Any = None) -> dict[str, Any]:
        assert RANK == 0
        self.count += 1
        return {"acc": self.count}


class Unscored(Images):
    """Images whose ``evaluate``, called on rank 0 only, raises an error."""

    def evaluate(self, results: Any, logger: Any = None) -> dict[str, Any]:
        raise LookupError("there are no annotations")


class Dealt:
    """A sampler without padding: three samples for rank 0, two for rank 1."""

    def __iter__(self) -> Any:
        return iter(range(RANK, 5, 2))

    def __len__(self) -> int:
        return len(range(RANK, 5, 2))


def evaluated(out: Path, hook: Any, *others: Any, val: bool = False) -> dict[str, Any]:
    """Train with an evaluation hook; return its results and the BatchNorm statistics."""
    module = Module()
    means: list[Any] = []
    evaluate = hook._do_evaluate

    def look(runner: Any) -> None:
        means[:] = [module.net[1].running_mean.tolist()]
        evaluate(runner)
        means.append(module.net[1].running_mean.tolist())

    hook._do_evaluate = look
    options = {"max_epochs": 2, "num_sanity_val_steps": 0, **two_ranks(broadcast_buffers=False)}
    fit(out, hook, *others, module=module, val=2 * val, work_dir=str(out), **options)
    best = hook.best_ckpt_path
    return {
        "results": None if val else plain(hook),
        "best": best and Path(best).name,
        "mean_before": means and means[0],
        "mean_after": means and means[1],
    }


def plain(hook: Any) -> Any:
    found = hook.latest_results
    return [float(x) for x in found] if isinstance(found, list) else found


def loader(sampler: Any = None) -> DataLoader[Any]:
    return DataLoader(Images(), batch_size=2, sampler=sampler)


def dealt(data: Dataset[Any] | None = None) -> DataLoader[Any]:
    data = data or Images()
    sampler = DistributedSampler(data, 2, RANK, shuffle=False)
    return DataLoader(data, batch_size=2, sampler=sampler)


def error_of(out: Path, hook: Any) -> str:
    """Return the rank's error in an evaluation."""
    try:
        evaluated(out, hook)
    except (LookupError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def values(model: Any, loader: Any, **kwargs: Any) -> Any:
    """Return pairs of value and weight, of a dataset with values 1 to 5, for a metric."""
    return [(batch["img"][:, 0] + 1, torch.ones(len(batch["img"]))) for batch in loader]


class Sum(SumMetric):
    """Takes a weight too."""

    def update(self, value: Any, weight: Any) -> None:
        super().update(value * weight)


Sum.__name__ = "SumMetric"


def main(out: Path) -> None:
    torch.set_num_threads(1)
    found = {
        "files": evaluated(out / "files", DistEvalHook(dealt(), save_best="acc")),
        "sent": evaluated(
            out / "sent",
            DistEvalHook(dealt(), save_best="acc", broadcast_bn_buffer=False, gpu_collect=True),
        ),
        "own": evaluated(out / "own", EvalHook(None, save_best="val_loss"), val=True),
    }
    four = Subset(Images(), range(4))
    sampler = DistributedSampler(four, 2, RANK, shuffle=False)
    pairs = DataLoader(four, batch_size=1, sampler=sampler)
    hooks = {
        "whole": DistEvalHook(loader()),
        "uneven": DistEvalHook(loader(Dealt())),
        "metric": DistEvalHook(pairs, metric=MeanMetric(), test_fn=values),
        "sum": EvalHook(loader(), metric=Sum(), test_fn=values),
    }
    evaluated(out / "others", *hooks.values())
    found.update({name: {"results": plain(hook)} for name, hook in hooks.items()})
    found["errors"] = {
        "no score": error_of(out / "unscored", DistEvalHook(dealt(Unscored()), gpu_collect=True)),
        "own disk": error_of(out / "disk", DistEvalHook(dealt(), tmpdir=str(out / f"disk{RANK}"))),
    }
    write_rank(out, found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
