"""Configs and registries as in mmcv: a config's text, errors, and old calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.standin import needs_lite

pytestmark = needs_lite


def test_a_configs_text_has_its_bases_under_their_paths(tmp_path: Path) -> None:
    from mmcv import Config

    texts = {"one.py": "a = 1", "two.yaml": "b: 2", "top.py": "_base_ = ['one.py', 'two.yaml']"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    config = Config.fromfile(tmp_path / "top.py")
    assert (config.a, config.b) == (1, 2)
    assert config.text == "\n".join(f"{tmp_path / name}\n{text}" for name, text in texts.items())
    assert Config({"a": 1}, filename=tmp_path / "one.py").text == "a = 1"
    assert Config.fromstring("a = 1", ".py").text.endswith(".py\na = 1")


def test_predefined_variables_can_be_left_as_they_are(tmp_path: Path) -> None:
    from mmcv import Config

    path = tmp_path / "config.py"
    path.write_text("name = '{{ fileBasename }}'")
    assert Config.fromfile(path).name == "config.py"
    assert Config.fromfile(path, use_predefined_variables=False).name == "{{ fileBasename }}"


def test_errors_of_configs_are_mmcvs(tmp_path: Path) -> None:
    from mmcv import Config

    (tmp_path / "wrong.py").write_text("a=0b=1")
    (tmp_path / "top.py").write_text("_base_ = 'wrong.py'")
    for name in ("wrong.py", "top.py"):
        with pytest.raises(SyntaxError, match=r"syntax errors in config file .*wrong\.py"):
            Config.fromfile(tmp_path / name)
    (tmp_path / "picture.jpg").touch()
    with pytest.raises(OSError, match="Only py/yml/yaml/json type are supported now!"):
        Config.fromfile(tmp_path / "picture.jpg")
    with pytest.raises(OSError, match="Only py/yml/yaml/json type are supported now!"):
        Config.fromstring("a: 1", ".txt")
    with pytest.raises(FileNotFoundError):
        Config.fromfile(tmp_path / "nothing.py")


def test_classes_registered_in_the_old_way_are_deprecated() -> None:
    from mmcv.utils import Registry

    cats = Registry("cat", scope="tests")

    class Cat:
        pass

    with pytest.warns(DeprecationWarning, match="old API of register_module"):
        assert cats.register_module(Cat) is Cat
    with pytest.warns(DeprecationWarning, match="old API of register_module"):
        cats.deprecated_register_module(force=True)(Cat)
    assert cats.get("Cat") is Cat

    @cats.register_module
    def kitten() -> None: ...

    assert cats.get("kitten") is kitten
