"""Hooks from a LightningCLI's YAML, alone and hosted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import TinyModule, make_loader
from lightning.pytorch import LightningDataModule
from lightning.pytorch.cli import LightningCLI

pytest.importorskip("jsonargparse")

YAML = """
trainer:
  max_epochs: 2
  accelerator: cpu
  logger: false
  enable_progress_bar: false
  enable_model_summary: false
  default_root_dir: {root}
  callbacks:
    - class_path: lightning_hooks.EMAHook
      init_args: {{momentum: 0.01}}
    - class_path: lightning_hooks.CheckpointHook
      init_args: {{interval: 1, max_keep_ckpts: 1}}
    - class_path: lightning_hooks.StepLrUpdaterHook
      init_args: {{step: [1], gamma: 0.5}}
    - class_path: lightning_hooks.HookAdapter
      init_args:
        hooks:
          - {{type: IterTimerHook}}
          - {{type: TextLoggerHook, interval: 2, priority: VERY_LOW}}
"""


class Data(LightningDataModule):
    def train_dataloader(self) -> Any:
        return make_loader(4)

    def val_dataloader(self) -> Any:
        return make_loader(1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # how Lightning calls jsonargparse
def test_hooks_from_yaml(tmp_path: Path, monkeypatch: Any) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(YAML.format(root=tmp_path))
    monkeypatch.setattr("sys.argv", ["train.py", "fit", "--config", str(config)])
    cli = LightningCLI(TinyModule, Data, save_config_callback=None, seed_everything_default=0)
    assert [group["lr"] for group in cli.trainer.optimizers[0].param_groups] == [0.05]
    assert sorted(f.name for f in tmp_path.glob("*.pth")) == ["epoch_2.pth", "latest.pth"]
    assert len(list(tmp_path.glob("*.log.json"))) == 1
