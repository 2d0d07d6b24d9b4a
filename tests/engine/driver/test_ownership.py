"""Old hooks that call ``loss.backward()`` and ``optimizer.step()``."""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import job
import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import (
    BatchSizeFinder,
    Callback,
    LearningRateFinder,
    ModelCheckpoint,
)
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.profilers import SimpleProfiler

from lightning_hooks import CosineAnnealingLrUpdaterHook, Hook, HookAdapter, TrainStepModule
from support import training
from support.foreign_hooks import OptimizerHook
from support.probes import SaveAt
from support.training import NoValidation, TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")


class AccumulatingOptimizerHook(OptimizerHook):
    """Divides the loss in place, as old hooks do, and accumulates across epochs."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every = every

    def after_train_iter(self, runner: Any) -> None:
        runner.outputs["loss"] /= self.every
        runner.outputs["loss"].backward()
        if (runner.iter + 1) % self.every == 0:
            runner.optimizer.step()
            runner.optimizer.zero_grad()


class SAMOptimizerHook(OptimizerHook):
    """Calls backward twice in each step, the second time after ``runner.model.train_step``."""

    def after_train_iter(self, runner: Any) -> None:
        runner.optimizer.zero_grad()
        runner.outputs["loss"].backward()
        parameters = list(runner.model.parameters())
        moved = [p.grad.sign() * 0.05 for p in parameters]
        with torch.no_grad():
            torch._foreach_add_(parameters, moved)
        runner.optimizer.zero_grad()
        runner.model.train_step(runner.data_batch, runner.optimizer)["loss"].backward()
        with torch.no_grad():
            torch._foreach_sub_(parameters, moved)
        runner.optimizer.step()


class NestedOptimizerHook(OptimizerHook):
    """Calls the module's own training_step inside the step."""

    def after_train_iter(self, runner: Any) -> None:
        if hasattr(runner, "module"):
            runner.module.training_step(runner.data_batch, 0)
        super().after_train_iter(runner)


class PlainStepper:
    """A stepping hook of another name than OptimizerHook, which needs ``owns_backward=True``."""

    after_train_iter = OptimizerHook.after_train_iter
    grad_clip = None


def by_hand(hook: Any, epochs: int = 2) -> Any:
    """Train with the hook in a plain loop, as the reference."""

    class Runner:
        pass

    runner: Any = Runner()
    module = TinyModule()
    runner.model = torch.nn.Module()
    runner.model.parameters = module.parameters
    runner.model.train_step = lambda batch, optimizer: {"loss": module.loss(batch)}
    runner.optimizer = module.configure_optimizers()
    runner.iter = 0
    for _ in range(epochs):
        for batch in make_loader(5):
            runner.data_batch = batch
            runner.outputs = {"loss": module.loss(batch)}
            hook.after_train_iter(runner)
            runner.iter += 1
    return module


fit = partial(training.fit, module=NoValidation, host=True, batches=5, max_epochs=2)


HOOKS = [OptimizerHook(), OptimizerHook({"max_norm": 0.1}), AccumulatingOptimizerHook(3)]
HOOKS += [SAMOptimizerHook(), NestedOptimizerHook()]


@pytest.mark.parametrize("hook", HOOKS, ids=["plain", "clip", "accumulate", "sam", "nested"])
def test_weights_are_those_of_a_plain_loop(hook: Any, tmp_path: Path) -> None:
    trainer = fit(tmp_path, hook)
    assert torch.equal(trainer.lightning_module.net.weight, by_hand(hook).net.weight)
    assert trainer.global_step == (3 if isinstance(hook, AccumulatingOptimizerHook) else 10)


def test_accumulated_gradients_survive_validation(tmp_path: Path) -> None:
    hook = AccumulatingOptimizerHook(3)
    trainer = make_trainer(tmp_path, HookAdapter([hook]), max_epochs=2)
    trainer.fit(TinyModule(), make_loader(5), make_loader(1))
    assert torch.equal(trainer.lightning_module.net.weight, by_hand(hook).net.weight)


@pytest.mark.filterwarnings("ignore:.*manual optimization")  # not before Lightning 2.6
def test_lightning_sees_the_steps(tmp_path: Path) -> None:
    events: list[str] = []

    class Events(Callback):
        def on_before_backward(self, *args: Any) -> None:
            events.append("backward")

    files = tmp_path / "files"
    saving = ModelCheckpoint(files, filename="{step}", every_n_train_steps=4, save_top_k=-1)
    fit(tmp_path, OptimizerHook(), callbacks=[saving, Events()])
    assert events == ["backward"] * 10
    assert sorted(f.name for f in files.iterdir()) == ["step=4.ckpt", "step=8.ckpt"]


class Listens(Callback):
    def __init__(self) -> None:
        self.calls = 0

    def on_after_backward(self, *args: Any) -> None:
        self.calls += 1


def test_a_callback_that_a_hook_adds_within_the_run_sees_the_steps(tmp_path: Path) -> None:
    class Late(Hook, Listens):
        """A hook registered in the third iteration."""

    late = Late()

    class Registers(Hook):
        def after_train_iter(self, runner: Any) -> None:
            if runner.iter == 1:
                runner.register_hook(late)

    fit(tmp_path, OptimizerHook(), callbacks=[Registers()])
    assert late.calls == 8


@pytest.mark.parametrize("where", ["backward", "on_before_backward", "instance"])
def test_what_the_module_does_about_backward_is_done(where: str, tmp_path: Path) -> None:
    calls: list[str] = []

    class Own(NoValidation):
        def backward(self, loss: torch.Tensor, *args: Any, **kwargs: Any) -> None:
            calls.append("backward")
            super().backward(loss, *args, **kwargs)

    class Before(NoValidation):
        def on_before_backward(self, loss: torch.Tensor) -> None:
            calls.append("before")

    module = {"backward": Own, "on_before_backward": Before}.get(where, NoValidation)()
    if where == "instance":
        module.on_after_backward = lambda: calls.append("after")
    fit(tmp_path, OptimizerHook(), module=module)
    assert len(calls) == 10


def test_a_precision_and_a_profiler_of_the_users_have_their_part(tmp_path: Path) -> None:
    class Doubles(Precision):
        def backward(self, tensor: Any, *args: Any, **kwargs: Any) -> None:
            super().backward(tensor * 2, *args, **kwargs)

    profiler = SimpleProfiler()
    fit(tmp_path, OptimizerHook(), profiler=profiler)
    assert "[LightningModule]NoValidation.on_after_backward" in profiler.recorded_durations
    doubled = fit(tmp_path, OptimizerHook(), plugins=[Doubles()]).lightning_module
    assert not torch.equal(doubled.net.weight, by_hand(OptimizerHook()).net.weight)


class Halves:
    """Replacements for the gradient event, backward and the step, which count their calls."""

    def __init__(self) -> None:
        self.calls = 0

    def after(self, *args: Any) -> None:
        self.calls += 1

    def backward(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        self.calls += 1
        tensor.backward()  # type: ignore[no-untyped-call]

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        self.calls += 1
        optimizer.step()


REPLACED = {
    "on_after_backward of a callback": lambda t, h: setattr(t.callbacks[0], AFTER, h.after),
    "a further callback": lambda t, h: t.callbacks.append(Late(h)),
    "on_after_backward of the module": lambda t, h: setattr(t.lightning_module, AFTER, h.after),
    "post_backward of the strategy": lambda t, h: setattr(t.strategy, "post_backward", h.after),
    "backward of the precision": lambda t, h: setattr(t.precision_plugin, "backward", h.backward),
    "on_before_optimizer_step": lambda t, h: setattr(t.callbacks[0], STEP, h.after),
    "optimizer_step of the strategy": lambda t, h: setattr(t.strategy, "optimizer_step", h.step),
}
AFTER, STEP = "on_after_backward", "on_before_optimizer_step"


class Late(Callback):
    """Forwards ``on_after_backward``."""

    def __init__(self, to: Halves) -> None:
        self.to = to

    def on_after_backward(self, *args: Any) -> None:
        self.to.after()


@pytest.mark.parametrize("replaced", REPLACED)
@pytest.mark.parametrize(("at", "calls"), [(0, 5), (2, 3)])
def test_backward_and_step_are_looked_at_in_each_step(
    replaced: str, at: int, calls: int, tmp_path: Path
) -> None:
    class Replaces(Callback):
        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
            if index == at:
                REPLACED[replaced](trainer, halves)

    halves = Halves()
    trainer = fit(tmp_path, OptimizerHook(), callbacks=[Replaces()], max_epochs=1)
    assert halves.calls == calls
    assert trainer.global_step == 5


def test_optimizers_that_the_module_replaces_within_the_run_are_stepped(tmp_path: Path) -> None:
    class Grows(NoValidation):
        def on_train_epoch_start(self) -> None:
            if self.current_epoch == 1:
                self.net = torch.nn.Linear(4, 2)
                self.before = self.net.weight.detach().clone()
                self.trainer.optimizers = [self.configure_optimizers()]

    trainer = fit(tmp_path, OptimizerHook(), module=Grows)
    module: Any = trainer.lightning_module
    assert not torch.equal(module.net.weight, module.before)
    assert trainer.global_step == 10


class Loads(NoValidation):
    """A module with a loader and a batch size, as the batch size finder requires."""

    batch_size = 2

    def train_dataloader(self) -> Any:
        return make_loader(4, self.batch_size)


@pytest.mark.parametrize("finder", [LearningRateFinder(), BatchSizeFinder()])
def test_a_search_that_would_train_nothing_is_refused(finder: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Finder trains without callbacks, and OptimizerHook own"):
        make_trainer(tmp_path, HookAdapter([OptimizerHook()]), finder).fit(Loads())


def test_a_loss_is_a_plain_tensor_where_lightning_adds_nothing_to_its_backward(
    tmp_path: Path,
) -> None:
    kinds: set[type] = set()

    class Looks(OptimizerHook):
        def after_train_iter(self, runner: Any) -> None:
            kinds.add(type(runner.outputs["loss"]))
            super().after_train_iter(runner)

    fit(tmp_path, Looks())
    assert kinds == {torch.Tensor}
    fit(tmp_path, Looks(), callbacks=[Listens()])
    assert len(kinds) == 2


def test_hooks_of_later_priority_see_the_stepped_weights_after_the_batch(tmp_path: Path) -> None:
    seen: list[str] = []

    class Early(Hook):
        priority = "VERY_HIGH"

        def after_train_iter(self, runner: Any) -> None:
            seen.append("early" if runner.model.module.net.weight.grad is None else "late?")

    class Late(Hook):
        priority = "LOW"

        def after_train_iter(self, runner: Any) -> None:
            grad = runner.model.module.net.weight.grad
            seen.append(
                "late" if grad is not None and not runner.outputs["loss"].requires_grad else "?"
            )

    trainer = make_trainer(tmp_path, HookAdapter([Late(), OptimizerHook(), Early()]))
    trainer.fit(NoValidation(), make_loader(1))
    assert seen == ["early", "late"]


def test_the_module_is_automatic_again_after_fit_and_after_an_error(tmp_path: Path) -> None:
    trainer = fit(tmp_path, OptimizerHook())
    assert trainer.lightning_module.automatic_optimization
    assert "on_validation_model_zero_grad" not in vars(trainer.lightning_module)

    class Fails(OptimizerHook):
        def after_train_iter(self, runner: Any) -> None:
            raise RuntimeError("no")

    module = NoValidation()
    with pytest.raises(RuntimeError, match="no"):
        fit(tmp_path, Fails(), module=module)
    assert module.automatic_optimization


def test_a_plain_hook_needs_owns_backward_and_the_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="owns_backward=True"):
        fit(tmp_path, PlainStepper())
    trainer = fit(tmp_path, PlainStepper(), owns_backward=True)
    assert torch.equal(trainer.lightning_module.net.weight, by_hand(OptimizerHook()).net.weight)


def test_owns_backward_false_leaves_it_to_lightning(tmp_path: Path) -> None:
    class Looks(OptimizerHook):
        def after_train_iter(self, runner: Any) -> None:
            assert runner.model.module.net.weight.grad is not None

    trainer = fit(tmp_path, Looks(), owns_backward=False)
    assert trainer.global_step == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient_clip_val": 1.0}, "gradient_clip_val=1.0.*OptimizerHook.*grad_clip="),
        ({"accumulate_grad_batches": 2}, "accumulate_grad_batches=2.*GradientCumulative"),
    ],
)
def test_clipping_and_accumulating_in_the_trainer_too_is_refused(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        fit(tmp_path, OptimizerHook(), **options)


def test_clipping_in_the_hook_under_a_grad_scaler_is_refused(tmp_path: Path) -> None:
    from lightning.pytorch.plugins import MixedPrecision

    scaler = torch.amp.GradScaler("cpu")
    plugin = MixedPrecision("16-mixed", "cpu", scaler)
    with pytest.raises(ValueError, match=r"OptimizerHook\(grad_clip=.*16-mixed"):
        fit(tmp_path, OptimizerHook({"max_norm": 1}), plugins=[plugin])


def test_bf16_mixed(tmp_path: Path) -> None:
    trainer = fit(tmp_path, OptimizerHook({"max_norm": 1.0}), precision="bf16-mixed")
    assert trainer.global_step == 10


class Counts(Hook):
    def __init__(self) -> None:
        self.calls = 0

    def after_train_iter(self, runner: Any) -> None:
        self.calls += 1


def test_a_step_that_returns_none_is_no_step_and_a_warning_says_so(tmp_path: Path) -> None:
    class Module(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if batch_idx == 1 else super().training_step(batch, batch_idx)

    counts = Counts()
    with pytest.warns(UserWarning, match="OptimizerHook: after_train_iter is not called") as seen:
        trainer = fit(tmp_path, counts, OptimizerHook(), module=Module())
    assert sum("training_step returns None" in str(one.message) for one in seen) == 1
    assert trainer.global_step == 8
    assert counts.calls == 10


def test_a_step_that_returns_no_loss_to_an_optimizer_hook_raises_an_error(tmp_path: Path) -> None:
    class Module(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return {"log_vars": {}}

    with pytest.raises(KeyError, match=r"returned no 'loss', only: log_vars; return dict\(loss="):
        fit(tmp_path, OptimizerHook(), module=Module())


def test_train_step_module_without_an_optimizer_hook_is_trained_by_lightning(
    tmp_path: Path,
) -> None:
    model = job.make_model()
    module = TrainStepModule(model, job.make_optimizer(model))
    before = model.network[2].weight.clone()
    trainer = make_trainer(tmp_path, HookAdapter([]), max_epochs=1)
    trainer.fit(module, job.make_data()[0])
    assert trainer.global_step == 4
    assert not torch.equal(before, model.network[2].weight)


def test_train_step_module_with_a_dict_of_optimizers(tmp_path: Path) -> None:
    """The model steps several optimizers in ``train_step``, as mmcv's GANs."""

    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)

        def train_step(self, data: Any, optimizer: Any) -> Any:
            losses = {}
            for name in ("a", "b"):
                loss = getattr(self, name)(data[0]).square().mean()
                optimizer[name].zero_grad()
                loss.backward()
                optimizer[name].step()
                losses[name] = loss.item()
            return {"log_vars": losses, "num_samples": 2}

    model = Two()
    optimizers = {n: torch.optim.SGD(getattr(model, n).parameters(), 0.1) for n in ("a", "b")}
    seen: list[Any] = []

    class Look(Hook):
        def after_train_iter(self, runner: Any) -> None:
            seen.append((runner.current_lr(), sorted(runner.log_buffer.val_history)))

    trainer = make_trainer(tmp_path, Look())
    trainer.fit(TrainStepModule(model, optimizers), make_loader(2))
    assert seen == [({"a": [0.1], "b": [0.1]}, ["a", "b"])] * 2
    assert trainer.global_step == 4
    assert trainer.lightning_module.state_dict().keys() == model.state_dict().keys()


def test_train_step_module_loads_with_and_without_the_prefix() -> None:
    module = TrainStepModule(job.make_model(1))
    state = job.make_model(2).state_dict()
    for prefix in ("", "model."):
        module.load_state_dict({prefix + key: value for key, value in state.items()})
        assert torch.equal(module.model.network[2].weight, state["network.2.weight"])
    assert list(module.state_dict()) == list(state)


def test_train_step_module_refuses_what_is_not_a_model_or_an_optimizer() -> None:
    with pytest.raises(TypeError, match="Linear has no train_step"):
        TrainStepModule(torch.nn.Linear(1, 1))
    with pytest.raises(TypeError, match=r"optimizer\['a'\] must be a torch.optim.Optimizer"):
        TrainStepModule(job.make_model(), {"a": 3})


class Copies(Callback):
    """Copies the module in several ways while hooks own backward; can then raise an error."""

    def __init__(self, error: type[BaseException] | None) -> None:
        self.error = error
        self.copies: dict[str, Any] = {}

    def on_train_batch_end(self, trainer: Any, module: Any, *args: Any) -> None:
        assert not module.automatic_optimization
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        self.copies = {
            "deepcopy": copy.deepcopy(module),
            "pickle": pickle.loads(pickle.dumps(module)),
            "torch.save": torch.load(file, weights_only=False),
        }
        if self.error is not None:
            raise self.error("on purpose")


@pytest.mark.parametrize("error", [None, RuntimeError])
def test_a_copy_of_the_module_trains_again(tmp_path: Path, error: Any) -> None:
    copies, module = Copies(error), TinyModule()
    with contextlib.suppress(RuntimeError):
        training.fit(tmp_path, OptimizerHook(), module=module, host=True, callbacks=[copies], val=1)
    for how, one in {"itself": module, **copies.copies}.items():
        assert one.automatic_optimization is True, how
        before = one.net.weight.detach().clone()
        cleared = []
        one.zero_grad = lambda *args, done=cleared: done.append(1)
        one.on_validation_model_zero_grad()
        assert cleared, how  # as Lightning does before a validation
        del one.zero_grad
        training.fit(tmp_path, module=one)
        assert not torch.equal(one.net.weight, before), how


class Manual(NoValidation):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


def test_a_copy_of_a_module_that_steps_by_itself_still_does(tmp_path: Path) -> None:
    copies, module = Copies(None), Manual()
    fit(tmp_path, OptimizerHook(), module=module, owns_backward=True, callbacks=[copies])
    for one in (module, *copies.copies.values()):
        assert one.automatic_optimization is False


def test_lightnings_wrapper_of_the_optimizer_stays_lightnings(tmp_path: Path) -> None:
    changed: list[set[str]] = []

    class Notes(Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
            changed.append({*vars(type(pl_module.optimizers()))} - {"__module__", "__doc__"})

    adapter = HookAdapter([OptimizerHook()], owns_backward=True)
    trainer = make_trainer(tmp_path, adapter, Notes(), max_epochs=1)
    trainer.fit(NoValidation(), make_loader(2))
    assert changed == [set(), set()]
    assert trainer.global_step == 2


class UsesOptimizer(OptimizerHook):
    """Schedules, copies, pickles and prints ``runner.optimizer``, as old hooks do."""

    def before_run(self, runner: Any) -> None:
        optimizer = runner.optimizer
        self.scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        self.classes = isinstance(optimizer, torch.optim.SGD), type(copy.deepcopy(optimizer))
        self.pickled = type(pickle.loads(pickle.dumps(optimizer.param_groups and optimizer)))
        self.text = str(optimizer)

    def after_train_iter(self, runner: Any) -> None:
        with runner.optimizer.toggle_model():
            super().after_train_iter(runner)
        self.scheduler.step()


def test_the_optimizer_of_hooks_is_used_as_torchs(tmp_path: Path) -> None:
    hook, module = UsesOptimizer(), NoValidation()
    trainer = make_trainer(tmp_path, HookAdapter([hook], owns_backward=True), max_epochs=1)
    trainer.fit(module, make_loader(3))
    assert hook.classes == (True, torch.optim.SGD)
    assert hook.pickled is torch.optim.SGD
    assert hook.text.startswith("SGD (")
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(module.lr / 8)


@pytest.mark.parametrize("to_hooks", [True, False])
def test_steps_are_counted_on_where_a_resumed_run_makes_them_otherwise(
    to_hooks: bool, tmp_path: Path
) -> None:
    def train(owned: bool, *hooks: Any, ckpt: Any = None, **limits: Any) -> L.Trainer:
        rates = CosineAnnealingLrUpdaterHook(min_lr=0, by_epoch=False, by_step=True)
        owner = [OptimizerHook()] if owned else []
        trainer = make_trainer(tmp_path, HookAdapter([*owner, rates, *hooks]), **limits)
        trainer.fit(NoValidation(), make_loader(4), ckpt_path=ckpt)
        return trainer

    path = tmp_path / "a.ckpt"
    whole = train(not to_hooks, SaveAt("on_train_epoch_end", path), max_epochs=3)
    resumed = train(to_hooks, max_epochs=3, ckpt=path)
    assert resumed.global_step == whole.global_step == 12
    rate, other = (each.optimizers[0].param_groups[0]["lr"] for each in (resumed, whole))
    assert rate == other
    assert train(to_hooks, max_epochs=-1, max_steps=6, ckpt=path).fit_loop.total_batch_idx == 5
