"""A LightningCLI finds hooks by their class names alone, after ``import lightning_hooks``."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from support.processes import run_python

pytest.importorskip("jsonargparse")

OURS, CLI = "import lightning_hooks", "from lightning.pytorch.cli import LightningCLI"
OLD = """
from lightning_hooks import standin

standin.install()
from mmcv.runner import *  # with mmcv's own EMAHook, of the same name
"""
SCRIPT = """
import torch
from lightning.pytorch.demos.boring_classes import BoringModel


class Model(BoringModel):
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


cli = LightningCLI(Model, seed_everything_default=0, save_config_callback=None)
print("rates", [group["lr"] for group in cli.trainer.optimizers[0].param_groups])
"""
CONFIG = """
trainer:
  max_epochs: 2
  limit_train_batches: 2
  accelerator: cpu
  logger: false
  limit_val_batches: 0
  enable_progress_bar: false
  enable_model_summary: false
  callbacks:
    - class_path: StepLrUpdaterHook
      init_args: {step: [1], gamma: 0.5}
    - EMAHook
    - class_path: OptimizerHook
      init_args: {grad_clip: {max_norm: 35}}
    - class_path: CheckpointHook
      init_args: {interval: 1, max_keep_ckpts: 1}
    - class_path: HookAdapter
      init_args:
        hooks:
          - {type: TextLoggerHook, interval: 1, priority: VERY_LOW}
"""


def run(folder: Path, first: str, second: str, *arguments: str) -> str:
    (folder / "train.py").write_text("\n".join([first, second, SCRIPT]))
    (folder / "config.yaml").write_text(CONFIG)
    given = ["fit", "--config", "config.yaml", *arguments]
    return run_python("-m", "train", *given, folder=folder)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (OLD, CLI),  # docs/guides/lightning_cli.md runs the plain one
        pytest.param(CLI, OLD, marks=pytest.mark.slow),
        pytest.param(CLI, OURS, marks=pytest.mark.slow),
    ],
    ids=["with old hooks", "with old hooks, later", "later"],
)
def test_a_run_from_class_names(first: str, second: str, tmp_path: Path) -> None:
    assert "rates [0.05]" in run(tmp_path, first, second)
    assert [file.name for file in tmp_path.glob("epoch_*.pth")] == ["epoch_2.pth"]
    (log,) = tmp_path.glob("*.log.json")
    assert log.read_text().count('"mode": "train"') == 4


@pytest.mark.slow
def test_the_printed_config_has_the_full_names(tmp_path: Path) -> None:
    printed = yaml.safe_load(run(tmp_path, OURS, CLI, "--print_config"))
    callbacks = printed["trainer"]["callbacks"]
    assert [one["class_path"] for one in callbacks] == [
        "lightning_hooks.StepLrUpdaterHook",
        "lightning_hooks.EMAHook",
        "lightning_hooks.OptimizerHook",
        "lightning_hooks.CheckpointHook",
        "lightning_hooks.HookAdapter",
    ]
    assert callbacks[0]["init_args"]["gamma"] == 0.5
    assert callbacks[2]["init_args"]["grad_clip"] == {"max_norm": 35}
    assert callbacks[4]["init_args"]["hooks"][0]["type"] == "TextLoggerHook"


def test_a_process_without_the_cli_imports_nothing_for_it(tmp_path: Path) -> None:
    program = """if True:
        import sys
        import lightning_hooks
        import lightning_hooks as again
        import lightning.pytorch

        class Noting:  # as a tool that wraps modules when they are imported
            def find_spec(self, fullname, path=None, target=None):
                if fullname == "lightning.pytorch.cli":
                    print("seen")

        sys.meta_path.insert(1, Noting())
        print([name for name in sys.modules if name.startswith("lightning_hooks.hooks.")])
        import lightning.pytorch.cli
        print("lightning_hooks.hooks.averaging.ema" in sys.modules)
        print([one for one in sys.meta_path if type(one).__name__ == "_WithCLI"])
    """
    assert run_python("-c", program, folder=tmp_path).split() == ["[]", "seen", "True", "[]"]
