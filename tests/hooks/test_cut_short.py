"""After a callback raises twice, a later fit equals the fit of a fresh module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks import (
    CheckInvalidLossHook,
    EMAHook,
    FreezeHook,
    StepLrUpdaterHook,
    StepTimeHook,
    SystemMetricsHook,
)
from lightning_hooks.engine.lightning_api.method_patch import MethodPatch
from support.training import TinyNormModule, make_loader, make_trainer

HOOKS: dict[str, Any] = {
    "ema": lambda: EMAHook(warm_up=0, momentum=0.5),
    "ema with statistics": lambda: EMAHook(warm_up=0, momentum=0.5, precise_bn=4),
    "invalid loss": CheckInvalidLossHook,
    "stop": lambda: CheckInvalidLossHook(action="stop"),
    "skip": lambda: CheckInvalidLossHook(action="skip"),
    "step time": lambda: StepTimeHook(table=False),
    "freeze": lambda: FreezeHook("net.0"),
    "freeze for a while": lambda: FreezeHook("net.0", until_epoch=5),
    "system": lambda: SystemMetricsHook(interval=0.01),
    "by step": lambda: StepLrUpdaterHook(1, by_step=True, by_epoch=False),
}


class RaisesTwice(Callback):
    """Raises an error at an event and in ``on_exception``, which later callbacks then miss."""

    def __init__(self, event: str) -> None:
        setattr(self, event, self.fail)

    def fail(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        if trainer.global_step > 1:
            raise RuntimeError("in the run")

    def on_exception(self, *args: Any) -> None:
        raise RuntimeError("in on_exception")


def patches_on(module: torch.nn.Module) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, MethodPatch)]


def fit_alone(tmp_path: Path, module: Any) -> dict[str, torch.Tensor]:
    module.train()  # Lightning's failed validation leaves the module in eval mode
    make_trainer(tmp_path, max_epochs=2).fit(module, make_loader(4), make_loader(2))
    return {name: value.clone() for name, value in module.state_dict().items()}


@pytest.mark.parametrize("event", ["on_train_batch_end", "on_validation_batch_end"])
@pytest.mark.parametrize("name", HOOKS)
def test_a_later_fit_is_as_of_a_fresh_module(tmp_path: Path, name: str, event: str) -> None:
    module = TinyNormModule()
    trainer = make_trainer(tmp_path, RaisesTwice(event), HOOKS[name](), max_epochs=2)
    with pytest.raises(RuntimeError, match="in on_exception"):
        trainer.fit(module, make_loader(4), make_loader(2))
    weights = module.state_dict()
    if name.startswith("ema"):
        weights = trainer.callbacks[-1]._average.raw_state_dict()  # type: ignore[attr-defined]
    fresh = TinyNormModule()
    fresh.load_state_dict(weights)
    expected = fit_alone(tmp_path, fresh)
    found = fit_alone(tmp_path, module)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert patches_on(module) == []
