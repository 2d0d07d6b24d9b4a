"""Parameters added during a run are averaged from the next epoch on."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelPruning
from torch import nn

from lightning_hooks import CheckpointHook, EMAHook, FreezeHook, StochasticWeightAverageHook
from support.training import NoValidation, TinyModule, TinyNormModule, fit

BATCHES, EPOCHS = 2, 3
HALF: Any = {"momentum": 0.5, "warm_up": 0, "after_fit": "raw"}


class Growing(TinyModule):
    """A module that adds a second layer, and can replace its first, after the first epoch."""

    replaces = False

    def on_train_epoch_end(self) -> None:
        if self.current_epoch == 0:
            self.extra = nn.Linear(2, 2)
            new = list(self.extra.parameters())
            if self.replaces:
                self.net = nn.Linear(4, 2)
                new += self.net.parameters()
            self.trainer.optimizers[0].add_param_group({"params": new})

    def loss(self, batch: Any) -> torch.Tensor:
        x, y = batch
        out = self.net(x)
        return nn.functional.mse_loss(self.extra(out) if hasattr(self, "extra") else out, y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        if not self.trainer.sanity_checking:
            self.validated = {k: v.clone() for k, v in self.state_dict().items()}


class ByHand(Callback):
    """A reference average that includes a new parameter from the next epoch on."""

    def __init__(self) -> None:
        self.average: dict[str, Any] = {}
        self.of: dict[str, Any] = {}

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        for name, parameter in module.named_parameters():
            if self.of.get(name) is not parameter:
                self.of[name] = parameter
                self.average[name] = parameter.detach().clone()

    def on_train_batch_end(self, trainer: Any, module: Any, *args: Any) -> None:
        for name, parameter in module.named_parameters():
            self.average[name].lerp_(parameter.detach(), 0.5)


@pytest.mark.parametrize("options", [{}, {"host": True, "by_epoch": False}])
@pytest.mark.parametrize("replaces", [False, True])
def test_a_new_layer_and_a_replaced_one(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
    replaces: bool,
) -> None:
    hook, module, by_hand = EMAHook(**HALF), Growing(), ByHand()
    module.replaces = replaces
    arguments = {"batches": BATCHES, "max_epochs": EPOCHS, "val": 1, **options}
    with caplog.at_level(logging.INFO, "lightning_hooks"):
        fit(tmp_path, hook, module=module, callbacks=[by_hand], **arguments)
    assert hook.steps == BATCHES * EPOCHS
    for name, value in by_hand.average.items():
        torch.testing.assert_close(hook.ema_state_dict()[name], value)
        torch.testing.assert_close(module.validated[name], value)
        assert not torch.equal(module.state_dict()[name], value)  # training uses the raw weights
    (line,) = [r.getMessage() for r in caplog.records if "also averages" in r.getMessage()]
    names = "net.weight, net.bias, extra.weight" if replaces else "extra.weight, extra.bias"
    assert line.startswith(f"EMAHook also averages the new {names}")


def test_a_resumed_run_goes_on_with_them(tmp_path: Path) -> None:
    class Grown(Growing):
        def __init__(self) -> None:
            super().__init__()
            self.extra = nn.Linear(2, 2)

        def configure_optimizers(self) -> Any:
            groups = [{"params": self.net.parameters()}, {"params": self.extra.parameters()}]
            return torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum)

        on_train_epoch_end = TinyModule.on_train_epoch_end

    first, second = EMAHook(**HALF), EMAHook(**HALF)
    path = tmp_path / "two.ckpt"
    trainer = fit(tmp_path, first, module=Growing, batches=BATCHES, max_epochs=2, val=1)
    trainer.save_checkpoint(path)
    average = {key: value.clone() for key, value in first.ema_state_dict().items()}

    class Start(Callback):
        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            for key, value in second.ema_state_dict().items():
                assert torch.equal(value, average[key]), key

    fit(
        tmp_path,
        second,
        module=Grown,
        batches=BATCHES,
        max_epochs=EPOCHS,
        ckpt_path=path,
        callbacks=[Start()],
        val=1,
    )
    assert second.steps == BATCHES * EPOCHS


def test_before_averaging_begins(tmp_path: Path) -> None:
    swa = StochasticWeightAverageHook(begin_epoch=2, after_fit="raw")
    module = Growing()
    fit(tmp_path, swa, module=module, batches=BATCHES, max_epochs=EPOCHS, val=1)
    assert swa.steps == BATCHES
    assert not torch.equal(swa.ema_state_dict()["extra.weight"], module.extra.weight)


@pytest.mark.parametrize("permanent", [False, True])
def test_lightnings_pruning(tmp_path: Path, permanent: bool) -> None:
    prunes = ModelPruning(
        "l1_unstructured",
        amount=0.5,
        make_pruning_permanent=permanent,
        use_lottery_ticket_hypothesis=False,
    )
    ema, module = EMAHook(**HALF), NoValidation()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(tmp_path, ema, module=module, batches=BATCHES, max_epochs=EPOCHS, callbacks=[prunes])
    average = ema.ema_state_dict()
    assert average.keys() == module.state_dict().keys()
    key = "net.weight" if permanent else "net.weight_orig"
    assert not torch.equal(average[key], module.state_dict()[key])
    assert ema.steps == BATCHES * EPOCHS


@pytest.mark.parametrize("validate", ["average", "raw"])
def test_files_have_the_weights_that_lightnings_pruning_has_made_permanent(
    tmp_path: Path, validate: Any
) -> None:
    expected: dict[str, Any] = {}
    hook = EMAHook(**HALF, validate=validate)

    class Notes(Callback):
        def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
            average, mask = hook.ema_state_dict()["net.weight_orig"], pl_module.net.weight_mask
            expected.update(mask=mask.clone(), average=average * mask)

    prunes = ModelPruning("l1_unstructured", amount=0.5)
    callbacks = [prunes, Notes(), CheckpointHook()]
    fit(tmp_path, hook, module=NoValidation(), batches=BATCHES, max_epochs=2, callbacks=callbacks)
    path = tmp_path / "epoch_2.pth"
    found = torch.load(path, weights_only=True)
    average = found["lightning_hooks"]["averages"][0]["state_dict"] or found["state_dict"]
    raw = found.get("current_model_state", found["state_dict"])
    assert torch.equal(average["net.weight"], expected["average"])
    assert torch.equal(raw["net.weight"] == 0, expected["mask"] == 0)
    assert not torch.equal(raw["net.weight"], average["net.weight"])
    loaded = NoValidation.load_from_checkpoint(path)
    assert torch.equal(loaded.net.weight, found["state_dict"]["net.weight"])


def test_what_a_callback_adds_to_the_weights_of_a_file_stays(tmp_path: Path) -> None:
    class AddsMerged(Callback):
        def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
            checkpoint["state_dict"]["merged"] = torch.ones(1)

    callbacks = [AddsMerged(), CheckpointHook()]
    fit(tmp_path, EMAHook(**HALF), module=NoValidation(), callbacks=callbacks)
    found = torch.load(tmp_path / "epoch_1.pth", weights_only=True)
    assert found["state_dict"].keys() == {"net.weight", "net.bias", "merged"}


class Toggles(NoValidation):
    """A module with manual optimization that toggles two optimizers in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        self.critic = nn.Linear(2, 1)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        for optimizer in self.optimizers():  # type: ignore[union-attr]
            self.toggle_optimizer(optimizer)
            optimizer.zero_grad()
            self.manual_backward(self.critic(self.net(batch[0])).square().mean())
            optimizer.step()
            self.untoggle_optimizer(optimizer)

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.net, self.critic)]


def test_a_toggled_off_optimizer_keeps_its_average(tmp_path: Path) -> None:
    hook, module, by_hand = EMAHook(**HALF), Toggles(), ByHand()
    freeze = FreezeHook("net.0", until_epoch=1)
    fit(tmp_path, freeze, hook, module=module, callbacks=[by_hand], batches=BATCHES, max_epochs=3)
    for name, value in by_hand.average.items():
        if not name.startswith("net.0"):
            torch.testing.assert_close(hook.ema_state_dict()[name], value)


class FreezesInTurn(NoValidation):
    """A module that trains its layers in turn and freezes the other layer, as GANs do manually."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.other = nn.Linear(2, 2).requires_grad_(False)  # trained first

    def training_step(self, batch: Any, batch_idx: int) -> None:
        layers = self.other, self.net
        for layer, frozen, optimizer in zip(layers, layers[::-1], self.optimizers(), strict=True):
            layer.requires_grad_(True)
            frozen.requires_grad_(False)
            optimizer.zero_grad()
            self.manual_backward(self.other(self.net(batch[0])).square().mean())
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(part.parameters(), 0.1) for part in (self.other, self.net)]


def test_what_is_frozen_while_another_layer_is_found_keeps_its_average(tmp_path: Path) -> None:
    ema, by_hand = EMAHook(**HALF), ByHand()
    fit(
        tmp_path, ema, module=FreezesInTurn, batches=BATCHES, max_epochs=EPOCHS, callbacks=[by_hand]
    )
    found = ema.ema_state_dict()
    assert found.keys() == by_hand.average.keys()
    for name, value in by_hand.average.items():
        torch.testing.assert_close(found[name], value)


def test_what_a_resumed_run_freezes_keeps_its_average(tmp_path: Path) -> None:
    ema, hooks = EMAHook(**HALF), [CheckpointHook()]
    options: dict[str, Any] = {"module": TinyNormModule, "batches": BATCHES, "val": 1}
    fit(tmp_path, ema, *hooks, max_epochs=1, **options)
    before, resumed = ema.ema_state_dict(), EMAHook(**HALF)
    freeze = FreezeHook("net.0")
    trainer = fit(tmp_path, resumed, freeze, *hooks, max_epochs=2, ckpt_path="last", **options)
    raw = trainer.lightning_module.state_dict()
    after = resumed.ema_state_dict()
    for key in ("net.0.weight", "net.0.bias"):  # two steps of half the way
        torch.testing.assert_close(after[key], raw[key] + (before[key] - raw[key]) / 4)
    assert not torch.equal(after["net.0.weight"], raw["net.0.weight"])
