"""``LIGHTNING_HOOKS_CONFIG=hooks.yaml`` adds hooks to scripts without an import of this package."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning as L
import pytest

from lightning_hooks import EMAHook, HookAdapter, IterTimerHook
from lightning_hooks.callbacks_factory import VARIABLE, callbacks_from_environment
from support.paths import ROOT
from support.shown import shown_on, without_numbers
from support.training import TinyModule, make_loader

PAGE = (ROOT / "docs" / "hooks_in_yaml.md").read_text(encoding="utf-8")
YAML = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0].replace("interval: 50", "interval: 2")
GROUP = "lightning.pytorch.callbacks_factory"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the entry points of pyproject.toml discoverable without an installation."""
    monkeypatch.chdir(tmp_path)
    section = (ROOT / "pyproject.toml").read_text().partition(f'[project.entry-points."{GROUP}"]')
    entries = configparser.ConfigParser()
    entries.read_string(f"[{GROUP}]" + section[2].partition("\n[")[0].replace('"', ""))
    info = tmp_path / "path" / "lightning_hooks-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lightning-hooks\nVersion: 0.1.0\n")
    with (info / "entry_points.txt").open("w") as file:
        entries.write(file)
    monkeypatch.syspath_prepend(str(info.parent))


def train(*callbacks: Any, **length: int) -> L.Trainer:
    """Train as a script without hooks, or with the given callbacks."""
    options = {f"enable_{name}": False for name in ("checkpointing", "model_summary")}
    options |= {"enable_progress_bar": False, "logger": False}
    trainer = L.Trainer(
        callbacks=list(callbacks), accelerator="cpu", **options, **(length or {"max_epochs": 1})
    )
    trainer.fit(TinyModule(), make_loader(4), make_loader(1))
    return trainer


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("own", [[], [IterTimerHook()], [HookAdapter([IterTimerHook()])]])
def test_every_trainer_has_the_hooks_of_the_file(
    own: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lightning_hooks")
    Path("hooks.yaml").write_text(YAML)
    monkeypatch.setenv(VARIABLE, "hooks.yaml")
    trainers = [train(*own), train()]
    assert any("Epoch [1][4/4]" in line and "lr: " in line for line in caplog.messages)
    said = "\n".join(caplog.messages).replace(str(Path.cwd()), "/home/me/run")
    assert shown_on(ROOT / "docs" / "hooks_in_yaml.md") <= without_numbers(said)
    averages = []
    for trainer in trainers:
        hosts = [one for one in trainer.callbacks if hasattr(one, "hooks")]
        averages += [hook for host in hosts for hook in host.hooks if isinstance(hook, EMAHook)]
    assert len(averages) == 2
    assert averages[0] is not averages[1]
    assert trainers[0].optimizers[0].param_groups[0]["lr"] < 0.05


@pytest.mark.usefixtures("installed")
def test_a_run_counted_in_iterations(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lightning_hooks")
    Path("hooks.yaml").write_text("runner: {type: IterBasedRunner, max_iters: 6}\n" + YAML)
    monkeypatch.setenv(VARIABLE, "hooks.yaml")
    train(max_steps=6, max_epochs=-1)
    assert any("Iter [6/6]" in line for line in caplog.messages)


def test_the_page_makes_a_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PL_TRAINER_LOGGER", "False")
    Path("hooks.yaml").write_text(YAML)
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], names)
    assert len(names["trainer"].callbacks[0].hooks) > 4


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("value", [None, ""])
def test_without_the_variable_there_are_none(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    assert not any(isinstance(one, HookAdapter) for one in train().callbacks)


def test_without_the_variable_nothing_is_imported() -> None:
    program = f"""if True:
        import os, sys
        os.environ.pop("{VARIABLE}", None)
        from lightning_hooks.callbacks_factory import callbacks_from_environment
        assert callbacks_from_environment() == []
        assert not {{"torch", "lightning", "yaml"}} & {{*sys.modules}}
        assert "lightning_hooks.config" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "nowhere.yaml"),
        ("custom_hooks: [{type: EMAHok}]", "did you mean 'EMAHook'"),
        ("custom_hooks: [{type: EMAHook, momentm: 1}]", "momentm"),
        ("- EMAHook", "must be a dict"),
        ("custom_hooks: [", "damaged"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_the_variable(
    text: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ("nowhere.yaml" if text is None else "hooks.yaml")
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv(VARIABLE, str(path))
    with pytest.raises((OSError, KeyError, TypeError, ValueError), match=message) as raised:
        callbacks_from_environment()
    notes = " ".join(raised.value.__notes__)
    assert re.search(f"{VARIABLE}=.*: correct the file, or unset the variable", notes)
