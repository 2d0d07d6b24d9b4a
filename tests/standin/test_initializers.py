"""Initializers of configs refuse the same configs as mmcv and record the initialized parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lightning_hooks import standin
from support.standin import needs_lite

pytestmark = needs_lite


class Net(nn.Module):
    """A model of a convolution and a named head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1)
        self.head = nn.Linear(1, 1)


@pytest.mark.parametrize("name", ["Constant", "Xavier", "Normal", "Uniform", "Kaiming"])
@pytest.mark.parametrize("wrong", [{"bias": "1"}, {"bias_prob": 1}, {"layer": 3}], ids=str)
def test_arguments_of_another_type_are_refused(name: str, wrong: dict[str, Any]) -> None:
    from mmcv.cnn import INITIALIZERS

    given = {"val": 1, **wrong} if name == "Constant" else wrong
    with pytest.raises(TypeError, match=rf"{next(iter(wrong))}.* must be"):
        INITIALIZERS.build({"type": name, **given})


@pytest.mark.parametrize(
    ("config", "error", "text"),
    [
        ("Constant", TypeError, "init_cfg must be a dict or a list of dict"),
        ({"override": "head"}, TypeError, "override must be a dict or a list of dict"),
        ({"override": {"type": "Normal"}}, ValueError, '`override` must contain the key "name"'),
        ({"override": {"name": "head", "val": 3}}, ValueError, '`override` need "type" key'),
        ({"override": {"name": "tail"}}, RuntimeError, "did not have attribute tail"),
    ],
)
def test_configs_that_mmcv_refuses_are_refused(
    config: Any, error: type[Exception], text: str
) -> None:
    from mmcv.cnn import initialize

    if isinstance(config, dict):
        config = {"type": "Constant", "val": 1, **config}
    with pytest.raises(error, match=text):
        initialize(Net(), config)


def test_a_subclass_of_an_initializer_finds_its_arguments_by_mmcvs_names() -> None:
    from mmcv.cnn import INITIALIZERS, KaimingInit, initialize

    @INITIALIZERS.register_module(name="HalfKaiming")
    class HalfKaiming(KaimingInit):
        def __call__(self, module: nn.Module) -> None:
            super().__call__(module)
            assert (self.a, self.mode, self.distribution) == (0, "fan_in", "normal")
            module.head.weight.data.fill_(0.5)

    try:
        net = Net()
        initialize(net, {"type": "HalfKaiming", "mode": "fan_in", "layer": "Conv2d", "bias": 2})
    finally:
        del INITIALIZERS.module_dict["HalfKaiming"]
    assert net.conv.bias.item() == 2.0
    assert net.head.weight.item() == 0.5


def test_models_are_initialized_after_uninstalling_too() -> None:
    from mmcv.runner import BaseModule

    model = BaseModule({"type": "Constant", "val": 3, "layer": "Linear"})
    model.head = nn.Linear(1, 1)
    standin.uninstall()
    model.init_weights()
    assert model.head.weight.item() == 3.0


def test_what_a_pretrained_model_lacks_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from mmcv.cnn import initialize
    from mmcv.utils import get_logger

    torch.save({"backbone.conv.weight": torch.full((1, 1, 1, 1), 3.0)}, tmp_path / "a.pth")
    get_logger("mmcv").addHandler(caplog.handler)
    net = Net()
    rule = {"type": "Pretrained", "checkpoint": str(tmp_path / "a.pth"), "prefix": "backbone"}
    initialize(net, rule)
    get_logger("mmcv").removeHandler(caplog.handler)
    assert net.conv.weight.item() == 3.0
    assert f"load backbone in model from: {tmp_path / 'a.pth'}" in caplog.messages
    assert "missing keys in source state_dict: conv.bias, head.weight, head.bias" in caplog.text


def test_what_has_changed_is_noted_by_parameter() -> None:
    from mmcv.cnn import initialize
    from mmcv.cnn.utils.weight_init import update_init_info

    net = Net()
    notes = {p: {"init_info": "", "tmp_mean_value": p.data.mean()} for p in net.parameters()}
    net._params_init_info = notes
    initialize(net, {"type": "Constant", "val": 3, "bias": 4, "layer": "Linear"})
    assert notes[net.head.weight]["init_info"] == "ConstantInit: val=3, bias=4"
    assert notes[net.conv.weight]["init_info"] == ""
    net.conv.weight = nn.Parameter(torch.ones(1, 1, 1, 1))
    with pytest.raises(AssertionError, match=r"new :obj:`Parameter` named `conv\.weight`"):
        update_init_info(net, "by hand")
    with pytest.raises(AssertionError, match="Can not find `_params_init_info`"):
        update_init_info(nn.Linear(1, 1), "by hand")
