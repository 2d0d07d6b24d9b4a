"""Record the evaluation times, best scores and inferred rules of mmcv's EvalHook."""

import itertools
import logging
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from oracle import make_hook, make_runner, mmcv_runner, run
from torch.utils.data import DataLoader

EvalHook = mmcv_runner.EvalHook
EPOCH, ITER = "EpochBasedRunner", "IterBasedRunner"
BATCHES = 3
STARTS, INTERVALS = (None, 0, 1, 2, 3, 7), (1, 2, 3)
# runner, limit, by_epoch of the hook, epochs before
RUNS = [(EPOCH, 5, True, 0), (EPOCH, 5, True, 2), (EPOCH, 3, False, 0), (ITER, 8, False, 0)]
KEYS = (
    *("acc", "top", "loss", "mAP", "AUC", "Precision", "AR@100", "bbox_mAP_50", "coco/bbox_mAP"),
    *("accuracy_top-1", "val_loss", "LOSS", "mIoU", "aAcc", "loss_acc", "stop", "error", "f1", ""),
)
SCORES = {
    "rising": [0.1, 0.2, 0.3, 0.4],
    "falling": [0.4, 0.3, 0.2, 0.1],
    "ties": [0.5, 0.5, 0.25, 0.5],
    "with_nan": [float("nan"), 0.5, float("nan"), 0.75],
    "with_none": [None, 0.5, None, 0.75],
    "negative": [-3.0, -1.0, -2.0, -4.0],
}


class Table(NamedTuple):
    """The arguments of a run whose evaluations are recorded."""

    runner: str
    limit: int
    by_epoch: bool
    resumed_after_epoch: int
    start: int | None
    interval: int


class Data:
    """A dataset of two samples whose ``evaluate`` returns the given scores in turn."""

    def __init__(self, key: str, scores: list[Any]) -> None:
        self.key, self.scores = key, iter(scores)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return index

    def evaluate(self, results: list[Any], logger: Any = None) -> dict[str, Any]:
        """Return the next score."""
        return {self.key: next(self.scores)}


class Looks(EvalHook):
    """Records the times of evaluations."""

    def _do_evaluate(self, runner: Any) -> None:
        self.seen.append([runner.epoch, runner.iter])


def times(case: Table) -> list[list[int]]:
    """Return (epoch, iter) of every evaluation."""
    hook = Looks(
        DataLoader(range(2)), start=case.start, interval=case.interval, by_epoch=case.by_epoch
    )
    hook.seen = []
    with tempfile.TemporaryDirectory() as work_dir:
        runner = make_runner(case.runner, case.limit, work_dir=work_dir)
        if case.resumed_after_epoch:
            first = make_runner(case.runner, case.resumed_after_epoch, work_dir=work_dir)
            first.register_hook(make_hook({"type": "CheckpointHook", "interval": 1}))
            run(first, [DataLoader(range(BATCHES))], [("train", 1)])
            runner.resume(f"{work_dir}/epoch_{case.resumed_after_epoch}.pth")
        runner.register_hook(hook, "LOW")
        run(runner, [DataLoader(range(BATCHES))], [("train", 1)])
    return hook.seen


def best(key: str, scores: list[Any], by_epoch: bool) -> dict[str, Any]:
    """Return the remaining best file, its entry in the meta, and the log messages."""
    said: list[str] = []
    logger = logging.Logger("golden")
    logger.addHandler(logging.NullHandler())
    logger.addFilter(lambda record: said.append(record.getMessage()) or False)
    with tempfile.TemporaryDirectory() as work_dir:
        hook = EvalHook(
            DataLoader(Data(key, scores)),
            by_epoch=by_epoch,
            save_best="auto",
            test_fn=lambda model, loader: [],
        )
        runner = make_runner(EPOCH, 4 if by_epoch else 2, work_dir=work_dir, logger=logger, meta={})
        runner.register_hook(hook, "LOW")
        run(runner, [DataLoader(range(2))], [("train", 1)])
        messages = runner.meta["hook_msgs"]
        return {
            "key": key,
            "scores": scores,
            "by_epoch": by_epoch,
            "files": sorted(path.name for path in Path(work_dir).glob("best*")),
            "best_score": messages.get("best_score"),
            "best_ckpt": Path(messages["best_ckpt"]).name if "best_ckpt" in messages else None,
            "said": [line for line in said if line.startswith(("Best ", "Now best"))],
        }


def rule(key: str) -> str | None:
    """Return the inferred rule, or None for an error."""
    try:
        return str(EvalHook(DataLoader(range(2)), save_best=key).rule)
    except ValueError:
        return None


def record() -> dict[str, Any]:
    """Record all three."""
    table = [Table(*r, *x) for r in RUNS for x in itertools.product(STARTS, INTERVALS)]
    return {
        "batches": BATCHES,
        "cases": [[*case, times(case)] for case in table],
        "best": {
            f"{name}_{key}{'' if by_epoch else '_by_iter'}": best(key, scores, by_epoch)
            for name, scores in SCORES.items()
            for key in ("acc", "loss")
            for by_epoch in (True, False)
        },
        "rules": {key: rule(key) for key in KEYS},
    }
