"""Hooks in LightningCLI's YAML, bare and in an adapter, and the help texts."""

from __future__ import annotations

import inspect
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightning.pytorch import LightningDataModule
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.cli import LightningCLI

import lightning_hooks
from lightning_hooks import HOOKS, EMAHook, HookAdapter
from support.contract import CASES
from support.processes import run_python
from support.training import TinyNormModule, make_loader

jsonargparse = pytest.importorskip("jsonargparse")

# how Lightning calls jsonargparse
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

YAML = """
trainer:
  max_epochs: 2
  accelerator: cpu
  logger: false
  enable_progress_bar: false
  enable_model_summary: false
  default_root_dir: ROOT
  callbacks:
    - class_path: lightning_hooks.EMAHook
      init_args: {momentum: 0.01, interval: 2}
    - class_path: lightning_hooks.CheckpointHook
      init_args: {interval: 1, max_keep_ckpts: 1}
    - class_path: lightning_hooks.StepLrUpdaterHook
      init_args: {step: [1], gamma: 0.5, warmup: linear, warmup_iters: 2}
    - class_path: lightning_hooks.CosineAnnealingMomentumUpdaterHook
      init_args: {min_momentum_ratio: 0.5, by_epoch: false}
    - class_path: lightning_hooks.OptimizerHook
      init_args: {grad_clip: {max_norm: 35, norm_type: 2}}
    - class_path: lightning_hooks.CheckInvalidLossHook
      init_args: {interval: 3}
    - class_path: lightning_hooks.PreciseBNHook
      init_args: {num_samples: 8}
    - class_path: lightning_hooks.EvalHook
      init_args: {dataloader: null, interval: 1, save_best: val_loss, rule: less}
    - class_path: lightning_hooks.EmptyCacheHook
      init_args: {after_epoch: true}
    - class_path: lightning_hooks.SyncBuffersHook
    - class_path: lightning_hooks.DistSamplerSeedHook
    - class_path: lightning_hooks.ClosureHook
      init_args: {fn_name: after_run, fn: builtins.repr}
    - class_path: lightning_hooks.HookAdapter
      init_args:
        by_epoch: true
        hooks:
          - {type: IterTimerHook}
          - {type: TextLoggerHook, interval: 2, priority: VERY_LOW}
"""


class Data(LightningDataModule):
    def train_dataloader(self) -> Any:
        return make_loader(4)

    def val_dataloader(self) -> Any:
        return make_loader(1)


def train(config: Path, root: Path, monkeypatch: Any, **options: Any) -> LightningCLI:
    """Run ``fit`` with a config in a directory, where LightningCLI saves the parsed config."""
    arguments = ["fit", "--config", str(config), f"--trainer.default_root_dir={root}"]
    monkeypatch.setattr("sys.argv", ["train.py", *arguments])
    root.mkdir(exist_ok=True)
    return LightningCLI(TinyNormModule, Data, seed_everything_default=0, **options)


def shown_by_help(name: str, capsys: Any) -> dict[str, str]:
    """Return the one-line help of each argument from ``--callbacks.help NAME``."""
    with pytest.raises(SystemExit):
        parser().parse_args([f"--callbacks.help=lightning_hooks.{name}"])
    entries = re.split(r"^  --callbacks\.(\w+)(?: |,|$)", capsys.readouterr().out, flags=re.M)[1:]
    return {key: " ".join(text.split()) for key, text in zip(*[iter(entries)] * 2, strict=True)}


def weights(cli: LightningCLI) -> list[Any]:
    return [value.flatten().tolist() for value in cli.model.state_dict().values()]


def test_hooks_from_yaml_and_from_what_is_saved_of_it(tmp_path: Path, monkeypatch: Any) -> None:
    config, first, second = tmp_path / "config.yaml", tmp_path / "first", tmp_path / "second"
    config.write_text(YAML)
    cli = train(config, first, monkeypatch)
    (group,) = cli.trainer.optimizers[0].param_groups
    assert group["lr"] == 0.05
    assert 0.45 < group["momentum"] < 0.6
    files = sorted(file.name for file in first.glob("*.pth"))
    assert files == ["best_val_loss_epoch_2.pth", "epoch_2.pth", "latest.pth"]
    assert len(list(first.glob("*.log.json"))) == 1

    again = train(first / "config.yaml", second, monkeypatch)
    saved = [yaml.safe_load((root / "config.yaml").read_text()) for root in (first, second)]
    for one in saved:
        del one["trainer"]["default_root_dir"]
    assert saved[0] == saved[1]
    assert saved[0]["trainer"]["callbacks"][0] == {
        "class_path": "lightning_hooks.EMAHook",
        "init_args": {**saved[1]["trainer"]["callbacks"][0]["init_args"], "momentum": 0.01},
    }
    assert weights(again) == weights(cli)


def test_where_the_config_is_saved_and_what_a_second_run_needs(
    tmp_path: Path, monkeypatch: Any
) -> None:
    short = YAML[: YAML.index("    - class_path: lightning_hooks.CheckpointHook")]
    short = short.replace("max_epochs: 2", "max_epochs: 1\n  enable_checkpointing: false")
    config, root = tmp_path / "config.yaml", tmp_path / "root"
    config.write_text(short)
    train(config, root, monkeypatch)
    assert (root / "config.yaml").exists()
    with pytest.raises(RuntimeError, match="overwrite"):
        train(config, root, monkeypatch)
    train(config, root, monkeypatch, save_config_kwargs={"overwrite": True})
    config.write_text(short.replace("logger: false", "log_every_n_steps: 1"))
    train(config, tmp_path / "logged", monkeypatch)
    assert (tmp_path / "logged" / "lightning_logs" / "version_0" / "config.yaml").exists()


def test_an_adapter_from_a_config_file_of_mmcv(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "mmcv.py").write_text("lr_config = dict(policy='step', step=[1], gamma=0.5)\n")
    config = tmp_path / "config.yaml"
    config.write_text(
        f"""
trainer:
  max_epochs: 2
  accelerator: cpu
  logger: false
  enable_checkpointing: false
  enable_progress_bar: false
  enable_model_summary: false
  callbacks:
    - class_path: lightning_hooks.hooks_from_config
      init_args: {{cfg: {tmp_path / "mmcv.py"}}}
"""
    )
    cli = train(config, tmp_path / "root", monkeypatch)
    assert [group["lr"] for group in cli.trainer.optimizers[0].param_groups] == [0.05]
    assert any(isinstance(callback, HookAdapter) for callback in cli.trainer.callbacks)  # type: ignore[attr-defined]


def test_a_schedule_of_optimizer_steps(tmp_path: Path, monkeypatch: Any) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        """
trainer:
  max_epochs: 1
  accumulate_grad_batches: 2
  accelerator: cpu
  logger: false
  enable_checkpointing: false
  enable_progress_bar: false
  enable_model_summary: false
  callbacks:
    - class_path: lightning_hooks.StepLrUpdaterHook
      init_args: {step: 1, by_epoch: false, by_step: true}
    - class_path: lightning_hooks.HookAdapter
      init_args:
        hooks: {type: StepMomentumUpdaterHook, step: 1, by_epoch: false, by_step: true}
"""
    )
    cli = train(config, tmp_path / "root", monkeypatch)
    (group,) = cli.trainer.optimizers[0].param_groups
    assert (group["lr"], group["momentum"]) == (0.1 * 0.1, 0.9 * 0.5)  # the second step's


def parser() -> Any:
    made = jsonargparse.ArgumentParser(exit_on_error=False)
    made.add_argument("--callbacks", type=list[Callback])
    return made


@pytest.mark.parametrize("name", CASES)
def test_every_hooks_arguments_are_understood(name: str) -> None:
    cls: Any = HOOKS.get(name)
    if (client := getattr(cls, "package", "")) and find_spec(client) is None:
        pytest.skip(f"{client} is not installed")
    given = {
        key: "builtins.repr" if callable(value) else value for key, value in CASES[name][0].items()
    }
    config = {"callbacks": [{"class_path": f"{cls.__module__}.{cls.__name__}", "init_args": given}]}
    found = parser().parse_object(config)
    assert parser().parse_string(parser().dump(found)).callbacks == found.callbacks
    (hook,) = parser().instantiate_classes(found).callbacks
    assert type(hook) is cls


def test_arguments_that_are_other_things_in_a_script_or_passed_on() -> None:
    def made(name: str, **entry: Any) -> Any:
        config = {"callbacks": [{"class_path": f"lightning_hooks.{name}", **entry}]}
        found = parser().parse_object(config)
        assert parser().parse_string(parser().dump(found)).callbacks == found.callbacks
        (hook,) = parser().instantiate_classes(found).callbacks
        return hook

    assert made("EvalHook", init_args={"dataloader": "validation", "interval": 2}).interval == 2
    handler = {"type": "tb_trace", "dir_name": "traces"}
    profiler = made("ProfilerHook", init_args={"on_trace_ready": handler})
    assert profiler.on_trace_ready == handler
    field = {"name": "eps", "policy": "step"}
    hook = made("FieldUpdaterHook", init_args=field, dict_kwargs={"step": [8]})
    assert hook.policy.step == [8]


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("EMAHook", {"momentum": "much"}, "momentum"),
        ("StepLrUpdaterHook", {"step": "early"}, "step"),
        ("CosineAnnealingLrUpdaterHook", {"min_lr": 0, "warm_up": "linear"}, "warm_up"),
    ],
)
def test_a_wrong_argument_is_named(name: str, given: dict[str, Any], message: str) -> None:
    config = {"callbacks": [{"class_path": f"lightning_hooks.{name}", "init_args": given}]}
    with pytest.raises(jsonargparse.ArgumentError, match=message):
        parser().parse_object(config)


def test_a_parsed_hook_equals_a_constructed_hook() -> None:
    config = {"callbacks": [{"class_path": "lightning_hooks.EMAHook"}]}
    (hook,) = parser().instantiate_classes(parser().parse_object(config)).callbacks
    assert vars(hook).keys() == vars(EMAHook()).keys()


HOOK_NAMES = sorted(
    name
    for name, value in ((name, getattr(lightning_hooks, name)) for name in lightning_hooks.__all__)
    if isinstance(value, type) and issubclass(value, Callback)
)
INHERITED = {
    "DistEvalHook": {"keep_best", "dynamic_intervals"},
    "DvcliveLoggerHook": {"run", "timeout", "strict", "all_groups", "timings"},
    "EMAHook": {"begin_iter", "begin_epoch", "swap", "device"},
    "GradientCumulativeFp16OptimizerHook": {"grad_clip", "loss_scale", "cumulative_iters"},
    "StepLrUpdaterHook": {"warmup", "warmup_iters", "warmup_ratio", "by_epoch", "by_step"},
    "StepMomentumUpdaterHook": {"warmup", "warmup_iters", "warmup_ratio", "by_epoch", "by_step"},
    "WandbLoggerHook": {"run", "timeout", "strict", "all_groups", "timings"},
}
"""Arguments that are not parameters of the class's constructor."""


def test_all_hooks_can_be_asked_about() -> None:
    # mmcv's files register hooks too, if another test has imported mmcv
    ours = {n for n, c in HOOKS.module_dict.items() if c.__module__.startswith("lightning_hooks.")}
    assert ours <= {*HOOK_NAMES}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in INHERITED else [pytest.mark.slow])
        for name in HOOK_NAMES
    ],
)
def test_help_has_a_type_and_a_description_of_every_argument(name: str, capsys: Any) -> None:
    shown = shown_by_help(name, capsys)
    parameters = inspect.signature(getattr(lightning_hooks, name)).parameters.values()
    own = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    assert own | INHERITED.get(name, set()) <= shown.keys()
    for key, text in shown.items():
        found = re.search(
            r"([\w\"'`)\]][.;:)]) \((?:required, )?type: (.+?)(?:, default: .*)?\)$", text
        )
        assert found, f"{key}: {text}"
        assert "See there" not in text, key
        assert not re.search(r":\s*\w+\s*:`", text), f"{key}: a role of Sphinx's in {text}"
        assert "Unvalidated" not in text, f"{key} has a type that is not understood: {text}"
        assert found[2] != "Any" or (name, key) == ("HookAdapter", "hooks"), key
        assert len(text) < 700, f"{key}: a screen of text"


@pytest.mark.slow
def test_a_script_as_users_run_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        """
import torch
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from torch.utils.data import DataLoader


class Model(BoringModel):
    def train_dataloader(self):
        return DataLoader(RandomDataset(32, 8), batch_size=2)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


cli = LightningCLI(Model, seed_everything_default=0, save_config_callback=None)
print("rates", [group["lr"] for group in cli.trainer.optimizers[0].param_groups])
"""
    )
    (tmp_path / "config.yaml").write_text(
        """
trainer:
  max_epochs: 2
  accelerator: cpu
  logger: false
  limit_val_batches: 0
  enable_progress_bar: false
  enable_model_summary: false
  callbacks:
    - class_path: lightning_hooks.StepLrUpdaterHook
      init_args: {step: [1], gamma: 0.5}
    - class_path: lightning_hooks.EMAHook
    - class_path: lightning_hooks.CheckpointHook
      init_args: {interval: 1, max_keep_ckpts: 1}
"""
    )
    more = ["--trainer.callbacks+=lightning_hooks.TextLoggerHook", "--trainer.callbacks.interval=2"]
    printed = run_python("-m", "train", "fit", "--config", "config.yaml", *more, folder=tmp_path)
    assert "rates [0.05]" in printed
    assert [file.name for file in tmp_path.glob("epoch_*.pth")] == ["epoch_2.pth"]
    (log,) = tmp_path.glob("*.log.json")
    assert log.read_text().count('"mode": "train"') == 4
