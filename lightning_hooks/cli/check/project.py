"""``Project``: the files to check together, found by following their imports."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from lightning_hooks.cli.check.parse import read_source
from lightning_hooks.cli.check.source import Import, SourceFile

__all__ = ["Project", "files_of_module", "is_importable", "packages_of"]


class Project:
    """The files to check, and the further files that they import.

    Args:
        paths: The files to check.
        roots: Folders with modules of the project, besides the one of a file's own package.
    """

    def __init__(self, paths: Sequence[Path], roots: Sequence[Path]) -> None:
        self.read = functools.cache(_read)
        self.files: list[SourceFile] = [self.read(path) for path in paths]
        self._roots = roots

    def files_of(self, path: Path, imported: Import) -> list[Path]:
        """Return the project's files that an import in one of them runs."""
        top, module = _place(path)
        name = imported.module.lstrip(".")
        dots = len(imported.module) - len(name)
        parts = [part for part in (*name.split("."), imported.name.strip("*")) if part]
        if dots:
            package = module if path.stem == "__init__" else module[:-1]
            parts = [*package[: len(package) - dots + 1], *parts]
        roots = [top, *self._roots]
        if dots or parts[:1] == module[:1]:
            roots = [top]
        elif is_importable(parts[0]):  # an installed package, even if its files lie beside
            return []
        return next(filter(None, (list(files_of_module(root, parts)) for root in roots)), [])


def _read(path: Path) -> SourceFile:
    try:
        return read_source(path, path.read_bytes())
    except OSError as error:
        return SourceFile(path, error=f"cannot be read: {error.strerror or error}")


def files_of_module(root: Path, parts: Sequence[str]) -> Iterator[Path]:
    """Yield the files below a folder that importing a dotted name runs."""
    folder = root
    for part in parts:
        module, folder = folder / f"{part}.py", folder / part
        if (folder / "__init__.py").is_file():
            yield folder / "__init__.py"
        elif module.is_file():
            yield module
            return
        elif not folder.is_dir():
            return


def packages_of(path: Path) -> list[Path]:
    """Return the ``__init__.py`` that run before a file of a package does, the outermost first."""
    top, parts = _place(path)
    folders = [top.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
    inits = [folder / "__init__.py" for folder in folders]
    return [init for init in inits if init.exists() and init != path.resolve()]


def _place(path: Path) -> tuple[Path, list[str]]:
    """Return the folder of a file's outermost package, or module, and the parts of its name."""
    path = path.resolve()
    parts = [] if path.stem == "__init__" else [path.stem]
    top = path.parent
    while (top / "__init__.py").exists():
        parts.insert(0, top.name)
        top = top.parent
    return top, parts


@functools.cache
def is_importable(module: str) -> bool:
    """Whether a module is installed; of a package that is not loaded only the root is looked up."""
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names or root in sys.builtin_module_names:
        return True
    try:
        return importlib.util.find_spec(module if root in sys.modules else root) is not None
    except (ImportError, ValueError, AttributeError):
        return False
