"""Arbitrary configs, names and config files: the error names the bad item."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from lightning_hooks import HOOKS, HookAdapter, get_priority, hooks_from_config
from lightning_hooks.config.full_config import KEYS
from lightning_hooks.utils.config_files import read_config
from support.torture.bad_input import NAMES, odd, tried, tries

REFUSED = (TypeError, ValueError, KeyError)
GOOD: dict[str, Any] = {
    "lr_config": {"policy": "step", "step": [1]},
    "momentum_config": {"policy": "Step", "step": 1},
    "optimizer_config": {"grad_clip": {"max_norm": 1.0}},
    "checkpoint_config": {"interval": 1},
    "log_config": {"interval": 1, "hooks": [{"type": "TextLoggerHook"}]},
    "custom_hooks": [{"type": "EMAHook", "priority": "LOW"}],
    "timer_config": {"type": "IterTimerHook"},
    "evaluation": {"interval": 1, "save_best": "acc"},
    "runner": {"type": "EpochBasedRunner", "max_epochs": 2},
    "workflow": [("train", 1), ("val", 1)],
    "fp16": {"loss_scale": 512.0},
}
PARTS = ["grad_clip", "hooks", "interval", "max_epochs", "policy", "priority", "step", "type"]


def said(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


@st.composite
def configs(draw: Any) -> tuple[dict[str, Any], str]:
    """Draw a config with an odd item or part of an item, and the item's name."""
    key = draw(st.sampled_from(sorted(set(KEYS) - {"work_dir"})))
    config = json.loads(json.dumps(GOOD))
    inside = isinstance(config.get(key), dict) and draw(st.booleans())
    if inside:
        config[key][draw(st.sampled_from(PARTS) | st.text(max_size=5))] = draw(odd())
    else:
        config[key] = draw(odd())
    return config, key


@tries(100, data_file=True)
@example(({**GOOD, "runner": {1: 2}}, "runner"))
@example(({**GOOD, "workflow": np.int64(2)}, "workflow"))  # numpy compares the value item by item
@example(({**GOOD, "total_epochs": torch.zeros(2)}, "total_epochs"))
@given(configs())
def test_a_config_is_refused_by_the_name_of_its_item_or_makes_an_adapter(drawn: Any) -> None:
    config, key = drawn
    tried["configs"] += 1
    before = repr(config)
    error = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            assert isinstance(hooks_from_config(config), HookAdapter)
        except REFUSED as caught:
            error = caught
    assert repr(config) == before
    if error is not None:
        others = {"runner": "max_", "total_epochs": "max_", "total_iters": "max_"}
        assert key in said(error) or others.get(key, key) in said(error), said(error)


names = st.sampled_from([*NAMES, "EMAHok", "emahook"]) | st.text(max_size=9) | odd()


@tries(100)
@given(names)
def test_an_unregistered_name_is_refused_by_name(name: Any) -> None:
    tried["registry names"] += 1
    if isinstance(name, str) and name in HOOKS:
        return
    if callable(name):
        return  # a class, or a function that returns a hook
    with pytest.raises(REFUSED) as caught:
        HOOKS.build({"type": name})
    assert "type" in str(caught.value) or str(name) in str(caught.value)


@tries(100)
@given(names)
def test_a_priority_is_a_name_or_a_number_that_is_known(priority: Any) -> None:
    tried["priorities"] += 1
    try:
        assert 0 <= get_priority(priority) <= 100
    except REFUSED as caught:
        error = caught
    else:
        return
    assert "priority" in str(error)


@tries(60)
@given(st.sampled_from(["hooks", "dialect", "work_dir", "by_epoch", "meta", "model"]), odd())
def test_an_adapter_refuses_its_arguments_by_name(argument: str, value: Any) -> None:
    tried["adapter arguments"] += 1
    error = None
    try:
        HookAdapter(**{argument: value})
    except REFUSED as caught:
        error = caught
    assert error is None or argument in said(error) or argument == "hooks", said(error)


LINES = [
    *("lr_config = dict(policy='step', step=[1])", "lr_config = dict(policy='step', step=[1]"),
    *("_base_ = './config.py'", "_base_ = 3", "_base_ = ['none.py']", "_base_ = [None]", "1 / 0"),
    *(
        "lr_config: {policy: step, step: [1]}",
        "lr_config: {policy: step, step: [1]",
        "- 1",
        "a: *b",
    ),
    *('{"lr_config": {"policy": "step", "step": [1]}}', '{"a": ', "x = {{ _base_.a }}", "{{"),
    *(
        "x: !!python/object/apply:os.abort []",
        "\t",
        "\0",
        "\ud7ff",
        "import nowhere",
        "x: &x [*x]",
        "a: *b",
    ),
    *("raise SystemExit", "x = {{ fileDirname }}", "_deprecation_ = 3", "y: 2001-02-30", "? [a]"),
    *(
        '{"_base_": "config.json"}',
        "_base_: [1]",
        "[" * 2000,
        '{"a": ' * 2000,
        "a: " + "{b: " * 500,
    ),
]
lines = st.lists(st.sampled_from(LINES), max_size=3).map("\n".join).map(str.encode)


@tries(100, data_file=True)
@given(st.data())
def test_a_corrupted_file_is_refused_by_its_name(tmp_path_factory: Any, data: Any) -> None:
    tried["config files"] += 1
    suffix = data.draw(st.sampled_from([".py", ".yaml", ".yml", ".json", ".txt", ""]))
    path = tmp_path_factory.mktemp("config") / f"config{suffix}"
    # drawn code does not run
    path.write_bytes(data.draw(lines if suffix == ".py" else lines | st.binary(max_size=40)))
    error: BaseException | None = None
    own = (Exception, SystemExit) if suffix == ".py" else (*REFUSED, FileNotFoundError)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            assert isinstance(read_config(path), dict)
        except own as caught:
            error = caught
    if error is not None:
        assert any(name in said(error) for name in (path.stem, "none.py")), said(error)


def test_aliases_that_would_fill_the_memory_are_refused(tmp_path: Path) -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    (tmp_path / "laughs.yaml").write_text("\n".join(rows))
    with pytest.raises(ValueError, match=r"laughs\.yaml has more than"):
        read_config(tmp_path / "laughs.yaml")


def test_merge_keys_are_counted_before_they_are_merged(tmp_path: Path) -> None:
    rows = ["a0: &a0 {x: 1, y: 2, z: 3}"]
    rows += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 12)]
    path = tmp_path / "merged.yaml"
    path.write_text("\n".join(rows))
    begin = time.process_time()
    with pytest.raises(ValueError, match=r"merged\.yaml has more than"):
        read_config(path)
    assert time.process_time() - begin < 1
    path.write_text("\n".join(rows[:3]))
    assert read_config(path)["a2"] == {"x": 1, "y": 2, "z": 3}
    path.write_text("a: &a [*a]")
    with pytest.raises(ValueError, match=r"merged\.yaml has more than"):
        read_config(path)


def test_a_base_is_read_once_however_often_it_is_inherited(tmp_path: Path) -> None:
    for i in range(12):
        bases = ", ".join([f"a{i + 1}.yaml"] * 10)
        (tmp_path / f"a{i}.yaml").write_text(f"_base_: [{bases}]\n" if i < 11 else "{}\n")
    assert read_config(tmp_path / "a0.yaml") == {}


@pytest.mark.parametrize("values", ["[{{ _base_.x }}, {{ _base_.x }}]", "{{ _base_.x }}"])
def test_the_values_of_all_inherited_files_are_counted(tmp_path: Path, values: str) -> None:
    (tmp_path / "a0.yaml").write_text(f"x: {[0] * 1999}\n")
    for i in range(1, 101):
        text = f"_base_: a{i - 1}.yaml\n" + (f"x: {values}\n" if i < 99 else "")
        (tmp_path / f"a{i}.yaml").write_text(text)
    assert len(read_config(tmp_path / "a2.yaml")["x"]) in (2, 1999)
    with pytest.raises(ValueError, match=r"a\d+\.yaml has more than 100000 values, with what it"):
        read_config(tmp_path / "a99.yaml")
    with pytest.raises(ValueError, match=r"a100\.yaml inherits from a chain of more than 100"):
        read_config(tmp_path / "a100.yaml")


def test_a_config_in_yaml_is_data(tmp_path: Path) -> None:
    (tmp_path / "evil.yaml").write_text(f'a: !!python/object/apply:os.mkdir ["{tmp_path}/ran"]\n')
    with pytest.raises(ValueError, match=r"evil\.yaml is damaged: could not determine a constr"):
        read_config(tmp_path / "evil.yaml")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "value",
    ["!!timestamp x", "!!bool maybe", '!!int ""', ":".join(["1"] * 2000) + ".5"],
    ids="abcd",
)
def test_a_value_that_is_not_of_its_type_in_yaml_is_damage(tmp_path: Path, value: str) -> None:
    (tmp_path / "odd.yaml").write_text(f"a: {value}\n")
    with pytest.raises(ValueError, match=r"odd\.yaml is damaged: "):
        read_config(tmp_path / "odd.yaml")


def test_the_error_of_a_config_that_is_code_keeps_its_type(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import nowhere_to_be_found\n")
    with pytest.raises(ModuleNotFoundError) as caught:
        read_config(tmp_path / "mine.py")
    assert "mine.py" in said(caught.value)
