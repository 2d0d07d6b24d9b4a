"""``lightning-hooks check`` of hook files: dialects, points, and failing imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import lightning_hooks
from lightning_hooks.cli import main
from lightning_hooks.cli.check.project import Project
from lightning_hooks.cli.check.report import Report, check

pytestmark = pytest.mark.usefixtures("forked_checks")


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write modules; ``core/hook`` is ``core/hook.py``."""
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return folder


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
            self.after_all(runner)
        def after_all(self, runner): ...

    class HalfLr(LrUpdaterHook):
        def get_lr(self, runner, base_lr):
            return base_lr / (1 + runner.epoch)
"""
HOOK = "from mmcv.runner import HOOKS, Hook\n"

# failing imports: text, line, reason, what to do
IMPORTS = {
    "typo": ("from mmcv.runner import Hok", 1, "no 'Hok'", ""),
    "absent": ("import no_such_thing.x", 1, "no_such_thing is not", "find out what provides no_s"),
    "inner": ("from torch._seven import inf", 1, "the installed torch has no module torch._s", ""),
    "sister": (
        "from cvpack2.engine import HookBase",
        1,
        "cvpack2 is not installed",
        "import the names of its hooks from lightning_hooks.dialects.cvpods",
    ),
    "old": ("print 'hello'", 1, "no valid Python 3", ""),
    "exits": (
        "import sys\nclass A:\n    sys.exit(3)",
        3,
        "ends the process when it is imported: SystemExit(3)",
        "",
    ),
    "asks": ("x = 1\nclass A:\n    input()", 3, "EOFError: EOF when reading a line", ""),
    "taken": (
        f"{HOOK}class Taken: ...\nHOOKS.register_module()(Taken)\n@HOOKS.register_module()\n"
        "class EMAHook(Hook): ...",
        4 if sys.version_info >= (3, 11) else 5,  # the line of the decorator or of the class
        "EMAHook is already registered",
        "",
    ),
}
# hooks in need of attention: text, line of the class, reason
HOOKS = {
    "misspelt": (
        f"{HOOK}class A(Hook):\n    def after_train_itr(self, runner): ...",
        2,
        "after_train_itr is called at no point; did you mean after_train_iter?",
    ),
    "lunch": (
        f"{HOOK}class A(Hook):\n    def after_lunch(self, runner): ...",
        2,
        "after_lunch is called at no point",
    ),
    "unsure": ("class B:\n  def after_step(self): ...", 1, "cannot detect the dialect of B"),
}
QUIET = {
    "later": "def f():\n    from no_b import c",
    "forced": f"{HOOK}@HOOKS.register_module(force=True)\nclass EMAHook(Hook): ...",
    "of_runner": f"{HOOK}class A(Hook):\n    def before_load_data(self, runner): ...\n"
    "def train(self):\n    self.call_hook('before_load_data')",
    "own_registry": f"{HOOK}from mmcv.utils import Registry\nMINE = Registry('hook')\n"
    "@MINE.register_module()\nclass EMAHook(Hook): ...",
    "literal": f'{HOOK}pattern = "\\d"\nif pattern is 3: ...\nclass A(Hook): ...',
    "fine": FINE,
}
DIALECTS = {
    "detectron2": "from detectron2.engine import HookBase\nclass B(HookBase): ...",
    "cvpods": "from cvpods.engine import HookBase\nclass B(HookBase): ...",
    "pointrix": "from pointrix.hook import Hook\nclass B(Hook): ...",
    "mmengine": "class B:\n  def after_train_iter(self, runner, batch_idx): ...",
    "pet": "class B:\n  def after_step(self, storage, **kwargs): ...",
}


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("cases")
    write(folder, {name: text for name, (text, *_) in {**IMPORTS, **HOOKS}.items()} | QUIET)
    write(folder / "dialects", {f"of_{name}": text for name, text in DIALECTS.items()})
    write(folder / "own_name", {"cvpack2": "from cvpack2.engine import HookBase"})  # finds itself
    source = "# coding: {}\nfrom mmcv.runner import Hook\nclass Größe(Hook): ...\n"
    (folder / "mark.py").write_text(source.format("utf-8"), encoding="utf-8-sig")
    (folder / "latin.py").write_text(source.format("latin-1"), encoding="latin-1")
    (folder / "wrong.py").write_text(source.format("utf-8"), encoding="latin-1")
    (folder / "loop.py").symlink_to("loop.py")
    (folder / "gone.py").symlink_to("nowhere.py")
    (folder / "folder.py").mkdir()
    (folder / "folder.py" / "round").symlink_to(folder)
    (folder / "deep.py").write_text(f"x = {'-' * 20_000}1")
    (folder / "binary.py").write_bytes(b"\x7fELF\x00\x01")
    return check(str(folder))


def of(name: str, found: Any) -> list[Any]:
    return [one for one in found if Path(vars(one)["path"]).stem == name]


@pytest.mark.parametrize("name", IMPORTS)
def test_an_import_that_fails_is_told_with_line_and_correction(name: str, checked: Report) -> None:
    _, line, what, write = IMPORTS[name]
    (found,) = of(name, checked.findings)
    assert (found.line, found.level) == (line, "part")
    assert what in found.what
    assert found.write.startswith(write)


def hooks(name: str, report: Report) -> list[dict[str, Any]]:
    return [hook for hook in report.hooks if Path(hook["path"]).stem == name]


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_that_needs_attention_is_told_with_its_line(name: str, checked: Report) -> None:
    _, line, what = HOOKS[name]
    (hook,) = hooks(name, checked)
    (attention,) = hook["attention"]
    assert hook["line"] == line
    assert what in attention


@pytest.mark.parametrize("name", QUIET)
def test_hooks_that_run_get_no_attention(name: str, checked: Report) -> None:
    assert not of(name, checked.findings)
    assert not any(hook["attention"] for hook in hooks(name, checked))


def test_dialects_and_points_are_listed(checked: Report) -> None:
    for dialect in DIALECTS:
        assert [hook["dialect"] for hook in hooks(f"of_{dialect}", checked)] == [dialect]
    count, half = hooks("fine", checked)
    assert (count["name"], count["dialect"]) == ("CountHook", "mmcv")
    assert count["points"] == ["before_run", "after_train_iter"]
    assert half["points"] == ["before_run", "before_train_epoch", "before_train_iter"]  # the base's


def test_a_file_that_cannot_be_read_does_not_hide_the_others(checked: Report) -> None:
    for name in ("mark", "latin"):
        assert [hook["name"] for hook in hooks(name, checked)] == ["Größe"]
    for name in ("loop", "gone"):
        assert of(name, checked.findings)[0].what.startswith("cannot be read: ")
    assert of("wrong", checked.findings)[0].what.startswith("no valid Python 3: ")
    for name in ("deep", "binary"):
        assert len(of(name, checked.findings)) == 1


def test_the_verdict_names_what_cannot_run(checked: Report) -> None:
    assert checked.verdict.startswith("runs except ")
    assert " and " in checked.verdict
    assert checked.starts


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("data.bin", "\0", "must be a .py file or a YAML config"),
        ("empty", None, "there is no Python file in"),
        ("not_there", None, "there is no file, folder or module"),
        ("sys", None, "sys is built into Python: there is no file to read"),
    ],
)
def test_a_wrong_target_is_one_line_and_one_json_object(
    name: str, text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / name
    if text is not None:
        target.write_text(text)
    elif name == "empty":
        target.mkdir()
    given = str(target) if name != "sys" else name
    assert run(given, "--json") == 2
    captured = capsys.readouterr()
    assert message in json.loads(captured.out)["error"]
    assert message in captured.err
    assert captured.err.count("\n") == 1


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["check", *arguments])
    return int(stopped.value.code or 0)


def test_the_exit_code_says_whether_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write(tmp_path, {"old_hooks": FINE})
    assert run("old_hooks") == 0  # a module by name
    shown = capsys.readouterr().out
    assert "verdict: runs\n" in shown
    assert "HookAdapter([CountHook(...)])" in shown
    Path("old_hooks.py").write_text("from no_such import nms\n" + dedent(FINE))
    monkeypatch.setattr("lightning_hooks.cli.check.report.subprocess", subprocess)  # as users do
    assert run("old_hooks.py", "--json") == 1
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert not report["starts"]
    assert report["verdict"] == "does not start because no_such is not installed"
    assert report["write"][0] == "find out what provides no_such"
    assert [hook["name"] for hook in report["hooks"]] == ["CountHook", "HalfLr"]


def test_a_package_beside_the_project_in_the_home_folder_is_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, {"other/__init__": "x = 1", "work/hooks/reads": "import other"})
    (finding,) = check(str(tmp_path / "work" / "hooks")).findings
    assert finding.what == "other is not installed"


def test_a_checkout_below_the_project_is_no_part_of_it() -> None:
    checkout = Path(lightning_hooks.__file__).parents[1]
    project = Project(checkout, checkout)
    assert project.has(checkout / "train.py")
    assert not project.has(lightning_hooks.__file__)
