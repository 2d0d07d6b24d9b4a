"""What importing old files runs, and what of it is missing here."""

from __future__ import annotations

import difflib
import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lightning_hooks.cli.reading import Import, SourceFile
from lightning_hooks.cli.reports import Finding
from lightning_hooks.dialects.detect import PACKAGES
from lightning_hooks.standin.names import PACKAGES as MODULES
from lightning_hooks.standin.names import names_of
from lightning_hooks.standin.refusals import advice_for
from lightning_hooks.standin.versions import MMCV_VERSION, digit_version

__all__ = ["Imports", "packages_of", "unreadable"]

DISTRIBUTIONS = {
    "PIL": "pillow",
    "cv2": "opencv-python",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""What to install for a module of another name."""


class Imports:
    """Follows imports into the project's own files, which importing one runs too.

    Args:
        read: Reads a file.
        roots: Where the project's modules may lie, besides beside a file's own package.
    """

    def __init__(self, read: Callable[[Path], SourceFile], roots: Sequence[Path]) -> None:
        self._read = read
        self._roots = roots

    def findings(self, path: Path) -> Iterator[Finding]:
        """Judge what a file imports, and what that runs of the project's other files."""
        file = self._read(path)
        found = list(self._missing(path))
        for chain, line in file.chains:
            missing = _missing_of_mmcv(chain)
            if missing is not None:
                found.append(Finding(line, *missing))
        yield from found
        blocked = None if any(one.cannot_run for one in found) else self.blocked(path)
        if blocked is not None:
            yield blocked

    def blocked(self, path: Path) -> Finding | None:
        """Return what stops the project's files that importing one runs, if something does."""
        order: list[Path] = [path]
        origins: dict[Path, Import | None] = {path.resolve(): None}
        for one in order:  # which grows
            origin = origins[one.resolve()]
            if origin is not None:
                for found in self._missing(one):
                    if found.cannot_run:
                        return _elsewhere(origin, self._read(one), found)
            for imported in self._read(one).imports:
                for inner in self.own(one, imported) if imported.is_needed else ():
                    if inner.resolve() not in origins:
                        origins[inner.resolve()] = origin or imported
                        order.append(inner)
        return None

    def own(self, path: Path, imported: Import) -> list[Path]:
        """Return the project's files that an import in one of them runs."""
        top, mine = _place(path)
        name = imported.module.lstrip(".")
        dots = len(imported.module) - len(name)
        parts = [part for part in (*name.split("."), imported.name.strip("*")) if part]
        if dots:
            package = mine if path.stem == "__init__" else mine[:-1]
            parts = [*package[: len(package) - dots + 1], *parts]
        # what is installed comes before the project's other folders
        elsewhere = [] if dots or not parts or _is_there(parts[0]) else self._roots
        for root in [top, *elsewhere]:
            found = list(_run_by(root, parts))
            if found:
                return found
        return []

    def _missing(self, path: Path) -> Iterator[Finding]:
        """Say what one file cannot have."""
        file = self._read(path)
        yield from unreadable(file)
        for name, version, line in file.mmcv_limits:
            if _excludes(name, version):
                yield Finding(
                    line,
                    f"{name} = {version!r}, and the stand-in says to be mmcv {MMCV_VERSION}",
                    f"{name} = {MMCV_VERSION!r}",
                )
        for imported in file.imports:
            if not imported.module.startswith(".") and not self.own(path, imported):
                yield from _missing(imported)


def unreadable(file: SourceFile) -> tuple[Finding, ...]:
    """Return what kept a file from being read."""
    if file.error is None:
        return ()
    write = "Python 3" if file.error_line else "a file that Python can read, or leave it out"
    return (Finding(file.error_line, file.error, write),)


def packages_of(path: Path) -> list[Path]:
    """Return the ``__init__.py`` that run before a file of a package does, the outermost first."""
    top, parts = _place(path)
    folders = [top.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
    inits = [folder / "__init__.py" for folder in folders]
    return [init for init in inits if init.exists() and init != path.resolve()]


def _place(path: Path) -> tuple[Path, list[str]]:
    """Return where a file's outermost package, or module, lies, and the parts of its name."""
    path = path.resolve()
    parts = [] if path.stem == "__init__" else [path.stem]
    top = path.parent
    while (top / "__init__.py").exists():
        parts.insert(0, top.name)
        top = top.parent
    return top, parts


def _run_by(root: Path, parts: Sequence[str]) -> Iterator[Path]:
    """Yield the files below a folder that importing a dotted name runs."""
    folder = root
    for part in parts:
        folder = folder / part
        module = folder.parent / f"{part}.py"
        if (folder / "__init__.py").is_file():
            yield folder / "__init__.py"
        elif module.is_file():
            yield module
            return
        elif not folder.is_dir():
            return


def _elsewhere(origin: Import, file: SourceFile, found: Finding) -> Finding:
    where = f"{file.path}:{found.line}" if found.line else file.path
    name = origin.module if origin.module.strip(".") else f"{origin.module}{origin.name}"
    return Finding(
        origin.line, f"importing {name} runs {where}, and there {found.what}", found.write
    )


def _excludes(name: str, version: str) -> bool:
    """Whether a bound like ``mmcv_maximum_version`` excludes the stand-in's mmcv."""
    try:
        bound, ours = digit_version(version), digit_version(MMCV_VERSION)
    except ValueError:
        return False
    return ours < bound if "min" in name.lower() else ours > bound


def _missing(imported: Import) -> Iterator[Finding]:
    root = imported.module.partition(".")[0]
    if root == "mmcv":
        name = (imported.name,) if imported.name not in ("", "*") else ()
        missing = _missing_of_mmcv((*imported.module.split("."), *name))
        if missing is not None:
            yield Finding(imported.line, *missing, imported.is_needed)
    elif not _is_there(imported.module):
        dialect = PACKAGES.get(root)
        instead = f"from lightning_hooks.dialects.{dialect} import {imported.name}"
        yield Finding(
            imported.line,
            f"{imported.module} is not installed",
            instead
            if dialect and imported.name
            else f"install {DISTRIBUTIONS.get(root, root)}, or copy what is used",
            imported.is_needed,
        )


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
