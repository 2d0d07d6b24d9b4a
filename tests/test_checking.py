"""``lightning-hooks check``: what old files are told, without being run."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from lightning_hooks.cli import main
from lightning_hooks.cli.checking import check
from lightning_hooks.cli.judging import FileReport, attributes

FINE = """
    import torch, mmcv
    from mmcv.runner import HOOKS, Hook, get_dist_info
    from mmcv.runner.hooks import LrUpdaterHook
    from mmcv.parallel import is_module_wrapper

    raise RuntimeError("this file is read, not run")

    @HOOKS.register_module()
    class CountHook(Hook):
        def before_run(self, runner):
            runner.seen = 0
        def after_train_iter(self, runner):
            runner.seen += len(runner.data_batch)
            if hasattr(runner, "ema_model"):
                runner.ema_model.eval()
            runner.log_buffer.output["seen"] = runner.seen
            mmcv.mkdir_or_exist(runner.work_dir)

    class HalfLr(LrUpdaterHook):
        def get_lr(self, runner, base_lr):
            return base_lr / (1 + runner.epoch)
"""


def read(tmp_path: Path, **files: str) -> list[FileReport]:
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(dedent(text))
    return check(str(tmp_path))


def findings(report: FileReport) -> list[tuple[int, str, str, bool]]:
    every = [*report.findings, *(one for hook in report.hooks for one in hook.findings)]
    return [(one.line, one.what, one.write, one.cannot_run) for one in every]


def test_a_file_is_decoded_as_python_does(tmp_path: Path) -> None:
    source = "# coding: {}\nfrom mmcv.runner import Hook\nclass Größe(Hook): ...\n"
    (tmp_path / "mark.py").write_text(source.format("utf-8"), encoding="utf-8-sig")
    (tmp_path / "old.py").write_text(source.format("latin-1"), encoding="latin-1")
    (tmp_path / "wrong.py").write_text(source.format("utf-8"), encoding="latin-1")
    mark, old, wrong = check(str(tmp_path))
    assert [hook.name for hook in (*mark.hooks, *old.hooks)] == ["Größe", "Größe"]
    assert findings(mark) == findings(old) == []
    assert [what[:15] for _, what, _, _ in findings(wrong)] == ["no valid Python"]


def test_a_registry_may_be_a_function_without_a_name(tmp_path: Path) -> None:
    (report,) = read(
        tmp_path,
        bare="""
            from mmcv.runner import Hook
            from my_project import register, register_module
            @register
            class A(Hook): ...
            @register_module("b")
            class B(Hook): ...
        """,
    )
    assert [hook.name for hook in report.hooks] == ["A", "B"]


def test_what_a_hook_touches_is_listed(tmp_path: Path) -> None:
    (report,) = read(tmp_path, fine=FINE)
    count, half = report.hooks
    assert (count.name, count.dialect) == ("CountHook", "mmcv")
    assert count.points == ("before_run", "after_train_iter")
    assert {"data_batch", "log_buffer", "work_dir", "ema_model"} <= {*count.reads}
    assert count.writes == ("seen",)
    assert (half.points, half.reads) == ((), ("epoch",))
    assert not report.cannot_run
    assert findings(report) == []


@pytest.mark.parametrize(
    ("text", "line", "what", "write", "stops"),
    [
        ("from mmcv.ops import nms", 1, "no mmcv.ops", "torchvision.ops", True),
        ("from mmcv.runner import Hok", 1, "no mmcv.runner.Hok", "Hook, if that was meant", True),
        ("import mmcv\nnms = mmcv.ops.nms", 2, "no mmcv.ops", "torchvision.ops", True),
        ("import no_such_thing.x", 1, "no_such_thing.x is not installed", "install", True),
        ("from torch._six import inf", 1, "torch._six is not installed", "copy", True),
        ("try:\n    import no_such\nexcept ImportError: ...", 2, "no_such is not", "", False),
        (
            "from detectron2.engine import HookBase",
            1,
            "detectron2.engine is not installed",
            "from lightning_hooks.dialects.detectron2 import HookBase",
            True,
        ),
        (
            "from detectron2.solver import build_optimizer",
            1,
            "detectron2.solver is not installed",
            "install detectron2, or copy",
            True,
        ),
    ],
)
def test_imports_that_would_fail_are_told(
    text: str, line: int, what: str, write: str, stops: bool, tmp_path: Path
) -> None:
    hook = "class A:\n    def after_run(self, runner): ..."
    (report,) = read(tmp_path, old=f"{text}\n{hook}")
    ((found_line, found_what, found_write, found_stops),) = findings(report)
    assert found_line == line
    assert what in found_what
    assert write in found_write
    assert found_stops == stops


@pytest.mark.parametrize(
    ("text", "what", "write", "stops"),
    [
        (
            "class A(Hook):\n    def after_run(self, runner): runner.nowhere",
            "reads runner.nowhere",
            "HookAdapter([A(...)], attributes={'nowhere': ...})",
            False,
        ),
        (
            "class A(Hook):\n    def after_run(self, runner): runner.outputs['loss'].backward()",
            "runs backward itself",
            "owns_backward=True",
            False,
        ),
        ("class A(Hook):\n    def after_run(self): ...", "takes no runner", "self, runner", True),
        ("class A(Hook):\n    def after_run(self, runner, x): ...", "wants x", "runner)", True),
        (
            "class A(Hook):\n    def after_run(self, runner): raise StopIteration",
            "RuntimeError",
            "should_stop",
            False,
        ),
        ("class A(PaviLoggerHook): ...", "service is gone", "another logger", True),
        (
            "@HOOKS.register_module()\nclass EMAHook(Hook): ...",
            "EMAHook is a name of mmcv's own",
            "force=True",
            True,
        ),
    ],
)
def test_hooks_that_need_something_are_told(
    text: str, what: str, write: str, stops: bool, tmp_path: Path
) -> None:
    ((_, found_what, found_write, found_stops),) = findings(read(tmp_path, old=text)[0])
    assert what in found_what
    assert write in found_write
    assert found_stops == stops


@pytest.mark.parametrize(
    "text",
    [
        "class A(OptimizerHook):\n    def after_train_iter(self, runner): self.loss.backward()",
        "@HOOKS.register_module(force=True)\nclass EMAHook(Hook): ...",
        "@HOOKS.register_module\nclass A(Hook):\n    def after_run(self, *args): ...",
        "class A(Hook):\n    def after_run(self, runner): getattr(runner, 'nowhere', None)",
    ],
)
def test_hooks_that_need_nothing_are_told_nothing(text: str, tmp_path: Path) -> None:
    assert findings(read(tmp_path, old=text)[0]) == []


def test_files_are_read_together(tmp_path: Path) -> None:
    reports = read(
        tmp_path,
        base="class Base(Hook):\n    def before_run(self, runner): runner.shared = 1",
        heir="from .base import Base\n"
        "class Heir(Base):\n    def after_run(self, runner): runner.shared\n"
        "class NoHook: ...",
        rest="x = 1",
    )
    assert [[hook.name for hook in report.hooks] for report in reports] == [["Base"], ["Heir"]]
    assert [findings(report) for report in reports] == [[], []]


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("from detectron2.engine import HookBase\nclass A(HookBase): ...", "detectron2"),
        ("from cvpods.engine import HookBase\nclass A(HookBase): ...", "cvpods"),
        ("from pointrix.hook import Hook\nclass A(Hook): ...", "pointrix"),
        ("class A(AHook):\n  def after_step(self): ...", "detectron2"),
        ("class A(AHook):\n  def after_step(self, storage, **kwargs): ...", "pet"),
        ("class A(AHook):\n  def after_train_iter(self, runner, batch_idx): ...", "mmengine"),
    ],
)
def test_dialects_are_told(text: str, dialect: str, tmp_path: Path) -> None:
    (report,) = read(tmp_path, old=text)
    assert report.hooks[0].dialect == dialect


def test_what_is_no_python_cannot_run(tmp_path: Path) -> None:
    (report,) = read(tmp_path, two="print 'hello'\n")
    assert report.cannot_run
    assert findings(report)[0][0] == 1


def test_the_runners_attributes_are_those_that_it_has() -> None:
    known = attributes("mmcv")
    assert {"model", "iter", "_max_iters", "outputs", "meta", "trainer", "call_hook"} <= known
    assert "storage" not in known
    assert "storage" in attributes("detectron2")


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["check", *arguments])
    return int(stopped.value.code or 0)


def test_the_exit_code_says_whether_all_can_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jsonargparse")
    monkeypatch.setenv("COLUMNS", "200")
    old = tmp_path / "old.py"
    old.write_text(dedent(FINE))
    assert run(str(old)) == 0
    assert "2 classes of hooks in 1 file; all can run" in capsys.readouterr().out
    old.write_text("from mmcv.ops import nms\n" + dedent(FINE))
    assert run(str(old)) == 1
    shown = capsys.readouterr().out
    assert "old.py:1: cannot run: the stand-in has no mmcv.ops" in shown
    assert "write: " in shown
    assert run(str(old), "--json") == 1
    report: dict[str, Any] = json.loads(capsys.readouterr().out)[0]
    assert report["cannot_run"]
    assert report["hooks"][0]["name"] == "CountHook"


def test_a_package_by_name_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "old_package"
    (package / "hooks").mkdir(parents=True)
    for folder in (package, package / "hooks"):
        (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "hooks" / "mine.py").write_text(
        "from old_package.util import x\nclass A(Hook):\n    def after_run(self, runner): ..."
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("old_package", "old_package.hooks", "old_package.hooks.mine"):
        (report,) = check(name)
        assert [hook.name for hook in report.hooks] == ["A"]
        assert findings(report) == []


OWN = "HOOKS = Registry('hook')"
EMA = "@HOOKS.register_module()\nclass EMAHook(Hook): ..."


@pytest.mark.parametrize(
    ("files", "stops"),
    [
        ({"a": f"{OWN}\n{EMA}"}, None),
        ({"a": f"from .registry import HOOKS\n{EMA}", "registry": OWN}, None),
        (
            {"a": f"from mine.made import HOOKS\n{EMA}", "mine/made": OWN, "mine/__init__": ""},
            None,
        ),
        (
            {
                "a": f"from .b import H as HOOKS\n{EMA}",
                "b": "from .c import K as H",
                "c": f"K = {OWN}",
            },
            None,
        ),
        ({"a": f"from . import HOOKS\n{EMA}", "__init__": OWN}, None),
        ({"a": f"from .b import HOOKS\n{EMA}", "b": "from mmcv.runner import HOOKS"}, True),
        ({"a": f"from .b import HOOKS\n{EMA}", "b": "import os"}, True),
        ({"a": f"from .elsewhere import HOOKS\n{EMA}"}, False),
    ],
)
def test_a_projects_own_registry_may_have_mmcvs_names(
    files: dict[str, str], stops: bool | None, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    found = [found for one in read(tmp_path, **files) for found in findings(one)]
    assert [cannot_run for *_, cannot_run in found] == ([] if stops is None else [stops])
    assert all("unless HOOKS is a registry" in what for _, what, _, stop in found if not stop)


def test_hooks_of_other_things_than_runs_are_none(tmp_path: Path) -> None:
    reports = read(
        tmp_path,
        collate="""
            class BaseCollateHook(object):
                def before_collate(self, batch): ...
            @HOOKS.register_module()
            class MixupCollateHook(BaseCollateHook):
                def after_collate(self, batch): ...
        """,
    )
    assert reports == []


def test_a_module_that_is_missing_is_told_once(tmp_path: Path) -> None:
    (report,) = read(tmp_path, old=f"from no_such import a, b\n{EMA.replace('EMA', 'My')}")
    assert [line for line, *_ in findings(report)] == [1]
