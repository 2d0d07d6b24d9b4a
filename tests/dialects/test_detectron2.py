"""detectron2's hooks in a Trainer."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import re
import sys
import types
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks import HookAdapter, update_bn_stats
from lightning_hooks.dialects import detectron2 as d2
from support import training
from support.dialect_hooks.detectron2_style import (
    BestLoss,
    Board,
    GradNorm,
    LastWords,
    ListWriter,
    LossOfTheTrainersModel,
    LossOnOtherData,
    SavesTheLowest,
    Trace,
)
from support.probes import Recorder
from support.training import TinyModule, TinyNormModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")


fit = partial(training.fit, host=True, batches=3, max_epochs=2)


class Boom(Callback):
    def __init__(self, at: int) -> None:
        self.at = at

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self.at:
            raise ArithmeticError("boom")


def steps(*iterations: int, last: int) -> list[tuple[str, int]]:
    points = ("before_step", "after_backward", "after_step")
    each = [(point, i) for i in iterations for point in points]
    return [("before_train", iterations[0]), *each, ("after_train", last)]


# -- the points ----------------------------------------------------------------------------------


def test_the_points_come_as_in_detectron2s_loop(tmp_path: Path) -> None:
    hook = Trace()
    fit(tmp_path, hook)
    assert hook.calls == steps(*range(6), last=6)


def test_each_point_is_finished_for_all_in_the_order_given(tmp_path: Path) -> None:
    log: list[Any] = []
    fit(tmp_path, Trace(log, "a."), Trace(log, "b."), max_epochs=1, limit_train_batches=1)
    assert [name for name, _ in log] == [
        f"{hook}.{point}"
        for point in ("before_train", "before_step", "after_backward", "after_step", "after_train")
        for hook in "ab"
    ]


def test_after_train_comes_also_when_training_raises(tmp_path: Path) -> None:
    hook, words = Trace(), LastWords()
    trainer = make_trainer(tmp_path, HookAdapter([hook, words]), Boom(at=2), max_epochs=2)
    with pytest.raises(ArithmeticError, match="boom"):
        trainer.fit(TinyModule(), make_loader(3))
    assert hook.calls[-3:] == [("after_step", 1), ("before_step", 2), ("after_train", 2)]
    assert words.words == "failed at 2"
    with pytest.raises(AssertionError, match="from before_train to after_train"):
        d2.get_event_storage()


def test_after_train_comes_also_when_the_user_stops_the_run(tmp_path: Path) -> None:
    class Interrupt(d2.HookBase):
        def after_step(self) -> None:
            if self.trainer.iter == 1:
                raise KeyboardInterrupt

    hook, words = Trace(), LastWords()
    with pytest.raises(SystemExit):  # Lightning's way to end
        fit(tmp_path, hook, Interrupt(), words)
    assert hook.calls[-1] == ("after_train", 1)
    assert words.words == "failed at 1"


def test_a_hook_that_raises_is_named_and_the_others_still_end(tmp_path: Path) -> None:
    class Bad(d2.HookBase):
        ended = 0

        def before_train(self) -> None:
            raise OSError("no disk")

        def after_train(self) -> None:
            self.ended += 1
            raise RuntimeError("nor an end")

    bad, words = Bad(), LastWords()
    with pytest.raises(OSError, match="no disk") as caught:
        fit(tmp_path, bad, words)
    assert caught.value.__notes__ == ["in hook Bad.before_train (epoch 0, iter 0)"]
    assert bad.ended == 1
    assert words.words == "failed at 0"


def test_an_after_train_that_raises_is_not_called_again(tmp_path: Path) -> None:
    class Bad(d2.HookBase):
        ended = 0

        def after_train(self) -> None:
            self.ended += 1
            raise RuntimeError("no end")

    bad, words = Bad(), LastWords()
    with pytest.raises(RuntimeError, match="no end") as caught:
        fit(tmp_path, bad, words)
    assert caught.value.__notes__ == ["in hook Bad.after_train (epoch 2, iter 6)"]
    assert bad.ended == 1
    assert words.words == "complete"


def test_two_fits_and_another_trainer(tmp_path: Path) -> None:
    hook = Trace()
    adapter = HookAdapter([hook])
    for _ in range(2):
        trainer = make_trainer(tmp_path, adapter, max_epochs=1)
        trainer.fit(TinyModule(), make_loader(2))
    assert hook.calls == 2 * steps(0, 1, last=2)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(TinyModule(), make_loader(2))
    assert hook.calls[-8:] == steps(2, 3, last=4)


def test_validation_and_sanity_check_call_nothing(tmp_path: Path) -> None:
    hook = Trace()
    trainer = make_trainer(tmp_path, HookAdapter([hook]), num_sanity_val_steps=1)
    trainer.fit(TinyModule(), make_loader(2), make_loader(1))
    trainer.validate(TinyModule(), make_loader(1), verbose=False)
    assert hook.calls == steps(0, 1, last=2)


def test_the_same_object_in_two_adapters_is_refused(tmp_path: Path) -> None:
    hook = Trace()
    trainer = make_trainer(tmp_path, HookAdapter([hook]), HookAdapter([hook]))
    with pytest.raises(ValueError, match="the same Trace object is given twice"):
        trainer.fit(TinyModule(), make_loader(1))


def test_copies_and_pickles_leave_the_run_behind(tmp_path: Path) -> None:
    adapter = HookAdapter([BestLoss()])
    trainer = make_trainer(tmp_path, adapter)
    trainer.fit(TinyModule(), make_loader(2))
    for twin in (copy.deepcopy(adapter), pickle.loads(pickle.dumps(adapter))):
        assert twin.hooks[0].best == adapter.hooks[0].best
        assert twin.hooks[0].trainer is None
        make_trainer(tmp_path, twin).fit(TinyModule(), make_loader(2))


def test_the_table_of_stages_has_the_users_class(tmp_path: Path) -> None:
    table = HookAdapter([Trace()]).get_hook_info()
    assert "before_train_iter:\n(NORMAL      ) Trace " in table
    assert "before_val_epoch" not in table


# -- the storage ---------------------------------------------------------------------------------


class Losses(TinyModule):
    """A module that returns losses by name, logs one scalar and stores another scalar."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        cls, box = self.loss(batch), 2 * self.loss(batch)
        self.losses.append(float(cls.detach() + box.detach()))
        self.log("accuracy", 0.25 * (batch_idx + 1))
        d2.get_event_storage().put_scalar("seen", batch_idx)
        return {"loss": cls + box, "loss_cls": cls, "loss_box": box}


def test_the_storage_has_the_losses_and_what_is_logged(tmp_path: Path) -> None:
    writer = ListWriter()
    module = Losses()
    fit(tmp_path, d2.PeriodicWriter([writer], period=4), GradNorm(), module=module)
    assert [when for when, _ in writer.rows] == [3, 5, 6]
    assert writer.closed == 1
    last = writer.rows[1][1]
    assert set(last) == {
        *("total_loss", "loss_cls", "loss_box", "accuracy", "seen", "grad_norm"),
        *("data_time", "rank_data_time"),
    }
    assert last["total_loss"] == (np.median(module.losses), 5)
    assert last["accuracy"] == (0.5, 5)
    assert last["seen"] == (1.0, 5)


def test_storages_nest_and_end_with_their_block() -> None:
    with d2.EventStorage(3) as outer:
        with contextlib.suppress(ArithmeticError), d2.EventStorage():
            d2.get_event_storage().put_scalar("a", 1)
            raise ArithmeticError
        assert d2.get_event_storage() is outer
        assert outer.histories() == {}
        with outer.name_scope("eval"):
            outer.put_scalars(ap=0.5, smoothing_hint=False)
        outer.step()
        outer.put_scalar("loss", 1.0)
        assert outer.latest() == {"eval/ap": (0.5, 3), "loss": (1.0, 4)}
        with pytest.raises(ValueError, match="put with smoothing_hint=True"):
            outer.put_scalar("loss", 1.0, smoothing_hint=False)
        with pytest.raises(KeyError, match="no scalar 'los'"):
            outer.history("los")
    with pytest.raises(AssertionError):
        d2.get_event_storage()


def test_history_buffers_equal_numpy() -> None:
    values = torch.linspace(-1, 3, 50, dtype=torch.float64).square().tolist()
    buffer = d2.HistoryBuffer(max_length=20)
    for value in values:
        buffer.update(value)
    assert buffer.values() == list(zip(values[-20:], range(30, 50), strict=True))
    assert buffer.latest() == values[-1]
    assert buffer.median(7) == np.median(values[-7:])
    assert buffer.avg(100) == np.mean(values[-20:])
    assert buffer.global_avg() == pytest.approx(np.mean(values), rel=1e-12)


# -- the library's hooks -------------------------------------------------------------------------


def test_json_lines_have_each_scalar_once(tmp_path: Path) -> None:
    path = tmp_path / "out" / "metrics.json"
    evaluate = d2.EvalHook(2, lambda: {"bbox": {"AP": 0.5}})
    schedule = d2.LRScheduler(scheduler=lambda progress: 1 - progress)
    hooks = [evaluate, schedule, d2.PeriodicWriter([d2.JSONWriter(str(path))], period=2)]
    fit(tmp_path, *hooks)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [1, 3, 5, 6]
    assert [row.get("bbox/AP") for row in rows] == [0.5, 0.5, None, 0.5]
    rates = [0.1 * (1 - i / 6) for i in (1, 3, 5)]
    assert [row["lr"] for row in rows[:3]] == pytest.approx(rates)
    assert list(rows[0]) == sorted(rows[0])
    assert set(rows[3]) == {"bbox/AP", "iteration"}


def test_the_schedulers_rate_is_that_of_the_largest_group() -> None:
    a, b, c = (torch.nn.Parameter(torch.zeros(1)) for _ in range(3))
    sgd = torch.optim.SGD([{"params": [a], "lr": 3.0}, {"params": [b, c], "lr": 2.0}])
    assert d2.LRScheduler.get_best_param_group_id(sgd) == 1
    sgd = torch.optim.SGD([{"params": [p], "lr": r} for p, r in ((a, 3.0), (b, 2.0), (c, 2.0))])
    assert d2.LRScheduler.get_best_param_group_id(sgd) == 1


def test_a_torch_scheduler_goes_on_where_it_was(tmp_path: Path) -> None:
    class Own(TinyModule):
        def __init__(self) -> None:
            super().__init__()
            self.sgd = torch.optim.SGD(self.parameters(), lr=self.lr)

        def configure_optimizers(self) -> Any:
            return self.sgd

    def run(epochs: int, ckpt: Any = None) -> Any:
        module = Own()
        scheduler = torch.optim.lr_scheduler.StepLR(module.sgd, 2, gamma=0.5)
        hooks = [d2.LRScheduler(module.sgd, scheduler), BestLoss()]
        return fit(tmp_path, *hooks, module=module, max_epochs=epochs, ckpt_path=ckpt), hooks

    whole, _ = run(4)
    half, hooks = run(2)
    half.save_checkpoint(tmp_path / "half.ckpt")
    rest, resumed = run(4, tmp_path / "half.ckpt")
    assert rest.optimizers[0].param_groups[0]["lr"] == whole.optimizers[0].param_groups[0]["lr"]
    assert resumed[1].best <= hooks[1].best
    for one, other in zip(
        whole.lightning_module.parameters(), rest.lightning_module.parameters(), strict=True
    ):
        assert torch.equal(one, other)


def test_a_scheduler_of_another_optimizer_is_refused(tmp_path: Path) -> None:
    other = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(other, 1)
    with pytest.raises(ValueError, match="not the one that is trained"):
        fit(tmp_path, d2.LRScheduler(other, scheduler))


def test_states_of_several_hooks_of_a_class(tmp_path: Path) -> None:
    class Counts(d2.HookBase):
        def __init__(self, by: int) -> None:
            self.by, self.count = by, 0

        def after_step(self) -> None:
            self.count += self.by

        def state_dict(self) -> dict[str, Any]:
            return {"count": self.count}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.count = state["count"]

    trainer = make_trainer(tmp_path, HookAdapter([Counts(1)]), HookAdapter([Counts(10)]))
    trainer.fit(TinyModule(), make_loader(3))
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    one, ten = Counts(1), Counts(10)
    fit_on = make_trainer(tmp_path, HookAdapter([one]), HookAdapter([ten]), max_epochs=2)
    fit_on.fit(TinyModule(), make_loader(3), ckpt_path=tmp_path / "a.ckpt")
    assert (one.count, ten.count) == (6, 60)
    with pytest.warns(UserWarning, match=r"has the state of .*Counts\[1\]"):
        fit(tmp_path, Counts(1), ckpt_path=tmp_path / "a.ckpt")


def test_the_timer_tells_speed_and_total(tmp_path: Path, caplog: Any) -> None:
    writer = ListWriter()
    with caplog.at_level("INFO"):
        hooks = [d2.IterationTimer(warmup_iter=3), d2.PeriodicWriter([writer], period=1)]
        trainer = fit(tmp_path, *hooks)
    timed = [when for when, row in writer.rows if row.get("time", (0, None))[1] == when]
    assert timed == [2, 3, 4, 5]
    assert trainer.state.finished
    lines = "\n".join(record.getMessage() for record in caplog.records)
    span = r"0:00:\d\d"
    assert re.search(rf"^Overall training speed: 4 iterations in {span} \(\d+\.\d+", lines, re.M)
    assert re.search(rf"^Total training time: {span} \({span} on hooks\)$", lines, re.M)


def test_precise_bn_has_the_statistics_of_its_batches(tmp_path: Path) -> None:
    module = TinyNormModule()
    module.forward = lambda x: module.net(x)  # type: ignore[method-assign]
    batches = [x for x, _ in make_loader(4, seed=3)]
    fit(tmp_path, d2.PreciseBN(0, module.net, batches, 4), module=module)
    mean = module.net[1].running_mean.clone()
    update_bn_stats(module.net.train(), batches)
    assert torch.equal(mean, module.net[1].running_mean)


def test_callback_hook_calls_its_functions(tmp_path: Path) -> None:
    calls: list[Any] = []
    names = ("before_train", "before_step", "after_step", "after_train")
    functions = {name: lambda t, name=name: calls.append((name, t.iter)) for name in names}
    fit(tmp_path, d2.CallbackHook(**functions), max_epochs=1, limit_train_batches=1)
    assert calls == [("before_train", 0), ("before_step", 0), ("after_step", 0), ("after_train", 1)]


def test_checkpoints_by_period_and_the_last(tmp_path: Path) -> None:
    class Saver:
        last = ""

        def save(self, name: str, **kwargs: Any) -> None:
            self.last = str(tmp_path / f"{name}.pth")
            torch.save(kwargs, self.last)

        def get_checkpoint_file(self) -> str:
            return self.last

    fit(tmp_path, d2.PeriodicCheckpointer(Saver(), 2, max_to_keep=1))
    assert sorted(p.name for p in tmp_path.glob("*.pth")) == [
        "model_0000005.pth",
        "model_final.pth",
    ]
    assert torch.load(tmp_path / "model_final.pth") == {"iteration": 5}


def test_autograd_profiler_writes_traces_of_selected_steps(tmp_path: Path) -> None:
    fit(tmp_path, d2.AutogradProfiler(lambda trainer: trainer.iter == 1, str(tmp_path / "prof")))
    assert [p.name for p in (tmp_path / "prof").iterdir()] == ["profiler-trace-iter1.json"]


def test_metric_printer_logs_a_line(tmp_path: Path, caplog: Any) -> None:
    printer = d2.CommonMetricPrinter(max_iter=6)
    with caplog.at_level("INFO"):
        fit(tmp_path, d2.LRScheduler(), d2.PeriodicWriter([printer], period=3), module=Scheduled())
    lines = [r.getMessage() for r in caplog.records if " iter: " in r.getMessage()]
    assert len(lines) == 2
    assert re.fullmatch(
        r" iter: 2  total_loss: \S+  train_loss: \S+    "
        r"data_time: \S+  last_data_time: \S+   lr: 0.1  ",
        lines[0],
    )
    assert lines[1].startswith(" eta: 0:00:00  iter: 5  ")


class Scheduled(TinyModule):
    def configure_optimizers(self) -> Any:
        sgd = super().configure_optimizers()
        return [sgd], [torch.optim.lr_scheduler.StepLR(sgd, 1)]


def test_lightnings_own_scheduler_is_reported_and_not_stepped_twice(tmp_path: Path) -> None:
    writer = ListWriter()
    fit(tmp_path, d2.LRScheduler(), d2.PeriodicWriter([writer], period=1), module=Scheduled())
    rates = [row["lr"][0] for _, row in writer.rows[:6]]
    assert rates == pytest.approx([0.1] * 3 + [0.01] * 3)


def test_a_histogram_counts_all_values() -> None:  # a departure: detectron2 counts rows
    with d2.EventStorage() as storage:
        storage.put_histogram("weights", torch.arange(9.0).reshape(3, 3), bins=3)
    (histogram,) = storage.histograms
    assert histogram["num"] == sum(histogram["bucket_counts"]) == 9


def test_tensorboard_gets_scalars_images_and_histograms(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    class Shows(d2.HookBase):
        def after_step(self) -> None:
            self.trainer.storage.put_image("input", torch.zeros(3, 4, 4))
            self.trainer.storage.put_histogram("weights", torch.arange(9.0).reshape(3, 3), bins=3)

    writer = d2.TensorboardXWriter(str(tmp_path / "tb"))
    fit(tmp_path, Shows(), d2.PeriodicWriter([writer], period=3))
    events = EventAccumulator(str(tmp_path / "tb"), {"images": 0, "histograms": 0, "scalars": 0})
    events.Reload()
    assert [e.step for e in events.Scalars("total_loss")] == [2, 5]
    assert [e.step for e in events.Images("input")] == [*range(6)]
    assert [e.step for e in events.Histograms("weights")] == [*range(6)]


def test_beside_mmcvs_hooks(tmp_path: Path) -> None:
    recorder, hook = Recorder(), Trace()
    trainer = make_trainer(tmp_path, recorder, HookAdapter([hook]))
    trainer.fit(TinyModule(), make_loader(2))
    assert hook.calls == steps(0, 1, last=2)
    assert recorder.points[:3] == ["before_run", "before_train_epoch", "before_train_iter"]


class ByName(TinyModule):
    """A module whose inner model returns losses by name, as in detectron2."""

    class Inner(torch.nn.Module):
        def __init__(self, net: torch.nn.Module) -> None:
            super().__init__()
            self.net = net

        def forward(self, batch: Any) -> Any:
            x, y = batch
            loss = torch.nn.functional.mse_loss(self.net(x), y)
            return {"loss_cls": loss, "loss_box": 2 * loss}

    def __init__(self) -> None:
        super().__init__()
        self.model = self.Inner(self.net)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        losses = self.model(batch)
        return {"loss": sum(losses.values()), **losses}


def test_hooks_that_run_the_model_on_other_data(tmp_path: Path) -> None:
    module, batches = ByName(), list(make_loader(2, seed=3))
    other = LossOnOtherData(2, module.model, batches)
    hooks = [other, LossOfTheTrainersModel(iter(3 * batches)), Keeps()]
    adapter = HookAdapter(hooks, model=lambda module: module.model)
    make_trainer(tmp_path, adapter, max_epochs=2).fit(module, make_loader(3))
    latest = hooks[-1].latest
    with torch.no_grad():
        losses = [3 * module.loss(batch).item() for batch in batches]
    assert latest["validation_loss"] == (pytest.approx(np.mean(losses)), 5)
    assert latest["total_val_loss"] == (pytest.approx(losses[1]), 5)
    assert latest["val_loss_cls"] == (pytest.approx(losses[1] / 3), 5)
    alone = ByName()
    fit(tmp_path, module=alone)
    assert torch.equal(alone.net.weight, module.net.weight)


class Keeps(d2.HookBase):
    """Records the storage's latest values at the end."""

    def after_train(self) -> None:
        self.latest = self.trainer.storage.latest()


def test_attributes_of_a_default_trainer_are_given_to_the_adapter(tmp_path: Path) -> None:
    module, hook = ByName(), SavesTheLowest("total_loss")
    saver = d2.DetectionCheckpointer(module.model, str(tmp_path))
    adapter = HookAdapter(
        [hook],
        model=lambda module: module.model,
        attributes={"checkpointer": saver, "cfg": {"extra": "loss"}},
    )
    make_trainer(tmp_path, adapter).fit(module, make_loader(3))
    saved = saver.load(str(tmp_path / "lowest.pth"), checkpointables=[])
    assert saved["loss"] == hook.lowest == saved["hook"]["lowest"]


def test_a_users_writer_gets_scalars_images_and_histograms(tmp_path: Path) -> None:
    class Shows(d2.HookBase):
        def after_step(self) -> None:
            self.trainer.storage.put_image("input", torch.zeros(3, 4, 4))
            self.trainer.storage.put_histogram("weights", torch.zeros(2, 3))

    board = Board()
    fit(tmp_path, Shows(), d2.PeriodicWriter([board], period=3), max_epochs=1)
    names = [(name, when) for name, when, _ in board.sent]
    assert ("total_loss", 2) in names
    shown = [entry for entry in board.sent if entry[0] in ("input", "weights")]
    assert shown == [
        *[("input", i, (3, 4, 4)) for i in range(3)],
        *[("weights", i, 6) for i in range(3)],
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: d2.IterationTimer(-1), "warmup_iter must be at least 0"),
        (lambda: d2.PeriodicWriter([], 0), "period must be at least 1"),
        (lambda: d2.PeriodicWriter([3]), "writers must be EventWriters"),
        (lambda: d2.EvalHook(-1, dict), "eval_period must be at least 0"),
        (lambda: d2.EvalHook(1, None), "eval_function must be a function"),  # type: ignore[arg-type]
        (lambda: d2.LRScheduler(scheduler=3), "scheduler must have step"),
        (lambda: d2.JSONWriter("a", 0), "window_size must be"),
        (lambda: d2.PeriodicCheckpointer(3, 1), "checkpointer must have save"),
        (lambda: d2.HistoryBuffer(0), "max_length must be"),
    ],
)
def test_bad_arguments(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_no_evaluation_after_the_run_if_it_is_not_wanted(tmp_path: Path) -> None:
    calls: list[int] = []
    hook = d2.EvalHook(2, lambda: calls.append(1), eval_after_train=False)
    fit(tmp_path, hook, batches=4, max_epochs=1)
    assert len(calls) == 1  # after two iterations; as in detectron2, the last iteration is left out


def test_the_hooks_are_in_a_module_too_as_in_its_engine() -> None:
    names = {"HookBase", "BestCheckpointer", "EvalHook", "PeriodicWriter", "TorchMemoryStats"}
    assert {name for name in names if getattr(d2.hooks, name) is getattr(d2, name)} == names


@pytest.mark.parametrize(("which", "rate"), [(None, 0.1), (1, 0.2)])
def test_the_rate_of_one_of_several_optimizers(
    which: int | None, rate: float, tmp_path: Path
) -> None:
    class Two(TinyModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            parts = (self.net.weight, 0.1), (self.net.bias, 0.2)
            self.sgds = [torch.optim.SGD([part], lr=lr) for part, lr in parts]

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = self.loss(batch)
            self.manual_backward(loss)
            for optimizer in self.optimizers():
                optimizer.step()
            return loss

        def configure_optimizers(self) -> Any:
            return self.sgds

    class Reads(d2.HookBase):
        rates: Any = ()

        def after_step(self) -> None:
            self.rates = [*self.rates, self.trainer.storage.history("lr").latest()]

    module, reads = Two(), Reads()
    step_lr = torch.optim.lr_scheduler.StepLR
    scheduler = None if which is None else step_lr(module.sgds[which], 2, gamma=0.5)
    fit(tmp_path, d2.LRScheduler(scheduler=scheduler), reads, module=module, max_epochs=1)
    assert reads.rates == [rate, rate, rate if which is None else rate / 2]


def test_an_evaluation_that_gives_no_numbers(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got ap='high'"):
        fit(tmp_path, d2.EvalHook(1, lambda: {"ap": "high"}))


def test_the_librarys_own_hooks_find_the_storage(tmp_path: Path, monkeypatch: Any) -> None:
    events: Any = types.ModuleType("detectron2.utils.events")  # only the names used in the test
    events._CURRENT_STORAGE_STACK, events.EventStorage = [], object
    monkeypatch.setitem(sys.modules, "detectron2.utils.events", events)
    found = []

    class Reads(d2.HookBase):
        def after_step(self) -> None:
            found.append(events._CURRENT_STORAGE_STACK[-1] is d2.get_event_storage())

    fit(tmp_path, Reads(), max_epochs=1)
    assert found == [True] * 3
    assert events._CURRENT_STORAGE_STACK == []
