"""Imports of old files that fail here, followed through the project's own files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lightning_hooks.cli.check.project import Project
from lightning_hooks.cli.check.report import Finding, short
from lightning_hooks.cli.check.source import Import
from lightning_hooks.cli.check.unresolved import Mmcv, missing

__all__ = ["Imports"]


class Imports:
    """Finds imports of a project's files that fail.

    Args:
        project: The files.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self._mmcv = Mmcv.found()

    def findings(self, path: Path) -> list[Finding]:
        """Return the imports of a file that fail, each reason once."""
        found = list(self._missing(path))
        for chain, line in self._project.read(path).chains:
            absent = self._mmcv.missing(chain)
            if absent is not None:
                found.append(Finding(line, *absent))
        blocked = None if any(one.cannot_run for one in found) else self._blocked(path)
        return list(dict.fromkeys([*found, blocked] if blocked else found))

    def _blocked(self, path: Path) -> Finding | None:
        """Return the first failure in the project's files that importing one runs."""
        files: list[tuple[Path, Import | None]] = [(path, None)]
        visited = {path.resolve()}
        for inner, origin in files:  # the list grows
            if origin is not None:
                for finding in self._missing(inner):
                    if finding.cannot_run:
                        return _elsewhere(origin, inner, finding)
            for imported in self._project.read(inner).imports:
                for file in self._project.files_of(inner, imported) if imported.is_needed else ():
                    if file.resolve() not in visited:
                        visited.add(file.resolve())
                        files.append((file, origin or imported))
        return None

    def _missing(self, path: Path) -> Iterator[Finding]:
        """Yield the failing imports of one file, without those of the project's other files."""
        file = self._project.read(path)
        if file.error is not None:
            write = (
                "Python 3" if file.error_line else "a file that Python can read, or leave it out"
            )
            yield Finding(file.error_line, file.error, write)
        for name, bound, line in file.mmcv_limits:
            if self._mmcv.is_excluded(name, bound):
                version = self._mmcv.version
                what = f"{name} = {bound!r}, and the version of mmcv is {version}"
                yield Finding(line, what, f"{name} = {version!r}")
        for imported in file.imports:
            if imported.root and not self._project.files_of(path, imported):
                absent = missing(imported, self._mmcv)
                if absent is not None:
                    yield Finding(imported.line, *absent, imported.is_needed)


def _elsewhere(origin: Import, path: Path, found: Finding) -> Finding:
    """Return a failure in another file as one of the import that runs it."""
    where = f"{short(path)}:{found.line}" if found.line else short(path)
    name = origin.module if origin.module.strip(".") else f"{origin.module}{origin.name}"
    what = f"importing {name} runs {where}, and there {found.what}"
    return Finding(origin.line, what, found.write)
