"""Find the Python files of a path or module, and judge them without importing any."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from lightning_hooks.cli.check.project import Project
from lightning_hooks.cli.check.report import FileReport
from lightning_hooks.cli.check.verdict import judge

__all__ = ["check"]

SKIPPED = {"__pycache__", "build", "node_modules", "site-packages", "venv"}


def check(target: str) -> list[FileReport]:
    """Judge a file, all files below a folder, or those of a module or package.

    Args:
        target: A path, or a dotted name that Python finds; nothing is imported.

    Returns:
        A report for each file that has hooks or cannot be read, or imported.

    Raises:
        FileNotFoundError: if there is no such path and no such module.
        ValueError: if there is no Python file.
    """
    path = Path(target).expanduser()
    if not (target and path.exists()):
        path = _module_path(target)
    folder = path if path.is_dir() else path.parent
    return judge(Project(_python_files(path), roots=[Path.cwd(), folder]))


def _python_files(path: Path) -> list[Path]:
    if path.is_file():
        if path.suffix == ".ipynb":
            convert = f"jupyter nbconvert --to script {path}"
            raise ValueError(f"{path} is a notebook: {convert} makes a file to check")
        if path.suffix != ".py":
            raise ValueError(f"{path} is no Python file, whose name ends in .py")
        return [path]
    files = sorted(
        found
        for found in path.rglob("*.py")
        if (found.is_file() or found.is_symlink())
        and not any(p in SKIPPED or p.startswith(".") for p in found.relative_to(path).parts)
    )
    if not files:
        raise ValueError(f"there is no Python file in {path}")
    return files


def _module_path(name: str) -> Path:
    root, *rest = name.split(".")
    missing = FileNotFoundError(f"there is no file, folder or module {name!r}")
    try:
        spec = importlib.util.find_spec(root) if root.isidentifier() else None
    except (ImportError, ValueError):
        spec = None
    if spec is None or not (spec.submodule_search_locations or spec.origin):
        raise missing
    if spec.origin in ("built-in", "frozen"):
        raise ValueError(f"{name} is built into Python: there is no file to read")
    if not spec.submodule_search_locations:
        if rest:
            raise missing
        return Path(str(spec.origin))
    path = Path(next(iter(spec.submodule_search_locations)), *rest)
    for found in (path, path.with_suffix(".py")):
        if found.exists():
            return found
    raise missing
