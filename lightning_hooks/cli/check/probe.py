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
import logging
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lightning_hooks import standin
from lightning_hooks.cli.check.absent import AbsentPackages, correction
from lightning_hooks.cli.check.judge import judge, types_of
from lightning_hooks.cli.check.names import resolve
from lightning_hooks.cli.check.project import Project, find
from lightning_hooks.cli.check.report import ABSENT, Finding, short
from lightning_hooks.cli.check.source import dotted, is_guard, is_python, read
from lightning_hooks.standin import habits
from lightning_hooks.standin.lite.names import NEEDS_LITE
from lightning_hooks.utils.config_files import read_config
from lightning_hooks.utils.default_logger import default_logger

__all__ = ["Probe", "main"]


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
        self.types: set[str] = set()
        """The types that the config names."""
        self.findings: dict[tuple[str, int, str], Finding] = {}
        self._absent = AbsentPackages()
        self._skipped = skipped
        self._closed = {project.name_of(Path(path)) for path in skipped}
        """Modules whose failure is reported already."""
        self._seconds = seconds

    def run(self) -> Iterator[tuple[Path, str]]:
        """Import all files, the script that trains first; yield each before its import."""
        project = self.project
        scripts = [project.script] if project.script else []
        sys.path[:0] = map(str, (project.root, Path.cwd()))
        sys.meta_path.append(self._absent)
        sys.modules.update(dict.fromkeys(self._closed))  # type: ignore[arg-type]
        rest = "part" if scripts or len(project.files) > 1 else "start"
        levels = dict.fromkeys(project.files, rest) | dict.fromkeys(scripts, "start")
        for path in [*scripts, *project.files]:
            files = {getattr(one, "__file__", None) for one in sys.modules.copy().values()}
            if str(path) not in {*files, *self._skipped}:
                yield path, levels[path]
                self._attempt(self._load, path, levels[path])
        if project.config:
            yield project.config, "start"
            self._attempt(self._read_config, project.config, "start")
        for module in sys.modules.copy().values():
            path = Path(str(getattr(module, "__file__", None)))
            if path.suffix == ".py" and project.has(path):
                self.modules.setdefault(path, module)

    def _attempt(self, load: Callable[[Path], None], path: Path, level: str) -> None:
        """Load a file, anew after each failure that can be made good."""
        faulthandler.dump_traceback_later(self._seconds, exit=True)
        is_failed = True
        while is_failed:
            printed = io.StringIO()
            try:
                with contextlib.redirect_stdout(printed):
                    load(path)
            except BaseException as error:  # SystemExit, and what else a project raises
                is_failed = self._add_failure(path, error, level)
            else:
                is_failed = False
            if printed.getvalue().strip():
                what = f"prints {printed.getvalue().strip().splitlines()[0][:60]!r}"
                self.add(Finding(short(path), 0, f"{what} when it is imported", "", "note"))
        faulthandler.cancel_dump_traceback_later()

    def _read_config(self, path: Path) -> None:
        config = read_config(path)
        self.types = types_of(config)
        for name in config.get("custom_imports", {}).get("imports", ()):
            importlib.import_module(name)

    def _load(self, path: Path) -> None:
        name = self.project.name_of(path)
        if name and (path.parent / "__init__.py").exists():
            self.modules[path] = importlib.import_module(name)
            return
        body = [node for node in read(path).tree.body if _declares(node)]
        name = name or path.stem
        name = f"_{name}" if name in sys.modules else name
        module = self.modules[path] = sys.modules[name] = types.ModuleType(name)
        module.__file__, module.__package__ = str(path), name.rpartition(".")[0]
        sys.path.insert(0, str(path.parent))
        try:
            exec(compile(ast.Module(body, []), str(path), "exec"), vars(module))
        except BaseException:
            del sys.modules[name], self.modules[path]
            raise
        finally:
            sys.path.remove(str(path.parent))

    def _add_failure(self, path: Path, error: BaseException, level: str) -> bool:
        """Add why an import fails, at the project's last line; return whether to try again."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [(one.filename, one.lineno or 0) for one in frames if self.project.has(one.filename)]
        if isinstance(error, SyntaxError) and self.project.has(str(error.filename)):
            own.append((str(error.filename), error.lineno or 0))
        file, line = own[-1] if own else (str(path), 0)
        imports = read(Path(file)).imports if is_python(Path(file)) else []
        absent = str(getattr(error, "name", ""))
        is_new = absent not in self._absent.names
        if isinstance(error, ModuleNotFoundError) and is_new and not self._is_own(absent):
            write = correction(absent, [one.name for one in imports if one.line == line])
            self.add(Finding(short(file), line, absent + ABSENT, write, level, "packages"))
            self._absent.names.add(absent)
            return True
        is_followed = any(one.module.partition(".")[0] in self._absent.names for one in imports)
        is_known = is_followed or absent in self._closed
        is_module = (path.parent / "__init__.py").exists()
        is_opened = is_module and self._open_packages(self.project.name_of(path))
        if not is_known:
            level = "part" if is_opened else level
            self.add(Finding(short(file), line, *_reason(error), level))
        return is_opened

    def _is_own(self, module: str) -> bool:
        root = module.partition(".")[0]
        below = self.project.root / root
        return root in ("", "mmcv", "None") or below.exists() or below.with_suffix(".py").exists()

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

    def add(self, finding: Finding) -> None:
        """Keep a finding, unless its line has one."""
        if NEEDS_LITE in finding.what:
            finding = dataclasses.replace(finding, what=NEEDS_LITE, topic="packages")
        self.findings.setdefault((finding.path, finding.line, finding.subject), finding)


def _reason(error: BaseException) -> tuple[str, str]:
    """Return in one line why an import fails, and the correction."""
    text = " ".join(str(error).split())[:300]
    name = re.match("cannot import name '(.+?)'", text)
    if isinstance(error, SystemExit):
        return f"ends the process when it is imported: SystemExit({error.code!r})", ""
    if isinstance(error, SyntaxError):
        return f"no valid Python: {error.msg}", "Python 3"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}", "a file that Python can read"
    if isinstance(error, KeyError) and "already registered" in text:
        return text.strip("\"'"), "@HOOKS.register_module(force=True)"
    if not isinstance(error, ImportError):
        return f"{type(error).__name__}: {text}", ""
    of_mmcv = name and str(error.name).startswith("mmcv")
    return str(resolve(str(error.name), name[1])) if name and of_mmcv else text, ""


def _declares(node: ast.AST) -> bool:
    """Return whether a statement of a script imports or defines, and does nothing else."""
    if isinstance(node, (ast.If, ast.Try)):
        inner = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.stmt)]
        return not is_guard(node) and all(map(_declares, inner))
    called = [dotted(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)]
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        return all(name[-1:] == ("Registry",) for name in called)
    if isinstance(node, ast.Expr):  # it changes where modules are found
        return any(name[:2] == ("sys", "path") for name in called)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    return isinstance(node, (*kinds, ast.Pass))


def main(request: dict[str, Any]) -> None:
    """Write a line before each import, then one with the findings and hooks."""
    project = find(request["target"])
    default_logger(0).handlers[:] = [logging.StreamHandler()]  # its lines are no prints of imports
    with open(request["out"], "w", encoding="utf-8") as out:
        standin.install()
        habits.offer()
        probe = Probe(project, request["skipped"], request["seconds"])
        for loading in probe.run():
            print(json.dumps(loading, default=str), file=out, flush=True)
        files = [path for path in project.files or probe.modules if is_python(path)]
        hooks = []
        print(json.dumps(["", "note"]), file=out, flush=True)
        for one in judge(files, probe.modules, probe.types, project.config):
            if isinstance(one, Finding):
                probe.add(one)
            else:
                hooks.append(dataclasses.asdict(one))
        findings = [dataclasses.asdict(one) for one in probe.findings.values()]
        print(json.dumps({"findings": findings, "hooks": hooks}), file=out, flush=True)
