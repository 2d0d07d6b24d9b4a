"""A subclass of an mmcv hook may use every public name that is absent from mmcv's hook."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch.utils.data import DataLoader, TensorDataset

import lightning_hooks
from lightning_hooks import Hook
from lightning_hooks.engine.points import POINTS
from lightning_hooks.standin.name_table import names_of
from support import training
from support.contract import CASES, TRACKERS, needs
from support.golden import recorded
from support.training import TinyNormModule

MMCVS: dict[str, list[str]] = recorded("hook_names")["cases"]
"""The public names of mmcv's hooks, without the names of mmcv's base class."""

EVENTS = {"on_checkpoint_saved", "on_checkpoints_deleted", "run_before", "run_after"}
"""Names documented for any hook, including old hooks."""

OF_EVERY_HOOK = {*vars(Callback), *EVENTS, *POINTS, "stages", "get_triggered_stages"} | {
    *("every_n_epochs", "every_n_iters", "every_n_inner_iters", "end_of_epoch"),
    *("is_last_epoch", "is_last_iter"),
}

DISCONTINUED = {"PaviLoggerHook", "SegmindLoggerHook"}
"""Loggers of discontinued services."""

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # the trackers' own
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore:.*UpdaterHook of |.*BatchNorm|.*cumulative"),
]


BASES: dict[str, dict[str, Any]] = {
    "LrUpdaterHook": {"get_lr": lambda self, runner, base_lr: base_lr / (1 + runner.epoch)},
    "MomentumUpdaterHook": {"get_momentum": lambda self, runner, base: base / (1 + runner.epoch)},
    "LoggerHook": {"log": lambda self, runner: runner.log_buffer.output.update(seen=1)},
}
"""The methods defined in a subclass of a hook without a policy."""


class Scores(TensorDataset):
    def evaluate(self, results: Any, logger: Any = None) -> dict[str, float]:
        return {"acc": 0.5}


def arguments(name: str) -> dict[str, Any]:
    if name in ("EvalHook", "DistEvalHook"):
        return {"dataloader": DataLoader(Scores(torch.ones(2, 4))), "save_best": "acc"}
    return CASES[name][0] if name in CASES else {}


def kinds() -> list[Any]:
    """Return the native and the stand-in hooks with names from mmcv."""
    sources = names_of("mmcv.runner")
    cases = []
    for name in sorted(MMCVS.keys() - DISCONTINUED):
        native = getattr(lightning_hooks, name, None)
        standin = sources[name].load() if sources.get(name) else None
        for origin, kind in {"native": native, "standin": standin}.items():
            if isinstance(kind, type) and (origin == "native" or kind is not native):
                cases.append(pytest.param(name, kind, id=f"{name}-{origin}"))
    return cases


def free_names(name: str, hook: Any) -> set[str]:
    """Return a hook's public names that are absent from mmcv's hook."""
    ours = [base for base in type(hook).__mro__ if base.__module__.startswith("lightning_hooks.")]
    known = set().union(vars(hook), *map(vars, ours))
    public = {name for name in known if not name.startswith("_")}
    return public - OF_EVERY_HOOK - {*MMCVS[name]}


class Predicts(TinyNormModule):
    def forward(self, x: Any) -> Any:
        return self.net(x)


class Sees(Hook):
    """Records the weights and optimizer options of each step, and the validated weights."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def before_val_epoch(self, runner: Any) -> None:
        self.seen.append(runner.module.net[0].weight.sum().item())

    def after_train_iter(self, runner: Any) -> None:
        group = runner.optimizer.param_groups[0]
        weights = [v.sum().item() for v in runner.module.state_dict().values()]
        self.seen += [group["lr"], group["momentum"], *weights]


def train(folder: Path, hook: Any) -> tuple[list[Any], list[str]]:
    """Train with a hook; return the recorded values and the files."""
    sees = Sees()
    options: dict[str, Any] = {"val": 1, "max_epochs": 2, "host": True, "batches": 4}
    training.fit(folder, hook, sees, module=Predicts, **options, **needs(hook))
    files = sorted(path.name for path in folder.rglob("*.pth"))
    return sees.seen, files


class Nonsense:
    """A value that raises an error when used."""

    def __bool__(self) -> bool:
        raise TypeError("a value of the subclass was read")


@pytest.mark.usefixtures("nothing_elsewhere")
@pytest.mark.parametrize(("name", "kind"), kinds())
def test_names_that_mmcv_has_not_are_free(
    name: str, kind: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if name in TRACKERS:
        pytest.importorskip(kind._package)
    if name in BASES:
        kind = type(name, (kind,), BASES[name])
    plain, by_instance = kind(**arguments(name)), kind(**arguments(name))
    values = dict.fromkeys(free_names(name, plain), Nonsense())
    by_class = type(name, (kind,), values)(**arguments(name))
    for free, value in values.items():
        setattr(by_instance, free, value)
    seen = []
    for folder, hook in (("plain", plain), ("class", by_class), ("instance", by_instance)):
        torch.manual_seed(0)
        (tmp_path / folder).mkdir()
        if name == "MlflowLoggerHook":  # making an empty database takes seconds
            shutil.copy(request.getfixturevalue("empty_db"), tmp_path / folder / "mlflow.db")
        seen.append(train(tmp_path / folder, hook))
    assert seen[1] == seen[0]
    assert seen[2] == seen[0]
