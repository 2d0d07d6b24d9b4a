"""``lightning-hooks check``: what it reports on old hooks, after importing them elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from lightning_hooks.cli import main
from lightning_hooks.cli.check.check import check
from lightning_hooks.cli.check.hooks import attributes
from lightning_hooks.cli.check.report import Report

Told = dict[str, list[tuple[int, str, str, str]]]


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write modules; ``core/hook`` is ``core/hook.py``."""
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return folder


def told(report: Report) -> Told:
    """Return line, reason, correction and level of each finding, by the file's stem."""
    found: Told = {}
    for one in report.findings:
        finding = (one.line, one.what, one.write, one.level)
        found.setdefault(Path(one.path).stem, []).append(finding)
    return found


def points(report: Report) -> dict[str, list[str]]:
    return {hook.name: hook.points for hook in report.hooks}


FINE = """
    import torch, mmcv
    from mmcv.runner import HOOKS, Hook, get_dist_info
    from mmcv.runner.hooks import LrUpdaterHook
    from mmcv.parallel import is_module_wrapper

    raise RuntimeError("a file that nothing imports is a script: it is not run")

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
HOOK = "from mmcv.runner import HOOKS, Hook, OptimizerHook, PaviLoggerHook, LrUpdaterHook\n"

CASES = {
    # imports: text, line, reason, correction, level
    "typo": ("from mmcv.runner import Hok", 1, "no 'Hok'", "", "part"),
    "absent": ("import no_such_thing.x", 1, "no_such_thing", "pip install no_such_thing", "part"),
    "renamed": ("from sklearn_no.a import b, c", 1, "sklearn_no", "pip install sklearn_no", "part"),
    "inner": ("from torch._seven import inf", 1, "torch._seven is not", "", "part"),
    "guarded": ("try:\n    import no_a\nexcept ImportError: ...", 2, "try: no_a, no_b", "", "note"),
    "sister": (
        "from cvpack2.engine import HookBase",
        1,
        "cvpack2 is not installed",
        "from lightning_hooks.dialects.cvpods import HookBase",
        "part",
    ),
    "other": ("from pet.solver import x", 1, "pet is not installed", "x needs pet itself", "part"),
    "old": ("print 'hello'", 1, "no valid Python", "Python 3", "part"),
    # hooks
    "nowhere": (
        f"{HOOK}class A(Hook):\n    def after_run(self, runner): runner.nowhere",
        3,
        "reads runner.nowhere",
        "HookAdapter([A(...)], attributes={'nowhere': ...})",
        "note",
    ),
    "backward": (
        f"{HOOK}class A(Hook):\n    def after_run(self, runner): runner.outputs['loss'].backward()",
        3,
        "runs backward itself",
        "owns_backward=True",
        "note",
    ),
    "no_runner": (
        f"{HOOK}class A(Hook):\n    def after_run(self): ...",
        3,
        "takes no runner",
        "self, runner",
        "part",
    ),
    "more": (
        f"{HOOK}class A(Hook):\n    def after_run(self, runner, x): ...",
        3,
        "requires x",
        "runner)",
        "part",
    ),
    "stop": (
        f"{HOOK}class A(Hook):\n    def after_run(self, runner): raise StopIteration",
        3,
        "RuntimeError",
        "should_stop",
        "note",
    ),
    "neither": (
        f"{HOOK}@HOOKS.register_module()\nclass Neither: ...",
        3,
        "neither a hook as its",
        "class Neither(Hook)",
        "part",
    ),
    "reads_file": (
        f"{HOOK}class A(Hook):\n    def after_train_epoch(self, r): open(self.ckpt_hook.out_dir)",
        3,
        "looks for a checkpoint's file",
        "in before_train_epoch or before_train_iter",
        "note",
    ),
    "taken": (
        f"{HOOK}@HOOKS.register_module()\nclass EMAHook(Hook): ...",
        2 if sys.version_info >= (3, 11) else 3,  # the decorator, or its class
        "EMAHook is already registered",
        "force=True",
        "part",
    ),
    "with_runner": (
        f"{HOOK}class A(LrUpdaterHook):\n    def __init__(self, runner, steps): ...",
        3,
        "requires the runner",
        "runner.register_hook(A(runner, ...)) in another hook's before_run",
        "note",
    ),
    "service": (
        f"{HOOK}class A(PaviLoggerHook): ...",
        2,
        "PaviLoggerHook calls pavi, which is not installed",
        "another logger",
        "part",
    ),
    "misspelt": (
        f"{HOOK}class A(Hook):\n    def after_train_itr(self, runner): ...",
        3,
        "after_train_itr is called at no point",
        "def after_train_iter(self, runner)",
        "part",
    ),
    "of_runner": (
        f"{HOOK}class A(Hook):\n    def before_load_data(self, runner): ...\n"
        "def train(self):\n    self.call_hook('before_load_data')",
        3,
        "of_runner.py:5 only",
        "runner.call_hook('before_load_data'), in the point of a hook",
        "note",
    ),
    "lunch": (
        f"{HOOK}class A(Hook):\n    def after_run(self, runner): ...\n"
        "    def after_lunch(self, runner): ...",
        4,
        "after_lunch is called at no point",
        "runner.call_hook('after_lunch')",
        "note",
    ),
}
NOTHING = {
    "later": "def f():\n    from no_b import c",  # is in the line of another
    "owner": f"{HOOK}class A(OptimizerHook):\n  def after_train_iter(self, r): self.l.backward()",
    "forced": f"{HOOK}@HOOKS.register_module(force=True)\nclass EMAHook(Hook): ...",
    "bare": f"{HOOK}@HOOKS.register_module\nclass Bare(Hook):\n  def after_run(self, *args): ...",
    "asks": f"{HOOK}class A(Hook):\n    def after_run(self, runner): getattr(runner, 'none', None)",
    "calls": f"{HOOK}class A(Hook):\n    def after_run(self, runner): self.after_all(runner)\n"
    "    def after_all(self, runner): ...",
    "own_registry": f"{HOOK}from mmcv.utils import Registry\nMINE = Registry('hook')\n"
    "@MINE.register_module()\nclass EMAHook(Hook): ...",
    "literal": f'{HOOK}pattern = "\\d"\nif pattern is 3: ...\nclass A(Hook): ...',
    "fine": FINE,
}
DIALECTS = {
    "detectron2": "from detectron2.engine import HookBase\nclass B(HookBase): ...",
    "cvpods": "from cvpods.engine import HookBase\nclass B(HookBase): ...",
    "pointrix": "from pointrix.hook import Hook\nclass B(Hook): ...",
    "mmengine": "from mmengine.hooks import Hook\nclass B(Hook): ...",
    "pet": "class PHook: ...\nclass B(PHook):\n  def after_step(self, storage, **kwargs): ...",
    "unsure": "class PHook: ...\nclass B(PHook):\n  def after_step(self): ...",
    "by_arguments": "class PHook: ...\nclass B(PHook):\n"
    "  def after_train_iter(self, runner, batch_idx): ...",
}


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("cases")
    write(folder, {name: text for name, (text, *_) in CASES.items()} | NOTHING)
    write(folder / "dialects", {f"of_{name}": text for name, text in DIALECTS.items()})
    write(folder / "own_name", {"cvpack2": "from cvpack2.engine import HookBase"})  # finds itself
    return check(str(folder))


@pytest.mark.parametrize("name", CASES)
def test_what_does_not_run_is_told_with_its_line_and_correction(name: str, checked: Report) -> None:
    _, line, what, correction, level = CASES[name]
    ((found_line, found_what, found_write, found_level),) = told(checked)[name]
    assert (found_line, found_level) == (line, level)
    assert what in found_what
    assert correction in found_write


@pytest.mark.parametrize("name", NOTHING)
def test_hooks_that_need_nothing_are_told_nothing(name: str, checked: Report) -> None:
    assert name not in told(checked)


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        *((name, name) for name in ("detectron2", "cvpods", "pointrix", "mmengine", "pet")),
        ("unsure", "detectron2"),
        ("by_arguments", "mmengine"),
    ],
)
def test_dialects_are_told(name: str, dialect: str, checked: Report) -> None:
    found = {Path(hook.path).stem: hook.dialect for hook in checked.hooks if hook.name == "B"}
    assert found[f"of_{name}"] == dialect


LIBRARIES = {
    "detectron2": (
        """
        from detectron2.engine import HookBase, hooks
        from detectron2.utils.events import CommonMetricPrinter, has_event_storage
        from detectron2.engine.hooks import TorchMemoryStats, TorchProfiler


        class Writes(hooks.PeriodicWriter): ...


        class B(HookBase):
            def before_step(self):
                self.trainer.iter = self.trainer.start_iter
                self.trainer._trainer._data_loader_iter

            def after_backward(self):
                self.trainer.run_step()
                self.trainer._write_metrics({}, 0.0)

            def after_step(self):
                self.trainer.storage._latest_scalars
                self.trainer.storage.histories().get("loss")
                self.trainer.state_dict()
                self.trainer.grad_scaler
                self.trainer.storage.put_scaler("a", 1)
        """,
        {
            1: "from lightning_hooks.dialects.detectron2 import HookBase, hooks",
            2: "detectron2 import CommonMetricPrinter, has_event_storage",
            3: "detectron2 import TorchMemoryStats, TorchProfiler",
            22: "attributes={'grad_scaler': ...}",
            23: "did you mean 'put_scalar'",
        },
    ),
    "mmengine": (
        """
        from mmengine.hooks import Hook


        class B(Hook):
            def before_train_epoch(self, runner):
                runner.train_loop.dataloader = runner.train_dataloader
                runner._train_loop.stop_training = True

            def after_val_epoch(self, runner, metrics=None):
                runner.val_loop.run_iter(0, runner.data_batch)
                runner.val_loop.evaluator.evaluate(runner.val_loop.total_length)
                runner.message_hub.get_scalar("val/loss")
                runner.val_loop.runiter(0, 1)
                runner.nowhere
        """,
        {
            1: "from lightning_hooks.dialects.mmengine import Hook",
            13: "did you mean 'run_iter'",
            14: "attributes={'nowhere': ...}",
        },
    ),
    "cvpods": (
        """
        from cvpods.engine import HookBase, default_setup
        from cvpods.utils import EventWriter
        from cvpods.utils.dump.events import comm


        class B(HookBase):
            def after_step(self):
                self.trainer.nowhere

            def after_steps(self): ...
        """,
        {
            1: "import HookBase; default_setup needs cvpods itself",
            2: "from lightning_hooks.dialects.cvpods import EventWriter",
            3: "comm needs cvpods itself",
            8: "attributes={'nowhere': ...}",
            10: "def after_step(self)",
        },
    ),
    "pet": (
        """
        from pet.lib.utils.logger import TrainHook
        from pet.lib.utils.timer import Timer


        class B(TrainHook):
            def after_steps(self, storage): ...
        """,
        {
            1: "from lightning_hooks.dialects.pet import TrainHook",
            2: "from lightning_hooks.dialects.pet import Timer",
            6: "def after_step(self, storage)",
        },
    ),
    "pointrix": (
        """
        from pointrix.hook import Hook
        from pointrix.hook.base_hook import HOOK_REGISTRY


        @HOOK_REGISTRY.register()
        class B(Hook):
            def after_densify(self, trainner): ...
        """,
        {
            1: "from lightning_hooks.dialects.pointrix import Hook",
            2: "from lightning_hooks.dialects.pointrix import HOOK_REGISTRY",
            7: "trainner.call_hook('after_densify')",
        },
    ),
}


def test_each_line_of_a_sister_library_has_its_correction(tmp_path: Path) -> None:
    write(tmp_path, {f"of_{name}": dedent(text).lstrip() for name, (text, _) in LIBRARIES.items()})
    report = check(str(tmp_path))
    for library, (_, expected) in LIBRARIES.items():
        rows = told(report)[f"of_{library}"]
        found = {line: correction for line, _, correction, _ in rows}
        assert found.keys() == expected.keys()
        for line, correction in expected.items():
            assert correction in found[line]
        assert f"{library} is not installed" in {what for _, what, _, _ in rows}


def test_what_a_hook_touches_and_when_it_is_called_is_listed(checked: Report) -> None:
    count, half = (hook for hook in checked.hooks if Path(hook.path).stem == "fine")
    assert (count.name, count.dialect) == ("CountHook", "mmcv")
    assert count.points == ["before_run", "after_train_iter"]
    assert {"data_batch", "log_buffer", "work_dir", "ema_model"} <= {*count.reads}
    assert count.writes == ["seen"]
    assert half.points == ["before_run", "before_train_epoch", "before_train_iter"]  # its base's
    assert half.reads == ["epoch"]


def test_the_verdict_names_what_cannot_run(checked: Report) -> None:
    assert checked.verdict.startswith("runs except ")
    assert " and " in checked.verdict
    assert checked.cannot_run


def test_the_runners_attributes_are_those_that_it_has() -> None:
    known = attributes("mmcv")
    assert {"model", "iter", "_max_iters", "outputs", "meta", "trainer", "call_hook"} <= known
    assert "storage" not in known
    assert "storage" in attributes("detectron2")


# -- several files ---------------------------------------------------------------------------

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


def test_files_are_judged_together_and_torchs_hooks_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        tmp_path,
        {
            "lab/__init__": "",
            "lab/base": """
            from mmcv.runner import Hook as Base, OptimizerHook as Stepping
            class Counts(Base):
                def after_run(self, runner): ...
                def before_run(self, r): r.shared = 1
            class Steps(Stepping):
                def after_train_iter(self, runner): runner.outputs["loss"].backward()
        """,
            "lab/heir": """
            from .base import Counts
            class CountsMore(Counts):
                def before_val_iter(self, runner): runner.shared
            class NoHook: ...
        """,
            "lab/old": MODULE_HOOKS,
            "lab/mine": "from .old import ClampHook\nclass MyHook(ClampHook): ...",
        },
    )
    report = check(str(tmp_path / "lab"))
    assert [hook.name for hook in report.hooks if hook.dialect == "torch"] == [
        "MyHook",
        "ClampHook",
        "Scale",
    ]
    assert points(report)["Counts"] == ["before_run", "after_run"]
    assert points(report)["CountsMore"] == ["before_run", "before_val_iter", "after_run"]
    writes = {one.subject: one.write for one in report.findings}
    assert {*writes} == {"ClampHook", "Scale", "MyHook"}
    assert writes["ClampHook"] == "ClampHook(...).register(module), where the module is made"
    assert "register_forward_pre_hook(Scale(...).hook_func())" in writes["Scale"]
    assert run(str(tmp_path / "lab")) == 0
    shown = capsys.readouterr().out
    assert "ClampHook is a hook of torch's modules, which no runner calls" in shown
    assert "verdict: runs\n" in shown
    assert "HookAdapter([Counts(...)])" in shown


@pytest.mark.parametrize("target", ["lab", "lab/core/hook.py", "lab.core.hook"])
def test_a_package_that_cannot_be_imported_is_told_once(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write(
        tmp_path,
        {
            "lab/__init__": "import math",
            "lab/core/__init__": "from .hook import A\nfrom .ops import nms\n",
            "lab/core/hook": f"{HOOK}class A(Hook):\n    def after_run(self, runner): ...\n",
            "lab/core/ops": "\nimport math\nmath.nowhere\n",
        },
    )
    report = check(target)
    ((line, what, _, level),) = told(report)["ops"]
    assert (line, level) == (3, "part")
    assert what.startswith("AttributeError: module 'math' has no attribute 'nowhere'")
    assert {*told(report)} == {"ops"}
    assert points(report) == {"A": ["after_run"]}  # the file alone can run


# -- what cannot be read ---------------------------------------------------------------------


def test_one_file_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    source = "# coding: {}\nfrom mmcv.runner import Hook\nclass Größe(Hook): ...\n"
    (tmp_path / "mark.py").write_text(source.format("utf-8"), encoding="utf-8-sig")
    (tmp_path / "latin.py").write_text(source.format("latin-1"), encoding="latin-1")
    (tmp_path / "wrong.py").write_text(source.format("utf-8"), encoding="latin-1")
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "gone.py").symlink_to("nowhere.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "folder.py" / "round").symlink_to(tmp_path)
    (tmp_path / "deep.py").write_text(f"x = {'-' * 20_000}1")
    (tmp_path / "binary.py").write_bytes(b"\x7fELF\x00\x01")
    report = check(str(tmp_path))
    assert [hook.name for hook in report.hooks] == ["Größe", "Größe"]
    found = {name: what for name, ((_, what, _, _),) in told(report).items()}
    assert {*found} == {"wrong", "loop", "gone", "deep", "binary"}
    assert found["loop"].startswith("cannot be read: ")
    assert found["gone"].startswith("cannot be read: ")
    for name in ("wrong", "deep", "binary"):
        assert found[name].startswith("no valid Python: ")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("notes.ipynb", "{}", "is a notebook: jupyter nbconvert --to script"),
        ("data.bin", "\0", "is no Python file, whose name ends in .py, and no YAML config"),
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


def test_the_exit_code_says_whether_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    old = write(tmp_path, {"old": FINE}) / "old.py"
    assert run(str(old)) == 0
    assert "verdict: runs\n" in capsys.readouterr().out
    old.write_text("from no_such import nms\n" + dedent(FINE))
    assert run(str(old)) == 1
    shown = capsys.readouterr().out
    assert "does not start: old.py:1: no_such is not installed" in shown
    assert "write: pip install no_such" in shown
    assert "verdict: does not start because no_such is not installed" in shown
    assert run(str(old), "--json") == 1
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (report["cannot_run"], report["starts"]) == (True, False)
    assert report["verdict"].startswith("does not start")
    assert [hook["name"] for hook in report["hooks"]] == ["CountHook", "HalfLr"]


def test_a_project_that_starts_without_a_part_of_it_passes_and_names_the_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("from mmcv.runner import Hook")
    (tmp_path / "rest.py").write_text("from no_such import nms")
    assert run(".", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"].startswith("trains except rest.py")
    assert (report["cannot_run"], report["starts"]) == (True, True)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_seconds_that_are_none_to_wait_for_are_refused(seconds: float, tmp_path: Path) -> None:
    write(tmp_path, {"a": "x = 1"})
    with pytest.raises(ValueError, match="seconds must be above 0"):
        check(str(tmp_path), seconds)
