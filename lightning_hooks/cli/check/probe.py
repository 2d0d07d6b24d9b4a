"""Import a project, and report what that shows.

The files are imported with the stand-in, as a training would; code for ``__main__`` is not run.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import faulthandler
import importlib
import io
import json
import re
import sys
import traceback
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lightning_hooks import standin
from lightning_hooks.cli.check.absent import AbsentPackages, correction
from lightning_hooks.cli.check.judge import judge, types_of
from lightning_hooks.cli.check.names import resolve
from lightning_hooks.cli.check.project import Project, find
from lightning_hooks.cli.check.report import ABSENT, Finding, short
from lightning_hooks.cli.check.source import dotted, is_guard, is_python, read
from lightning_hooks.standin.lite.names import NEEDS_LITE
from lightning_hooks.utils.config_files import read_config

__all__ = ["Probe", "main"]

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Probe:
    """Imports the files of a project, and keeps why one cannot be imported.

    Args:
        project: The files.
        skipped: Files that are not imported: an earlier process has not come back from there.
        seconds: The time that an import may take, before the process ends.
    """

    def __init__(self, project: Project, skipped: Sequence[str], seconds: float) -> None:
        self.project = project
        self.modules: dict[Path, Any] = {}
        self.types: set[str] | None = None
        """The types that the config names."""
        self.findings: dict[tuple[str, int, str], Finding] = {}
        self._absent = AbsentPackages(project.has)
        self._skipped = skipped
        self._closed = {project.name_of(Path(path)) for path in skipped}
        """Modules whose failure is reported already."""
        self._seconds = seconds

    def run(self) -> Iterator[tuple[Path, str]]:
        """Import all files, the script that trains first; yield each before its import."""
        project = self.project
        scripts = [project.script] if project.script else []
        sys.path[:0] = map(str, [*(one.parent for one in scripts), project.root, Path.cwd()])
        sys.meta_path.append(self._absent)
        for name in self._closed:
            sys.modules[name] = None  # type: ignore[assignment]
        rest = "part" if scripts or len(project.files) > 1 else "start"
        levels = dict.fromkeys(project.files, rest) | dict.fromkeys(scripts, "start")
        for path in [*scripts, *project.files]:
            files = {getattr(one, "__file__", None) for one in list(sys.modules.values())}
            if str(path) not in {*files, *self._skipped}:
                yield path, levels[path]
                with self._attempt(path, levels[path]):
                    self._load(path)
        if project.config:
            yield project.config, "start"
            with self._attempt(project.config, "start"):
                config = read_config(project.config)
                self.types = types_of(config)
                for name in config.get("custom_imports", {}).get("imports", ()):
                    importlib.import_module(name)
        for module in list(sys.modules.values()):
            path = Path(str(getattr(module, "__file__", None)))
            if path.suffix == ".py" and project.has(path):
                self.modules.setdefault(path, module)

    @contextlib.contextmanager
    def _attempt(self, path: Path, level: str) -> Iterator[None]:
        """Limit the time of imports, and keep what they print and why they fail."""
        faulthandler.dump_traceback_later(self._seconds, exit=True)
        try:
            with contextlib.redirect_stdout(_Prints(self)):
                yield
        except BaseException as error:  # SystemExit, and what else a project raises
            self._add_failure(path, error, level)
        faulthandler.cancel_dump_traceback_later()
        for module, (file, line) in self._absent.found.items():
            what = f"{module}{ABSENT}"
            imports = read(Path(file)).imports
            write = correction(module, [one.name for one in imports if one.line == line])
            self.add(Finding(short(file), line, what, write, level, "packages"))

    def _load(self, path: Path) -> None:
        name = self.project.name_of(path)
        if not (name and (path.parent / "__init__.py").exists()):
            self.modules[path] = self._declare(path)
            return
        try:
            self.modules[path] = importlib.import_module(name)
        except BaseException as error:
            if not self._open_packages(name):
                raise
            self._add_failure(path, error, "part")
            self.modules[path] = importlib.import_module(name)

    def _open_packages(self, name: str) -> bool:
        """Put empty packages in place of those that cannot be imported, for their modules."""
        parts = name.split(".")
        packages = [".".join(parts[:count]) for count in range(1, len(parts))]
        closed = [package for package in packages if package not in sys.modules]
        self._closed.update(closed)
        for package in closed:
            sys.modules[package] = types.ModuleType(package)
            sys.modules[package].__path__ = [str(self.project.root.joinpath(*package.split(".")))]
        return bool(closed)

    def _declare(self, path: Path) -> Any:
        """Run the imports and definitions of a script, without what it does."""
        body = read(path).tree.body
        headers = {
            part.id
            for node in body
            if isinstance(node, DEFINITIONS)
            for header in (*node.decorator_list, *getattr(node, "bases", ()))
            for part in ast.walk(header)
            if isinstance(part, ast.Name)
        }
        tree = ast.Module([node for node in body if _declares(node, headers)], type_ignores=[])
        name = self.project.name_of(path) or path.stem
        name = f"_{name}" if name in sys.modules else name
        module = sys.modules[name] = types.ModuleType(name)
        module.__file__, module.__package__ = str(path), name.rpartition(".")[0]
        exec(compile(tree, str(path), "exec"), vars(module))
        return module

    def _add_failure(self, path: Path, error: BaseException, level: str) -> None:
        """Add why an import fails, at the project's last line on the way there."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if self.project.has(frame.filename)]
        file, line = (own[-1].filename, own[-1].lineno or 0) if own else (str(path), 0)
        if isinstance(error, SyntaxError) and self.project.has(str(error.filename)):
            file, line = str(error.filename), error.lineno or 0
        if file not in self._absent.files and getattr(error, "name", "") not in self._closed:
            self.add(Finding(short(file), line, *_reason(error), level))

    def add(self, finding: Finding) -> None:
        """Keep a finding, unless its line has one."""
        if NEEDS_LITE in finding.what:
            finding = dataclasses.replace(finding, what=NEEDS_LITE, topic="packages")
        self.findings.setdefault((finding.path, finding.line, finding.subject), finding)


class _Prints(io.TextIOBase):
    """Standard output during imports, which notes the project's line that writes to it."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def write(self, text: str) -> int:
        for frame in reversed(traceback.extract_stack() if text.strip() else ()):
            if self._probe.project.has(frame.filename):
                what = f"prints {text.strip().splitlines()[0][:60]!r} when it is imported"
                self._probe.add(Finding(short(frame.filename), frame.lineno or 0, what, "", "note"))
                break
        return len(text)


def _reason(error: BaseException) -> tuple[str, str]:
    """Return in one line why an import fails, and the correction."""
    text = " ".join(str(error).split())
    if isinstance(error, SystemExit):
        return f"ends the process when it is imported: SystemExit({error.code!r})", ""
    if isinstance(error, SyntaxError):
        return f"no valid Python: {error.msg}", "Python 3"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}", "a file that Python can read"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{error.name}{ABSENT}", correction(error.name, [])
    name = re.match("cannot import name '(.+?)'", text)
    if name and isinstance(error, ImportError) and str(error.name).startswith("mmcv"):
        return str(resolve(str(error.name), name[1])), ""
    if isinstance(error, KeyError) and "already registered" in text:
        return text.strip("\"'"), "@HOOKS.register_module(force=True)"
    is_import = isinstance(error, ImportError)
    return text[:300] if is_import else f"{type(error).__name__}: {text[:300]}", ""


def _declares(node: ast.stmt, headers: set[str]) -> bool:
    """Return whether a statement of a script imports or defines, and does nothing else.

    Args:
        node: The statement.
        headers: The names that decorators and bases use, whose assignments are needed.
    """
    if isinstance(node, (ast.If, ast.Try)):
        handled = [part for handler in getattr(node, "handlers", ()) for part in handler.body]
        parts = (*node.body, *node.orelse, *handled)
        return not is_guard(node) and all(_declares(part, headers) for part in parts)
    called = [dotted(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)]
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        return not called or bool(
            headers & {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        )
    if isinstance(node, ast.Expr):  # it changes where modules are found
        return any(name[:2] == ("sys", "path") for name in called)
    return isinstance(node, (*DEFINITIONS, ast.Import, ast.ImportFrom, ast.Pass))


def main(request: dict[str, Any]) -> None:
    """Write a line before each import, then one with the findings and hooks."""
    project = find(request["target"])
    with open(request["out"], "w", encoding="utf-8") as out:
        standin.install()
        probe = Probe(project, request["skipped"], request["seconds"])
        for loading in probe.run():
            print(json.dumps(loading, default=str), file=out, flush=True)
        files = [path for path in project.files or probe.modules if is_python(path)]
        hooks = []
        print(json.dumps(["", "note"]), file=out, flush=True)
        for one in judge(files, probe.modules, probe.types):
            if isinstance(one, Finding):
                probe.add(one)
            else:
                hooks.append(dataclasses.asdict(one))
        findings = [dataclasses.asdict(one) for one in probe.findings.values()]
        print(json.dumps({"findings": findings, "hooks": hooks}), file=out, flush=True)
