"""``lightning-hooks convert``: the printed code runs and creates the same hooks."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import HOOKS, register_training_hooks, standin
from lightning_hooks.cli import app
from lightning_hooks.cli.convert import convert
from lightning_hooks.config import hooks_from_config
from support.training import TinyModule, make_loader

CONFIGS: dict[str, dict[str, Any]] = {
    "by epoch": dict(
        lr_config=dict(policy="step", step=[8, 11], warmup="linear", warmup_iters=5),
        optimizer_config=dict(grad_clip=dict(max_norm=35.0)),
        checkpoint_config=dict(interval=1, max_keep_ckpts=3),
        log_config=dict(interval=50, hooks=[dict(type="TextLoggerHook", out_dir="a\\b'\"")]),
        custom_hooks_config=[dict(type="EMAHook", momentum=0.01, priority=20)],
        evaluation=dict(interval=2, save_best=["loss"], rule="less"),
        total_epochs=2,
    ),
    "by iteration": dict(
        lr_config=dict(policy="Poly", power=0.9, min_lr=float("1e-4")),
        momentum_config=dict(policy="CosineAnnealing", min_momentum=0.5),
        runner=dict(type="IterBasedRunner", max_iters=8),
        work_dir="somewhere",
    ),
    "with wishes of order": dict(
        custom_hooks_config=[dict(type="EMAHook", run_after="IterTimerHook", priority="LOW")]
    ),
    "nothing": dict(timer_config=None),
}


def made_by(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(code, "converted.py", "exec"), names)
    return names


def of(adapter: Any) -> list[tuple[str, int]]:
    return [(type(hook).__name__, priority) for hook, priority in adapter._entries()]


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_printed_code_makes_the_same_hooks(config: dict[str, Any], tmp_path: Path) -> None:
    adapter = register_training_hooks(**config)
    names = made_by(convert(adapter))
    assert of(names["hooks"]) == of(adapter)
    assert names["hooks"]._runner_options() == adapter._runner_options()
    for name, value in adapter.trainer_kwargs.items():
        if name in ("max_epochs", "max_steps", "check_val_every_n_epoch"):
            assert getattr(names["trainer"], name) == value
    assert convert(adapter) == convert(register_training_hooks(**config))


def test_the_printed_code_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = dict(
        lr_config=dict(policy="fixed"), checkpoint_config=dict(interval=1), total_epochs=1
    )
    code = convert(register_training_hooks(**config)).replace(
        "L.Trainer(",
        'L.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, '
        "enable_model_summary=False, ",
    )
    made_by(code)["trainer"].fit(TinyModule(), make_loader(2), make_loader(1))
    assert (tmp_path / "epoch_1.pth").exists()


def test_a_hook_of_the_project_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_hooks.py").write_text(
        "from mmcv.runner import HOOKS, Hook\n"
        "@HOOKS.register_module(force=True)\n"
        "class OwnHook(Hook):\n"
        "    def __init__(self, scale=1.0, kind=None):\n"
        "        self.scale = scale\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = dict(
        custom_imports=dict(imports=["own_hooks"]),
        custom_hooks=[dict(type="OwnHook", scale=float("inf"), kind=int, priority="LOW")],
    )
    with standin.installed():
        code = convert(hooks_from_config(config))
        assert "standin.install()\nfrom own_hooks import OwnHook" in code
        hooks = made_by(code)["hooks"]
    standin.uninstall()
    sys.modules.pop("own_hooks")
    HOOKS.module_dict.pop("OwnHook")
    assert [(name, priority) for name, priority in of(hooks) if name == "OwnHook"] == [
        ("OwnHook", 70)
    ]


OWN = """
from mmcv.runner import HOOKS, Hook, OptimizerHook

@HOOKS.register_module(force=True)
class OfTheScript(Hook): ...

@HOOKS.register_module(force=True)
class OwnOptimizerHook(OptimizerHook): ...
"""
CONFIG = """
optimizer_config = dict(type="OwnOptimizerHook", grad_clip=dict(max_norm=35))
custom_hooks = [dict(type="OfTheScript")]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Create a project whose training script imports the registered hooks."""
    for name, text in {
        "configs/net.py": CONFIG,
        "tools/train.py": "import own_lab.hooks\nif __name__ == '__main__':\n    1 / 0",
        "own_lab/__init__.py": "",
        "own_lab/hooks.py": OWN,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    before = {*sys.modules}
    yield tmp_path
    for name in ("OfTheScript", "OwnOptimizerHook"):
        HOOKS.module_dict.pop(name, None)
    for name in {*sys.modules} - before:
        if name.startswith(("own_lab", "train", "_train")):
            del sys.modules[name]


def converted(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert app.run(["convert", "configs/net.py", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("given", [[], ["--import", "own_lab.hooks"]], ids=["script", "import"])
def test_hooks_that_the_project_registers_are_kept(
    given: list[str], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if given:
        (project / "tools/train.py").unlink()
    code = converted(capsys, *given)
    assert "from own_lab.hooks import OfTheScript, OwnOptimizerHook" in code
    assert 'OwnOptimizerHook(grad_clip={"max_norm": 35})' in code
    assert "#" not in code


def test_grad_clip_of_an_unknown_optimizer_hook_is_kept(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "tools/train.py").write_text("import no_such_lab")
    first, second, third, *code = converted(capsys).splitlines()
    assert first == "# train.py: ModuleNotFoundError: No module named 'no_such_lab'"
    assert second.startswith(
        "# not converted: OwnOptimizerHook is not registered; OptimizerHook clips in its place; "
        "did you mean"
    )
    assert set(re.findall(r"'(\w+)'", second.partition("mean")[2])) <= {
        name for name in HOOKS.module_dict if name.endswith("OptimizerHook")
    }
    assert third.startswith("# not converted: OfTheScript is not registered; ")
    assert 'OptimizerHook(grad_clip={"max_norm": 35})' in "".join(code)


def test_a_value_without_a_literal_is_refused() -> None:
    adapter = register_training_hooks(
        custom_hooks_config=dict(type="ClosureHook", fn_name="after_run", fn=lambda runner: None)
    )
    with pytest.raises(ValueError, match=r"fn=<function .* cannot be written as Python"):
        convert(adapter)
