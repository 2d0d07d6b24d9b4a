"""Public names are imported on first access and look like ordinary names."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lightning_hooks
from lightning_hooks._exports import HOMES, PUBLIC
from lightning_hooks.engine.registry import HOOKS
from support.paths import ROOT
from support.processes import run_new

BASES = {"BaseEMAHook", "DistEvalHook", "EvalHook", "Hook"}
BASES |= {"LoggerHook", "LrUpdaterHook", "MomentumUpdaterHook"}  # not registered, as in mmcv


def in_a_fresh_process(program: str) -> Any:
    """Run a program that prints JSON; return the parsed output."""
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def test_every_name_is_there() -> None:
    for name in PUBLIC:
        home = importlib.import_module(HOMES.get(name, f"lightning_hooks.{name}"))
        assert getattr(lightning_hooks, name) is getattr(home, name, home)
    assert {*PUBLIC} <= {*dir(lightning_hooks)}


def test_the_table_has_what_the_modules_register() -> None:
    for package in ("hooks", "loggers"):
        directory = Path(lightning_hooks.__file__).parent / package
        for module in pkgutil.walk_packages([str(directory)], f"lightning_hooks.{package}."):
            importlib.import_module(module.name)
    registered = {name: cls.__module__ for name, cls in HOOKS.module_dict.items()}
    ours = {n: home for n, home in registered.items() if home.startswith("lightning_hooks.")}
    hooks = {name: home for name, home in HOMES.items() if name.endswith("Hook")}
    assert ours == {name: home for name, home in hooks.items() if name not in BASES}


def test_a_fresh_import_loads_next_to_nothing() -> None:
    names = in_a_fresh_process(
        "import json, sys, lightning_hooks; print(json.dumps([n.split('.') for n in sys.modules]))"
    )
    assert not {"torch", "lightning"} & {package for package, *_ in names}
    ours = sorted(".".join(rest) for package, *rest in names if package == "lightning_hooks")
    assert ours == ["", "_exports", "utils", "utils.suggestions"]


def test_a_users_class_of_a_hooks_name_is_the_users_in_a_config() -> None:
    program = """if True:
        import importlib.util, json, sys
        import lightning_hooks
        from lightning.pytorch.callbacks import Callback
        from jsonargparse import ArgumentParser

        class EMAHook(Callback): ...

        before = {*sys.modules}
        importlib.util.find_spec("lightning.pytorch.cli")
        ours = [n for n in {*sys.modules} - before if n.startswith("lightning_hooks")]
        parser = ArgumentParser(exit_on_error=False)
        parser.add_argument("--callbacks", type=list[Callback])
        found = parser.parse_object({"callbacks": [{"class_path": "EMAHook"}]})
        print(json.dumps([ours, found.callbacks[0].class_path]))
    """
    pytest.importorskip("jsonargparse")
    assert json.loads(run_new(program)) == [[], "__main__.EMAHook"]


def test_a_config_imports_the_modules_of_its_own_hooks() -> None:
    program = (
        "import json, sys; from lightning_hooks import register_training_hooks as make; "
        "make(lr_config={'policy': 'STEP', 'step': [8]}); print(json.dumps([*sys.modules]))"
    )
    ours = json.loads(run_new(program))
    assert "lightning_hooks.hooks.updaters.decay" in ours
    assert not {HOMES["EMAHook"], HOMES["WandbLoggerHook"]} & {*ours}


def test_a_fresh_import_builds_hooks_by_name() -> None:
    program = """if True:
        import json, pickle, sys
        from lightning_hooks import HOOKS, Hook

        class Mine(Hook): ...

        def error(work):
            try:
                work()
            except Exception as error:
                return str(error)

        built = type(HOOKS.build({"type": "IterTimerHook"})).__module__
        others = "lightning_hooks.hooks.averaging.ema" in sys.modules
        taken = error(lambda: HOOKS.register_module(name="EMAHook")(Mine))
        HOOKS.register_module(name="CheckpointHook", force=True)(Mine)
        HOOKS.register_module(name="PreciseBNHook")(Mine)  # mmcv has no hook of that name
        from lightning_hooks import CheckpointHook, PreciseBNHook
        print(json.dumps({
            "built": built,
            "others": others,
            "taken": taken,
            "mine": [HOOKS.get(n) is Mine for n in ("CheckpointHook", "PreciseBNHook")],
            "meant": error(lambda: HOOKS.build({"type": "StepLrUpdatrHook"})),
            "known": ["EMAHook" in HOOKS, "EMAHok" in HOOKS, len(HOOKS) == len(HOOKS.module_dict)],
            "pickled": pickle.loads(pickle.dumps(CheckpointHook)) is CheckpointHook,
        }))
    """
    found = json.loads(run_new(program))
    assert found["built"] == "lightning_hooks.hooks.profiling.iter_timer"
    assert not found["others"]
    assert found["taken"].startswith("'EMAHook is already registered in hook")
    assert found["mine"] == [True, True]
    assert "did you mean 'StepLrUpdaterHook'" in found["meant"]
    assert len(re.findall(r"'\w+Hook'", found["meant"].partition("did you mean")[2])) <= 3
    assert found["known"] == [True, False, True]
    assert found["pickled"]


def test_a_name_that_is_not_there() -> None:
    assert not hasattr(lightning_hooks, "EMAHok")
    meant = "lightning_hooks has no 'EMAHok'; did you mean 'EMAHook'?"
    with pytest.raises(AttributeError, match=meant):
        _ = lightning_hooks.EMAHok  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match=meant):
        from lightning_hooks import EMAHok  # type: ignore[attr-defined]  # noqa: F401


def test_everything_at_once() -> None:
    names: dict[str, Any] = {}
    exec("from lightning_hooks import *", names)
    assert {*PUBLIC} <= names.keys()
