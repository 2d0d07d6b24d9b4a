"""The stand-in's optimizers have the rates and decays of mmcv's optimizers."""

from __future__ import annotations

import pytest
import torch
from grouped import BACKBONES, DECAY, LR, PARAMWISE, Model

from lightning_hooks.standin.runner import builders
from support.golden import recorded

GOLDEN = recorded("param_groups")["cases"]["paramwise"]


@pytest.mark.parametrize("kind", BACKBONES)
@pytest.mark.parametrize("case", range(len(PARAMWISE)))
def test_groups_are_those_of_mmcvs_constructor(kind: str, case: int) -> None:
    model = Model(BACKBONES[kind])
    config = {"type": "AdamW", "lr": LR, "weight_decay": DECAY, "paramwise_cfg": PARAMWISE[case]}
    found = {}
    for group in builders.build_optimizer(model, config).param_groups:
        (parameter,) = group["params"]
        found[id(parameter)] = [group["lr"], group["weight_decay"]]
    for name, options in GOLDEN[kind][case].items():
        assert found[id(model.get_parameter(name))] == options


def test_a_projects_class_replaces_an_optimizer_taken_from_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "RMSprop"
    monkeypatch.setitem(builders.OPTIMIZERS.module_dict, name, torch.optim.RMSprop)
    mine = builders.OPTIMIZERS.register_module()(type(name, (torch.optim.SGD,), {}))
    assert builders.OPTIMIZERS.get(name) is mine
    with pytest.raises(KeyError, match="RMSprop is already registered in optimizer"):
        builders.OPTIMIZERS.register_module()(type(name, (), {}))
