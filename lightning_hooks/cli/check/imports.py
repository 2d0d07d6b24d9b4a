"""What importing old files runs, and what of it is missing here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lightning_hooks.cli.check.report import Finding
from lightning_hooks.cli.check.source import Import, SourceFile
from lightning_hooks.cli.check.unresolved import Mmcv, is_there, missing, run_by

__all__ = ["Imports", "packages_of", "unreadable"]


class Imports:
    """Follows imports into the project's own files, which importing one runs too.

    Args:
        read: Reads a file.
        roots: Where the project's modules may lie, besides beside a file's own package.
    """

    def __init__(self, read: Callable[[Path], SourceFile], roots: Sequence[Path]) -> None:
        self._read = read
        self._roots = roots
        self._mmcv = Mmcv.found()

    def findings(self, path: Path) -> Iterator[Finding]:
        """Judge what a file imports, and what that runs of the project's other files."""
        file = self._read(path)
        found = list(self._missing(path))
        for chain, line in file.chains:
            told = self._mmcv.missing(chain)
            if told is not None:
                found.append(Finding(line, *told))
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
        roots = [top, *self._roots]
        if dots or parts[:1] == mine[:1]:
            roots = [top]
        elif is_there(parts[0]):  # not to be followed, though it lie beside in site-packages
            roots = []
        for root in roots:
            found = list(run_by(root, parts))
            if found:
                return found
        return []

    def _missing(self, path: Path) -> Iterator[Finding]:
        """Say what one file cannot have."""
        file = self._read(path)
        yield from unreadable(file)
        for name, bound, line in file.mmcv_limits:
            if self._mmcv.is_excluded(name, bound):
                yield Finding(
                    line,
                    f"{name} = {bound!r}, and mmcv says to be {self._mmcv.version}",
                    f"{name} = {self._mmcv.version!r}",
                )
        for imported in file.imports:
            if not imported.module.startswith(".") and not self.own(path, imported):
                told = missing(imported, self._mmcv)
                if told is not None:
                    yield Finding(imported.line, *told, imported.is_needed)


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


def _elsewhere(origin: Import, file: SourceFile, found: Finding) -> Finding:
    where = f"{file.path}:{found.line}" if found.line else file.path
    name = origin.module if origin.module.strip(".") else f"{origin.module}{origin.name}"
    return Finding(
        origin.line, f"importing {name} runs {where}, and there {found.what}", found.write
    )
