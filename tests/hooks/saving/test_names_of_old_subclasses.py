"""An old subclass may have attributes of any name that mmcv's class has not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch.utils.data import DataLoader, TensorDataset

from lightning_hooks import CheckpointHook, DistEvalHook, EvalHook
from lightning_hooks.engine.hook_callback import HookCallback
from lightning_hooks.standin._hooks import checkpoint, evaluation
from support.training import NoValidation, fit

EVALUATION = {
    *("dataloader", "start", "interval", "by_epoch", "save_best", "rule", "test_fn", "out_dir"),
    *("greater_keys", "less_keys", "eval_kwargs", "file_client_args", "file_client"),
    *("key_indicator", "compare_func", "best_ckpt_path", "initial_flag", "rule_map"),
    *("init_value_map", "evaluate", "broadcast_bn_buffer", "tmpdir", "gpu_collect"),
}
SAVING = {
    *("interval", "by_epoch", "save_optimizer", "out_dir", "max_keep_ckpts", "save_last", "args"),
    *("sync_buffer", "file_client_args", "file_client"),
}
KINDS = [
    *((kind, EVALUATION) for kind in (EvalHook, DistEvalHook)),
    *((kind, EVALUATION) for kind in (evaluation.EvalHook, evaluation.DistEvalHook)),
    *((kind, SAVING) for kind in (CheckpointHook, checkpoint.CheckpointHook)),
]
"""The hooks, with the public attributes of mmcv's."""


class WithForward(NoValidation):
    def forward(self, x: Any) -> Any:
        return self.net(x)


class Scores(TensorDataset):
    def evaluate(self, results: Any, logger: Any = None) -> dict[str, float]:
        return {"acc": 0.5}


def make(kind: type[Any]) -> Any:
    if issubclass(kind, CheckpointHook):
        return kind(interval=1, max_keep_ckpts=1)
    return kind(DataLoader(Scores(torch.ones(2, 4))), save_best="acc", by_epoch=True)


def names_of_ours(kind: type[Any]) -> set[str]:
    rooms = "lightning_hooks.hooks.saving", "lightning_hooks.standin._hooks"
    ours = [base for base in kind.__mro__ if base.__module__.startswith(rooms)]
    names = {name for base in ours for name in vars(base) if not name.startswith("_")}
    return {name for name in names if not hasattr(HookCallback, name)} - {*vars(Callback)}


@pytest.mark.parametrize(("kind", "mmcvs"), KINDS, ids=lambda value: getattr(value, "__name__", ""))
def test_names_that_mmcv_has_not_are_free_for_subclasses(
    tmp_path: Path, kind: type[Any], mmcvs: set[str]
) -> None:
    points = {name for name in names_of_ours(kind) if name.startswith(("before_", "after_"))}
    names = names_of_ours(kind) - mmcvs - points
    assert "monitor" in names
    old = type(kind.__name__, (kind,), dict.fromkeys(names, object()))
    for folder, made in (("plain", make(kind)), ("old", make(old))):
        assert {name for name in vars(made) if not name.startswith("_")} <= mmcvs
        fit(tmp_path / folder, made, module=WithForward, max_epochs=2, host=True)
    plain, with_names = (
        {path.name for path in (tmp_path / f).glob("*_*.pth")} for f in ("plain", "old")
    )
    assert plain == with_names != set()
