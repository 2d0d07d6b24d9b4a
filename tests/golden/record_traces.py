"""Record the order of hook calls by mmcv's runners, and the counters at each call."""

import tempfile
from typing import Any, NamedTuple

from oracle import Hook, make_hook, make_loaders, make_runner, run

GENERIC = ("before_epoch", "after_epoch", "before_iter", "after_iter")
COLUMNS = ("point", "epoch", "iter", "inner_iter", "mode", "max_epochs", "max_iters")
EPOCH, ITER = "EpochBasedRunner", "IterBasedRunner"
TRAIN, TRAIN_VAL = [("train", 1)], [("train", 1), ("val", 1)]
TRAIN2_VAL, TRAIN4_VAL2 = [("train", 2), ("val", 1)], [("train", 4), ("val", 2)]


class Case(NamedTuple):
    """A traced run."""

    runner: str
    limit: int  # max_epochs or max_iters
    workflow: list[tuple[str, int]]
    loaders: list[int]  # batches in each
    resumed_after_epoch: int | None = None


CASES = {
    "epoch_train": Case(EPOCH, 3, TRAIN, [4]),
    "epoch_train_val": Case(EPOCH, 3, TRAIN_VAL, [4, 2]),
    "epoch_val_every_2": Case(EPOCH, 4, TRAIN2_VAL, [4, 2]),
    "epoch_val_every_2_odd": Case(EPOCH, 3, TRAIN2_VAL, [4, 2]),
    "epoch_resumed": Case(EPOCH, 4, TRAIN_VAL, [4, 2], resumed_after_epoch=2),
    "iter_train": Case(ITER, 10, TRAIN, [4]),
    "iter_train_by_5": Case(ITER, 10, [("train", 5)], [4]),
    "iter_train_val": Case(ITER, 12, TRAIN4_VAL2, [4, 2]),
}


def recorder(points: tuple[str, ...], calls: list[list[Any]]) -> Any:
    """Return a hook that overrides the given points and records each call."""

    def note(point: str) -> Any:
        def method(self: Any, runner: Any) -> None:
            calls.append([point, *(getattr(runner, column) for column in COLUMNS[1:])])

        return method

    return type("Recorder", (Hook,), {point: note(point) for point in points})()


def trace(case: Case) -> dict[str, Any]:
    """Run a case with a hook of the ten points and a hook of the four generic points."""
    points: list[list[Any]] = []
    generic: list[list[Any]] = []
    with tempfile.TemporaryDirectory() as work_dir:
        runner = make_runner(case.runner, case.limit, work_dir=work_dir)
        if case.resumed_after_epoch:
            end = case.resumed_after_epoch
            first = make_runner(case.runner, end, work_dir=work_dir)
            first.register_hook(make_hook({"type": "CheckpointHook", "interval": end}))
            run(first, make_loaders(case.loaders), case.workflow)
            runner.resume(f"{work_dir}/epoch_{end}.pth")
        runner.register_hook(recorder(Hook.stages, points))
        runner.register_hook(recorder(GENERIC, generic))
        run(runner, make_loaders(case.loaders), case.workflow)
    return {**case._asdict(), "points": points, "generic": generic}


def record() -> dict[str, Any]:
    """Record every case."""
    return {"columns": COLUMNS, "cases": {name: trace(case) for name, case in CASES.items()}}
