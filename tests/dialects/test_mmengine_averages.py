"""MMEngine's ``EMAHook`` in a config becomes an average of this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import HookAdapter, hooks_from_config
from lightning_hooks.cli.app import run
from support.training import TinyNormModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")

EPOCHS = 4


def config(**ema: Any) -> dict[str, Any]:
    hook = {"type": "EMAHook", **ema}
    return {"train_cfg": {"max_epochs": EPOCHS}, "custom_hooks": [hook]}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"momentum": 0.1, "update_buffers": True},
        {"momentum": 0.1, "begin_iter": 5},
        {"momentum": 0.1, "begin_epoch": 3},
        {"momentum": 0.1, "interval": 2, "strict_load": True},
        {"ema_type": "StochasticWeightAverage"},
        {"ema_type": "StochasticWeightAverage", "begin_iter": 5, "interval": 3},
        {"ema_type": "StochasticWeightAverage", "begin_epoch": 2, "update_buffers": True},
        {"ema_type": "MomentumAnnealingEMA", "momentum": 0.1, "gamma": 3, "begin_iter": 1},
    ],
)
def test_the_average_is_mmengines(arguments: dict[str, Any], tmp_path: Path) -> None:
    theirs = pytest.importorskip("mmengine.hooks").EMAHook(**arguments)
    ours = hooks_from_config(config(**arguments))
    modules = TinyNormModule(), TinyNormModule()
    for module, callback in zip(modules, (HookAdapter([theirs]), ours), strict=True):
        make_trainer(tmp_path, callback, max_epochs=EPOCHS).fit(module, make_loader(3))
    expected, found = theirs.ema_model.module.state_dict(), modules[1].state_dict()
    floats = [name for name in found if found[name].is_floating_point()]
    for name in floats:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-6, atol=1e-8)


def test_the_average_of_mmdet_and_mmpose() -> None:
    """The first update, a copy in mmdet, has a weight of almost 1."""
    given = {"momentum": 0.0001, "gamma": 1000, "begin_epoch": 3, "priority": 49}
    hooks = hooks_from_config(config(ema_type="mmdet.ExpMomentumEMA", **given))
    made, priority = hooks.configs[-1]
    assert made == {
        **{"type": "ExpMomentumEMAHook", "momentum": 0.0001, "skip_buffers": True},
        **{"total_iter": 1000, "begin_epoch": 2, "priority": 49},
    }
    assert priority == 49


def test_the_hook_of_this_package_in_such_a_config_stays() -> None:
    hooks = hooks_from_config(config(momentum=0.1, warm_up=100))
    assert hooks.configs[-1][0] == {"type": "EMAHook", "momentum": 0.1, "warm_up": 100}


@pytest.mark.parametrize("count", ["begin_iter", "begin_epoch", "interval"])
def test_a_count_of_another_type_is_named(count: str) -> None:
    with pytest.raises(TypeError, match=f"{count} must be an int, got '7'"):
        hooks_from_config(config(**{count: "7"}))


def test_an_average_without_a_counterpart_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.py"
    path.write_text("".join(f"{k} = {v}\n" for k, v in config(ema_type="mmagic.RampUp").items()))
    assert run(["convert", str(path)]) == 2
    assert "custom_hooks[0]: no hook follows ema_type='RampUp'" in capsys.readouterr().err
