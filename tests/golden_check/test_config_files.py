"""Config files read by us and by real mmcv: the same dicts."""

from __future__ import annotations

import textwrap
from pathlib import Path

import oracle  # noqa: F401  # makes mmcv.runner importable
import pytest
from mmcv import Config

from lightning_hooks import hooks_from_config
from lightning_hooks.utils.config_files import merged, read_config

FILES = {
    "model.py": "model = dict(type='A', neck=dict(type='B', channels=[1, 2]), size=(3, 4))\n",
    "schedule.py": "lr_config = dict(policy='step', step=[8, 11])\ntotal_epochs = 12\n",
    "runtime.yaml": "log_config:\n  interval: 50\n  hooks:\n    - {type: TextLoggerHook}\n",
    "data.json": '{"data": {"workers": 2}, "work_dir": "{{ fileBasenameNoExtension }}"}',
    "mine.py": """
        import os.path as osp
        _base_ = ['./model.py', './schedule.py', 'runtime.yaml', 'data.json']
        def unused():
            pass
        model = dict(neck=dict(_delete_=True, type='C'), head=dict(type='D'))
        size = {{ _base_.model.size }}
        lr_config = dict(step=[16, 22], warmup=dict(of={{ _base_.total_epochs }}))
        total_epochs = 24
        here = '{{ fileDirname }}'
        """,
    "yours.yaml": "_base_: [runtime.yaml, data.json]\nlog_config: {_delete_: true, n: 1}\n",
    "theirs.json": '{"_base_": "yours.yaml", "data": {"n": 4}, "x": {{ _base_.data.workers }}}',
    "both.py": "_base_ = 'mine.py'\nlr_config = dict(_delete_=True, policy='fixed')\n",
}


@pytest.mark.parametrize("name", FILES)
def test_the_same_dict(tmp_path: Path, name: str) -> None:
    for file, text in FILES.items():
        (tmp_path / file).write_text(textwrap.dedent(text))
    theirs = Config.fromfile(tmp_path / name)
    assert read_config(tmp_path / name) == theirs._cfg_dict.to_dict()


@pytest.mark.parametrize(
    ("base", "child"),
    [
        ({"a": {"b": 1}}, {"a": {"c": 2}}),
        ({"a": {"b": 1}}, {"a": {"_delete_": True, "c": 2}}),
        ({"a": [1, 2]}, {"a": [3]}),
        ({"a": 1}, {"a": {"_delete_": True, "b": 1}}),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": {"c": None, "d": ()}}}),
    ],
)
def test_merged_alike(base: dict, child: dict) -> None:
    ours = merged(base, child)
    assert ours == Config._merge_a_into_b(child, base)


def test_an_object_of_mmcvs_class_is_understood(tmp_path: Path) -> None:
    for file, text in FILES.items():
        (tmp_path / file).write_text(textwrap.dedent(text))
    adapter = hooks_from_config(Config.fromfile(tmp_path / "both.py"))
    assert [type(h).__name__ for h in adapter.hooks] == [
        "FixedLrUpdaterHook",
        "IterTimerHook",
        "TextLoggerHook",
    ]
    assert adapter.trainer_kwargs == {"max_epochs": 24}
