"""Averages that get in each other's way, and a decay given as momentum: reported at the start."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback, EMAWeightAveraging, WeightAveraging

from lightning_hooks import (
    EMAHook,
    ExpMomentumEMAHook,
    HookAdapter,
    StochasticWeightAverageHook,
    register_training_hooks,
)
from lightning_hooks.standin._hooks.ema import EMAHook as MmcvEMAHook
from support.training import NoValidation, TinyModule, fit, make_loader, make_trainer

BOTH = pytest.mark.parametrize("host", [False, True], ids=["bare", "adapter"])


def warnings_of(tmp_path: Path, *hooks: Any, **arguments: Any) -> list[str]:
    """Train; return the package's warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(tmp_path, *hooks, module=NoValidation, **arguments)
    return [str(one.message) for one in caught if "average" in str(one.message)]


@BOTH
@pytest.mark.parametrize(
    ("make", "decay", "momentum"),
    [(EMAHook, 0.999, "0.001"), (ExpMomentumEMAHook, 0.9998, "0.0002")],
)
def test_a_decay_given_as_momentum(
    tmp_path: Path, make: Any, decay: float, momentum: str, host: bool
) -> None:
    (message,) = warnings_of(tmp_path, make(momentum=decay), host=host)
    assert message.startswith(f"{make.__name__}(momentum={decay}): the momentum is the weight of")
    assert message.endswith(f"for a decay of {decay} write momentum={momentum}")
    assert warnings_of(tmp_path, make(momentum=1 - decay), host=host) == []
    assert warnings_of(tmp_path, make(momentum=0.5), host=host) == []


def test_a_decay_in_a_config(tmp_path: Path) -> None:
    hooks = register_training_hooks(custom_hooks_config=[{"type": "EMAHook", "momentum": 0.99}])
    (message,) = warnings_of(tmp_path, hooks, **hooks.trainer_kwargs)
    assert message.endswith("for a decay of 0.99 write momentum=0.01")


@BOTH
def test_several_averages(tmp_path: Path, host: bool) -> None:
    three = [StochasticWeightAverageHook(), EMAHook(), EMAHook(momentum=0.1)]
    (message,) = warnings_of(tmp_path, *three, host=host)
    assert message.startswith(
        "StochasticWeightAverageHook and EMAHook(momentum=0.0002) and EMAHook(momentum=0.1) each "
        "keep an average of the weights: StochasticWeightAverageHook, the first "
        "in callbacks=[...], is evaluated with"
    )
    assert warnings_of(tmp_path, EMAHook(), host=host) == []


class Weights(Callback):
    """What a validation, and a checkpoint of that moment, have; and the two averages then."""

    def __init__(self, ours: EMAHook, other: WeightAveraging, path: Path) -> None:
        self.ours, self.other, self.path = ours, other, path

    def on_validation_batch_end(self, trainer: Any, module: Any, *args: Any) -> None:
        self.validated = module.net.weight.detach().clone()

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        trainer.save_checkpoint(self.path)
        self.of_ours = self.ours.ema_state_dict()["net.weight"].clone()
        self.of_other = self.other._average_model.module.net.weight.detach().clone()


@BOTH
@pytest.mark.parametrize("ours_first", [True, False])
def test_lightnings_weight_averaging(tmp_path: Path, ours_first: bool, host: bool) -> None:
    ours, other = EMAHook(momentum=0.1, warm_up=0), EMAWeightAveraging(decay=0.5)
    weights = Weights(ours, other, tmp_path / "one.ckpt")
    pair = [HookAdapter([ours]) if host else ours, other]
    trainer = make_trainer(tmp_path, *(pair if ours_first else pair[::-1]), weights)
    module = TinyModule()
    with pytest.warns(UserWarning, match="EMAWeightAveraging and EMAHook both") as caught:
        trainer.fit(module, make_loader(3), make_loader(1))
    (message,) = [str(w.message) for w in caught if "both evaluate" in str(w.message)]
    file = torch.load(weights.path, weights_only=False)
    assert not torch.equal(weights.of_ours, weights.of_other)
    assert "validation has that of EMAWeightAveraging, as has the module after the run" in message
    assert torch.equal(weights.validated, weights.of_other)
    assert torch.equal(module.net.weight, weights.of_other)
    assert "state_dict of checkpoints is that of EMAHook" in message
    assert torch.equal(file["state_dict"]["net.weight"], weights.of_ours)


@pytest.mark.parametrize("mmcv_first", [True, False])
def test_a_hook_that_swaps_as_mmcv_is_refused(tmp_path: Path, mmcv_first: bool) -> None:
    pair = [MmcvEMAHook(), EMAHook()]
    with pytest.raises(ValueError, match=r"EMAHook and EMAHook of .*standin.* both"):
        fit(tmp_path, *(pair if mmcv_first else pair[::-1]), module=NoValidation, host=True)
