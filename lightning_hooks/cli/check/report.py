"""What ``check`` tells of files and of the hooks in them."""

from __future__ import annotations

import dataclasses

__all__ = ["TORCH", "FileReport", "Finding", "HookReport"]

TORCH = "torch"
"""The dialect of what its name calls a hook, and is one of torch's modules: no runner calls it."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that stops a hook, or that whoever uses it should know."""

    line: int
    """0 for the file as a whole."""
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
    """Its own, and those of its bases in the files."""
    reads: tuple[str, ...]
    """Attributes of the runner."""
    writes: tuple[str, ...]
    findings: tuple[Finding, ...]
    inherits: bool = False
    """Whether a base outside of the files may have further points."""

    @property
    def is_of_runner(self) -> bool:
        """Whether a runner calls it."""
        return self.dialect != TORCH


@dataclasses.dataclass(frozen=True)
class FileReport:
    """A file that has hooks, cannot be read, or keeps those beside it from being imported."""

    path: str
    hooks: tuple[HookReport, ...]
    findings: tuple[Finding, ...]
    """What concerns the file as a whole: its imports."""

    @property
    def cannot_run(self) -> bool:
        """Whether something in it stops it."""
        found = [*self.findings, *(one for hook in self.hooks for one in hook.findings)]
        return any(finding.cannot_run for finding in found)
