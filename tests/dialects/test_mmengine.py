"""MMEngine's hooks in a Trainer."""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

from lightning_hooks import EMAHook, HookAdapter
from lightning_hooks.dialects.mmengine import HOOKS, Hook, MessageHub
from lightning_hooks.utils.plain_types import count_values
from support import training
from support.dialect_hooks.mmengine_style import MeanLoss, StopEarly, SwitchOff, Trace
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")


fit = partial(training.fit, val=2, host=True, batches=3, max_epochs=2)


def epoch(e: int, start: int, *, val: bool) -> list[Any]:
    points: list[Any] = [("before_train_epoch", e, start)]
    for i in range(3):
        points += [(f"{when}_train_iter", e, start + i, i) for when in ("before", "after")]
    points.append(("after_train_epoch", e, start + 3))
    if val:
        here = e + 1, start + 3
        points += [("before_val", *here), ("before_val_epoch", *here)]
        for i in range(2):
            points += [(f"{when}_val_iter", *here, i) for when in ("before", "after")]
        points += [("after_val_epoch", *here, ["val_loss"]), ("after_val", *here)]
    return points


@pytest.mark.parametrize("val", [True, False])
def test_the_points_come_as_in_mmengines_loop(tmp_path: Path, val: bool) -> None:
    hook = Trace()
    fit(tmp_path, hook, val=2 * val)
    assert hook.calls == [
        *(("before_run", 0, 0), ("before_train", 0, 0)),
        *epoch(0, 0, val=val),
        *epoch(1, 3, val=val),
        *(("after_train", 2, 6), ("after_run", 2, 6)),
    ]


def test_the_hooks_own_list_of_points_is_not_asked(tmp_path: Path) -> None:
    class Listed(Trace):
        def get_triggered_stages(self) -> list[str]:  # as MMEngine's base class
            return ["before_train", "after_train_iter"]

    plain, listed = Trace(), Listed()
    assert "Listed" in repr(HookAdapter([listed]))  # a Trainer calls repr
    for hook in (plain, listed):
        fit(tmp_path, hook)
    assert listed.calls == plain.calls


def test_each_point_is_finished_for_all_before_the_next(tmp_path: Path) -> None:
    one, two = Trace(), Trace()
    one.calls = two.calls
    fit(tmp_path, one, two, max_epochs=1)
    names = [call[0] for call in one.calls]
    assert names[:6:2] == names[1:6:2] == ["before_run", "before_train", "before_train_epoch"]
    assert names[-4::2] == names[-3::2] == ["after_train", "after_run"]


def test_a_run_counted_in_iterations_is_one_epoch(tmp_path: Path) -> None:
    hook = Trace()
    fit(tmp_path, hook, by_epoch=False, max_steps=4, max_epochs=-1, val=0)
    names = [call[0] for call in hook.calls]
    assert names[:3] == ["before_run", "before_train", "before_train_epoch"]
    assert names[3:-3] == 4 * ["before_train_iter", "after_train_iter"]
    assert names[-3:] == ["after_train_epoch", "after_train", "after_run"]


def test_a_hook_added_in_a_run_keeps_its_class_priority(tmp_path: Path) -> None:
    class First(Hook):
        priority = "HIGHEST"

    class Adds(Hook):
        def before_run(self, runner: Any) -> None:
            runner.register_hook(First())

        def before_train(self, runner: Any) -> None:
            self.hooks = [type(hook).__name__ for hook in runner.hooks]

    hook = Adds()
    fit(tmp_path, hook, max_epochs=1)
    assert hook.hooks == ["First", "Adds"]


def test_a_class_priority_counts(tmp_path: Path) -> None:
    late, early = MeanLoss(), SwitchOff()
    assert HookAdapter([late, Trace(), early]).hooks[0] is early
    assert HookAdapter([late, Trace(), early]).hooks[-1] is late


def test_the_message_hub_has_the_steps_scalars(tmp_path: Path) -> None:
    hook = MeanLoss()
    logger = CSVLogger(str(tmp_path))
    trainer = fit(tmp_path, hook, logger=logger, log_every_n_steps=1)
    losses = trainer.lightning_module.losses
    assert hook.means == pytest.approx([np.mean(losses[0:2]), np.mean(losses[3:5])])
    assert hook.modes == 2 * (3 * ["train"] + 2 * ["val"])
    assert "mean" in (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()[0]


def test_a_hook_that_stops_and_one_that_changes_the_data(tmp_path: Path) -> None:
    trainer = fit(tmp_path, StopEarly(), max_epochs=5)
    assert trainer.current_epoch == 1
    trainer = fit(tmp_path, SwitchOff(), max_epochs=2)
    assert trainer.train_dataloader.dataset.augment is False


class Shadow(Hook):
    """Puts a copy of the weights in place of the model in checkpoints."""

    def before_run(self, runner: Any) -> None:
        self.copy = {k: v.clone() for k, v in runner.model.state_dict().items()}
        self.loaded = False

    def before_save_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint["raw"], checkpoint["state_dict"] = checkpoint["state_dict"], self.copy

    def after_load_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        self.copy, checkpoint["state_dict"] = checkpoint["state_dict"], checkpoint.pop("raw")
        self.loaded = True

    def before_train(self, runner: Any) -> None:
        assert self.loaded == (runner.iter > 0)


def test_checkpoints_pass_through_the_hooks(tmp_path: Path) -> None:
    hook = Shadow()
    trainer = make_trainer(tmp_path, HookAdapter([hook, Save()]), max_epochs=1)
    trainer.fit(TinyModule(), make_loader(3))
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert not torch.equal(saved["raw"]["net.weight"], saved["state_dict"]["net.weight"])
    resumed = Shadow()
    rest = fit(tmp_path, resumed, ckpt_path=tmp_path / "a.ckpt", val=0)
    whole = fit(tmp_path, val=0)
    assert torch.equal(resumed.copy["net.weight"], hook.copy["net.weight"])
    for one, other in zip(
        rest.lightning_module.parameters(), whole.lightning_module.parameters(), strict=True
    ):
        assert torch.equal(one, other)


def test_weights_in_a_checkpoint_have_the_names_of_the_inner_model(tmp_path: Path) -> None:
    class Swaps(Hook):  # as mmengine's EMAHook does
        names: Any = None
        began_with: Any = None

        def before_save_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
            for name in runner.model.state_dict():
                checkpoint["state_dict"][name] = torch.zeros_like(checkpoint["state_dict"][name])

        def after_load_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
            self.names = set(checkpoint["state_dict"])
            checkpoint["state_dict"]["bias"] += 1

        def before_train(self, runner: Any) -> None:
            state = runner.model.state_dict()
            self.began_with = float(state["weight"].sum()), float(state["bias"].mean())

    inner = {"model": lambda module: module.net, "val": 0}
    fit(tmp_path, Swaps(), Save(), max_epochs=1, **inner)
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)["state_dict"]
    assert list(saved) == list(TinyModule().state_dict())
    assert not saved["net.weight"].any()
    hook = Swaps()
    fit(tmp_path, hook, ckpt_path=tmp_path / "a.ckpt", **inner)
    assert hook.names == {"weight", "bias"}
    assert hook.began_with == (0.0, 1.0)


class Save:
    """An mmcv hook next to MMEngine hooks."""

    def after_train_epoch(self, runner: Any) -> None:
        runner.trainer.save_checkpoint(Path(runner.work_dir) / "a.ckpt")


def test_an_error_names_hook_and_point(tmp_path: Path) -> None:
    class Bad(Hook):
        def after_val_epoch(self, runner: Any, metrics: Any = None) -> None:
            raise OSError("full")

    with pytest.raises(OSError, match="full") as caught:
        fit(tmp_path, Bad())
    assert caught.value.__notes__ == ["in hook Bad.after_val_epoch (epoch 1, iter 3)"]


def test_hooks_without_a_base_class_are_detected_by_arguments(tmp_path: Path) -> None:
    class Plain:
        seen = ()

        def after_train_iter(
            self, runner: Any, batch_idx: int, data_batch: Any, outputs: Any
        ) -> None:
            self.seen = (*self.seen, batch_idx)

    hook = Plain()
    fit(tmp_path, hook)
    assert hook.seen == (0, 1, 2, 0, 1, 2)


def test_message_hub_alone() -> None:
    hub = MessageHub()
    hub.update_scalars({"loss": 2.0, "acc": {"value": 3.0, "count": 2}})
    hub.update_scalar("loss", torch.tensor(4.0))
    assert hub.get_scalar("loss").mean() == 3.0
    assert hub.get_scalar("acc").mean() == 1.5
    assert hub.get_scalar("loss").min() == 2.0
    assert hub.get_info("epoch", 7) == 7
    hub.update_info("epoch", 1)
    assert hub.pop_info("epoch") == 1
    with pytest.raises(KeyError, match="no scalar 'lost'"):
        hub.get_scalar("lost")
    with pytest.raises(KeyError, match="unknown statistic 'median'"):
        hub.get_scalar("loss").statistics("median")


def test_the_count_of_a_value_is_no_iteration() -> None:
    hub = MessageHub()
    for value in (2.0, 5.0):
        hub.update_scalar("loss", value, count=3)
    assert hub.get_scalar("loss").values() == [(2.0, 0), (5.0, 1)]


def test_the_state_of_the_hub_has_copies_of_the_histories() -> None:
    hub = MessageHub()
    hub.update_scalar("loss", 2.0, count=3)
    hub.update_info("passing", 1, resumed=False)
    state = hub.state_dict()
    assert type(state["log_scalars"]["loss"]) is type(hub.get_scalar("loss"))
    hub.update_scalar("loss", 5.0)
    assert state["resumed_keys"] == {"loss": True, "passing": False}
    other = MessageHub()
    other.load_state_dict(state)
    assert [part.tolist() for part in other.get_scalar("loss").data] == [[2.0], [3]]


def test_the_mean_of_a_window_reads_the_window_alone() -> None:
    class Counted(deque[Any]):
        read = 0

        def __iter__(self) -> Iterator[Any]:
            raise AssertionError("all values are read")

        def __reversed__(self) -> Iterator[Any]:
            for entry in super().__reversed__():
                self.read += 1
                yield entry

    hub = MessageHub()
    for value in range(1000):
        hub.update_scalar("loss", value)
    loss = hub.get_scalar("loss")
    loss._data = kept = Counted(loss._data)
    assert (loss.mean(10), loss.min(10), loss.max(10), loss.current()) == (994.5, 990, 999, 999)
    assert kept.read == 3 * 10 + 1
    assert loss.mean() == 499.5
    assert kept.read == 3 * 10 + 1 + 1000


def test_a_file_has_the_hubs_histories_in_two_tensors() -> None:
    def hub_of(scalars: int, steps: int) -> MessageHub:
        hub = MessageHub()
        for step in range(steps):
            hub.update_scalars({f"loss_{n}": step / 7 for n in range(scalars)})
        return hub

    hub = hub_of(3, 5)
    hub.update_scalar("loss_1", 2.0, count=4)
    other = MessageHub()
    other.load_state_dict(hub.plain_state())
    assert [*other.log_scalars] == [*hub.log_scalars]
    for name, history in hub.log_scalars.items():
        assert other.get_scalar(name).values() == history.values()

    def sizes(scalars: int, steps: int) -> tuple[float, int]:
        state = hub_of(scalars, steps).plain_state()
        groups = [group for part in state["log_scalars"] for group in part]
        return count_values(state), len(groups)

    assert sizes(3, 1000) == sizes(3, 1)
    assert sizes(30, 1)[1] == sizes(1, 1)[1] == 2


# -- tests and validations by themselves -----------------------------------------------------


class Own(TinyModule):
    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("test_loss", self.loss(batch), batch_size=len(batch[0]))


def alone(stage: str, here: tuple[int, int]) -> list[Any]:
    points: list[Any] = [("before_run", *here)]
    points += [(f"before_{stage}", *here), (f"before_{stage}_epoch", *here)]
    for i in range(2):
        points += [(f"{when}_{stage}_iter", *here, i) for when in ("before", "after")]
    points += [(f"after_{stage}_epoch", *here, [f"{stage}_loss"]), (f"after_{stage}", *here)]
    return [*points, ("after_run", *here)]


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("stage", ["test", "val"])
def test_a_test_has_its_points(tmp_path: Path, stage: str, fitted: bool) -> None:
    hook, module = Trace(), Own()
    trainer = make_trainer(tmp_path, HookAdapter([hook]))
    if fitted:
        trainer.fit(module, make_loader(3))
    hook.calls.clear()
    run = trainer.test if stage == "test" else trainer.validate
    for _ in range(2):
        run(module, make_loader(2), verbose=False)
    here = (1, 3) if fitted else (0, 0)
    assert hook.calls == 2 * alone(stage, here)
    assert not any("Evaluation" in type(c).__name__ for c in trainer.callbacks)
    hook.calls.clear()
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, make_loader(3))
    assert hook.calls[-1] == ("after_run", 2, 6)


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("stage", ["test", "val"])
def test_a_misspelt_point_is_named_in_a_test_too(
    tmp_path: Path, stage: str, fitted: bool, caplog: Any
) -> None:
    def misspelt(self: Any, runner: Any, batch_idx: int, **kwargs: Any) -> None: ...

    hook = type("MyHook", (Trace,), {f"after_{stage}_iters": misspelt})()
    trainer, module = make_trainer(tmp_path, HookAdapter([hook])), Own()
    if fitted:
        trainer.fit(module, make_loader(3))
    (trainer.test if stage == "test" else trainer.validate)(module, make_loader(2), verbose=False)
    line = f"MyHook.after_{stage}_iters() is called at no point; did you mean after_{stage}_iter()?"
    assert caplog.messages.count(line) == 1


def test_the_hub_of_a_fit_has_the_results_of_its_test(tmp_path: Path) -> None:
    class Keeps(Hook):
        def before_run(self, runner: Any) -> None:
            self.hub = runner.message_hub

        def before_test_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
            self.stage = runner.message_hub.get_info("loop_stage")
            self.length = len(runner.test_dataloader)

    hook, module = Keeps(), Own()
    trainer = make_trainer(tmp_path, HookAdapter([hook]))
    trainer.fit(module, make_loader(3))
    found = trainer.test(module, make_loader(2), verbose=False)[0]
    assert hook.hub.get_scalar("test/test_loss").current() == pytest.approx(found["test_loss"])
    assert len(hook.hub.get_scalar("train/loss").data[0]) == 3
    assert (hook.stage, hook.length) == ("test", 2)
    assert hook.hub.get_info("loop_stage") is None


def test_an_error_in_a_test_names_hook_and_point_and_ends_it(tmp_path: Path) -> None:
    class Bad(Hook):
        def after_test_epoch(self, runner: Any, metrics: Any = None) -> None:
            raise OSError("full")

    trainer = make_trainer(tmp_path, HookAdapter([Bad()]))
    for _ in range(2):  # the run before is over
        with pytest.raises(OSError, match="full") as caught:
            trainer.test(Own(), make_loader(1), verbose=False)
        assert caught.value.__notes__ == ["in hook Bad.after_test_epoch (epoch 0, iter 0)"]
        assert not any("Evaluation" in type(c).__name__ for c in trainer.callbacks)
    trainer.fit(Own(), make_loader(2), make_loader(1))
    assert trainer.global_step == 2


def test_a_list_of_samples_is_passed_as_outputs(tmp_path: Path) -> None:
    class Samples(Own):
        def validation_step(self, batch: Any, batch_idx: int) -> Any:
            self.loss(batch)
            return [{"score": float(batch_idx)}, {"score": 2.0}]

        test_step = validation_step

    class Reads(Hook):
        def __init__(self) -> None:
            self.scores: list[float] = []

        def _after_iter(self, runner: Any, batch_idx: int, mode: str = "", **kwargs: Any) -> None:
            if mode != "train":
                self.scores += [sample["score"] for sample in kwargs["outputs"]]

    hook = Reads()
    trainer = make_trainer(tmp_path, HookAdapter([hook]))
    trainer.fit(Samples(), make_loader(2), make_loader(2))
    trainer.test(Samples(), make_loader(1), verbose=False)
    assert hook.scores == [0, 2, 1, 2, 0, 2]


def test_a_hook_that_is_registered_is_built_from_a_config(tmp_path: Path) -> None:
    @HOOKS.register_module()
    class CountsSteps(Hook):
        def __init__(self, by: int = 1) -> None:
            self.by, self.count = by, 0

        def after_train_iter(
            self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None
        ) -> None:
            self.count += self.by

    try:
        adapter = HookAdapter([dict(type="CountsSteps", by=2, priority="LOW")], dialect="mmengine")
    finally:
        del HOOKS.module_dict["CountsSteps"]
    make_trainer(tmp_path, adapter).fit(TinyModule(), make_loader(3))
    assert adapter.hooks[0].count == 6


# -- resumed runs ----------------------------------------------------------------------------


class Factor:
    """A scheduler unknown to Lightning."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer, self.count = optimizer, 0

    def step(self) -> None:
        self.count += 1
        self.optimizer.param_groups[0]["lr"] = 0.1 / (1 + self.count)

    def state_dict(self) -> dict[str, Any]:
        # the function, as MMEngine's OneCycleLR, is no part of a file
        return {"count": self.count, "phases": [{"anneal": self.step}]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class Steps(Hook):
    """Steps the schedulers, and keeps the best loss in the message hub."""

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None
    ) -> None:
        for scheduler in runner.param_schedulers:
            scheduler.step()
        hub = runner.message_hub
        hub.update_info("best", min(hub.get_info("best", 99.0), float(outputs["loss"])))
        hub.update_info("passing", 1, resumed=False)
        self.hub = hub


@pytest.mark.parametrize("by_name", [False, True])
def test_a_scheduler_of_both_hook_and_lightning_is_refused(by_name: bool, tmp_path: Path) -> None:
    class ParamSchedulerHook(Steps):
        """A hook with the name of MMEngine's hook."""

    module = TinyModule()
    sgd = torch.optim.SGD(module.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(sgd, 2)
    module.configure_optimizers = lambda: ([sgd], [scheduler])  # type: ignore[assignment]
    schedulers: Any = {"all": [scheduler]} if by_name else [scheduler]
    adapter = HookAdapter([ParamSchedulerHook()], attributes={"param_schedulers": schedulers})
    with pytest.raises(ValueError, match="StepLR would be stepped twice, by the hook ParamSch"):
        make_trainer(tmp_path, adapter).fit(module, make_loader(3))


@pytest.mark.parametrize("has_scheduler", [False, True])
def test_a_hook_of_schedulers_without_any_is_told(
    has_scheduler: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class ParamSchedulerHook(Hook):
        """A hook with the name of MMEngine's hook, which does nothing without schedulers."""

        def after_train_epoch(self, runner: Any) -> None:
            assert not runner.param_schedulers

    module = TinyModule()
    sgd = torch.optim.SGD(module.parameters(), lr=0.1)
    both = [sgd], [torch.optim.lr_scheduler.StepLR(sgd, 2)] * has_scheduler
    module.configure_optimizers = lambda: both  # type: ignore[assignment,method-assign]
    make_trainer(tmp_path, HookAdapter([ParamSchedulerHook()])).fit(module, make_loader(3))
    told = "ParamSchedulerHook steps no scheduler: HookAdapter(attributes="
    assert (told in caplog.text) is not has_scheduler


def test_message_hub_and_schedulers_resume(tmp_path: Path) -> None:
    def run(epochs: int, ckpt: Any = None) -> tuple[Any, Any]:
        module, hook = TinyModule(), Steps()
        sgd = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        module.configure_optimizers = lambda: sgd  # type: ignore[method-assign]
        adapter = HookAdapter([hook], attributes={"param_schedulers": [Factor(sgd)]})
        trainer = make_trainer(tmp_path, adapter, max_epochs=epochs)
        trainer.fit(module, make_loader(3), ckpt_path=ckpt)
        return trainer, hook.hub

    whole, there = run(4)
    run(2)[0].save_checkpoint(tmp_path / "half.ckpt")
    saved = torch.load(tmp_path / "half.ckpt", weights_only=True)
    assert "best" in saved["message_hub"]["runtime_info"]
    assert "passing" not in saved["message_hub"]["runtime_info"]
    assert saved["param_schedulers"] == [{"count": 6, "phases": [{}]}]
    rest, here = run(4, tmp_path / "half.ckpt")
    assert here.get_info("best") == there.get_info("best")
    for name in ("train/loss", "train/lr"):
        assert here.get_scalar(name).data[0].tolist() == there.get_scalar(name).data[0].tolist()
    for one, other in zip(
        whole.lightning_module.parameters(), rest.lightning_module.parameters(), strict=True
    ):
        assert torch.equal(one, other)


def test_a_file_that_a_hook_writes_is_of_mmengines_layout(tmp_path: Path) -> None:
    class Writes(Hook):
        def before_save_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
            checkpoint["mine"] = sorted(checkpoint)

        def after_train_epoch(self, runner: Any) -> None:
            meta = {"epoch": runner.epoch + 1, "note": "n"}
            runner.save_checkpoint(str(tmp_path), "a.pth", meta=meta, backend_args=None)

    fit(tmp_path, Writes(), max_epochs=2)
    saved = torch.load(tmp_path / "a.pth", weights_only=True)
    assert saved["mine"] == ["message_hub", "meta", "optimizer", "state_dict"]
    assert {"epoch": 2, "iter": 6, "note": "n"}.items() <= saved["meta"].items()
    assert saved["message_hub"]["runtime_info"]["epoch"] == 1


def test_several_optimizers_have_their_names(tmp_path: Path) -> None:
    class Two(TinyModule):
        optimizer_names = ("gen", "disc")

        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss(batch)

        def configure_optimizers(self) -> Any:
            weight, bias = self.net.weight, self.net.bias
            return torch.optim.SGD([weight], lr=0.5), torch.optim.SGD([bias], lr=0.25)

    class Reads(Hook):
        def after_train_iter(self, runner: Any, **kwargs: Any) -> None:
            self.rates = runner.optim_wrapper.get_lr()
            self.momenta = runner.optim_wrapper.get_momentum()
            self.hub = runner.message_hub

    hook = Reads()
    make_trainer(tmp_path, HookAdapter([hook])).fit(Two(), make_loader(2))
    assert hook.rates == {"gen.lr": [0.5], "disc.lr": [0.25]}
    assert hook.momenta == {"gen.momentum": [0], "disc.momentum": [0]}
    assert hook.hub.get_scalar("train/disc.lr").current() == 0.25


def test_given_attributes_are_visible_to_hooks(tmp_path: Path) -> None:
    class Board:
        def __init__(self) -> None:
            self.rows: list[Any] = []

        def add_scalars(self, scalars: Any, step: int) -> None:
            self.rows.append((step, scalars))

    class Shows(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            runner.visualizer.add_scalars({"a": 1}, step=runner.iter)
            assert runner.cfg.pretty_text == "text"
            assert runner.experiment_name == "name"
            assert runner.param_schedulers is None

    class Config:
        pretty_text = "text"

    board = Board()
    given = {"visualizer": board, "cfg": Config(), "experiment_name": "name"}
    fit(tmp_path, Shows(), max_epochs=1, attributes=given)
    assert board.rows == [(3, {"a": 1})]


def test_the_librarys_own_code_finds_the_message_hub(tmp_path: Path, monkeypatch: Any) -> None:
    library: Any = types.ModuleType("mmengine.logging.message_hub")  # only the names in use
    library.MessageHub = type("MessageHub", (), {"_instance_dict": {}})
    monkeypatch.setitem(sys.modules, library.__name__, library)
    found = []

    class Reads(Hook):
        def before_train(self, runner: Any) -> None:
            found.extend(library.MessageHub._instance_dict.values())
            assert found == [runner.message_hub]

    fit(tmp_path, Reads(), max_epochs=1)
    assert len(found) == 1
    assert library.MessageHub._instance_dict == {}


def test_the_loops_are_told_apart_as_mmengines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("EpochBasedTrainLoop", "IterBasedTrainLoop", "ValLoop", "TestLoop")
    theirs = {name: type(name, (), {}) for name in names}
    module = types.ModuleType("mmengine.runner")
    module.__dict__.update(theirs)
    monkeypatch.setitem(sys.modules, "mmengine.runner", module)

    class Asks(Hook):
        def after_train_iter(
            self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None
        ) -> None:
            loops = (runner.train_loop, runner.val_loop, runner.test_loop)
            self.kinds = [n for one in loops for n in names if isinstance(one, theirs[n])]

    hook = Asks()
    fit(tmp_path, hook)
    assert hook.kinds == ["EpochBasedTrainLoop", "ValLoop", "TestLoop"]
    fit(tmp_path, hook, max_epochs=-1, max_steps=2, by_epoch=False)
    assert hook.kinds == ["IterBasedTrainLoop", "ValLoop", "TestLoop"]


def test_log_vars_are_the_outputs_of_a_step(tmp_path: Path) -> None:
    """MMEngine's ``RuntimeInfoHook`` records the ``log_vars`` returned by a step."""

    class Records(Hook):
        def after_train_iter(self, runner: Any, batch_idx: int, **of_step: Any) -> None:
            self.outputs = of_step["outputs"]

    class Parsed(TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            return {"loss": loss, "log_vars": {"loss": loss.detach(), "loss_box": 2.0}}

    hook = Records()
    fit(tmp_path, hook, module=Parsed(), max_epochs=1)
    assert sorted(hook.outputs) == ["loss", "loss_box"]


def test_a_rival_average_is_named_with_its_own_module(tmp_path: Path) -> None:
    class Swaps(Hook):
        def _swap_ema_parameters(self) -> None:
            """Do nothing; MMEngine's and mmcv's EMAHook have this method."""

    adapter = HookAdapter([Swaps()])
    match = rf"^EMAHook and Swaps of {__name__} both swap the weights"
    with pytest.raises(ValueError, match=match):
        make_trainer(tmp_path, adapter, EMAHook()).fit(TinyModule(), make_loader(1))
