"""After a fit, the module has the validated weights; a further fit continues the raw weights."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn

from lightning_hooks import (
    EMAHook,
    ExpMomentumEMAHook,
    LinearMomentumEMAHook,
    MomentumAnnealingEMAHook,
    StochasticWeightAverageHook,
)
from support.probes import Probe, Raw, equal, weights
from support.training import (
    NoValidation,
    TinyModule,
    TinyNormModule,
    fit,
    make_loader,
    make_trainer,
)

KINDS = (
    EMAHook,
    ExpMomentumEMAHook,
    LinearMomentumEMAHook,
    MomentumAnnealingEMAHook,
    StochasticWeightAverageHook,
)


class Stops(Callback):
    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        trainer.should_stop = trainer.global_step == 6


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("host", [False, True])
def test_the_module_has_what_was_validated(tmp_path: Path, make: Any, host: bool) -> None:
    hook, probe, raw = make(), Probe(), Raw()
    module = TinyNormModule()
    trainer = fit(
        *(tmp_path, hook),
        module=module,
        max_epochs=2,
        val=1,
        host=host,
        callbacks=[probe, raw],
    )
    assert equal(weights(module), probe.val[-1])
    assert equal(weights(module), hook.ema_state_dict())
    assert not equal(weights(module), raw.weights)
    trainer.save_checkpoint(tmp_path / "a.ckpt", weights_only=False)
    file = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert equal(file["state_dict"], weights(module))
    assert equal(file["current_model_state"], raw.weights)
    (score,) = trainer.validate(module, make_loader(1), verbose=False)
    assert make_trainer(tmp_path).validate(module, make_loader(1), verbose=False) == [score]


@pytest.mark.parametrize(
    "options",
    [{"max_steps": 5}, {"max_epochs": 3, "callbacks": [Stops()]}],
    ids=["max_steps", "should_stop"],
)
def test_a_fit_that_ends_early_has_ended(tmp_path: Path, options: dict[str, Any]) -> None:
    hook, module = EMAHook(momentum=0.1), NoValidation()
    fit(tmp_path, hook, module=module, batches=4, **options)
    assert equal(weights(module), hook.ema_state_dict())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"after_fit": "raw"},
        {"buffers": "average"},
        {"device": "cpu"},
        {"swap": "copy", "buffers": "copy"},
        {"begin_iter": 2},
        {"interval": 3},
    ],
)
@pytest.mark.parametrize("new_trainer", [False, True])
def test_a_further_fit_is_bit_equal_with_one_fit(
    tmp_path: Path, options: dict[str, Any], new_trainer: bool
) -> None:
    def run(*epochs: int) -> tuple[EMAHook, TinyNormModule, dict[str, Any]]:
        hook, raw, module = (
            EMAHook(momentum=0.1, warm_up=5, **options),
            Raw(),
            TinyNormModule(momentum=0),
        )
        trainer = make_trainer(tmp_path, hook, raw, max_epochs=epochs[0])
        trainer.fit(module, make_loader(), make_loader(1))
        for epoch in epochs[1:]:
            trainer.validate(module, make_loader(1), verbose=False)
            if new_trainer:
                trainer.save_checkpoint(tmp_path / "last.ckpt", weights_only=False)
                trainer = make_trainer(tmp_path, hook, raw, max_epochs=epoch)
                trainer.fit(module, make_loader(), make_loader(1), ckpt_path=tmp_path / "last.ckpt")
            else:
                trainer.fit_loop.max_epochs = epoch
                trainer.fit(module, make_loader(), make_loader(1))
        return hook, module, raw.weights

    hook, module, raw = run(4)
    again, other, other_raw = run(1, 2, 4)
    assert equal(other_raw, raw)
    assert equal(again.ema_state_dict(), hook.ema_state_dict())
    assert equal(weights(other), weights(module))
    assert again.steps == hook.steps


def test_a_fit_after_a_change_of_the_module_begins_anew_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook, module, probe = EMAHook(momentum=0.1), TinyModule(), Probe()
    trainer = fit(tmp_path, hook, module=module, callbacks=[probe], max_epochs=1, val=1)
    average = {key: value.clone() for key, value in hook.ema_state_dict().items()}
    changed = weights(TinyModule(seed=5))
    module.load_state_dict(changed)
    assert equal(hook.ema_state_dict(), average)
    trainer.save_checkpoint(tmp_path / "a.ckpt", weights_only=True)
    file = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert equal(file["state_dict"], changed)
    assert "current_model_state" not in file
    trainer.fit_loop.max_epochs = 2
    probe.train.clear()
    with caplog.at_level(logging.INFO, "lightning_hooks"):
        trainer.fit(module, make_loader(), make_loader(1))
    assert equal(probe.train[0], changed)
    assert hook.steps == 4
    assert "the module was changed since its last fit: EMAHook begins anew" in caplog.text


def test_a_fit_with_nothing_left_to_train_has_ended(tmp_path: Path) -> None:
    first, again = EMAHook(momentum=0.1), EMAHook(momentum=0.1)
    trainer = fit(tmp_path, first, max_epochs=1, val=1)
    trainer.save_checkpoint(tmp_path / "a.ckpt", weights_only=False)
    module = TinyModule(seed=3)
    fit(tmp_path, again, module=module, max_epochs=1, ckpt_path=tmp_path / "a.ckpt", val=1)
    assert equal(weights(module), first.ema_state_dict())


@pytest.mark.parametrize("after_fit", ["average", "raw"])
def test_an_error_and_raw_leave_the_raw_weights(tmp_path: Path, after_fit: Any) -> None:
    class Breaks(Callback):
        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            if after_fit == "average":
                raise RuntimeError("x")

    hook, module, raw = EMAHook(momentum=0.1, after_fit=after_fit), TinyModule(), Raw()
    trainer = make_trainer(tmp_path, hook, raw, Breaks())
    try:
        trainer.fit(module, make_loader(), make_loader(1))
    except RuntimeError:
        assert after_fit == "average"
    assert equal(weights(module), raw.weights)
    assert not equal(weights(module), hook.ema_state_dict())


# -- the start of the average ------------------------------------------------------------------


class Pretrained(TinyModule):
    """A module whose weights are loaded in ``on_train_start``."""

    def on_train_start(self) -> None:
        with torch.no_grad():
            self.net.weight.fill_(100.0)


class Loads(Callback):
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        with torch.no_grad():
            pl_module.net.weight.fill_(100.0)


@pytest.mark.parametrize("module", [Pretrained, TinyModule])
@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_weights_loaded_before_the_first_step_are_averaged(
    tmp_path: Path, make: Any, module: Any, accumulate: int
) -> None:
    later = [Loads()] if module is TinyModule else []
    fit(
        *(tmp_path, make(interval=1)),
        module=(made := module(lr=0.0)),
        callbacks=later,
        accumulate_grad_batches=accumulate,
        val=1,
    )
    torch.testing.assert_close(made.net.weight.detach(), torch.full((2, 4), 100.0))


@pytest.mark.parametrize("make", KINDS)
def test_the_sanity_check_of_a_resumed_run_sees_the_average(tmp_path: Path, make: Any) -> None:
    class Seen(TinyModule):
        def on_validation_epoch_start(self) -> None:
            self.seen = [*getattr(self, "seen", []), weights(self)]

    class Save(Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            trainer.save_checkpoint(tmp_path / "a.ckpt", weights_only=False)

    sanity = {"num_sanity_val_steps": 1, "val": 1}
    fresh = Seen()
    fit(tmp_path, make(), module=fresh, callbacks=[Save()], max_epochs=1, **sanity)
    assert equal(fresh.seen[0], weights(TinyModule()))
    module, raw, hook = Seen(seed=4), Raw(), make()
    fit(
        *(tmp_path, hook),
        module=module,
        callbacks=[raw],
        max_epochs=2,
        ckpt_path=tmp_path / "a.ckpt",
        **sanity,
    )
    assert equal(module.seen[0], weights(fresh))
    whole = Raw()
    fit(tmp_path, make(), module=TinyModule, callbacks=[whole], max_epochs=2, **sanity)
    assert equal(raw.weights, whole.weights)


# -- parameters that are not averaged ----------------------------------------------------------


class Frozen(TinyModule):
    """A module with a large frozen layer before a small trainable layer."""

    def make_net(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 400).requires_grad_(False), nn.Linear(400, 2))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.lr)


@pytest.mark.parametrize("make", KINDS)
def test_frozen_parameters_are_shared_with_the_module(tmp_path: Path, make: Any) -> None:
    hook, module = make(), Frozen()
    trainer = fit(tmp_path, hook, module=module, val=1)
    frozen, trained = module.net[0].weight, module.net[1].weight
    state = hook.ema_state_dict()
    assert state["net.0.weight"].data_ptr() == frozen.data_ptr()
    assert state["net.1.weight"].data_ptr() != trained.data_ptr()
    trainer.save_checkpoint(tmp_path / "a.ckpt", weights_only=False)
    file = torch.load(tmp_path / "a.ckpt", weights_only=True)
    own, raw = (file[part]["net.0.weight"] for part in ("state_dict", "current_model_state"))
    assert own.data_ptr() == raw.data_ptr()


def test_unfrozen_parameters_are_averaged_from_what_they_are(tmp_path: Path) -> None:
    class Unfreeze(Callback):
        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            if trainer.current_epoch == 1:
                pl_module.net[0].requires_grad_(True)

    class ByHand(Callback):
        average: dict[str, Any]

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.average = {n: p.detach().clone() for n, p in pl_module.named_parameters()}

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
            for name, parameter in pl_module.named_parameters():
                self.average[name].lerp_(parameter.detach(), 0.5)

    hook, by_hand, module = EMAHook(momentum=0.5, warm_up=0), ByHand(), Frozen(lr=1e-3)
    fit(tmp_path, hook, module=module, callbacks=[Unfreeze(), by_hand], max_epochs=2, val=1)
    for name, value in hook.ema_state_dict().items():
        torch.testing.assert_close(value, by_hand.average[name])
    assert not torch.equal(by_hand.average["net.0.weight"], Frozen().net[0].weight)


# -- buffers used by torch to compute a weight -------------------------------------------------


@pytest.mark.parametrize(
    "spectral_norm",
    [torch.nn.utils.spectral_norm, torch.nn.utils.parametrizations.spectral_norm],
    ids=["hook", "parametrization"],
)
@pytest.mark.parametrize("make", [EMAHook, ExpMomentumEMAHook])
def test_the_vectors_of_spectral_norm_fit_the_averaged_weight(
    tmp_path: Path, make: Any, spectral_norm: Any
) -> None:
    class Normed(TinyModule):
        def make_net(self) -> nn.Module:
            return nn.Sequential(spectral_norm(nn.Linear(4, 6)), spectral_norm(nn.Linear(6, 2)))

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.net(batch[0])
            layers = [*self.net]
            self.norms = [torch.linalg.matrix_norm(layer.weight, 2).item() for layer in layers]

    options = {"buffers": "average"} if make is EMAHook else {}
    module = Normed(lr=1.0)
    fit(tmp_path, make(momentum=0.02, **options), module=module, batches=60, val=1)
    assert module.norms == pytest.approx([1.0, 1.0], abs=0.02)


def test_a_mask_of_pruning_is_the_modules_own(tmp_path: Path) -> None:
    class Prunes(Callback):
        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            share = 0.25 * (trainer.current_epoch + 1)
            torch.nn.utils.prune.l1_unstructured(pl_module.net, "weight", amount=share)

    hook, module = EMAHook(momentum=0.5, buffers="average"), NoValidation()
    torch.nn.utils.prune.identity(module.net, "weight")
    fit(tmp_path, hook, module=module, max_epochs=2, callbacks=[Prunes()])
    assert {*hook.ema_state_dict()["net.weight_mask"].flatten().tolist()} == {0.0, 1.0}
