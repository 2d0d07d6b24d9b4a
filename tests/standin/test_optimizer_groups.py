"""The stand-in's optimizers have the rates and decays that mmcv's have."""

from __future__ import annotations

import pytest
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
