"""Config files with inheritance become plain dicts."""

from __future__ import annotations

import copy
import os
import textwrap
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks.utils.config_files import copied, merged, read_config


def write(directory: Path, **files: str) -> Path:
    """Write files named ``name__ending``; return the path of the last."""
    path = directory
    for name, text in files.items():
        path = directory / name.replace("__", ".")
        path.write_text(textwrap.dedent(text))
    return path


def test_variables_of_a_python_file_are_the_config(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        a__py="""
        import math
        from os.path import join
        def twice(n):
            return 2 * n
        total_epochs = twice(6)
        lr = math.sqrt(4.0)
        __hidden = 1
        """,
    )
    assert read_config(path) == {"total_epochs": 12, "lr": 2.0}


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ("py", "lr_config = dict(policy='step', step=[8, 11])\n"),
        ("yaml", "lr_config: {policy: step, step: [8, 11]}\n"),
        ("yml", "lr_config:\n  policy: step\n  step: [8, 11]\n"),
        ("json", '{"lr_config": {"policy": "step", "step": [8, 11]}}'),
    ],
)
def test_every_kind_of_file(tmp_path: Path, ending: str, text: str) -> None:
    (tmp_path / f"a.{ending}").write_text(text)
    expected = {"lr_config": {"policy": "step", "step": [8, 11]}}
    assert read_config(tmp_path / f"a.{ending}") == expected
    assert read_config(str(tmp_path / f"a.{ending}")) == expected


def test_dicts_are_merged_into_those_of_the_bases_and_the_rest_replaced(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path, schedule__py="lr_config = dict(policy='step', step=[8, 11], warmup='linear')\n")
    write(tmp_path, runtime__yaml="log_config: {interval: 50, hooks: [{type: TextLoggerHook}]}\n")
    path = write(
        tmp_path / "sub",
        mine__py="""
        _base_ = ["../schedule.py", "../runtime.yaml"]
        lr_config = dict(step=[16, 22], gamma=0.5)
        log_config = dict(interval=10)
        total_epochs = 24
        """,
    )
    assert read_config(path) == {
        "lr_config": {"policy": "step", "step": [16, 22], "warmup": "linear", "gamma": 0.5},
        "log_config": {"interval": 10, "hooks": [{"type": "TextLoggerHook"}]},
        "total_epochs": 24,
    }
    grandchild = write(
        tmp_path,
        new__py="_base_ = 'sub/mine.py'\nlr_config = dict(_delete_=True, policy='fixed')\n",
    )
    assert read_config(grandchild)["lr_config"] == {"policy": "fixed"}
    assert read_config(grandchild)["total_epochs"] == 24


def test_values_of_the_bases_and_parts_of_the_path(tmp_path: Path) -> None:
    write(tmp_path, base__py="data = dict(size=(3, 4), names=['a', 'b'])\n")
    python = write(
        tmp_path,
        mine__py="""
        _base_ = "base.py"
        size = {{ _base_.data.size }}
        nested = [dict(names={{_base_.data.names}})]
        work_dir = "work/{{ fileBasenameNoExtension }}"
        here = "{{fileDirname}}/{{ fileBasename }}"
        ending = "{{ fileExtname }}"
        """,
    )
    found = read_config(python)
    assert found["size"] == (3, 4)
    assert found["nested"] == [{"names": ["a", "b"]}]
    assert found["nested"][0]["names"] is not found["data"]["names"]
    assert found["work_dir"] == "work/mine"
    assert (found["here"], found["ending"]) == (str(python), ".py")
    write(tmp_path, base__json='{"data": {"size": [3, 4]}}')
    yaml = write(tmp_path, other__yaml="_base_: base.json\nsize: {{ _base_.data.size }}\n")
    assert read_config(yaml)["size"] == [3, 4]


def test_departure_merging_changes_neither_of_the_two_and_delete_is_no_key() -> None:
    base: dict[str, Any] = {"a": {"x": [1]}, "b": {"y": 2}}
    child: dict[str, Any] = {"a": {"z": 3}, "b": {"_delete_": True, "c": {"_delete_": True}}}
    before = copy.deepcopy((base, child))
    result = merged(base, child)
    assert result == {"a": {"x": [1], "z": 3}, "b": {"c": {}}}
    result["a"]["x"].append(2)
    assert (base, child) == before


def test_a_copy_is_plain_and_keeps_objects() -> None:
    class ConfigDict(dict):  # type: ignore[type-arg]
        pass

    thing = object()
    given = ConfigDict(a=[ConfigDict(b=thing)], c=(1, [2]))
    found = copied(given)
    assert type(found) is dict
    assert type(found["a"][0]) is dict
    assert found["a"][0]["b"] is thing
    assert found["c"] == (1, [2])
    assert found["c"][1] is not given["c"][1]


def test_departure_a_file_that_inherits_from_itself_is_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, b__py="_base_ = 'a.py'\n", a__py="_base_ = 'b.py'\n")
    with pytest.raises(ValueError, match=r"inherit from itself: .*a\.py <- .*b\.py <- .*a\.py"):
        read_config(path)


@pytest.mark.parametrize(
    "child", [{"a__yaml": "_base_: x.py\n"}, {"a__json": '{"_base_": ["x.py"]}'}]
)
def test_departure_yaml_and_json_inherit_from_no_code(
    tmp_path: Path, child: dict[str, str]
) -> None:
    write(tmp_path, x__py=f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    path = write(tmp_path, **child)
    with pytest.raises(ValueError, match=rf"_base_ of .*{path.name} must be YAML or JSON, got 'x"):
        read_config(write(tmp_path, c__py=f"_base_ = {path.name!r}\n"))
    assert not (tmp_path / "ran").exists()


def test_a_deprecated_file_says_what_to_use(tmp_path: Path) -> None:
    path = write(tmp_path, old__py="_deprecation_ = dict(expected='new.py')\nx = 1\n")
    with pytest.warns(DeprecationWarning, match=r"old\.py is deprecated; use new\.py"):
        assert read_config(path) == {"x": 1}


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ({"a__py": "_base_ = 'b.py'\n"}, FileNotFoundError, "b.py"),
        ({"a__toml": "x = 1\n"}, ValueError, r"must end in \.py, \.yaml, \.yml or \.json"),
        ({"a__yaml": "- 1\n"}, ValueError, "must be a dict, .* is list"),
        (
            {"b__py": "x = 1\n", "c__py": "x = 2\n", "a__py": "_base_ = ['b.py', 'c.py']\n"},
            KeyError,
            "define x",
        ),
        ({"b__py": "x = 1\n", "a__py": "_base_ = 'b.py'\nx = dict(y=1)\n"}, TypeError, "_delete_"),
        (
            {"b__py": "x = {}\n", "a__py": "_base_ = 'b.py'\ny = {{ _base_.x.z }}\n"},
            KeyError,
            "x.z",
        ),
        ({"a__py": "x = = 1\n"}, SyntaxError, "a.py|invalid syntax"),
    ],
)
def test_wrong_files_are_refused(
    tmp_path: Path, files: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_config(write(tmp_path, **files))


def test_a_base_that_is_a_pipe_is_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(OSError, match=r"is no regular file: .*pipe\.yaml"):
        read_config(write(tmp_path, a__yaml="_base_: pipe.yaml\n"))
