"""Hooks in Hydra configs: docs/guides/hydra.md and OmegaConf lists."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import lightning_hooks as h
from support.paths import ROOT

omegaconf = pytest.importorskip("omegaconf")
hydra = pytest.importorskip("hydra")

PAGE = (ROOT / "docs" / "guides" / "hydra.md").read_text(encoding="utf-8")
BEFORE = """
from support.training import TinyModule, make_loader
module, train_loader, val_loader = TinyModule(), make_loader(2), make_loader(1)
"""
QUIET = {"accelerator": "cpu", "logger": False, "enable_model_summary": False}


@pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="Hydra's own command line does not start on Python 3.14"
)
@pytest.mark.parametrize("root", ["", "${hydra:runtime.output_dir}"])
def test_the_script_of_the_page_trains_with_its_config(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = dict(re.findall(r"^```(?:yaml|python)\n# ([\w.]+)\n(.*?)^```$", PAGE, re.M | re.S))
    config = yaml.safe_load(blocks["config.yaml"])
    config["trainer"] |= {**QUIET, "enable_progress_bar": False}
    config["trainer"] |= {"default_root_dir": root} if root else {}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "train.py").write_text(BEFORE + blocks["train.py"])
    monkeypatch.chdir(tmp_path)
    quiet = ["hydra/job_logging=none", "hydra/hydra_logging=none"]  # the process has other logging
    changes = ["trainer.callbacks.0.momentum=0.25", "hydra.run.dir=run", *quiet]
    monkeypatch.setattr(sys, "argv", ["train.py", *changes])
    made: list[Any] = []
    monkeypatch.setattr(h.EMAHook, "on_train_end", lambda hook, *_: made.append(hook.momentum))
    runpy.run_path("train.py", run_name="__main__")
    assert made == [0.25]
    assert len(list((tmp_path / "run" if root else tmp_path).glob("epoch_*.pth"))) == 3


def test_the_old_hooks_of_the_page_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("configs").mkdir()
    Path("configs/mmcv.py").write_text("lr_config = dict(policy='step', step=[1])")
    old = omegaconf.OmegaConf.create(re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)[-1])
    adapters = hydra.utils.instantiate(old, _convert_="all")
    made = [type(hook).__name__ for adapter in adapters for hook in adapter.hooks]
    assert made == ["EMAHook", "StepLrUpdaterHook", "IterTimerHook"]


LISTS = omegaconf.OmegaConf.create(
    {"step": [8, 11], "hooks": [{"type": "EMAHook"}], "log": {"interval": 1, "hooks": []}}
)


@pytest.mark.parametrize(
    "make",
    [
        lambda: h.StepLrUpdaterHook(LISTS.step),
        lambda: h.StepLrUpdaterHook(step=LISTS.step),
        lambda: h.HookAdapter(LISTS.hooks),
        lambda: h.HookAdapter([{"type": "StepLrUpdaterHook", "step": LISTS.step}]),
        lambda: h.register_training_hooks(log_config=LISTS.log),
        lambda: h.register_training_hooks(custom_hooks_config=LISTS.hooks),
    ],
)
def test_a_list_of_omegaconf_is_refused_with_what_to_write(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"ListConfig .*`_convert_: all`.*to_container"):
        make()


def test_its_dicts_are_dicts() -> None:
    config = omegaconf.OmegaConf.create({"type": "OptimizerHook", "grad_clip": {"max_norm": 3}})
    (hook,) = h.HookAdapter([config]).hooks
    assert hook.grad_clip == {"max_norm": 3}
