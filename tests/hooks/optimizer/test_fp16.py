"""Half precision hooks with the Trainer's scaler, with a scaler of the hook, or without effect."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import job
import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from torch import nn
from torch.nn.utils import clip_grad_norm_

from lightning_hooks import (
    EMAHook,
    Fp16OptimizerHook,
    GradientCumulativeFp16OptimizerHook,
    Hook,
    HookAdapter,
    TextLoggerHook,
    TrainStepModule,
    register_training_hooks,
)
from support.training import TinyModule, make_loader, make_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore:.*Loss will be divided by"),
]
CLIP = {"max_norm": 0.05}
GROWING = {"init_scale": 16.0, "growth_interval": 2}


def mixed() -> MixedPrecision:
    """Return the plugin of ``precision="16-mixed"`` for the CPU."""
    return MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))


def old_module(model: Any = None, **kwargs: Any) -> TrainStepModule:
    model = model or job.make_model()
    return TrainStepModule(model, torch.optim.SGD(model.parameters(), lr=0.1, **kwargs))


class Overflows(nn.Module):
    """A model with a gradient of 1, and an infinite gradient in the third and fourth iteration."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.iterations = 0

    def train_step(self, data: Any, optimizer: Any = None) -> dict[str, Any]:
        self.iterations += 1
        factor = math.inf if self.iterations in (3, 4) else 1.0
        return {"loss": (self.weight * factor).sum(), "log_vars": {}, "num_samples": 1}


class Scales(Hook):
    """Records the scale after every iteration."""

    priority = "LOWEST"

    def __init__(self) -> None:
        self.scales: list[float] = []

    def after_train_iter(self, runner: Any) -> None:
        self.scales.append(runner.meta["fp16"]["loss_scaler"]["scale"])


# -- with the Trainer's scaler ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss_scale", "scales"),
    [
        (512.0, [512.0] * 4),
        (512, [512.0] * 4),
        ("dynamic", [32768.0] * 4),  # the initial 65536 makes the first gradients infinite
        (GROWING, [16.0, 32.0, 32.0, 64.0]),
    ],
)
def test_departure_the_trainers_scaler_is_set_up(
    tmp_path: Path, loss_scale: Any, scales: Any
) -> None:
    plugin, seen = mixed(), Scales()
    hook = Fp16OptimizerHook(loss_scale=loss_scale)
    trainer = make_trainer(tmp_path, hook, seen, plugins=[plugin])
    trainer.fit(TinyModule(), make_loader(4))
    assert seen.scales == scales
    assert plugin.scaler is hook.loss_scaler
    assert trainer.global_step == 4


def test_a_static_scale_stays_where_steps_are_skipped(tmp_path: Path) -> None:
    class Bad(TinyModule):
        def loss(self, batch: Any) -> torch.Tensor:
            return super().loss(batch) * (math.inf if self.trainer.global_step == 1 else 1.0)

    seen = Scales()
    hook = Fp16OptimizerHook(loss_scale=8.0)
    make_trainer(tmp_path, hook, seen, plugins=[mixed()]).fit(Bad(), make_loader(4))
    assert seen.scales == [8.0] * 4


@pytest.mark.parametrize("accumulate", [1, 2])
def test_clips_unscaled_gradients_as_lightning_does(tmp_path: Path, accumulate: int) -> None:
    ours, theirs = TinyModule(), TinyModule()
    hook = Fp16OptimizerHook(grad_clip=CLIP, loss_scale="dynamic")
    options: dict[str, Any] = {"accumulate_grad_batches": accumulate}
    make_trainer(tmp_path, hook, plugins=[mixed()], **options).fit(ours, make_loader(4))
    options["gradient_clip_val"] = CLIP["max_norm"]
    make_trainer(tmp_path, plugins=[mixed()], **options).fit(theirs, make_loader(4))
    assert torch.equal(ours.net.weight, theirs.net.weight)


def test_accumulates_over_the_run_with_the_trainers_scaler(tmp_path: Path) -> None:
    ours = TinyModule()
    hook = GradientCumulativeFp16OptimizerHook(3, grad_clip=CLIP, loss_scale=GROWING)
    trainer = make_trainer(tmp_path, hook, plugins=[mixed()], max_epochs=2)
    trainer.fit(ours, make_loader(4))
    assert trainer.global_step == 3  # of 3, 3 and 2 iterations

    plain = TinyModule()
    optimizer = plain.configure_optimizers()
    for index, batch in enumerate([*make_loader(4), *make_loader(4)]):
        with torch.autocast("cpu", torch.half):
            loss = plain.loss(batch)
        (loss / (3 if index < 6 else 2)).backward()
        if index in (2, 5, 7):
            clip_grad_norm_(plain.parameters(), **CLIP)
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(ours.net.weight, plain.net.weight, rtol=1e-3, atol=1e-4)


def test_a_fused_optimizer_cannot_be_clipped_under_the_trainers_scaler(tmp_path: Path) -> None:
    class Fused(TinyModule):
        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), fused=True)

    trainer = make_trainer(tmp_path, Fp16OptimizerHook(grad_clip=CLIP), plugins=[mixed()])
    with pytest.raises(ValueError, match=r"cannot clip for AdamW\(fused=True\).*fused=False"):
        trainer.fit(Fused(), make_loader(2))
    trainer = make_trainer(tmp_path, Fp16OptimizerHook(), plugins=[mixed()])
    trainer.fit(Fused(), make_loader(2))
    assert trainer.global_step == 2


def test_a_train_step_module_in_16_mixed_leaves_it_to_the_trainer(tmp_path: Path) -> None:
    seen = Scales()
    hook = Fp16OptimizerHook(grad_clip=CLIP, loss_scale=GROWING)
    trainer = make_trainer(tmp_path, hook, seen, plugins=[mixed()])
    trainer.fit(old_module(), job.make_data()[0])
    assert seen.scales == [16.0, 32.0, 32.0, 64.0]
    assert trainer.global_step == 4


# -- with the hook's scaler --------------------------------------------------------------------


def by_hand(loss_scale: float, epochs: int = 2) -> nn.Module:
    model = job.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=loss_scale)
    for batch in list(job.make_data()[0]) * epochs:
        optimizer.zero_grad()
        scaler.scale(model.train_step(batch)["loss"]).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), **CLIP)
        scaler.step(optimizer)
        scaler.update(loss_scale)
    return model


@pytest.mark.parametrize("loss_scale", [512.0, 512], ids=["float", "departure: int"])
def test_departure_a_scale_may_be_an_int_and_trains_as_a_plain_loop_does(
    loss_scale: float, tmp_path: Path
) -> None:
    module = old_module()
    hook = Fp16OptimizerHook(grad_clip=CLIP, loss_scale=loss_scale)
    trainer = make_trainer(tmp_path, HookAdapter([hook]), max_epochs=2)
    trainer.fit(module, job.make_data()[0])
    expected = by_hand(512.0)
    assert all(
        torch.equal(a, b) for a, b in zip(module.parameters(), expected.parameters(), strict=True)
    )


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_overflows_is_none(tmp_path: Path, fused: bool) -> None:
    model, seen, ema = Overflows(), Scales(), EMAHook(momentum=0.5, after_fit="raw")
    hook = Fp16OptimizerHook(loss_scale={"init_scale": 8.0})
    trainer = make_trainer(tmp_path, hook, seen, ema)
    trainer.fit(old_module(model, fused=fused), make_loader(6))
    assert model.weight.item() == pytest.approx(1 - 4 * 0.1)
    assert trainer.global_step == 4
    assert ema.steps == 4
    assert seen.scales == [8.0, 8.0, 4.0, 2.0, 2.0, 2.0]


def test_departure_several_optimizers_step_together(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 2), nn.Linear(2, 2)

        def train_step(self, data: Any, optimizer: Any = None) -> dict[str, Any]:
            return {"loss": self.b(self.a(data[0])).square().mean(), "log_vars": {}}

    model = Two()
    before = [p.clone() for p in model.parameters()]
    optimizers = {n: torch.optim.SGD(getattr(model, n).parameters(), 0.1) for n in "ab"}
    trainer = make_trainer(tmp_path, Fp16OptimizerHook(grad_clip=CLIP))
    trainer.fit(TrainStepModule(model, optimizers), make_loader(3))
    moved = [not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
    assert all(moved)
    assert trainer.global_step == 6


@pytest.mark.parametrize("plugins", [None, [mixed]], ids=["own", "trainer's"])
def test_departure_a_static_scale_is_the_one_given_another_that_of_the_file(
    tmp_path: Path, plugins: Any
) -> None:
    def fit(epochs: int, ckpt: Any = None, loss_scale: Any = GROWING) -> tuple[Any, list[float]]:
        seen = Scales()
        hooks = [Fp16OptimizerHook(loss_scale=loss_scale), seen, TextLoggerHook(interval=2)]
        options = {} if plugins is None else {"plugins": [make() for make in plugins]}
        trainer = make_trainer(tmp_path, *hooks, max_epochs=epochs, **options)
        trainer.fit(old_module(), job.make_data()[0], ckpt_path=ckpt)
        return trainer, seen.scales

    _, whole = fit(2)
    trainer, first = fit(1)
    file = tmp_path / "a.ckpt"
    trainer.save_checkpoint(file)
    saved = torch.load(file, weights_only=True)["meta"]["fp16"]["loss_scaler"]
    assert saved["scale"] == 64.0
    assert first + fit(2, file)[1] == whole == [16.0, 32, 32, 64, 64, 128, 128, 256]
    # departure: a static scale is the given scale from the first step on
    assert fit(2, file, loss_scale=4.0)[1] == [4.0] * 4


@pytest.mark.parametrize("plugins", [None, [mixed]], ids=["own", "trainer's"])
def test_departure_the_state_is_in_meta_from_the_start_of_the_run(
    tmp_path: Path, plugins: Any
) -> None:
    seen: list[float] = []

    class Look(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            seen.append(runner.meta["fp16"]["loss_scaler"]["scale"])

    options = {} if plugins is None else {"plugins": [make() for make in plugins]}
    trainer = make_trainer(tmp_path, Fp16OptimizerHook(loss_scale=8.0), Look(), **options)
    trainer.fit(old_module(), job.make_data()[0])
    assert seen == [8.0]


def test_parts_that_ask_for_half_precision_get_it(tmp_path: Path) -> None:
    model = job.make_model()
    model.network[0].fp16_enabled = False
    make_trainer(tmp_path, Fp16OptimizerHook()).fit(old_module(model), job.make_data()[0])
    assert model.network[0].fp16_enabled


class Old(Fp16OptimizerHook):
    """An old project's subclass that overrides the optimizer step."""

    def after_train_iter(self, runner: Any) -> None:
        runner.model.zero_grad()
        runner.optimizer.zero_grad()
        self.loss_scaler.scale(runner.outputs["loss"]).backward()
        self.loss_scaler.unscale_(runner.optimizer)
        self.clip_grads(runner.model.parameters())
        self.loss_scaler.step(runner.optimizer)
        self.loss_scaler.update(self._scale_update_param)


def test_an_old_subclass_has_its_own_scaler_with_any_module(tmp_path: Path) -> None:
    module = old_module()
    trainer = make_trainer(tmp_path, Old(CLIP, loss_scale=512.0), max_epochs=2)
    trainer.fit(module, job.make_data()[0])
    assert torch.equal(module.model.network[2].weight, by_hand(512.0).network[2].weight)
    make_trainer(tmp_path, Old(CLIP)).fit(TinyModule(), make_loader(2))
    with pytest.raises(ValueError, match="Old scales the loss itself"):
        make_trainer(tmp_path, Old(), plugins=[mixed()]).fit(TinyModule(), make_loader(2))


# -- precision ---------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", [Fp16OptimizerHook(), GradientCumulativeFp16OptimizerHook(2)])
@pytest.mark.parametrize("precision", ["32-true", "bf16-true", "64-true"])
def test_departure_another_precision_is_refused(tmp_path: Path, hook: Any, precision: Any) -> None:
    trainer = make_trainer(tmp_path, hook, precision=precision)
    with pytest.raises(ValueError, match=rf"{precision}.*Trainer\(precision=\"16-mixed\"\)"):
        trainer.fit(TinyModule(), make_loader(2))


def test_a_module_with_owned_backward_may_be_in_full_precision(tmp_path: Path) -> None:
    adapter = HookAdapter([Fp16OptimizerHook()], owns_backward=True)
    trainer = make_trainer(tmp_path, adapter)
    trainer.fit(TinyModule(), make_loader(2))
    assert trainer.global_step == 2


@pytest.mark.filterwarnings("ignore:You passed `Trainer")
@pytest.mark.parametrize("precision", ["16-mixed", "bf16-mixed"])
@pytest.mark.parametrize("make", [TinyModule, old_module])
def test_on_a_cpu_it_is_bfloat16_and_a_warning(tmp_path: Path, make: Any, precision: Any) -> None:
    data = make_loader(2) if make is TinyModule else job.make_data()[0]
    for hook in (Fp16OptimizerHook(CLIP), GradientCumulativeFp16OptimizerHook(1)):
        trainer = make_trainer(tmp_path, hook, precision=precision)
        with pytest.warns(UserWarning, match="bfloat16.*needs no loss scale"):
            trainer.fit(make(), data)
        assert trainer.global_step == len(data)
        assert hook.loss_scaler is None


def test_a_config_asks_the_trainer_for_half_precision() -> None:
    for config in ({"type": "Fp16OptimizerHook", "loss_scale": 512.0}, Fp16OptimizerHook()):
        hooks = register_training_hooks(optimizer_config=config)
        assert hooks.trainer_kwargs == {"precision": "16-mixed"}


@pytest.mark.parametrize(
    ("loss_scale", "message"),
    [
        (0, "positive number"),
        (-1.0, "positive number"),
        (math.inf, "positive number"),
        ("static", "'dynamic'"),
        ({"scale": 2.0}, r"unknown keys \['scale'\]; known: \['init_scale'"),
        ({"init_scale": 0.0}, "positive number"),
        (True, "positive number"),
        (None, "positive number"),
    ],
)
def test_bad_scales_are_refused(loss_scale: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Fp16OptimizerHook(loss_scale=loss_scale)
