"""``lightning-hooks check``: what old files are told, without being run."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from lightning_hooks.cli import main
from lightning_hooks.cli.check.check import check
from lightning_hooks.cli.check.hook_findings import attributes
from lightning_hooks.cli.check.report import FileReport

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
        ("class A(Hook):\n    def after_run(self, runner, x): ...", "requires x", "runner)", True),
        (
            "class A(Hook):\n    def after_run(self, runner): raise StopIteration",
            "RuntimeError",
            "should_stop",
            False,
        ),
        ("class A(PaviLoggerHook): ...", "service is gone", "another logger", True),
        ("@HOOKS.register_module()\nclass A: ...", "neither a hook as its", "class A(Hook)", True),
        (
            "class A(Hook):\n    def after_train_epoch(self, r): open(self.ckpt_hook.out_dir)",
            "looks for a checkpoint's file",
            "in before_train_epoch or before_train_iter",
            False,
        ),
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


# -- what is called a hook and is none of a runner's -----------------------------------------

MODULE_HOOKS = """
    from abc import ABCMeta
    from torch import nn
    from mmcv.runner import HOOKS, Hook
    from mmcv.utils import Registry

    MODULE_HOOKS = Registry("module hooks")

    class PytorchModuleHook(metaclass=ABCMeta):
        def hook(self, module, inputs): ...
        def register(self, module): return module.register_forward_pre_hook(self.hook)

    @HOOKS.register_module()
    class ClampHook(PytorchModuleHook):
        hook_type = "forward_pre"
        def hook(self, module, inputs): ...

    @MODULE_HOOKS.register_module()
    class Scale:
        def hook_func(self): return lambda module, inputs: inputs

    class SpyHook(nn.Module):
        pass

    @HOOKS.register_module()
    class HooksModules(Hook):
        def hook(self, module, inputs): ...
        def before_run(self, runner): runner.model.register_forward_pre_hook(self.hook)
"""


def test_hooks_of_torch_modules_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (report,) = read(tmp_path, old=MODULE_HOOKS)
    kinds = {hook.name: hook.dialect for hook in report.hooks}
    assert kinds == {"ClampHook": "torch", "Scale": "torch", "HooksModules": "mmcv"}
    told = {hook.name: [one.write for one in hook.findings] for hook in report.hooks}
    assert told["ClampHook"] == ["ClampHook(...).register(module), where the module is made"]
    assert "register_forward_pre_hook(Scale(...).hook_func())" in told["Scale"][0]
    assert told["HooksModules"] == []
    assert run(str(tmp_path)) == 0
    shown = capsys.readouterr().out
    assert "ClampHook is a hook of torch's modules, which no runner calls" in shown
    assert "1 class of hooks in 1 file; all can run" in shown
    assert "HookAdapter([HooksModules(...)])" in shown


def test_a_base_from_another_file_says_what_a_class_is(tmp_path: Path) -> None:
    read(
        tmp_path, base=MODULE_HOOKS, mine="from base import ClampHook\nclass MyHook(ClampHook): ..."
    )
    (report,) = check(str(tmp_path / "mine.py"))  # which alone is judged
    assert report.hooks[0].dialect == "torch"


# -- bases and points ------------------------------------------------------------------------


def test_points_of_a_base_in_the_files_are_a_classs_own(tmp_path: Path) -> None:
    (report,) = read(
        tmp_path,
        old="""
            from mmcv.runner import Hook as Base, OptimizerHook as Stepping
            class Counts(Base):
                def after_run(self, runner): ...
                def before_run(self, r): r.seen = 0
            class CountsMore(Counts):
                def before_val_iter(self, runner): runner.iter
            class Steps(Stepping):
                def after_train_iter(self, runner): runner.outputs["loss"].backward()
        """,
    )
    counts, more, steps = report.hooks
    assert (counts.points, counts.writes) == (("before_run", "after_run"), ("seen",))
    assert (more.points[:2], more.reads) == (("before_run", "before_val_iter"), ("iter",))
    assert steps.points == ("after_train_iter",)
    assert [hook.inherits for hook in report.hooks] == [False, False, True]
    assert findings(report) == []


@pytest.mark.parametrize(
    ("method", "what", "write", "stops"),
    [
        (
            "after_train_itr(self, runner)",
            "at no point",
            "def after_train_iter(self, runner)",
            True,
        ),
        (
            "before_load_data(self, runner)",
            "runner.py:4, which is not the runner here",
            "runner.call_hook('before_load_data'), in the point of a hook",
            True,
        ),
        ("after_run(self, runner): ...\n    def after_lunch(self, runner)", "no point", "", False),
    ],
)
def test_points_that_nobody_calls_are_told(
    method: str, what: str, write: str, stops: bool, tmp_path: Path
) -> None:
    runner = """
        class OwnRunner(EpochBasedRunner):
            def train(self):
                self.call_hook("before_load_data")
    """
    (report,) = read(tmp_path, old=f"class A(Hook):\n    def {method}: ...", runner=runner)
    ((_, found_what, found_write, found_stops),) = findings(report)
    assert what in found_what
    assert write in found_write
    assert found_stops == stops


def test_methods_that_the_class_calls_are_no_points(tmp_path: Path) -> None:
    text = "class A(Hook):\n  def after_run(self, runner): self.after_all(runner)\n"
    (report,) = read(tmp_path, old=f"{text}  def after_all(self, runner): ...")
    assert findings(report) == []


def test_a_hook_that_is_made_with_the_runner_is_told_where_there_is_one(tmp_path: Path) -> None:
    text = "class A(LrUpdaterHook):\n    def __init__(self, runner, steps): ..."
    ((line, what, write, stops),) = findings(read(tmp_path, old=text)[0])
    assert (line, stops) == (2, False)
    assert "requires the runner" in what
    assert write == "runner.register_hook(A(runner, ...)) in another hook's before_run"


# -- what importing a file of a package runs -------------------------------------------------

HOOK = "from mmcv.runner import Hook\nclass A(Hook):\n    def after_run(self, runner): ...\n"


def package(tmp_path: Path, **files: str) -> None:
    for name, text in files.items():
        path = tmp_path / "lab" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for folder in (tmp_path / "lab", *(tmp_path / "lab").glob("*/")):
        if folder.is_dir() and not (folder / "__init__.py").exists():
            (folder / "__init__.py").touch()


@pytest.mark.parametrize("target", ["lab", "lab/core", "lab/core/hook.py"])
def test_a_package_that_cannot_be_imported_is_told_once(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    package(tmp_path, core__hook=HOOK, core__other=HOOK, core__ops="\nfrom mmcv.ops import nms\n")
    init = tmp_path / "lab" / "core" / "__init__.py"
    init.write_text("from .hook import A\nfrom .ops import nms\n")
    package_report, *hooks = check(target)
    assert package_report.path == "lab/core/__init__.py"
    ((line, what, write, stops),) = findings(package_report)
    assert (line, stops) == (2, True)
    assert what.startswith("importing .ops runs lab/core/ops.py:2, and there the stand-in has no")
    assert write.startswith("a copy of the hook's file in your project")
    assert [findings(report) for report in hooks] == [[]] * len(hooks)  # the files alone can run
    assert len(hooks) == 1 if target.endswith(".py") else len(hooks) == 2


def test_what_a_hooks_file_runs_of_its_package_stops_it(tmp_path: Path) -> None:
    package(
        tmp_path,
        hooks__mine=f"from ..tools import draw\nfrom . import names\n{HOOK}",
        hooks__names="",
        tools="from lab.deep import plot as draw",
        deep="import math, no_such_thing, math\nimport lab.hooks.mine",
    )
    (report,) = check(str(tmp_path / "lab"))
    ((line, what, write, stops),) = findings(report)
    assert (line, stops) == (1, True)
    assert what.startswith("importing ..tools runs ")
    assert what.endswith("deep.py:1, and there no_such_thing is not installed")
    assert write == "install no_such_thing, or copy what is used"


@pytest.mark.parametrize(
    ("text", "bound", "stops"),
    [
        ("mmcv_maximum_version = '1.7.0'", "mmcv_maximum_version = '1.7.0'", True),
        ("MMCV_MIN = '2.0.0rc4'", "MMCV_MIN = '2.0.0rc4'", True),
        ("mmcv_minimum_version = '1.3.8'\nMMCV_MAX = '1.8'\nmmcv_max = 3", "", False),
    ],
)
def test_a_package_that_wants_another_mmcv_is_told(
    text: str, bound: str, stops: bool, tmp_path: Path
) -> None:
    package(tmp_path, hook=HOOK)
    (tmp_path / "lab" / "__init__.py").write_text(text)
    reports = check(str(tmp_path / "lab"))
    assert len(reports) == 1 + stops
    if stops:
        ((line, what, write, _),) = findings(reports[0])
        assert (line, what.partition(",")[0]) == (1, bound)
        assert write.endswith("= '1.7.2'")


@pytest.mark.parametrize("version", ["1.7.0", "2.1.0"])
def test_an_installed_mmcv_1_has_what_it_has_and_2_gives_way_to_the_stand_in(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mmcv = tmp_path / "site" / "mmcv"
    mmcv.mkdir(parents=True)
    (mmcv / "__init__.py").touch()
    (mmcv / "version.py").write_text(f'__version__ = "{version}"\n')
    monkeypatch.syspath_prepend(mmcv.parent)
    package(tmp_path, hook=f"import mmcv.of_1_7_0\n{HOOK}\n")
    (tmp_path / "lab" / "__init__.py").write_text("mmcv_maximum_version = '1.7.0'")
    reports = check(str(tmp_path / "lab"))
    told = " ".join(what for report in reports for _, what, _, _ in findings(report))
    assert ("the version of mmcv is 1.7.2" in told) == (version == "2.1.0")
    assert ("has no mmcv.of_1_7_0" in told) == (version == "2.1.0")


def test_installed_packages_are_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, hook=f"import others_package\n{HOOK}")
    (tmp_path / "others_package.py").write_text("import no_such_thing")
    monkeypatch.syspath_prepend(tmp_path)  # both lie where packages are installed
    (report,) = check("lab")
    assert findings(report) == []


def test_modules_beside_the_file_or_where_one_is_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "more.py").write_text("x = 1")
    (tmp_path / "plugins" / "mine.py").write_text(
        f"import more\nfrom plugins.more import x\n{HOOK}"
    )
    monkeypatch.chdir(tmp_path)
    (report,) = check("plugins/mine.py")
    assert findings(report) == []


# -- what cannot be read ---------------------------------------------------------------------


def test_one_file_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "fine.py").write_text(HOOK)
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "gone.py").symlink_to("nowhere.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "folder.py" / "round").symlink_to(tmp_path)
    (tmp_path / "deep.py").write_text(f"x = {'-' * 20_000}1")
    (tmp_path / "binary.py").write_bytes(b"\x7fELF\x00\x01")
    reports = {Path(report.path).name: report for report in check(str(tmp_path))}
    assert {*reports} == {"fine.py", "loop.py", "gone.py", "deep.py", "binary.py"}
    assert not reports["fine.py"].cannot_run
    assert findings(reports["loop.py"])[0][1].startswith("cannot be read: ")
    assert findings(reports["gone.py"])[0][1].startswith("cannot be read: ")
    assert findings(reports["deep.py"])[0][1].startswith("no valid Python: ")
    assert findings(reports["binary.py"])[0][1].startswith("no valid Python: ")


def test_what_newer_pythons_say_of_old_literals_is_no_matter(tmp_path: Path) -> None:
    (report,) = read(tmp_path, old=f'pattern = "\\d"\nif pattern is 3: ...\n{HOOK}')
    assert findings(report) == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("notes.ipynb", "{}", "is a notebook: jupyter nbconvert --to script"),
        ("data.bin", "\0", "is no Python file, whose name ends in .py"),
        ("empty", None, "there is no Python file in"),
        ("not_there", None, "there is no file, folder or module"),
        ("sys", None, "sys is built into Python: there is no file to read"),
    ],
)
def test_what_cannot_be_checked_is_one_line_and_one_object(
    name: str, text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / name
    if text is not None:
        target.write_text(text)
    elif name == "empty":
        target.mkdir()
    given = str(target) if name != "sys" else name
    assert run(given) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert run(given, "--json") == 2
    captured = capsys.readouterr()
    assert message in json.loads(captured.out)["error"]
    assert captured.err.count("\n") == 1


def run(*arguments: str) -> int:
    pytest.importorskip("jsonargparse")
    with pytest.raises(SystemExit) as stopped:
        main(["check", *arguments])
    return int(stopped.value.code or 0)


def test_the_exit_code_says_whether_all_can_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_module_that_is_missing_is_told_once(tmp_path: Path) -> None:
    (report,) = read(tmp_path, old=f"from no_such import a, b\n{EMA.replace('EMA', 'My')}")
    assert [line for line, *_ in findings(report)] == [1]
