"""Loggers of discontinued services call the client's module as mmcv does."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from support.standin import make


class Writer:
    """A stub of Pavi's client that records calls."""

    def __init__(self, **kwargs: Any) -> None:
        self.calls: list[tuple[str, Any]] = [("init", kwargs)]

    def add_scalars(self, mode: str, values: dict[str, float], step: int) -> None:
        self.calls.append((mode, (values, step)))

    def add_snapshot_file(self, tag: str, snapshot_file_path: str, iteration: int) -> None:
        self.calls.append(("file", (tag, Path(snapshot_file_path).name, iteration)))

    def close(self) -> None:
        self.calls.append(("close", None))


@pytest.fixture
def pavi(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("pavi")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "pavi", module)


DATA = DataLoader([1.0, 1.0])  # type: ignore[arg-type]


@pytest.mark.usefixtures("pavi")
def test_pavi_gets_scalars_and_checkpoints_by_epoch(tmp_path: Path) -> None:
    from mmcv.runner import PaviLoggerHook

    runner = make("EpochBasedRunner", 3, tmp_path / "run")
    hook = PaviLoggerHook(
        init_kwargs={"project": "old"},
        interval=2,
        add_last_ckpt=True,
        add_ckpt_kwargs={"active": True, "start": 1, "interval": 2},
    )
    runner.register_checkpoint_hook({"interval": 1})
    runner.register_hook(hook, "VERY_LOW")
    runner.run([DATA, DATA], [("train", 1), ("val", 1)])
    values = {"loss": 1.0, "learning_rate": 0.1, "momentum": 0}
    assert hook.writer.calls == [
        ("init", {"project": "old", "name": "run", "model": "Idle"}),
        *(("train", (values, 2)), ("file", ("run", "epoch_1.pth", 1)), ("val", (values, 1))),
        *(("train", (values, 4)), ("val", (values, 2))),
        *(("train", (values, 6)), ("file", ("run", "epoch_3.pth", 3)), ("val", (values, 3))),
        *(("file", ("run", "epoch_3.pth", 3)), ("close", None)),
    ]


@pytest.mark.usefixtures("pavi")
def test_pavi_gets_checkpoints_by_iteration_and_no_graphs(tmp_path: Path) -> None:
    from mmcv.runner import PaviLoggerHook

    runner = make("IterBasedRunner", 3, tmp_path / "run")
    with pytest.warns(UserWarning, match="sends no graphs"):
        hook = PaviLoggerHook(
            add_graph=True, by_epoch=False, add_ckpt_kwargs={"active": True, "start": 2}
        )
    runner.register_checkpoint_hook({"interval": 2, "by_epoch": False})
    runner.register_hook(hook, "VERY_LOW")
    runner.run([DATA], [("train", 1)])
    assert [value for kind, value in hook.writer.calls if kind == "file"] == [
        ("run", "iter_2.pth", 2),
        ("run", "iter_3.pth", 3),
    ]


def test_segmind_gets_the_values_with_the_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    module: Any = types.ModuleType("segmind")
    module.tracking = types.SimpleNamespace(fluent=types.SimpleNamespace(log_metrics="function"))
    module.utils = types.SimpleNamespace(
        logging_utils=types.SimpleNamespace(
            try_mlflow_log=lambda function, tags, **step: calls.append((function, tags, step))
        )
    )
    monkeypatch.setitem(sys.modules, "segmind", module)
    from mmcv.runner import SegmindLoggerHook

    runner = make("EpochBasedRunner", 1, tmp_path)
    runner.register_hook(SegmindLoggerHook(interval=1), "VERY_LOW")
    runner.run([DataLoader([2.0])], [("train", 1)])  # type: ignore[arg-type]
    tags = {"train/loss": 2.0, "learning_rate": 0.1, "momentum": 0}
    assert calls == [("function", tags, {"step": 0, "epoch": 0})]


def test_without_the_module_the_error_names_a_logger_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mmcv.runner import HOOKS

    monkeypatch.setitem(sys.modules, "pavi", None)
    monkeypatch.setitem(sys.modules, "segmind", None)
    with pytest.raises(ImportError, match=r"SegmindLoggerHook logged to .*; use TextLoggerHook"):
        HOOKS.build({"type": "SegmindLoggerHook"})
    runner = make("EpochBasedRunner", 1, tmp_path)
    runner.register_hook(HOOKS.build({"type": "PaviLoggerHook"}))
    with pytest.raises(ImportError, match=r"PaviLoggerHook logged to Pavi, .*; use TextLoggerHook"):
        runner.run([DATA], [("train", 1)])
