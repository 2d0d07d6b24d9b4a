"""Checkpoints of detectron2's and cvpods' hooks: periodic, best, and the Checkpointer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import HookAdapter
from lightning_hooks.dialects import cvpods
from lightning_hooks.dialects import detectron2 as d2
from support import training
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")


fit = partial(training.fit, host=True, batches=3, max_epochs=2)


def test_checkpointer_loads_model_and_checkpointables(tmp_path: Path) -> None:
    module = TinyModule()
    sgd = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    module.configure_optimizers = lambda: sgd  # type: ignore[method-assign]
    saver = d2.DetectionCheckpointer(module, str(tmp_path), optimizer=sgd)
    assert saver.resume_or_load("") == {}
    fit(tmp_path, d2.PeriodicCheckpointer(saver, 2, max_to_keep=2), module=module)
    names = ["model_0000003.pth", "model_0000005.pth", "model_final.pth"]
    assert [Path(path).name for path in saver.get_all_checkpoint_files()] == names
    assert saver.get_checkpoint_file() == str(tmp_path / "model_final.pth")
    new = TinyModule(seed=1)
    other = torch.optim.SGD(new.parameters(), lr=1.0)
    resumed = d2.Checkpointer(new, str(tmp_path), optimizer=other)
    assert resumed.resume_or_load("") == {"iteration": 5}
    assert torch.equal(new.net.weight, module.net.weight)
    assert other.param_groups[0]["lr"] == 0.1
    assert resumed.load(str(tmp_path / names[0]))["iteration"] == 3
    weights_only = d2.Checkpointer(TinyModule(seed=1), "", optimizer=sgd)
    rest = weights_only.resume_or_load(str(tmp_path / names[0]), resume=False)
    assert sorted(rest) == ["iteration", "optimizer"]


def test_a_write_that_fails_leaves_the_file_before(tmp_path: Path) -> None:
    saver = cvpods.Checkpointer(TinyModule(), str(tmp_path))
    saver.save("model", iteration=1)
    with pytest.raises(AttributeError, match="local object"):
        saver.save("model", iteration=lambda: None)
    assert saver.resume_or_load("") == {"iteration": 1}
    assert len([*tmp_path.iterdir()]) == 2


@pytest.mark.parametrize(("mode", "best"), [("max", 1), ("min", 3)])
def test_best_checkpointer_saves_the_best_scalar(tmp_path: Path, mode: str, best: int) -> None:
    results = iter([{"box": {"AP": v}} for v in (0.3, 0.1, float("nan"), 0.2, 0.2, 0.2)])
    saver = d2.Checkpointer(TinyModule(), str(tmp_path))
    hook = d2.BestCheckpointer(2, saver, "box/AP", mode)
    trainer = fit(tmp_path, d2.EvalHook(2, lambda: next(results)), hook)
    assert saver.load(str(tmp_path / "model_best.pth")) == {"iteration": best}
    assert hook.best_iter == best
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    resumed = d2.BestCheckpointer(2, saver, "box/AP", mode)
    evaluates = d2.EvalHook(2, lambda: {"box": {"AP": 0.15}})  # between the two
    trainer = make_trainer(tmp_path, HookAdapter([evaluates, resumed]), max_epochs=4)
    trainer.fit(TinyModule(), make_loader(3), ckpt_path=tmp_path / "a.ckpt")
    assert resumed.best_iter == best


def test_best_checkpointer_warns_of_a_missing_scalar(tmp_path: Path, caplog: Any) -> None:
    saver = d2.Checkpointer(TinyModule(), str(tmp_path))
    fit(tmp_path, d2.BestCheckpointer(0, saver, "box/AP"))
    assert "BestCheckpointer: no scalar 'box/AP' has been put; nothing is saved" in caplog.text
    assert not saver.has_checkpoint()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: d2.Checkpointer(TinyModule(), "", lr=3), "lr must have state_dict"),
        (lambda: d2.BestCheckpointer(1, 3, "ap"), "checkpointer must have save"),
        (lambda: d2.BestCheckpointer(-1, d2.Checkpointer(TinyModule()), "ap"), "eval_period must"),
        (lambda: d2.BestCheckpointer(1, d2.Checkpointer(TinyModule()), "ap", "up"), "mode must be"),
    ],
)
def test_bad_arguments(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()
