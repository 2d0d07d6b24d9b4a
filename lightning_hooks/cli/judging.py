"""Whether old hooks can run here, and what to write where they cannot."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import importlib
import importlib.util
import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from lightning_hooks.cli.reading import HookClass, Import, SourceFile
from lightning_hooks.cli.registries import is_own
from lightning_hooks.dialects import DIALECTS
from lightning_hooks.dialects.detect import MMCV, PACKAGES
from lightning_hooks.epoch_runner import EpochRunner
from lightning_hooks.iter_runner import IterRunner
from lightning_hooks.points import GENERIC, STAGES
from lightning_hooks.registry import MMCV_HOOKS
from lightning_hooks.standin.names import PACKAGES as MODULES
from lightning_hooks.standin.names import names_of
from lightning_hooks.standin.refusals import advice_for

__all__ = ["FileReport", "Finding", "HookReport", "judge"]

GONE = ("PaviLoggerHook", "SegmindLoggerHook")
EVERY = MMCV.union(*(dialect.methods for dialect in DIALECTS.values()))
"""The points of all dialects."""
DISTRIBUTIONS = {"cv2": "opencv-python-headless", "sklearn": "scikit-learn", "yaml": "pyyaml"}
"""What is installed by another name than it is imported by."""
MMENGINE_ARGUMENTS = {"batch_idx", "data_batch", "outputs", "metrics", "checkpoint"}


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that stops a hook, or that whoever uses it should know."""

    line: int
    what: str
    write: str
    cannot_run: bool = True


@dataclasses.dataclass(frozen=True)
class HookReport:
    """One hook class."""

    name: str
    line: int
    dialect: str
    points: tuple[str, ...]
    reads: tuple[str, ...]
    """Attributes of the runner."""
    writes: tuple[str, ...]
    findings: tuple[Finding, ...]


@dataclasses.dataclass(frozen=True)
class FileReport:
    """A file that has hooks, or cannot be read."""

    path: str
    hooks: tuple[HookReport, ...]
    findings: tuple[Finding, ...]
    """What concerns the file as a whole: its imports."""

    @property
    def cannot_run(self) -> bool:
        """Whether something in it stops it."""
        found = [*self.findings, *(one for hook in self.hooks for one in hook.findings)]
        return any(finding.cannot_run for finding in found)


def judge(files: Sequence[SourceFile], packages: Iterable[str] = ()) -> list[FileReport]:
    """Judge files that belong together.

    Args:
        files: The files; what one sets on the runner another may read.
        packages: The top-level packages that they make up.

    Returns:
        A report for each file that has hooks or cannot be read.
    """
    project = _Project(files, frozenset(packages))
    reports = []
    for file in files:
        if file.error is not None:
            wrong = Finding(file.error_line, f"no valid Python: {file.error}", "Python 3")
            reports.append(FileReport(file.path, (), (wrong,)))
            continue
        hooks = tuple(project.report(file, cls) for cls in file.classes if project.is_hook(cls))
        if hooks:
            told = dict.fromkeys(project.imports(file))  # a module, once for all names of it
            reports.append(FileReport(file.path, hooks, tuple(told)))
    return reports


class _Project:
    """What is known of all the files together."""

    def __init__(self, files: Sequence[SourceFile], packages: frozenset[str]) -> None:
        self._packages = packages
        self._sources = files
        self._classes: dict[str, HookClass] = {}
        for file in files:
            self._classes.update({cls.name: cls for cls in file.classes})
        self._files = {id(cls): file for file in files for cls in file.classes}
        self._written = {
            use.attribute
            for cls in self._classes.values()
            for use in cls.uses
            if use.kind == "writes"
        }

    def lineage(self, cls: HookClass) -> list[HookClass]:
        """Return a class and those that it is derived from, as far as they are in the files."""
        found, wanted = [], [cls]
        while wanted:
            one = wanted.pop(0)
            if one not in found:
                found.append(one)
                wanted += [self._classes[base] for base in one.bases if base in self._classes]
        return found

    def bases(self, cls: HookClass) -> set[str]:
        """Return the names of all that a class is derived from, in the files and outside."""
        return {base for one in self.lineage(cls) for base in one.bases}

    def is_hook(self, cls: HookClass) -> bool:
        """Whether a class is a hook: by its registry, its base, or its points."""
        lineage = self.lineage(cls)
        known = {one.name for one in lineage} | {"object"}
        if not self.bases(cls) - known and not any(EVERY & one.methods.keys() for one in lineage):
            return False  # all of it is here, and none of it is a point: of data, say
        if cls.is_registered or any(one.endswith(("Hook", "HookBase")) for one in self.bases(cls)):
            return True
        points = [m for name, m in cls.methods.items() if name in MMCV]
        return not self.bases(cls) - {"object"} and any(m.arguments for m in points)

    def dialect(self, cls: HookClass) -> str:
        """Tell the dialect by the package of the base, else by the points and what they take."""
        lineage = self.lineage(cls)
        for one in lineage:
            for imported in self._files[id(one)].imports:
                if imported.bound in one.bases:
                    ours = imported.module.removeprefix("lightning_hooks.dialects.")
                    known = PACKAGES.get(ours.partition(".")[0])
                    if known is not None:
                        return known
        methods = {name: method for one in lineage for name, method in one.methods.items()}
        if {"before_step", "after_step"} & methods.keys():
            step = methods.get("after_step", methods.get("before_step"))
            assert step is not None
            return "pet" if step.takes_any or step.arguments else "detectron2"
        if any({*m.arguments} & MMENGINE_ARGUMENTS for n, m in methods.items() if n in STAGES):
            return "mmengine"
        return "mmcv"

    def report(self, file: SourceFile, cls: HookClass) -> HookReport:
        """Judge one hook."""
        dialect = self.dialect(cls)
        known = MMCV if dialect == "mmcv" else DIALECTS[dialect].methods
        order = [*STAGES, *GENERIC.values()]
        points = [name for name in cls.methods if name in known]
        points.sort(key=lambda name: order.index(name) if name in order else len(order))
        touched = {kind: _names(cls, kind) for kind in ("reads", "writes", "asks")}
        return HookReport(
            name=cls.name,
            line=cls.line,
            dialect=dialect,
            points=tuple(points),
            reads=tuple(dict.fromkeys([*touched["reads"], *touched["asks"]])),
            writes=touched["writes"],
            findings=tuple(sorted(self._findings(cls, dialect), key=lambda found: found.line)),
        )

    def _findings(self, cls: HookClass, dialect: str) -> Iterator[Finding]:
        asked = _names(cls, "asks")
        missing = [
            use
            for use in cls.uses
            if use.kind == "reads"
            and use.attribute not in {*attributes(dialect), *self._written, *asked}
            and not use.attribute.startswith("__")
        ]
        for use in {use.attribute: use for use in reversed(missing)}.values():
            yield Finding(
                use.line,
                f"reads runner.{use.attribute}, which neither the runner nor a hook here has",
                f"HookAdapter([{cls.name}(...)], attributes={{{use.attribute!r}: ...}})",
                cannot_run=False,
            )
        if dialect == "mmcv":
            yield from _mmcv_findings(cls, self.bases(cls))
            yield from self._taken_names(cls)
        if cls.raises_stop is not None:
            yield Finding(
                cls.raises_stop,
                "raises StopIteration, which reaches you as a RuntimeError",
                "runner.should_stop = True, to end the run",
                cannot_run=False,
            )

    def _taken_names(self, cls: HookClass) -> Iterator[Finding]:
        own = is_own(cls.registry, self._files[id(cls)], self._sources) if cls.registry else True
        for name in () if own else cls.registers:
            if name in MMCV_HOOKS:
                registry = ".".join(cls.registry)
                unless = f", unless {registry} is a registry of the project's own"
                yield Finding(
                    cls.line,
                    f"{name} is a name of mmcv's own, which is registered already"
                    + unless * (own is None),
                    f"@{registry}.register_module(force=True)",
                    cannot_run=own is False,
                )

    def imports(self, file: SourceFile) -> Iterator[Finding]:
        """Judge what a file imports."""
        for imported in file.imports:
            yield from self._import(imported)
        for chain, line in file.chains:
            missing = _missing_of_mmcv(chain)
            if missing is not None:
                yield Finding(line, *missing)

    def _import(self, imported: Import) -> Iterator[Finding]:
        root = imported.module.partition(".")[0]
        if not root or root in self._packages:
            return
        if root == "mmcv":
            name = (imported.name,) if imported.name not in ("", "*") else ()
            missing = _missing_of_mmcv((*imported.module.split("."), *name))
            if missing is not None:
                yield Finding(imported.line, *missing, imported.is_needed)
        elif not _is_there(imported.module):
            yield Finding(
                imported.line,
                f"{imported.module} is not installed",
                _instead_of(imported),
                imported.is_needed,
            )


def _mmcv_findings(cls: HookClass, bases: set[str]) -> Iterator[Finding]:
    for method in cls.methods.values():
        if method.name in MMCV and method.required > 1:
            yield Finding(
                method.line,
                f"{method.name} wants {', '.join(method.arguments[1:])}, and mmcv gives the runner",
                f"def {method.name}(self, runner)",
            )
        elif method.name in MMCV and not (method.arguments or method.takes_any):
            yield Finding(
                method.line,
                f"{method.name} takes no runner",
                f"def {method.name}(self, runner)",
            )
    for base in sorted(bases & {*GONE}):
        yield Finding(cls.line, f"{base}'s service is gone", "another logger as its base")
    if cls.calls_backward is not None and not any("OptimizerHook" in base for base in bases):
        yield Finding(
            cls.calls_backward,
            "runs backward itself",
            f"HookAdapter([{cls.name}(...)], owns_backward=True), if it is the training's",
            cannot_run=False,
        )


def _instead_of(imported: Import) -> str:
    """Say what to write in the place of a module that is not installed."""
    root = imported.module.partition(".")[0]
    if root in PACKAGES:
        ours = importlib.import_module(f"lightning_hooks.dialects.{PACKAGES[root]}")
        if imported.name in ours.__all__:
            return f"from {ours.__name__} import {imported.name}"
    return f"install {DISTRIBUTIONS.get(root, root)}, or copy what is used"


def _names(cls: HookClass, kind: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(use.attribute for use in cls.uses if use.kind == kind))


@functools.cache
def attributes(dialect: str) -> frozenset[str]:
    """Return what the hooks of a dialect find on their runner, or trainer."""
    owners: list[type] = [EpochRunner, IterRunner]
    if dialect != "mmcv":
        owners.append(DIALECTS[dialect].facade)
    names: set[str] = set()
    for cls in {base for owner in owners for base in owner.__mro__ if base is not object}:
        names |= {*vars(cls), *getattr(cls, "__annotations__", {})}
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
        names |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        }
    return frozenset(names)


def _missing_of_mmcv(dotted: Sequence[str]) -> tuple[str, str] | None:
    """Say what the stand-in has not of a dotted name of mmcv's, and what to write instead."""
    if dotted[0] != "mmcv":
        return None
    module = "mmcv"
    for part in dotted[1:]:
        if f"{module}.{part}" in MODULES:
            module = f"{module}.{part}"
        elif part in names_of(module) or part.startswith("__"):
            return None
        else:
            what = f"the stand-in has no {module}.{part}"
            advice = advice_for(f"{module}.{part}")
            if advice is not None:
                return what, advice
            close = difflib.get_close_matches(part, names_of(module), n=1)
            meant = f"{close[0]}, if that was meant; else " if close else ""
            return what, f"{meant}a copy of it in your project, or install mmcv itself"
    return None


@functools.cache
def _is_there(module: str) -> bool:
    """Whether a module can be imported; of packages that are not loaded only the first part."""
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names or root in sys.builtin_module_names:
        return True
    try:
        return importlib.util.find_spec(module if root in sys.modules else root) is not None
    except (ImportError, ValueError, AttributeError):
        return False
