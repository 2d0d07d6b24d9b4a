"""The averages other than EMA: values, buffers, start, NaN, and checkpoints of Lightning."""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins import MixedPrecision

from lightning_hooks import (
    BaseEMAHook,
    EMAHook,
    ExpMomentumEMAHook,
    HookAdapter,
    LinearMomentumEMAHook,
    MomentumAnnealingEMAHook,
    StochasticWeightAverageHook,
)
from lightning_hooks.hooks.averaging.nan_safe_update import NanSafeUpdate
from lightning_hooks.schedules.averages import half_life_momentum, ramped_momentum
from support.device_reads import NoReads
from support.lightning_releases import ema_weight_averaging
from support.probes import Probe, equal, weights
from support.training import TinyModule, TinyNormModule, make_loader, make_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
]
hosted = pytest.mark.parametrize("host", [lambda h: h, lambda h: HookAdapter([h])])
adapted = pytest.mark.parametrize("host", [lambda h: HookAdapter([h])])


class Loop(Callback):
    """A reference average: updates the state dict with ``mul_`` and ``add_`` after each step.

    ``momentum(t)`` is the model's weight at step t, or None if step t has no update.
    """

    def __init__(self, momentum: Any, buffers: bool = False, t0: int = 0) -> None:
        self.momentum, self.buffers, self.t0 = momentum, buffers, t0
        self.ema: dict[str, torch.Tensor] = {}

    def on_train_start(self, trainer, module) -> None:
        self.start(module)

    def start(self, module: Any) -> None:
        names = module.state_dict() if self.buffers else dict(module.named_parameters())
        self.ema = {k: v.detach().clone() for k, v in names.items()}
        self.step = 0

    def on_train_batch_end(self, trainer, module, *args: Any) -> None:
        t, self.step = self.step, self.step + 1
        if t < self.t0:
            return self.start_at(module)
        m = self.momentum(t - self.t0)
        for name, value in module.state_dict().items():
            if m is not None and name in self.ema and value.dtype.is_floating_point:
                self.ema[name].mul_(1 - m).add_(value, alpha=m)
        return None

    def start_at(self, module: Any) -> None:
        step = self.step
        self.start(module)
        self.step = step

    def check(self, state: dict[str, torch.Tensor], module: torch.nn.Module) -> None:
        for name, value in module.state_dict().items():
            want = self.ema.get(name, value)
            if not value.dtype.is_floating_point:
                want = value
            torch.testing.assert_close(state[name], want, rtol=1e-5, atol=1e-7)


def exp(t: int, m: float, total: int) -> float:
    return (1 - m) * math.exp(-(1 + t) / total) + m


def halving(t: int) -> float:
    return 0.5 / (t + 1)


RULES: dict[str, tuple[Any, Any, bool]] = {
    # hook, the model's weight at step t, whether buffers are averaged: mmdetection's formulas
    "base": (partial(BaseEMAHook, momentum=0.1), lambda t: 0.1, True),
    "base_interval": (
        partial(BaseEMAHook, momentum=0.1, interval=3),
        lambda t: 0.1 if (t + 1) % 3 == 0 else None,
        True,
    ),
    "base_fun": (partial(BaseEMAHook, momentum_fun=halving), halving, True),
    "exp": (
        partial(ExpMomentumEMAHook, momentum=0.1, total_iter=8),
        lambda t: exp(t, 0.1, 8),
        True,
    ),
    "exp_default": (ExpMomentumEMAHook, lambda t: exp(t, 2e-4, 2000), True),
    "exp_skip": (
        partial(ExpMomentumEMAHook, total_iter=5, skip_buffers=True, interval=2),
        lambda t: exp(t, 2e-4, 5) if (t + 1) % 2 == 0 else None,
        False,
    ),
    "linear": (
        partial(LinearMomentumEMAHook, momentum=0.3, warm_up=9),
        lambda t: min(0.3, (1 + t) / (9 + t)),
        True,
    ),
    "linear_default": (LinearMomentumEMAHook, lambda t: min(2e-4, (1 + t) / (100 + t)), True),
    # MMEngine's
    "annealing": (
        partial(MomentumAnnealingEMAHook, momentum=0.2, gamma=3),
        lambda t: max(0.2, 3 / (3 + t)),
        False,
    ),
    "annealing_interval": (
        partial(MomentumAnnealingEMAHook, gamma=10, interval=2, buffers="average"),
        lambda t: max(2e-4, 10 / (10 + t)) if t % 2 == 0 else None,
        True,
    ),
    "swa": (StochasticWeightAverageHook, lambda t: 1 / (t + 1), False),
    "swa_interval": (
        partial(StochasticWeightAverageHook, interval=3),
        lambda t: 1 / (t // 3 + 1) if t % 3 == 0 else None,
        False,
    ),
    # the other peers': timm's, Ignite's and Composer's formulas
    "timm": (
        partial(MomentumAnnealingEMAHook, momentum=0.3, gamma=1, power=2 / 3),
        lambda t: 1 - min(0.7, 1 - (1 + t) ** (-2 / 3)),
        False,
    ),
    "ignite": (
        partial(
            BaseEMAHook, momentum_fun=partial(ramped_momentum, start=0.1, momentum=0.4, warm_up=4)
        ),
        lambda t: [0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4][min(t, 8)],
        True,
    ),
    "composer": (
        partial(EMAHook, momentum=half_life_momentum(3), warm_up=0, interval=2),
        lambda t: 1 - 2 ** (-2 / 3) if t % 2 == 0 else None,
        False,
    ),
    # TensorFlow's and diffusers' warm-up, with as many updates as were made
    "fast": (
        partial(EMAHook, momentum=0.6, warm_up="fast", interval=2),
        lambda t: 1 - min(0.4**2, (1 + t // 2) / (10 + t // 2)) if t % 2 == 0 else None,
        False,
    ),
    "plain": (partial(EMAHook, momentum=0.1, warm_up=0), lambda t: 0.1, False),
}


@pytest.mark.parametrize("rule", RULES)
def test_equals_a_loop_by_the_peers_formula(tmp_path, rule):
    make, momentum, buffers = RULES[rule]
    hook, loop, module = make(), Loop(momentum, buffers), TinyNormModule()
    make_trainer(tmp_path, loop, hook, max_epochs=2).fit(module, make_loader(), make_loader(1))
    loop.check(hook.ema_state_dict(), module)
    assert equal(hook.ema_state_dict(), weights(module))


def test_departure_linear_with_an_interval_of_k_has_k_times_the_weight(tmp_path):
    hook = LinearMomentumEMAHook(momentum=0.1, interval=2, warm_up=0)
    loop = Loop(lambda t: 1 - 0.9**2 if (t + 1) % 2 == 0 else None, buffers=True)
    module = TinyNormModule()
    make_trainer(tmp_path, loop, hook).fit(module, make_loader())
    loop.check(hook.ema_state_dict(), module)


def test_departure_a_momentum_fun_counts_in_every_class(tmp_path):
    for kind in (ExpMomentumEMAHook, LinearMomentumEMAHook):
        hook, loop = kind(momentum_fun=lambda t: 0.25), Loop(lambda t: 0.25, buffers=True)
        module = TinyNormModule()
        make_trainer(tmp_path, loop, hook).fit(module, make_loader())
        loop.check(hook.ema_state_dict(), module)


def test_departure_steps_are_counted_under_accumulation(tmp_path):
    hook = StochasticWeightAverageHook()
    make_trainer(tmp_path, hook, accumulate_grad_batches=2, max_epochs=2).fit(
        TinyModule(), make_loader(5)
    )
    assert hook.steps == 6


class Overflows(TinyModule):
    """A module with infinite gradients in steps 3 and 4 of 8, which the gradient scaler skips."""

    fused: bool | None = None

    def loss(self, batch: Any) -> torch.Tensor:
        skipped = self.trainer.training and len(self.losses) in (2, 3)
        return super().loss(batch) * (math.inf if skipped else 1)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.lr, fused=self.fused)


@pytest.mark.parametrize("fused", [None, True])
def test_departure_steps_that_a_scaler_skips_do_not_count(tmp_path, fused):
    hook, module, models = StochasticWeightAverageHook(), Overflows(), []
    module.fused = fused

    class Look(Callback):
        def on_train_batch_end(self, *args: Any) -> None:
            models.append(module.net.weight.detach().clone())

    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    scaled = MixedPrecision("16-mixed", "cpu", scaler)
    trainer = make_trainer(tmp_path, hook, Look(), plugins=[scaled], max_epochs=2)
    trainer.fit(module, make_loader())
    assert torch.equal(models[1], models[3])
    assert trainer.global_step == 8  # Lightning counts skipped steps too
    # a fused optimizer skips on the device, so the unchanged weights count once more
    made = models if fused else models[:2] + models[4:]
    assert hook.steps == len(made)
    mean = torch.stack(made).mean(0)
    torch.testing.assert_close(hook.ema_state_dict()["net.weight"], mean)
    assert not trainer.optimizers[0]._optimizer_step_post_hooks


def test_begun_after_one_step_it_is_lightnings(tmp_path):
    hook, ours, theirs = EMAHook(0.1, warm_up=0, begin_iter=1), TinyModule(), TinyModule()
    make_trainer(tmp_path, hook, max_epochs=2).fit(ours, make_loader())
    make_trainer(tmp_path, ema_weight_averaging(decay=0.9), max_epochs=2).fit(theirs, make_loader())
    for key, value in theirs.state_dict().items():  # where Lightning leaves the average
        torch.testing.assert_close(hook.ema_state_dict()[key], value)


@pytest.mark.parametrize("buffers", ["average", "copy"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_on_a_device_of_its_own_it_is_the_same(tmp_path, device, buffers):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    found = []
    for where in (None, "cpu"):
        hook, probe = EMAHook(0.1, warm_up=0, interval=2, buffers=buffers, device=where), Probe()
        module = TinyNormModule()
        trainer = make_trainer(tmp_path, hook, probe, max_epochs=2, accelerator=device)
        trainer.fit(module, make_loader(), make_loader(1))
        trainer.validate(module, make_loader(1), verbose=False)
        state = hook.ema_state_dict()
        if where:
            assert {state[name].device.type for name, _ in module.named_parameters()} == {"cpu"}
        hook.export(str(tmp_path / "ema.pth"))
        trainer.save_checkpoint(tmp_path / "last.ckpt")
        saved = torch.load(tmp_path / "last.ckpt", weights_only=False)
        found.append(
            {
                "exported": torch.load(tmp_path / "ema.pth"),
                "saved": {key: value.cpu() for key, value in saved["state_dict"].items()},
                "raw": weights(module),
                **{f"val {i}": seen for i, seen in enumerate(probe.val)},
            }
        )
        resumed = EMAHook(0.1, warm_up=0, interval=2, buffers=buffers, device=where)
        trainer = make_trainer(tmp_path, resumed, max_epochs=3, accelerator=device)
        trainer.fit(module, make_loader(), ckpt_path=tmp_path / "last.ckpt")
        found[-1]["resumed"] = {k: v.cpu() for k, v in resumed.ema_state_dict().items()}
    beside, apart = found
    assert len(beside) > 5
    for name, values in beside.items():
        for key, value in values.items():
            torch.testing.assert_close(apart[name][key].cpu(), value.cpu(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("buffers", ["ignore", "average"])
def test_the_average_of_bfloat16_weights_moves_in_float32(tmp_path, buffers):
    class Reference(Callback):
        """A reference average in float64, because bfloat16 would lose every step of 0.0002."""

        def on_train_start(self, trainer, module) -> None:
            self.ema = {k: v.detach().double() for k, v in module.named_parameters()}

        def on_train_batch_end(self, trainer, module, *args: Any) -> None:
            for key, value in module.named_parameters():
                self.ema[key] += 0.0002 * (value.detach().double() - self.ema[key])
            if trainer.global_step == 4:
                trainer.save_checkpoint(tmp_path / "half.ckpt")

    hook, reference, probe = EMAHook(warm_up=0, buffers=buffers), Reference(), Probe()
    module = TinyNormModule()
    options = {"max_epochs": 2, "precision": "bf16-true"}
    trainer = make_trainer(tmp_path, hook, reference, probe, **options)
    trainer.fit(module, make_loader(), make_loader(1))
    exact, lowered = hook._average.state_dict(exact=True), hook.ema_state_dict()
    for key, value in reference.ema.items():
        torch.testing.assert_close(exact[key].double(), value, rtol=1e-6, atol=1e-8)
        assert lowered[key].dtype == torch.bfloat16
        assert torch.equal(lowered[key], exact[key].bfloat16())
        assert torch.equal(probe.val[-1][key], lowered[key])
    saved = torch.load(tmp_path / "half.ckpt", weights_only=True)
    assert {saved["state_dict"][key].dtype for key in reference.ema} == {torch.bfloat16}
    resumed = EMAHook(warm_up=0, buffers=buffers)
    trainer = make_trainer(tmp_path, resumed, **options)
    trainer.fit(TinyNormModule(), make_loader(), ckpt_path=tmp_path / "half.ckpt")
    assert equal(resumed._average.state_dict(exact=True), exact)


def test_swa_is_the_mean_of_the_models(tmp_path):
    class Models(Callback):
        def on_train_batch_end(self, trainer, module, *args: Any) -> None:
            seen.append(weights(module))

    seen: list[Any] = []
    hook = StochasticWeightAverageHook(begin_iter=2)
    make_trainer(tmp_path, Models(), hook, max_epochs=2).fit(TinyModule(), make_loader())
    for key, value in hook.ema_state_dict().items():
        mean = torch.stack([model[key] for model in seen[2:]]).mean(0)
        torch.testing.assert_close(value, mean)


@pytest.mark.parametrize("make", [MomentumAnnealingEMAHook, StochasticWeightAverageHook])
def test_state_dict_in_a_checkpoint_is_the_average(tmp_path, make):
    hook, module = make(after_fit="raw"), TinyModule()
    trainer = make_trainer(tmp_path, hook)
    trainer.fit(module, make_loader())
    trainer.save_checkpoint(tmp_path / "a.ckpt", weights_only=False)
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert equal(saved["current_model_state"], weights(module))
    assert equal(saved["state_dict"], hook.ema_state_dict())
    assert not equal(saved["state_dict"], saved["current_model_state"])


# -- buffers -----------------------------------------------------------------------------------


class Counting(TinyNormModule):
    """A module with integer, non-persistent and repeatedly replaced buffers."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_buffer("replaced", torch.zeros(3))
        self.register_buffer("hidden", torch.zeros(2), persistent=False)

    def training_step(self, batch: Any, i: int) -> Any:
        self.replaced = self.replaced + 1
        self.hidden = self.hidden + 1
        return super().training_step(batch, i)


@adapted
@pytest.mark.parametrize("buffers", ["ignore", "average", "copy"])
def test_departure_integer_buffers_are_the_models_others_are_swapped(tmp_path, host, buffers):
    probe, module = Probe(), Counting()
    hook = EMAHook(momentum=0.1, warm_up=0, interval=3, buffers=buffers, after_fit="raw")
    make_trainer(tmp_path, host(hook), probe, max_epochs=2).fit(
        module, make_loader(), make_loader(1)
    )
    state, own = hook.ema_state_dict(), weights(module)
    assert equal(probe.val[-1], state)
    assert "hidden" not in state
    assert module.hidden.tolist() == [8, 8]
    tracked = "net.1.num_batches_tracked"
    assert state[tracked].dtype == torch.long
    m = 1 - 0.9**3
    replaced = 0.0
    for value in (1, 4, 7):
        replaced += m * (value - replaced)
    expected = {"ignore": (8, 8), "average": (replaced, 8), "copy": (7, 7)}[buffers]
    assert state["replaced"][0].item() == pytest.approx(expected[0])
    assert state[tracked].item() == expected[1]
    assert own["replaced"][0] == own[tracked] == 8
    same = torch.equal(state["net.1.running_mean"], own["net.1.running_mean"])
    assert same == (buffers == "ignore")


@pytest.mark.parametrize("buffers", ["average", "copy"])
def test_averaged_buffers_resume_bit_equal(tmp_path, buffers):
    def fit(epochs: int, **kwargs: Any) -> tuple[EMAHook, L.Trainer]:
        ema = EMAHook(momentum=0.1, interval=3, buffers=buffers)
        trainer = make_trainer(tmp_path, ema, max_epochs=epochs)
        trainer.fit(Counting(), make_loader(), make_loader(1), **kwargs)
        return ema, trainer

    whole, _ = fit(4)
    fit(2)[1].save_checkpoint(tmp_path / "a.ckpt", weights_only=False)
    again, trainer = fit(4, ckpt_path=tmp_path / "a.ckpt")
    assert equal(again.ema_state_dict(), whole.ema_state_dict())
    trainer.save_checkpoint(tmp_path / "b.ckpt", weights_only=False)
    saved = torch.load(tmp_path / "b.ckpt", weights_only=True)
    assert equal(saved["state_dict"], again.ema_state_dict())
    assert saved["current_model_state"]["replaced"][0] == 16


def test_a_checkpoint_between_updates_has_the_buffers_of_both(tmp_path):
    class Save(Callback):
        def on_train_batch_end(self, trainer, module, outputs: Any, batch: Any, i: int) -> None:
            if i == 2:
                trainer.save_checkpoint(tmp_path / "a.ckpt", weights_only=False)

    hook = EMAHook(momentum=0.1, interval=2, buffers="copy")
    make_trainer(tmp_path, hook, Save()).fit(Counting(), make_loader(4))
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert saved["current_model_state"]["replaced"][0] == 3
    assert saved["state_dict"]["replaced"][0] == 3
    assert hook.ema_state_dict()["replaced"][0] == 3
    assert hook._average.raw_state_dict()["replaced"][0] == 4


# -- when averaging begins ---------------------------------------------------------------------


@hosted
@pytest.mark.parametrize(
    ("arguments", "t0"),
    [
        ({"begin_iter": 6}, 6),
        ({"begin_epoch": 1}, 4),
    ],
)
def test_departure_until_it_begins_counted_from_0_the_average_is_the_model(
    tmp_path, host, arguments, t0
):
    class Look(Callback):
        def on_train_batch_end(self, trainer, module, *args: Any) -> None:
            nonlocal seen
            if trainer.global_step <= t0:
                seen += 1
                assert equal(hook.ema_state_dict(), weights(module))

    seen, probe = 0, Probe()
    hook, loop = EMAHook(momentum=0.2, warm_up=0, **arguments), Loop(lambda t: 0.2, t0=t0)
    module = TinyModule()
    trainer = make_trainer(tmp_path, host(hook), loop, Look(), probe, max_epochs=3)
    trainer.fit(module, make_loader(), make_loader(1))
    assert seen == t0
    plain = Probe()
    make_trainer(tmp_path, plain, max_epochs=3).fit(TinyModule(), make_loader(), make_loader(1))
    for epoch, (with_hook, without) in enumerate(zip(probe.val, plain.val, strict=True)):
        assert equal(with_hook, without) == (4 * (epoch + 1) <= t0)
    loop.check(hook.ema_state_dict(), module)
    assert hook.steps == 12 - t0


@pytest.mark.parametrize(
    ("arguments", "saved_after"),
    [({"begin_iter": 6}, 1), ({"begin_iter": 6}, 2), ({"begin_epoch": 2}, 2)],
)
def test_a_later_beginning_resumes_bit_equal(tmp_path, arguments, saved_after):
    def fit(epochs: int, **kwargs: Any) -> tuple[EMAHook, L.Trainer]:
        ema = EMAHook(momentum=0.1, **arguments)
        trainer = make_trainer(tmp_path, ema, max_epochs=epochs)
        trainer.fit(TinyNormModule(), make_loader(), make_loader(1), **kwargs)
        return ema, trainer

    whole, _ = fit(4)
    first, trainer = fit(saved_after)
    trainer.save_checkpoint(tmp_path / "a.ckpt", weights_only=False)
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert equal(saved["state_dict"], first.ema_state_dict())
    again, _ = fit(4, ckpt_path=tmp_path / "a.ckpt")
    assert equal(again.ema_state_dict(), whole.ema_state_dict())
    assert again.steps == whole.steps


def test_a_run_counted_in_iterations_resumes_after_its_beginning(tmp_path):
    class Save(Callback):
        def on_train_epoch_end(self, trainer, module) -> None:
            if trainer.global_step == 8:
                trainer.save_checkpoint(tmp_path / "a.ckpt", weights_only=False)

    def fit(steps: int, **kwargs: Any) -> EMAHook:
        ema = EMAHook(momentum=0.1, begin_epoch=1)
        adapter = HookAdapter([ema], by_epoch=False)
        trainer = make_trainer(tmp_path, adapter, Save(), max_steps=steps)
        trainer.fit(TinyModule(), make_loader(), **kwargs)
        return ema

    whole = fit(12)
    fit(8)
    again = fit(12, ckpt_path=tmp_path / "a.ckpt")
    assert again.steps == whole.steps == 8
    assert equal(again.ema_state_dict(), whole.ema_state_dict())


def test_it_begins_between_two_fits(tmp_path):
    whole, hook = (EMAHook(momentum=0.1, begin_epoch=2) for _ in range(2))
    make_trainer(tmp_path, whole, max_epochs=4).fit(TinyModule(momentum=0), make_loader())
    trainer, module = make_trainer(tmp_path, hook, max_epochs=2), TinyModule(momentum=0)
    trainer.fit(module, make_loader())
    assert equal(hook.ema_state_dict(), weights(module))
    trainer.fit_loop.max_epochs = 4
    trainer.fit(module, make_loader())
    assert equal(hook.ema_state_dict(), whole.ema_state_dict())


def test_it_begins_in_a_run_counted_in_iterations(tmp_path):
    hook, loop = EMAHook(momentum=0.2, warm_up=0, begin_iter=3), Loop(lambda t: 0.2, t0=3)
    module = TinyModule()
    trainer = make_trainer(tmp_path, HookAdapter([hook], by_epoch=False), loop, max_steps=6)
    trainer.fit(module, make_loader())
    loop.check(hook.ema_state_dict(), module)


# -- NaN ---------------------------------------------------------------------------------------


class Poisoned(TinyNormModule):
    """A module with NaN weights after one step; the next step can restore the good weights."""

    def __init__(self, at: int, name: str | None = None, mend: bool = True) -> None:
        super().__init__()
        self.at, self.name, self.mends = at, name, mend

    def on_train_batch_start(self, batch: Any, i: int) -> None:
        if self.trainer.global_step == self.at + 1 and self.mends:
            self.load_state_dict(self.good)
        self.good = weights(self)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        super().optimizer_step(*args, **kwargs)
        if self.trainer.global_step == self.at:  # counted after the step
            with torch.no_grad():
                for name, parameter in self.named_parameters():
                    if self.name in (None, name):
                        parameter.fill_(float("nan"))


@pytest.mark.parametrize("name", [None, "net.3.bias"])
def test_departure_a_step_to_nan_leaves_the_average_as_it_was(tmp_path, name):
    class Look(Callback):
        def on_train_batch_end(self, trainer, module, *args: Any) -> None:
            if trainer.global_step == 5:
                assert any(value.isnan().any() for value in module.parameters())

    hook, loop = EMAHook(momentum=0.1, warm_up=0), Loop(lambda t: 0.1 if t != 4 else None)
    module = Poisoned(4, name)
    trainer = make_trainer(tmp_path, hook, loop, Look(), max_epochs=2)
    with pytest.warns(UserWarning, match="EMAHook left 1 updates out: the model's weights were N"):
        trainer.fit(module, make_loader(), make_loader(1))
    loop.check(hook.ema_state_dict(), module)
    assert all(value.isfinite().all() for value in hook.ema_state_dict().values())


def test_a_run_that_ends_in_nan_leaves_a_good_average(tmp_path):
    hook = EMAHook(momentum=0.1, warm_up=0, after_fit="raw")
    loop = Loop(lambda t: 0.1 if t < 4 else None)
    module = Poisoned(4, "net.0.weight", mend=False)
    trainer = make_trainer(tmp_path, hook, loop, max_epochs=3)
    with pytest.warns(UserWarning, match="EMAHook left 4 updates out"):
        trainer.fit(module, make_loader(), make_loader(1))
    assert module.net[3].weight.isnan().all()
    for name, value in loop.ema.items():
        torch.testing.assert_close(hook.ema_state_dict()[name], value)


def test_an_update_reads_nothing_from_the_device(tmp_path):
    hook = EMAHook(momentum=0.1, buffers="copy")
    make_trainer(tmp_path, hook).fit(TinyNormModule(), make_loader())
    with NoReads():
        for weight in (0.1, 0.9):
            hook._average.update(weight)
        with pytest.raises(AssertionError, match="a read of the device"):
            torch.ones(1).item()


def test_one_bad_number_in_a_small_model_is_enough(tmp_path):
    class One(Poisoned):
        def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            TinyNormModule.optimizer_step(self, *args, **kwargs)
            if self.trainer.global_step == self.at:
                with torch.no_grad():
                    self.net[0].weight[7, 3] = float("inf")

    hook, loop = EMAHook(momentum=0.1, warm_up=0), Loop(lambda t: 0.1 if t != 2 else None)
    module = One(2)
    with pytest.warns(UserWarning, match="EMAHook left 1 updates out"):
        make_trainer(tmp_path, hook, loop, max_epochs=2).fit(module, make_loader(), make_loader(1))
    loop.check(hook.ema_state_dict(), module)


def test_what_slips_through_is_repaired_before_it_is_used():
    value = torch.nn.Parameter(torch.zeros(100_000))
    average, left_out = torch.ones(100_000), torch.zeros(())
    update = NanSafeUpdate([(average, value)], left_out, False)
    with torch.no_grad():
        value[-1] = float("nan")  # nothing looks so far
        update(0.1)
        assert average.isnan().sum() == 1
        value[:] = float("nan")  # the next step spreads the NaN
        update(0.1)
        assert left_out == 1
        value.fill_(5.0)
    update.repair()
    assert average[:-1].unique().tolist() == pytest.approx([0.9])
    assert average[-1] == 5


@pytest.mark.parametrize("buffers", ["average", "copy"])
def test_a_buffer_that_stays_nan_does_not_stop_the_average(tmp_path, buffers):
    class Batch(TinyNormModule):
        def training_step(self, batch: Any, i: int) -> Any:
            if self.trainer.global_step == 2:  # an input of no step
                self.net[1].running_mean[0] = float("nan")
            return super().training_step(batch, i)

    hook, module = EMAHook(momentum=0.1, buffers=buffers, after_fit="raw"), Batch()
    make_trainer(tmp_path, hook).fit(module, make_loader())
    whole = EMAHook(momentum=0.1, buffers=buffers)
    make_trainer(tmp_path, whole).fit(TinyNormModule(), make_loader())
    state, expected = hook.ema_state_dict(), whole.ema_state_dict()
    assert module.net[1].running_mean[0].isnan()
    assert state.pop("net.1.running_mean").isfinite().all()
    assert expected.pop("net.1.running_mean").isfinite().all()
    assert equal(state, expected)


def test_a_check_of_all_lets_nothing_slip_through(tmp_path):
    class Large(TinyModule):
        def make_net(self) -> torch.nn.Module:
            return torch.nn.Sequential(torch.nn.Linear(4, 70_000), torch.nn.Linear(70_000, 2))

        def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            super().optimizer_step(*args, **kwargs)
            with torch.no_grad():
                self.net[0].weight[-1, -1] = float("nan")

    for check in ("sample", "all"):
        hook = EMAHook(momentum=0.1, check=check)
        trainer = make_trainer(tmp_path, hook, max_steps=1)
        with pytest.warns(UserWarning, match="left 1 updates") if check == "all" else nullcontext():
            trainer.fit(Large(lr=1e-6), make_loader(1))
        state = hook.ema_state_dict()
        assert bool(state["net.0.weight"].isfinite().all()) == (check == "all")


ODD = {
    "one value": lambda: torch.tensor(2.0),
    "empty": lambda: torch.zeros(0, 3),
    "channels last": lambda: torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "a part": lambda: torch.randn(6, 6)[:, :3],
    "transposed": lambda: torch.randn(5, 3).t(),
    "complex": lambda: torch.randn(3, dtype=torch.complex64),
    "half": lambda: torch.randn(300).to(torch.bfloat16),
    "double": lambda: torch.randn(300, dtype=torch.float64),
    "large": lambda: torch.randn(300) * 1e15,
}


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("weight", [2e-4, 0.7])
@pytest.mark.parametrize("bad", [None, *(name for name in ODD if name != "empty")])
def test_is_a_lerp_of_whatever_a_parameter_may_be(weight, bad, every):
    torch.manual_seed(0)
    values = {name: torch.nn.Parameter(make()) for name, make in ODD.items()}
    averages = [value.detach().clone() + 1 for value in values.values()]
    expected = [average.clone() for average in averages]
    left_out = torch.zeros(())
    pairs = [*zip(averages, values.values(), strict=True)]
    update = NanSafeUpdate(pairs, left_out, every)
    with torch.no_grad():
        if bad is None:
            torch._foreach_lerp_(expected, [*values.values()], weight)
        else:
            values[bad].fill_(float("inf"))
    update(weight)
    tolerance = 0 if bad else 1e-6  # kernels differ between machines
    for average, want in zip(averages, expected, strict=True):
        torch.testing.assert_close(average, want, rtol=tolerance, atol=tolerance)
    assert left_out == (bad is not None)


def test_fused_and_plain_updates_agree_to_two_units_in_the_last_place():
    torch.manual_seed(0)
    value, left_out = torch.nn.Parameter(torch.randn(10_000)), torch.zeros(())
    average = torch.randn(10_000)
    exact = average.double().lerp(value.detach().double(), 2e-4).float()
    NanSafeUpdate([(average, value)], left_out, False)(2e-4)
    steps = (average.view(torch.int32) - exact.view(torch.int32)).abs()
    assert steps.max() <= 2


# -- files of others ---------------------------------------------------------------------------


@pytest.fixture
def lightning_file(tmp_path):
    class Save(Callback):
        def on_train_epoch_end(self, trainer, module) -> None:
            trainer.save_checkpoint(tmp_path / "theirs.ckpt", weights_only=False)

    theirs = ema_weight_averaging(decay=0.9)
    make_trainer(tmp_path, theirs, Save(), max_epochs=1).fit(TinyNormModule(), make_loader())
    return tmp_path / "theirs.ckpt"


class Start(Callback):
    """Records raw weights and average at the start of the second epoch."""

    def __init__(self, hook: Any) -> None:
        self.hook = hook

    def on_train_epoch_start(self, trainer, module) -> None:
        self.raw, self.average = weights(module), self.hook.ema_state_dict()
        self.average = {k: v.clone() for k, v in self.average.items()}
        self.steps = self.hook.steps


@pytest.mark.parametrize("batches", [1, 2])
def test_averaged_buffers_begin_with_those_before_the_first_batch(
    tmp_path: Path, batches: int
) -> None:
    class Counts(TinyModule):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            self.seen += 1
            return super().training_step(batch, batch_idx)

    hook = EMAHook(momentum=0.5, warm_up=0, buffers="average")
    trainer = make_trainer(tmp_path, hook, max_epochs=1, accumulate_grad_batches=batches)
    trainer.fit(Counts(), make_loader(batches), make_loader(1))
    assert hook.ema_state_dict()["seen"] == batches / 2


@hosted
@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
def test_goes_on_from_a_checkpoint_of_lightnings_ema(tmp_path, host, lightning_file):
    saved = torch.load(lightning_file, weights_only=True)
    assert not equal(saved["state_dict"], saved["current_model_state"])
    hook = EMAHook(momentum=0.1, buffers="average")
    start = Start(hook)
    trainer = make_trainer(tmp_path, host(hook), start, max_epochs=2)
    trainer.fit(TinyNormModule(seed=5), make_loader(), ckpt_path=lightning_file)
    assert equal(start.raw, saved["current_model_state"])
    parameters = [name for name, value in saved["state_dict"].items() if value.is_floating_point()]
    for name in parameters:
        assert torch.equal(start.average[name], saved["state_dict"][name])
    assert start.steps == 4
    assert hook.steps == 8


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
def test_two_averages_go_on_from_a_checkpoint_of_lightnings_ema(tmp_path, lightning_file):
    saved = torch.load(lightning_file, weights_only=True)
    hooks = EMAHook(momentum=0.1), EMAHook(momentum=0.2)
    starts = [Start(hook) for hook in hooks]
    with pytest.warns(UserWarning, match=r"EMAHook\(momentum=0.2, .*finds no average of its own"):
        make_trainer(tmp_path, *hooks, *starts, max_epochs=2).fit(
            TinyNormModule(seed=5), make_loader(), ckpt_path=lightning_file
        )
    assert equal(starts[0].raw, saved["current_model_state"])
    assert torch.equal(starts[0].average["net.0.weight"], saved["state_dict"]["net.0.weight"])
    assert equal(starts[1].average, starts[1].raw)


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
def test_evaluates_a_checkpoint_of_lightnings_ema_with_its_average(tmp_path, lightning_file):
    probe, saved = Probe(), torch.load(lightning_file, weights_only=True)
    hook, module = EMAHook(momentum=0.1, buffers="average"), TinyNormModule(seed=5)
    trainer = make_trainer(tmp_path, hook, probe)
    trainer.validate(module, make_loader(1), ckpt_path=lightning_file, verbose=False)
    for name, value in module.named_parameters():
        assert torch.equal(probe.val[0][name], saved["state_dict"][name])
        assert torch.equal(value, saved["state_dict"][name])


def test_resume_from_goes_on_with_the_count_of_steps(tmp_path):
    first = EMAHook(momentum=0.1)
    trainer = make_trainer(tmp_path, first, max_epochs=1)
    trainer.fit(TinyModule(), make_loader())
    trainer.save_checkpoint(tmp_path / "a.ckpt", weights_only=False)
    again = EMAHook(momentum=0.1, resume_from=str(tmp_path / "a.ckpt"))
    make_trainer(tmp_path, again, max_epochs=2).fit(TinyModule(seed=5), make_loader())
    assert again.steps == 8


# -- the rest ----------------------------------------------------------------------------------


def test_swap_by_copy_keeps_every_address(tmp_path):
    class Look(Callback):
        def on_train_start(self, trainer, module) -> None:
            self.addresses = [p.data_ptr() for p in module.parameters()]

        def on_validation_batch_end(self, trainer, module, *args: Any) -> None:
            assert equal(weights(module), hook.ema_state_dict())
            assert [p.data_ptr() for p in module.parameters()] == self.addresses

    hook = EMAHook(momentum=0.1, swap="copy", after_fit="raw")
    module, probe = TinyNormModule(), Probe()
    make_trainer(tmp_path, hook, Look(), num_sanity_val_steps=0, max_epochs=2).fit(
        module, make_loader(), make_loader(1)
    )
    make_trainer(tmp_path, probe, max_epochs=2).fit(TinyNormModule(), make_loader(), make_loader(1))
    assert equal(weights(module), probe.val[-1])


def test_momentum_can_be_a_subclass_own(tmp_path):
    class Half(BaseEMAHook):
        def get_momentum(self, runner: Any) -> float:
            return 0.5 if runner.iter else 0.25

    hook, loop, module = Half(), Loop(lambda t: 0.5 if t else 0.25, buffers=True), TinyNormModule()
    make_trainer(tmp_path, hook, loop).fit(module, make_loader())
    loop.check(hook.ema_state_dict(), module)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (partial(EMAHook, begin_iter=1, begin_epoch=1), ValueError, "begin_iter or begin_epoch"),
        (partial(EMAHook, begin_iter=1.5), TypeError, "begin_iter must be an int, got 1.5"),
        (partial(EMAHook, buffers="mean"), ValueError, "buffers must be one of ignore, average, c"),
        (partial(EMAHook, swap="never"), ValueError, "swap must be one of auto, copy"),
        (partial(BaseEMAHook, momentum_fun=0.1), TypeError, "momentum_fun must be a function"),
        (partial(BaseEMAHook, skip_buffers=1), TypeError, "skip_buffers must be a bool"),
        (
            partial(ExpMomentumEMAHook, buffers="copy"),
            TypeError,
            "write .*skip_buffers",
        ),
        (partial(ExpMomentumEMAHook, total_iter=0), ValueError, "total_iter must be at least 1"),
        (partial(MomentumAnnealingEMAHook, gamma="x"), TypeError, "gamma must be a number"),
        (partial(MomentumAnnealingEMAHook, gamma=-1), ValueError, "gamma must be above 0, got -1"),
        (partial(MomentumAnnealingEMAHook, power=0), ValueError, "power must be above 0, got 0"),
        *(
            (partial(EMAHook, device=device), ValueError, "device must be None or a device's name")
            for device in ("gpu", 128, 2**63)
        ),
    ],
)
def test_refuses(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_arguments_are_mmdetections():
    hook = ExpMomentumEMAHook(100, momentum=0.1, interval=2, skip_buffers=True, resume_from="x")
    assert (hook.total_iter, hook.momentum, hook.interval) == (100, 0.1, 2)
    assert (hook._buffers, hook._resume_from) == ("ignore", "x")
    base = BaseEMAHook(0.1, 2, True, "x", abs)
    assert (base.momentum, base.interval, base.skip_buffers) == (0.1, 2, True)
    assert (base._resume_from, base.momentum_fun) == ("x", abs)
    assert (LinearMomentumEMAHook().warm_up, ExpMomentumEMAHook().total_iter) == (100, 2000)
    assert ExpMomentumEMAHook()._buffers == "average"
