"""A script passes mypy and pyright in strict mode; editors complete each argument of a hook."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_hooks import HOOKS
from support.paths import ROOT

pytestmark = pytest.mark.slow

SCRIPT = """\
from pathlib import Path
from typing import Any

import lightning as L
import torch

import lightning_hooks as lh
from lightning_hooks import schedules, standin


@lh.HOOKS.register_module()
class Mine(lh.Hook):
    def __init__(self, interval: int = 50) -> None:
        super().__init__()
        self.interval, self.best = interval, float("inf")

    def before_run(self, runner: lh.Runner) -> None:
        print(runner.epoch + 1, runner.iter, runner.max_iters, runner.work_dir, runner.rank)

    def after_train_iter(self, runner: lh.Runner) -> None:
        if self.every_n_iters(runner, self.interval) and not self.is_last_iter(runner):
            runner.log_buffer.update({"x": torch.tensor(1.0)})
            runner.log_text("rates", str(runner.current_lr()))

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best = float(state_dict["best"])


class Net(L.LightningModule):
    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        lh.log_image(self, "image", batch[0])
        lh.log_table(self, "table", {"id": [1, 2]})
        lh.log_audio(self, "sound", batch, sample_rate=8000)
        lh.log_video(self, "video", batch, fps=3)
        return batch.sum()


standin.install()
adapter = lh.HookAdapter([Mine(), (Mine(), "LOW"), dict(type="EMAHook")], work_dir="run")
from_config = lh.register_training_hooks(lr_config=dict(policy="step", step=[8, 11]))
best = lh.BestCheckpointHook("accuracy")
path: str = lh.best_checkpoint(Path("run"))
print(best.best_model_path, path, lh.last_checkpoint("run"), schedules.step(1.0, 2, None, step=2))
print(schedules.sample(lh.StepLrUpdaterHook(step=2), max_epochs=2, iters_per_epoch=3))
callbacks: list[L.Callback] = [
    *(adapter, from_config, best),
"""

WRONG = """\
import lightning_hooks as lh

lh.FreezeHook("layer.0", untill_epoch=1)
lh.CheckpointHook(interval="one")
"""


def mypy(folder: Path) -> list[str]:
    pytest.importorskip("mypy")
    program = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    return [*program, "--cache-dir", str(folder / "cache")]


def pyright(folder: Path) -> list[str]:
    program = shutil.which("pyright") or pytest.skip("make types installs pyright")
    options = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(options))
    return [program, "--pythonpath", sys.executable]


def errors_in(checker: list[str], folder: Path, code: str) -> list[tuple[int, str]]:
    """Check a script; return line and text of each error."""
    (folder / "script.py").write_text(code)
    done = subprocess.run(
        [*checker, "script.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    found = re.findall(r"script\.py:(\d+)(?::\d+)?(?: -|:) error: (.*)", done.stdout)
    assert bool(found) == bool(done.returncode), done.stdout + done.stderr
    return [(int(line), text) for line, text in found]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_users_script_passes_in_strict_mode(
    checker: Callable[[Path], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sphinx")
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    monkeypatch.syspath_prepend(ROOT / "docs")
    hooks = importlib.import_module("hook_pages").HOOKS
    lines = [f"    lh.{name}({entry.get('make', '')})," for name, entry in hooks.items()]
    script = "\n".join([SCRIPT + lines[0], *lines[1:], "]", "L.Trainer(callbacks=callbacks)", ""])
    command = checker(tmp_path)
    assert errors_in(command, tmp_path, script) == []
    wrong = errors_in(command, tmp_path, WRONG)
    assert [line for line, _ in wrong] == [3, 4]
    assert "untill_epoch" in wrong[0][1]


def test_an_editor_completes_each_argument_with_a_line_of_its_own() -> None:
    jedi = pytest.importorskip("jedi")
    project = jedi.Project(str(ROOT), added_sys_path=[str(ROOT)])
    without: dict[str, set[str]] = {}
    for hook in HOOKS.module_dict.values():
        if not hook.__module__.startswith(("lightning_hooks.hooks.", "lightning_hooks.loggers.")):
            continue
        code = f"from {hook.__module__} import {hook.__name__}\n{hook.__name__}("
        (shown,) = jedi.Script(code, project=project).get_signatures()
        docs = "\n".join(inspect.getdoc(base) or "" for base in hook.__mro__[:-1])
        lines = {*re.findall(r"^ +\**(\w+): ", docs, re.M)}
        names = {each.name for each in shown.params} - {"args", "kwargs"}  # of no argument
        if missing := names - lines:
            without[hook.__name__] = missing
    assert not without
    (average,) = jedi.Script("from lightning_hooks import EMAHook\nEMAHook(").get_signatures()
    assert {"momentum", "interval", "buffers", "precise_bn"} <= {p.name for p in average.params}
