"""The registry takes classes as mmcv's does and builds from configs without changing them."""

from __future__ import annotations

from typing import Any

import pytest

from lightning_hooks.registry import Registry, build_from_cfg


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
    with pytest.raises(KeyError, match="Thing is already registered as a thing"):
        registry.register_module()(type("Thing", (), {}))
    registry.register_module(force=True)(thing)


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


def test_only_classes_by_string_names() -> None:
    registry, _ = make()
    with pytest.raises(TypeError, match="name must be a str or a list of str"):
        registry.register_module(name=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="only classes can be registered"):
        registry.register_module()(lambda: None)  # type: ignore[type-var]
