"""Find the files of a project by a path or a module name."""

from __future__ import annotations

import importlib.machinery
import itertools
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

__all__ = ["Project", "find"]

SCRIPTS = ("tools/train.py", ".mim/tools/train.py", "tools/train_net.py", "train.py")
"""Training scripts below a project's folder; ``.mim`` is in the wheels of OpenMMLab."""
THIS_PACKAGE = Path(__file__).parents[2]
SKIPPED = {
    *("__pycache__", "build", "configs", "node_modules", "site-packages", "test", "tests", "venv")
}
"""Folders without modules of the project."""


class Project(NamedTuple):
    """The files to check."""

    root: Path
    """The folder that holds the project's packages."""
    folder: Path
    """The folder of the project's own files."""
    files: tuple[Path, ...] = ()
    """The modules to import after the script."""
    script: Path | None = None
    """The training script."""
    config: Path | None = None
    """The config; the ``custom_imports`` are imported after the script."""

    def has(self, path: str | Path) -> bool:
        """Return whether a file is the project's own, not this or an installed package's."""
        inner = str(path).removeprefix(f"{self.folder}{os.sep}")
        is_ours = Path(path).is_relative_to(THIS_PACKAGE)
        return inner != str(path) and "site-packages" not in inner and not is_ours

    def has_module(self, name: str) -> bool:
        """Return whether a top module or package is in the root."""
        below = self.root / name
        return below.exists() or below.with_suffix(".py").exists()

    def name_of(self, path: Path) -> str:
        """Return the dotted module name of a file; empty for a file outside of the root."""
        parts = path.relative_to(self.root).with_suffix("").parts if self.has(path) else ("-",)
        name = ".".join(parts).removesuffix(".__init__")
        return name if all(part.isidentifier() for part in name.split(".")) else ""


def find(target: str) -> Project:
    """Find the project of a file, a folder, a config, or a module or package. Import nothing.

    Args:
        target: A path, or the dotted name of an installed module.

    Raises:
        FileNotFoundError: if the path or module does not exist.
        ValueError: if the target contains no Python file.
    """
    path = Path(target).expanduser()
    path = Path(os.path.abspath(path if target and path.exists() else _module_path(target)))
    root = _root(path)
    packages = [parent for parent in (path, *path.parents) if (parent / "__init__.py").exists()]
    is_installed = "site-packages" in root.parts or any(root.glob("*.dist-info"))
    folder = packages[-1] if is_installed and packages else root
    if path.is_dir():
        return Project(root, folder, _files_below(path), _script(path))
    if path.suffix in (".yml", ".yaml") or (path.suffix == ".py" and "configs" in path.parts):
        scripts = filter(None, map(_script, path.parents[:5]))
        return Project(root, folder, script=next(scripts, None), config=path)
    if path.suffix != ".py":
        raise ValueError(f"{path} must be a .py file or a YAML config")
    if re.search(rb"^if __name__ == ", path.read_bytes(), re.MULTILINE):
        return Project(root, folder, script=path)
    return Project(root, folder, (path,))


def _root(path: Path) -> Path:
    """Return the nearest folder above with packages, outside of all packages."""
    folders = [path, *path.parents[:4]] if path.is_dir() else [*path.parents[:5]]
    shared = {Path.home(), Path(tempfile.gettempdir())}  # of many projects
    for folder in itertools.takewhile(lambda folder: folder not in shared, folders):
        is_package = (folder / "__init__.py").exists() or folder.name.startswith(".")
        if not is_package and any((*folder.glob("*/__init__.py"), *folder.glob(".git"))):
            return folder
    return folders[0]


def _script(folder: Path) -> Path | None:
    return next((folder / name for name in SCRIPTS if (folder / name).is_file()), None)


def _files_below(folder: Path) -> tuple[Path, ...]:
    files = sorted(
        file
        for file in folder.rglob("*.py")
        if (file.is_file() or file.is_symlink())
        and not any(p in SKIPPED or p.startswith(".") for p in file.relative_to(folder).parts)
    )
    if not files:
        raise ValueError(f"there is no Python file in {folder}")
    return tuple(files)


def _module_path(name: str) -> Path:
    if name in sys.builtin_module_names:
        raise ValueError(f"{name} is built into Python: there is no file to read")
    root, *rest = name.split(".")
    spec = importlib.machinery.PathFinder.find_spec(root) if root.isidentifier() else None
    if spec is not None and spec.origin:
        base = Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)
        path = base.joinpath(*rest)
        for file in (path, path.with_suffix(".py")):
            if file.exists():
                return file
    raise FileNotFoundError(f"there is no file, folder or module {name!r}")
