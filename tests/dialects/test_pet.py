"""Pet's hooks and test timers in a Trainer."""

from __future__ import annotations

import copy
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import HookAdapter, update_bn_stats
from lightning_hooks.dialects import pet
from support import training
from support.dialect_hooks.pet_style import Narrow, Rows, Trace
from support.training import TinyModule, TinyNormModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .(val|test)_dataloader")


class Own(TinyNormModule):
    """A module that creates its optimizer in the constructor, as Pet's hooks require."""

    def __init__(self) -> None:
        super().__init__()
        bn = self.net[1]
        rest = [p for p in self.parameters() if p is not bn.weight and p is not bn.bias]
        groups = [{"params": [bn.weight, bn.bias], "lr": 0.5}, {"params": rest}]
        self.sgd = torch.optim.SGD(groups, lr=0.1)

    def configure_optimizers(self) -> Any:
        return self.sgd


fit = partial(training.fit, host=True, batches=3, max_epochs=2)


def test_the_points_come_with_their_keywords_and_count_from_one(tmp_path: Path) -> None:
    hook = Trace()
    fit(tmp_path, hook)
    more = ["epoch", "max_epoch", "max_epochs"]
    steps = [
        call for i in range(1, 7) for call in (("before_step", i, []), ("after_step", i, more))
    ]
    assert hook.calls == [("before_train", None, []), *steps, ("after_train", 7, [])]


def test_after_train_comes_also_when_training_raises(tmp_path: Path) -> None:
    class Bad(pet.TrainHook):
        def after_step(self, storage: Any, **kwargs: Any) -> None:
            if storage.iter == 2:
                raise OSError("full")

    hook = Trace()
    with pytest.raises(OSError, match="full") as caught:
        fit(tmp_path, hook, Bad())
    assert caught.value.__notes__ == ["in hook Bad.after_step (epoch 0, iter 1)"]
    assert hook.calls[-2:] == [
        ("after_step", 2, ["epoch", "max_epoch", "max_epochs"]),
        ("after_train", 2, []),
    ]


def test_a_hook_gets_what_its_signature_takes(tmp_path: Path) -> None:
    hook = Narrow()
    fit(tmp_path, hook, max_epochs=2, limit_train_batches=1)
    assert hook.epochs == ["start", (1, 2), (2, 2)]


def test_the_four_training_hooks_together(tmp_path: Path, caplog: Any) -> None:
    module, rows = Own(), Rows()
    module.forward = lambda x: module.net(x)  # type: ignore[method-assign]
    batches = [x for x, _ in make_loader(4, seed=3)]
    scheduler = torch.optim.lr_scheduler.StepLR(module.sgd, 2, gamma=0.1)
    hooks = [
        pet.IterationTimer(6, 1, warmup_iter=3, ignore_warmup_time=True),
        pet.LRScheduler(module.sgd, scheduler),
        pet.PreciseBN((batches, module.net, "cpu"), period=4, num_iter=2, max_iter=6),
        pet.PeriodicWriter([rows], max_iter=3, display_iter=2),
    ]
    with caplog.at_level("INFO"):
        fit(tmp_path, *hooks, module=module)
    assert [when for when, _ in rows.rows] == [1, 2, 4, 5]
    # the second group is the largest; the rate belongs to the current iteration
    assert [row["lr"] for _, row in rows.rows] == pytest.approx([0.1, 0.1, 0.01, 0.001])
    assert [row["epoch"] for _, row in rows.rows] == [1, 1, 2, 2]
    assert "time" not in rows.rows[0][1]
    assert {"time", "total_loss", "train_loss", "data_time"} <= set(rows.rows[2][1])
    assert rows.closed
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("Overall training speed: 4 iterations in 0:00:00") for line in lines)
    assert "Total training time: 0:00:00 (0:00:00 on hooks)" in lines
    found = module.net[1].running_mean.clone()
    update_bn_stats(module.net.train(), batches[2:])  # the second update went on from the first
    assert torch.equal(found, module.net[1].running_mean)


def test_the_scheduler_resumes(tmp_path: Path) -> None:
    def hook_of(module: Own) -> Any:
        return pet.LRScheduler(module.sgd, torch.optim.lr_scheduler.StepLR(module.sgd, 4))

    whole, half, rest = Own(), Own(), Own()
    fit(tmp_path, hook_of(whole), module=whole, max_epochs=4)
    fit(tmp_path, hook_of(half), module=half).save_checkpoint(tmp_path / "a.ckpt")
    trainer = make_trainer(tmp_path, HookAdapter([hook_of(rest)]), max_epochs=4)
    trainer.fit(rest, make_loader(3), ckpt_path=tmp_path / "a.ckpt")
    rates = [[g["lr"] for g in module.sgd.param_groups] for module in (whole, rest)]
    assert rates[0] == rates[1]
    assert all(map(torch.equal, whole.parameters(), rest.parameters()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pet.PeriodicWriter([1], 3), "writers must be EventWriters"),
        (lambda: pet.PeriodicWriter([], 0), "max_iter must be at least 1"),
        (lambda: pet.IterationTimer(3, warmup_iter=-1), "warmup_iter must be at least 0"),
        (lambda: pet.LRScheduler(None, None), "scheduler must have step"),
        (lambda: pet.PreciseBN([1, 2], 1, 1, 1), "precise_bn_args must be a model, a loader"),
        (lambda: pet.TestHook(logperiod=0), "logperiod must be"),
        (lambda: pet.TestHook(num_warmup=-1), "num_warmup must be"),
    ],
)
def test_bad_arguments(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()


# -- the timers of a test ------------------------------------------------------------------------


def test_statistics_from_no_batch_are_an_error() -> None:
    with pytest.raises(ValueError, match="got no batch from list"):
        pet.update_bn_stats(TinyNormModule(), [])


def test_timers_by_name() -> None:
    hook = pet.TestHook("a.yaml", logperiod=2, num_warmup=1)
    for pause in (0.2, 0.01, 0.01):
        hook.nms_tic()
        time.sleep(pause)
        hook.nms_toc()
    assert 0.01 <= hook.average("nms") < 0.1  # without the first
    hook.reset_timer("nms")
    assert hook.average("nms") == 0
    with pytest.raises(RuntimeError, match="without tic"):
        hook.toc("iter")
    with pytest.raises(ValueError, match="no timer 'nns'; known: iter, data, infer, post, nms"):
        hook.toc("nns")
    with pytest.raises(AttributeError, match="nns_tac"):
        hook.nns_tac()
    assert copy.deepcopy(hook).logperiod == 2


def test_lines_of_a_plain_loop() -> None:
    hook = pet.TestHook("a.yaml", logperiod=2, num_warmup=0)
    lines = []
    for i in range(5):
        hook.iter_tic()
        hook.iter_toc()
        lines.append(hook.log_stats(i, 10, 15, 100, suffix="bbox"))
    assert [line is not None for line in lines] == [False, True, False, True, True]
    assert lines[1] == (
        "a.yaml [Testing][range:11-15 of 100][2/5]"
        "[0.000s = data 0.000s + infer 0.000s + post 0.000s][eta: 0:00:00] bbox"
    )


def test_a_trainers_test_is_timed(tmp_path: Path, caplog: Any) -> None:
    class Slow(TinyModule):
        def test_step(self, batch: Any, batch_idx: int) -> None:
            time.sleep(0.02)

    hook = pet.TestHook(logperiod=2, num_warmup=1)
    trainer = make_trainer(tmp_path, hook)
    for _ in range(2):
        with caplog.at_level("INFO"):
            trainer.test(Slow(), make_loader(4), verbose=False)
        assert hook.timers["infer"].calls == hook.timers["data"].calls == 3
        assert 0.02 <= hook.average("infer") <= hook.average("iter")
    assert sum("[Testing][range:1-4 of 4]" in r.getMessage() for r in caplog.records) == 4
