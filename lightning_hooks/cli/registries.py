"""Whose registry a file's hooks are registered in: mmcv's, or one of the project's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from lightning_hooks.cli.reading import Import, SourceFile

__all__ = ["is_own"]


def is_own(registry: Sequence[str], file: SourceFile, files: Sequence[SourceFile]) -> bool | None:
    """Say whether a registry is made in the project, and so has names of its own.

    Args:
        registry: Its dotted name in the file, as ``("HOOKS",)``.
        file: The file that uses it.
        files: All files of the project, through which imports are followed.

    Returns:
        Whether it is; None where it comes from a file that is not among them.

    >>> from lightning_hooks.cli.reading import read_source
    >>> made = read_source("hooks/registry.py", "HOOKS = Registry('hook')")
    >>> used = read_source("hooks/ema.py", "from .registry import HOOKS")
    >>> is_own(("HOOKS",), used, [used, made]), is_own(("HOOKS",), used, [used])
    (True, None)
    """
    name = registry[0]
    seen: list[SourceFile] = []
    while file not in seen:
        seen.append(file)
        if name in file.makes:
            return True
        source = next((one for one in file.imports if one.bound == name), None)
        if source is None or source.module.partition(".")[0] == "mmcv":
            return False
        found = _file(source, file, files)
        if found is None:
            return None
        file, name = found, source.name
    return None


def _file(source: Import, importer: SourceFile, files: Sequence[SourceFile]) -> SourceFile | None:
    """Find the file that an import reads, by the end of its path."""
    dotted = source.module.lstrip(".")
    level = len(source.module) - len(dotted)
    above = PurePath(importer.path).parts[:-level] if level else ()
    parts = (*above, *filter(None, dotted.split(".")))
    wanted = [(*parts[:-1], f"{parts[-1]}.py"), (*parts, "__init__.py")] if parts else []
    for one in files:
        path = PurePath(one.path).parts
        if any(path[-len(end) :] == end for end in wanted):
            return one
    return None
