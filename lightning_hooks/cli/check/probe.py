"""The process of a check: import the project like a training does, and write down failures.

The files are imported with the stand-in installed. Code for ``__main__`` is not run.
"""

from __future__ import annotations

import difflib
import faulthandler
import importlib
import importlib.util
import inspect
import json
import os
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import torch

from lightning_hooks import standin
from lightning_hooks.cli.check.declarations import run_declarations
from lightning_hooks.cli.check.packages import AbsentPackages, provider_of
from lightning_hooks.cli.check.project import THIS_PACKAGE, Project, find
from lightning_hooks.cli.check.report import ABSENT, OURS, Finding
from lightning_hooks.dialects import DIALECTS, detect
from lightning_hooks.dialects.dialect import MMCV
from lightning_hooks.engine.points import POINTS
from lightning_hooks.standin import habits, placeholders
from lightning_hooks.standin.placeholders import placeholder_name
from lightning_hooks.utils.config_files import read_config
from lightning_hooks.utils.secrets import masked

__all__ = ["Probe", "fault_of_ours", "main", "place_of"]

EMPTY = {"Hook", "HookBase", *(dialect.base for dialect in DIALECTS.values())}
"""Base classes with points that do nothing."""
EVERY_POINT = MMCV.union(*(dialect.methods for dialect in DIALECTS.values()))
ORDER = [*POINTS, *sorted(EVERY_POINT - MMCV)]


class Probe:
    """Imports the files of a project and writes a JSON line for each result.

    Args:
        project: The files.
        out: Where the lines go: ``{"loading": ...}``, ``{"finding": ...}``, ``{"hook": ...}``, and
            ``{"path": ...}`` for a script that needs a folder on Python's path.
        seconds: The time limit of an import; a longer import ends the process.
    """

    def __init__(self, project: Project, out: TextIO, seconds: float) -> None:
        self.project = project
        self._out = out
        self._seconds = seconds
        self._absent = AbsentPackages()
        self._written: set[str] = set()
        self._failed: list[str] = []
        """Packages with a failing ``__init__``, as ``"lab.core."``."""

    def run(self) -> None:
        """Import the script, then the config's modules, then all other files; list the hooks."""
        project = self.project
        sys.path.pop(0)  # the current folder: the command that trains has the script's folder
        sys.meta_path.append(self._absent)
        placeholders.placeholder = self._absent.stand_in  # type: ignore[assignment]  # no cache
        if project.script:
            self._attempt(self._load, project.script, "start")
        sys.path[:0] = map(str, (project.root, Path.cwd()))
        if project.config:
            self._attempt(self._read_config, project.config, "start")
        for finding in () if torch.cuda.is_available() else self._cuda_calls():
            self._write("finding", finding)
        for path in project.files:
            name = project.name_of(path)
            if path not in dict(self._own_modules()) and not name.startswith(tuple(self._failed)):
                self._attempt(self._load, path, self._level_of(path))
        modules = dict(self._own_modules())
        if project.files:
            modules = {path: modules[path] for path in project.files if path in modules}
        for finding in self._placeholders(modules):
            self._write("finding", finding)
        for hook in hooks_in(modules):
            self._write("hook", hook)

    def _write(self, kind: str, value: Finding | dict[str, Any] | str) -> None:
        line = json.dumps({kind: value}, default=vars)
        if line not in self._written:
            self._written.add(line)
            print(line, file=self._out, flush=True)

    def _level_of(self, path: Path) -> str:
        """Return ``"start"`` for the only file and for the ``__init__`` of a top package."""
        is_package = path.name == "__init__.py" and path.parent.parent == self.project.root
        is_needed = is_package or len(self.project.files) == 1
        return "start" if is_needed and not self.project.script else "part"

    def _attempt(self, load: Callable[[Path], None], path: Path, level: str) -> None:
        """Load a file; replace missing packages and load the file again."""
        print(json.dumps({"loading": [str(path), level]}), file=self._out, flush=True)
        faulthandler.dump_traceback_later(self._seconds, exit=True)
        again = True
        while again:
            again = False
            try:
                load(path)
            except BaseException as error:  # SystemExit too, and any other that a project raises
                again = self._add_failure(path, error, level)
        if self._absent.of_lite and "mmcv-lite" not in self._absent.names:
            self._absent.names.add("mmcv-lite")
            write = provider_of("mmcv-lite")
            self._write("finding", Finding(str(path), 0, f"mmcv-lite{ABSENT}", write, level))
        faulthandler.cancel_dump_traceback_later()

    def _read_config(self, path: Path) -> None:
        for name in read_config(path).get("custom_imports", {}).get("imports", ()):
            importlib.import_module(name)

    def _load(self, path: Path) -> None:
        name = self.project.name_of(path)
        if name and (path.parent / "__init__.py").exists():
            importlib.import_module(name)
            return
        run_declarations(path, name)

    def _add_failure(self, path: Path, error: BaseException, level: str) -> bool:
        """Report a failed import at the project's last line; return whether to try again."""
        file, line = place_of(error, self.project, path)
        source = Path(file).read_text("utf-8", "replace") if Path(file).is_file() else ""
        absent = str(getattr(error, "name", ""))
        is_new = isinstance(error, ModuleNotFoundError) and absent not in self._absent.names
        root = str(self.project.root)
        if is_new and self._is_own(absent) and root not in sys.path:
            sys.path.append(root)
            self._write("path", os.path.relpath(root))
            return True
        if is_new and not self._is_own(absent):
            package = absent.partition(".")[0]
            if importlib.util.find_spec(package):
                what, write = f"the installed {package} has no module {absent}", ""
            else:
                what, write = f"{package}{ABSENT}", provider_of(absent, source)
            self._write("finding", Finding(file, line, what, write, level))
            self._absent.names.add(absent)
            return True
        if path.name == "__init__.py":
            self._failed.append(f"{self.project.name_of(path)}.")
        roots = {name.partition(".")[0] for name in self._absent.names}
        fault = fault_of_ours(error)
        if fault or not any(name in source for name in roots | self._absent.of_lite):
            self._write("finding", Finding(file, line, f"{fault}{_reason(error)}", "", level))
        return False

    def _is_own(self, module: str) -> bool:
        root = module.partition(".")[0]
        return root in ("", "mmcv", "None") or self.project.has_module(root)

    def _own_modules(self) -> Iterator[tuple[Path, types.ModuleType]]:
        for module in sys.modules.copy().values():
            path = Path(os.path.normpath(str(getattr(module, "__file__", None))))
            if path.suffix == ".py" and self.project.has(path):
                yield path, module

    def _cuda_calls(self) -> Iterator[Finding]:
        """Find ``.cuda()`` where the training begins: in the script and in modules ``*.apis.*``."""
        for path, _ in self._own_modules():
            text = path.read_text("utf-8", "replace")
            begins = path == self.project.script or path.parent.name == "apis"
            if begins and ".cuda(" in text and "cuda.is_available" not in text:
                line = text[: text.index(".cuda(")].count("\n") + 1
                yield Finding(str(path), line, "calls .cuda(), and here is no GPU", "", "gpu")

    @staticmethod
    def _placeholders(modules: dict[Path, types.ModuleType]) -> Iterator[Finding]:
        """Find imported names of mmcv that raise an error on use."""
        for path, module in modules.items():
            values = (value for value in vars(module).copy().values() if callable(value))
            unusable = sorted({*filter(None, map(placeholder_name, values))})
            if unusable:
                what = f"{', '.join(unusable)} raises an error when it is used"
                yield Finding(str(path), 0, what, "", "note")


# -- hooks --------------------------------------------------------------------------------------


def hooks_in(modules: Mapping[Path, types.ModuleType]) -> Iterator[dict[str, Any]]:
    """Yield a report for each hook class in some modules, as in ``Report.hooks``.

    Args:
        modules: The imported modules by file.
    """
    texts = {path: path.read_text("utf-8", "replace") for path in modules}
    for path, module in modules.items():
        for cls in vars(module).copy().values():
            if isinstance(cls, type) and cls.__module__ == module.__name__ and _is_hook(cls):
                yield _report(cls, path, texts)


def _is_hook(cls: type) -> bool:
    bases = [base.__name__ for base in cls.__mro__[1:-1]]
    if any(name.endswith(("Hook", "HookBase")) for name in bases):
        return True
    return not bases and any(point in vars(cls) for point in EVERY_POINT)


def _report(cls: type, path: Path, texts: Mapping[Path, str]) -> dict[str, Any]:
    match = re.search(rf"^class {cls.__name__}\b", texts[path], re.MULTILINE)
    line = texts[path].count("\n", 0, match.start()) + 1 if match else 0
    attention = []
    try:
        dialect = detect(object.__new__(cls))
    except (TypeError, ValueError) as error:  # abstract, without points, or of several dialects
        dialect = ""
        if not inspect.isabstract(cls):
            attention.append(masked(str(error)))
    known = DIALECTS[dialect].methods if dialect in DIALECTS else MMCV
    points = [point for point in ORDER if point in known and _implements(cls, point)]
    uncalled = {name for name in vars(cls) if name.startswith(("before_", "after_"))} - known
    for name in sorted(uncalled) if dialect else ():
        call = re.compile(rf"\.{name}\(|['\"]{name}['\"]")
        if inspect.isfunction(vars(cls)[name]) and not any(map(call.search, texts.values())):
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
            hint = f"; did you mean {close[0]}?" if close else ""
            attention.append(f"{name} is called at no point{hint}")
    found_at = {"path": str(path), "line": line, "name": cls.__name__}
    return {**found_at, "dialect": dialect, "points": points, "attention": attention}


def _implements(cls: type, point: str) -> bool:
    owner = next((base for base in cls.__mro__ if point in vars(base)), None)
    return owner is not None and owner.__name__ not in EMPTY


# -- errors -------------------------------------------------------------------------------------


def place_of(error: BaseException, project: Project, path: Path) -> tuple[str, int]:
    """Return the last file and line of a project in an error; the given path and 0 if none."""
    file, line = str(path), 0
    for frame in traceback.extract_tb(error.__traceback__):
        name = os.path.abspath(frame.filename)  # of "tools/../lab/a.py" with such a path
        if project.has(name):
            file, line = name, frame.lineno or 0
    if isinstance(error, SyntaxError) and project.has(str(error.filename)):
        file, line = str(error.filename), error.lineno or 0
    return file, line


def fault_of_ours(error: BaseException) -> str:
    """Return ``OURS`` and the place of an error in this package; empty for any other error.

    An error that this package raises on purpose is the answer to an error of the project.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not Path(frames[-1].filename).is_relative_to(THIS_PACKAGE):
        return ""
    last, checks = frames[-1], Path(__file__).parent
    if (last.line or "").startswith("raise") or Path(last.filename).is_relative_to(checks):
        return ""
    return f"{OURS}, {Path(last.filename).relative_to(THIS_PACKAGE.parent)}:{last.lineno}: "


def _reason(error: BaseException) -> str:
    """Return the reason of an error in a single line."""
    text = masked(" ".join(str(error).split()))[:300]
    if isinstance(error, SystemExit):
        return f"ends the process when it is imported: SystemExit({masked(repr(error.code))})"
    if isinstance(error, SyntaxError):
        return f"no valid Python 3: {error.msg}"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}"
    return text if isinstance(error, ImportError) else f"{type(error).__name__}: {text}"


# -- the process --------------------------------------------------------------------------------


def main(out: str, seconds: str, target: str) -> None:
    """Check a target; write the results to a file."""
    standin.install()
    habits.offer()
    with open(out, "w", encoding="utf-8") as lines:
        Probe(find(target), lines, float(seconds)).run()
        print('{"done": true}', file=lines, flush=True)
    os._exit(0)  # a thread of the project may never end


if __name__ == "__main__":
    main(*sys.argv[1:])
