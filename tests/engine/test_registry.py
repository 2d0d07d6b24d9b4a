"""The registry registers classes as mmcv's does, and builds from configs without side effects."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from lightning_hooks import HookAdapter
from lightning_hooks.engine.registry import HOOKS, MMCV_HOOKS, Registry, build_from_cfg
from lightning_hooks.hooks.invalid_loss.check import CheckInvalidLossHook
from lightning_hooks.standin._hooks import registry as standin_registry
from lightning_hooks.utils.suggestions import suggest


def make() -> tuple[Registry, type]:
    registry = Registry("thing")

    class Thing:
        def __init__(self, a: int = 1, b: int = 2) -> None:
            self.a, self.b = a, b

    return registry, Thing


def test_every_way_to_register() -> None:
    registry, thing = make()
    assert registry.register_module()(thing) is thing
    other = registry.register_module(type("Bare", (), {}))
    assert other.__name__ == "Bare"
    registry.register_module("Named")(thing)
    registry.register_module(name=["One", "Two"])(thing)
    registry.register_module(module=type("Module", (), {}))
    assert sorted(registry.module_dict) == ["Bare", "Module", "Named", "One", "Thing", "Two"]
    assert registry.get("Two") is thing
    assert registry.get("Three") is None
    assert "One" in registry
    assert len(registry) == 6


def test_a_taken_name_needs_force() -> None:
    registry, thing = make()
    registry.register_module()(thing)
    with pytest.raises(KeyError, match="Thing is already registered in thing"):
        registry.register_module()(type("Thing", (), {}))
    registry.register_module(force=True)(thing)


def test_a_get_of_ones_own_is_not_asked_for_a_taken_name() -> None:
    class Scoped(Registry):
        def get(self, key: str) -> type:
            raise KeyError(f"no scope for {key}")

    registry = Scoped("model")
    registry.register_module("torch.Net")(type("Net", (), {}))
    with pytest.raises(KeyError, match=r"torch\.Net is already registered in model"):
        registry.register_module("torch.Net")(type("Net", (), {}))


def test_build() -> None:
    registry, thing = make()
    registry.register_module()(thing)
    config = {"type": "Thing", "a": 5}
    built = registry.build(config, {"a": 9, "b": 7})
    assert (built.a, built.b) == (5, 7)
    assert config == {"type": "Thing", "a": 5}
    assert build_from_cfg({"type": thing}, registry).a == 1
    assert registry.build({"b": 3}, {"type": "Thing"}).b == 3


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"type": "Thang"}, KeyError, "did you mean 'Thing'"),
        ({"type": "Thang"}, ValueError, "did you mean 'Thing'"),
        ({"a": 1}, KeyError, 'needs the key "type"'),
        ({"type": 3}, TypeError, "type must be a registered name or a class, got 3"),
        ("Thing", TypeError, "config must be a dict, got 'Thing'"),
    ],
)
def test_bad_configs(config: Any, error: type[Exception], message: str) -> None:
    registry, thing = make()
    registry.register_module()(thing)
    with pytest.raises(error, match=message):
        registry.build(config)


@pytest.mark.parametrize("name", ["EarlyStoppingHook", "EarlyStopping"])
def test_early_stopping_is_lightnings(name: str) -> None:
    with pytest.raises(KeyError, match=r"Lightning's callback instead: EarlyStopping\(monitor"):
        HOOKS.build({"type": name, "monitor": "acc"})


def test_no_hook_is_meant_by_the_word_hook_alone() -> None:
    assert suggest("EarlyStoppingHook", ["Hook", "Thing"]) == "known: Hook, Thing"


def test_only_classes_by_string_names() -> None:
    registry, _ = make()
    with pytest.raises(TypeError, match="name must be a str or a sequence of str"):
        registry.register_module(name=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="only classes can be registered"):
        registry.register_module()(lambda: None)  # type: ignore[type-var]


def own(name: str) -> type:
    """Return a hook class of an old project."""
    return type(name, (), {"before_run": lambda self, runner: None})


def test_departure_a_project_registers_its_own_hook_under_a_name_that_mmcv_does_not_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "CheckInvalidLossHook"
    monkeypatch.setitem(HOOKS.module_dict, name, CheckInvalidLossHook)
    theirs = HOOKS.register_module()(own(name))
    assert HOOKS.get(name) is theirs
    assert type(HookAdapter([{"type": name}]).hooks[0]) is theirs
    with pytest.raises(KeyError, match="CheckInvalidLossHook is already registered"):
        HOOKS.register_module()(own(name))  # the second of the project's, as in mmcv
    assert HOOKS.get(name) is theirs


CELL = """
@HOOKS.register_module()
class CellHook:
    def before_run(self, runner): ...
"""


@pytest.mark.parametrize("registry", [HOOKS, standin_registry.HOOKS], ids=["native", "stand-in"])
def test_departure_a_cell_of_a_notebook_runs_again(
    registry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HOOKS, "_module_dict", table := dict(HOOKS.module_dict))
    monkeypatch.setattr(standin_registry.HOOKS, "_module_dict", table)
    notebook = {"__name__": "__main__", "HOOKS": registry}
    for _ in range(2):
        exec(CELL, notebook)
    assert registry.get("CellHook") is notebook["CellHook"]
    with pytest.raises(KeyError, match="CellHook is already registered"):
        exec(CELL, {**notebook, "__name__": "a_module"})
    with pytest.raises(KeyError, match="CellHook is already registered"):
        exec(f"def make():\n{textwrap.indent(CELL, '    ')}\nmake()", notebook)  # make.<locals>
    registry.register_module("Other")(notebook["CellHook"])
    with pytest.raises(KeyError, match="Other is already registered"):
        registry.register_module("Other")(own("Other"))


@pytest.mark.parametrize("name", sorted(MMCV_HOOKS & HOOKS.module_dict.keys()))
def test_names_of_mmcv_are_taken_as_there(name: str) -> None:
    before = HOOKS.get(name)
    with pytest.raises(KeyError, match="is already registered in hook"):
        HOOKS.register_module()(own(name))
    assert HOOKS.get(name) is before


def test_mmcv_has_37_names() -> None:
    assert len(MMCV_HOOKS) == 37
