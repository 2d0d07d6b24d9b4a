"""cvpods' hooks in a Trainer."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks.dialects import cvpods
from lightning_hooks.dialects import detectron2 as d2
from support import training
from support.dialect_hooks.cvpods_style import Scaled, Stepper, Trace
from support.training import TinyModule

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")


fit = partial(training.fit, host=True, max_epochs=2)


def weights(trainer: Any) -> list[torch.Tensor]:
    return [p.detach() for p in trainer.lightning_module.parameters()]


def test_the_points_come_as_in_cvpods_loop(tmp_path: Path) -> None:
    hook = Trace()
    fit(tmp_path, hook)
    each = [(point, i) for i in range(8) for point in ("before_step", "after_step")]
    assert hook.calls == [("before_train", 0), *each, ("after_train", 8)]


def test_the_length_of_a_run_with_accumulated_steps_is_in_iterations(tmp_path: Path) -> None:
    """The Trainer's ``max_steps`` counts optimizer steps, of three iterations each."""
    path, seen = tmp_path / "metrics.json", []

    class Seen(cvpods.HookBase):
        def after_step(self) -> None:
            seen.append((self.trainer.iter, self.trainer.max_iter))

    hooks = [
        cvpods.OptimizationHook(accumulate_grad_steps=3),
        cvpods.EvalHook(0, lambda: {"AP": 0.5}),
        cvpods.PeriodicWriter([cvpods.JSONWriter(str(path))], period=4),
        Seen(),
    ]
    trainer = fit(tmp_path, *hooks, max_epochs=-1, max_steps=2)
    assert trainer.global_step == 2
    assert seen == [(i, 6) for i in range(6)]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["iteration"], "AP" in row) for row in rows] == [(0, False), (3, False), (5, True)]


def test_a_finished_run_by_iterations_takes_no_further_one(tmp_path: Path) -> None:
    def run(**options: Any) -> tuple[Any, list[tuple[str, int]]]:
        trace = Trace()
        hooks = [cvpods.OptimizationHook(accumulate_grad_steps=2), trace]
        length = {"by_epoch": False, "max_epochs": -1, "max_steps": 4}
        return fit(tmp_path, *hooks, **length, **options), trace.calls

    trainer, calls = run()
    assert calls[-1] == ("after_train", 4)
    assert trainer.global_step == 2
    trainer.save_checkpoint(tmp_path / "done.ckpt")
    assert run(ckpt_path=tmp_path / "done.ckpt")[1] == [("before_train", 4), ("after_train", 4)]


def test_the_storage_gives_values_without_iterations(tmp_path: Path) -> None:
    with cvpods.EventStorage() as storage:
        for value in (1.0, 2.0, 6.0):
            storage.put_scalars(loss=value)
            storage.put_scalar("lr", value, smoothing_hint=False)
            storage.step()
        assert cvpods.get_event_storage() is storage
        assert storage.latest() == {"loss": 6.0, "lr": 6.0}
        assert storage.latest_with_smoothing_hint(3) == {"loss": 2.0, "lr": 6.0}


def test_json_lines_have_everything_and_the_first_iteration(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    hooks = [
        cvpods.IterationTimer(),
        cvpods.EvalHook(4, lambda: {"AP": 0.5}),
        cvpods.PeriodicWriter([cvpods.JSONWriter(str(path))], period=3),
    ]
    fit(tmp_path, *hooks)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [0, 2, 5, 7]
    assert [row.get("AP") for row in rows] == [None, None, 0.5, 0.5]


@pytest.mark.parametrize("every", [1, 2])
def test_a_hook_that_owns_backward_trains_as_the_trainer_does(tmp_path: Path, every: int) -> None:
    for hook in (cvpods.OptimizationHook(every), Scaled(every)):
        owned = fit(tmp_path, hook)
        usual = fit(tmp_path, Trace(), accumulate_grad_batches=every)
        for one, other in zip(weights(owned), weights(usual), strict=True):
            torch.testing.assert_close(one, other)
        assert owned.global_step == usual.global_step == 8 // every


def test_a_users_own_stepper_says_that_it_owns_backward(tmp_path: Path) -> None:
    trace = Trace()
    owned = fit(tmp_path, Stepper(2), trace, owns_backward=True)
    usual = fit(tmp_path, Trace(), accumulate_grad_batches=2, gradient_clip_val=0.5)
    for one, other in zip(weights(owned), weights(usual), strict=True):
        torch.testing.assert_close(one, other)
    assert len(trace.calls) == 18
    with pytest.raises(RuntimeError, match="owns_backward=True") as caught:
        fit(tmp_path, Stepper(2))
    assert caught.value.__notes__ == ["in hook Stepper.after_step (epoch 0, iter 0)"]


def test_optimization_hook_clips_and_checks_arguments(tmp_path: Path) -> None:
    def clip(parameters: Any) -> None:
        torch.nn.utils.clip_grad_norm_(parameters, 0.5)

    owned = fit(tmp_path, cvpods.OptimizationHook(grad_clipper=clip))
    usual = fit(tmp_path, Trace(), gradient_clip_val=0.5)
    assert all(map(torch.allclose, weights(owned), weights(usual)))
    with pytest.raises(ValueError, match="mixed_precision must be False"):
        cvpods.OptimizationHook(mixed_precision=True)
    with pytest.raises(ValueError, match="beside OptimizationHook"):
        fit(tmp_path, cvpods.OptimizationHook(), gradient_clip_val=0.5)


def test_two_dialects_have_separate_storages(tmp_path: Path) -> None:
    order: list[str] = []

    class Pods(cvpods.HookBase):
        def after_step(self) -> None:
            order.append("cvpods")
            assert isinstance(cvpods.get_event_storage().latest()["total_loss"], float)

    class Detectron(d2.HookBase):
        def after_step(self) -> None:
            order.append("detectron2")
            loss, when = d2.get_event_storage().latest()["total_loss"]
            assert when == self.trainer.iter
            assert math.isfinite(loss)

    class Old:
        def after_train_iter(self, runner: Any) -> None:
            order.append("mmcv")

    fit(tmp_path, Detectron(), Old(), Pods(), (Detectron(), "LOW"), (Pods(), "HIGH"), max_steps=1)
    assert order == ["cvpods", "detectron2", "mmcv", "cvpods", "detectron2"]


def test_writers_of_two_dialects_read_separate_storages(tmp_path: Path) -> None:
    def close(self: Any) -> None:
        self.writer.close()

    def write(self: Any) -> None:
        self.trainer.storage.put_scalar(self.name, 1.0)
        self.writer.write()

    hooks = []
    for name, dialect in (("detectron2", d2), ("cvpods", cvpods)):
        writer = dialect.JSONWriter(str(tmp_path / name))
        attributes = {"name": name, "writer": writer, "after_step": write, "after_train": close}
        hooks.append(type("Writes", (dialect.HookBase,), attributes)())
    fit(tmp_path, *hooks, max_epochs=1)
    for name in ("detectron2", "cvpods"):
        rows = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        keys = {"data_time", "iteration", "total_loss", "train_loss", name}
        keys |= {"rank_data_time"} if name == "detectron2" else set()
        assert [row["iteration"] for row in rows] == [0, 1, 2, 3]
        assert set(rows[-1]) == keys
    for dialect in (d2, cvpods):
        with pytest.raises(AssertionError):
            dialect.get_event_storage()


def test_checkpoints_have_the_names_of_epochs(tmp_path: Path) -> None:
    saver = cvpods.Checkpointer(TinyModule(), str(tmp_path))
    fit(tmp_path, cvpods.PeriodicCheckpointer(saver, 4, max_iter=8, max_epoch=2))
    names = [path.stem for path in sorted(tmp_path.glob("*.pth"))]
    assert names == ["model_epoch_0001", "model_epoch_0002", "model_final"]
    with pytest.raises(ValueError, match="max_epoch must be at least 1"):
        cvpods.PeriodicCheckpointer(saver, 4, max_epoch=0)
