"""Parameter groups added during a run are scheduled from the next epoch on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import BackboneFinetuning, Callback

from lightning_hooks import (
    ExpLrUpdaterHook,
    OneCycleLrUpdaterHook,
    StepLrUpdaterHook,
    StepMomentumUpdaterHook,
)
from support.training import NoValidation, fit

BATCHES = 2


class Grows(Callback):
    """Adds a layer and its parameter group after the first epoch."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        if trainer.current_epoch == 0:
            module.extra = torch.nn.Linear(4, 2)
            group = {"params": list(module.extra.parameters()), **self.options}
            trainer.optimizers[-1].add_param_group(group)


class Seen(Callback):
    """Records an option of each parameter group of the last optimizer in each step."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.values: list[list[float]] = []

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        self.values.append([group[self.key] for group in trainer.optimizers[-1].param_groups])


def train(tmp_path: Path, hook: Any, *callbacks: Any, key: str = "lr", **arguments: Any) -> Any:
    seen = Seen(key)
    arguments = {"max_epochs": 3, "batches": BATCHES, "module": NoValidation, **arguments}
    fit(tmp_path, hook, callbacks=[*callbacks, seen], **arguments)
    return seen.values


@pytest.mark.parametrize(
    ("make", "arguments", "factor"),
    [
        (lambda: StepLrUpdaterHook(step=1, gamma=0.5), {}, lambda i: 0.5 ** (i // BATCHES)),
        (
            lambda: ExpLrUpdaterHook(gamma=0.9, by_epoch=False),
            {"host": True},
            lambda i: 0.9**i,
        ),
        (
            lambda: ExpLrUpdaterHook(gamma=0.9, by_epoch=False),
            {"by_epoch": False},
            lambda i: 0.9**i,
        ),
        (
            lambda: StepLrUpdaterHook(step=9, warmup="linear", warmup_iters=6, warmup_ratio=0.5),
            {},
            lambda i: 0.5 + 0.5 * i / 6,
        ),
    ],
)
def test_learning_rates(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[], Any],
    arguments: dict[str, Any],
    factor: Callable[[int], float],
) -> None:
    with caplog.at_level(logging.INFO, "lightning_hooks"):
        rates = train(tmp_path, make(), Grows(lr=0.01), **arguments)
    for i, found in enumerate(rates):
        bases = [0.1] if i < BATCHES else [0.1, 0.01]
        assert found == pytest.approx([base * factor(i) for base in bases])
    lines = [r.getMessage() for r in caplog.records if "also sets" in r.getMessage()]
    assert lines == [
        f"{type(make()).__name__} also sets the learning rate of SGD (group 1) from now on, "
        "with the base 0.01: extra.weight, extra.bias"
    ]


def test_momenta(tmp_path: Path) -> None:
    hook = StepMomentumUpdaterHook(step=1, gamma=0.5)
    momenta = train(tmp_path, hook, Grows(momentum=0.8), key="momentum")
    assert momenta[::BATCHES] == [[0.9], [0.45, 0.4], [0.225, 0.2]]


@pytest.mark.parametrize("host", [False, True], ids=["bare", "adapter"])
def test_one_optimizer_of_two(tmp_path: Path, host: bool) -> None:
    class Two(NoValidation):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD([one], lr=0.1) for one in self.parameters()]

        def training_step(self, batch: Any, batch_idx: int) -> None:
            self.manual_backward(self.loss(batch))
            for optimizer in self.optimizers():
                optimizer.step()
                optimizer.zero_grad()

    hook = StepLrUpdaterHook(step=1, gamma=0.5)
    rates = train(tmp_path, hook, Grows(lr=0.01), module=Two, host=host)
    assert rates[:: 2 * BATCHES] == [[0.1], [0.05, 0.005], [0.025, 0.0025]]
    assert hook.base_lr == {"0": [0.1], "1": [0.1, 0.01]}


def test_a_policy_with_a_number_for_each_group_leaves_it_alone_and_says_so(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"OneCycleLrUpdaterHook leaves .* as it is: max_lr has 1"):
        rates = train(tmp_path, OneCycleLrUpdaterHook(max_lr=[0.4]), Grows(lr=0.01))
    assert [found[1] for found in rates[BATCHES:]] == [0.01] * 2 * BATCHES
    assert rates[-1][0] < 0.1


class Backbone(NoValidation):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = torch.nn.Linear(4, 4)

    def loss(self, batch: Any) -> torch.Tensor:
        return super().loss((self.backbone(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=0.1)


@pytest.mark.filterwarnings("ignore:The provided params to be frozen already exist")
def test_backbone_finetuning(tmp_path: Path) -> None:
    unfreezes = BackboneFinetuning(unfreeze_backbone_at_epoch=1, backbone_initial_lr=0.01)
    hook = ExpLrUpdaterHook(gamma=0.9, by_epoch=False)
    rates = train(tmp_path, hook, unfreezes, module=Backbone)
    assert [len(found) for found in rates] == [1, 1, 2, 2, 2, 2]
    assert [found[1] for found in rates[2 * BATCHES :]] == [
        pytest.approx(0.01 * 0.9**i) for i in range(2 * BATCHES, 3 * BATCHES)
    ]


def test_a_resumed_run_goes_on_with_the_groups(tmp_path: Path) -> None:
    class Grown(NoValidation):
        def __init__(self) -> None:
            super().__init__()
            self.extra = torch.nn.Linear(4, 2)

        def configure_optimizers(self) -> Any:
            groups = [{"params": self.net.parameters()}, {"params": self.extra.parameters()}]
            return torch.optim.SGD(groups, lr=0.1, momentum=0.9)

    def hook() -> Any:
        return StepLrUpdaterHook(step=1, gamma=0.5)

    arguments = {"callbacks": [Grows(lr=0.01)], "module": NoValidation, "batches": BATCHES}
    trainer = fit(tmp_path, hook(), max_epochs=2, **arguments)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    rates = train(tmp_path, hook(), module=Grown, ckpt_path=tmp_path / "half.ckpt")
    assert rates == [[0.025, 0.0025]] * BATCHES
