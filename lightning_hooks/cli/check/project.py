"""``Project``: the files behind the target of a check, and the one that begins the training."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from pathlib import Path
from typing import NamedTuple

from lightning_hooks.cli.check.source import is_guard, is_python, read

__all__ = ["Project", "find"]

SKIPPED = {"__pycache__", "build", "node_modules", "site-packages", "test", "tests", "venv"}
TRAINERS = ("tools/train.py", ".mim/tools/train.py", "tools/train_net.py", "train.py")
"""Scripts that train, below a project's folder; ``.mim`` is in the wheels of OpenMMLab."""
CONFIG_KEYS = {"_base_", "model", "data", "optimizer", "lr_config", "log_config", "custom_hooks"}


class Project(NamedTuple):
    """The files to check."""

    root: Path
    """The folder from which the project's packages are imported."""
    folder: Path
    """The folder of the project's own files."""
    files: tuple[Path, ...] = ()
    """The files to judge; if empty, those that the script loads."""
    script: Path | None = None
    """The script that trains."""
    config: Path | None = None
    """Its config."""

    def has(self, path: str | Path) -> bool:
        """Return whether a file is the project's own, and not an installed package's."""
        inner = str(path).removeprefix(f"{self.folder}{os.sep}")
        return inner != str(path) and "site-packages" not in inner

    def name_of(self, path: Path) -> str:
        """Return the dotted name under which a file is imported; empty if it has none."""
        parts = path.relative_to(self.root).with_suffix("").parts if self.has(path) else ("-",)
        name = ".".join(parts).removesuffix(".__init__")
        return name if all(part.isidentifier() for part in name.split(".")) else ""


def find(target: str) -> Project:
    """Find the project of a file, a folder, a config, or a module or package.

    Args:
        target: A path, or a dotted name that Python finds; nothing is imported.

    Raises:
        FileNotFoundError: if there is no such path and no such module.
        ValueError: if there is no Python file.
    """
    path = Path(target).expanduser()
    path = Path(os.path.abspath(path if target and path.exists() else _module_path(target)))
    root = _root(path)
    packages = [one for one in (path, *path.parents) if (one / "__init__.py").exists()]
    is_installed = "site-packages" in root.parts or any(root.glob("*.dist-info"))
    folder = packages[-1] if is_installed and packages else root
    if path.is_dir():
        return Project(root, folder, _files_below(path), _script(path))
    if _is_config(path):
        scripts = filter(None, map(_script, path.parents[:5]))
        return Project(root, folder, script=next(scripts, None), config=path)
    if path.suffix == ".ipynb":
        convert = f"jupyter nbconvert --to script {path}"
        raise ValueError(f"{path} is a notebook: {convert} makes a file to check")
    if path.suffix != ".py":
        raise ValueError(f"{path} is no Python file, whose name ends in .py, and no YAML config")
    if is_python(path) and any(map(is_guard, read(path).tree.body)):
        return Project(root, folder, script=path)
    return Project(root, folder, (path,))


def _root(path: Path) -> Path:
    """Return the nearest folder above that has packages and is none."""
    folders = [path, *path.parents[:4]] if path.is_dir() else [*path.parents[:5]]
    for folder in folders:
        is_package = (folder / "__init__.py").exists() or folder.name.startswith(".")
        if not is_package and any((*folder.glob("*/__init__.py"), *folder.glob(".git"))):
            return folder
    return folders[0]


def _script(folder: Path) -> Path | None:
    return next((folder / name for name in TRAINERS if (folder / name).is_file()), None)


def _is_config(path: Path) -> bool:
    if path.suffix != ".py" or not is_python(path):
        return path.suffix in (".yml", ".yaml")
    names = {one.parts[0] for one in read(path).names if one.kind == "write" and not one.owner}
    return bool(CONFIG_KEYS & names) and not read(path).lines


def _files_below(folder: Path) -> tuple[Path, ...]:
    files = sorted(
        found
        for found in folder.rglob("*.py")
        if (found.is_file() or found.is_symlink())
        and not _is_config(found)
        and not any(p in SKIPPED or p.startswith(".") for p in found.relative_to(folder).parts)
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
        for found in (path, path.with_suffix(".py")):
            if found.exists():
                return found
    raise FileNotFoundError(f"there is no file, folder or module {name!r}")
