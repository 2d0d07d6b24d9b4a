"""The parts of a file of old hooks that decide whether it can run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

__all__ = ["HookClass", "Import", "Method", "SourceFile", "Use"]


@dataclasses.dataclass(frozen=True)
class Import:
    """One imported name."""

    module: str
    name: str
    """The name in the module; empty for the module itself."""
    bound: str
    """The name in the file."""
    line: int
    is_needed: bool
    """Whether the file cannot be imported without it."""

    @property
    def root(self) -> str:
        """The first part of the module's name; empty for a relative import."""
        return self.module.partition(".")[0]


@dataclasses.dataclass(frozen=True)
class Use:
    """One access to an attribute of the runner."""

    attribute: str
    line: int
    kind: Literal["reads", "writes", "asks"]
    """``"asks"`` is ``hasattr`` or ``getattr`` with a default: the attribute may be missing."""


@dataclasses.dataclass(frozen=True)
class Method:
    """A method and its arguments."""

    name: str
    line: int
    arguments: tuple[str, ...]
    """Those by position, without ``self``."""
    required: int
    """Number of these without a default."""
    takes_any: bool
    """Whether it has ``*args`` or ``**kwargs``."""


@dataclasses.dataclass(frozen=True, eq=False)
class HookClass:
    """A class, which may be a hook."""

    path: Path
    name: str
    line: int
    bases: tuple[str, ...]
    methods: dict[str, Method]
    uses: tuple[Use, ...]
    registers: tuple[str, ...]
    """The names that a ``register_module`` without ``force=True`` gives it."""
    registry: tuple[str, ...]
    """The dotted name of the registry of hooks that it is put in, if any."""
    calls_backward: int | None
    """The line of the first ``something.backward()``."""
    raises_stop: int | None
    """The line of the first ``raise StopIteration``."""
    reads_checkpoint: int | None
    """The line of the first ``checkpoint_hook.out_dir``, which needs a written file."""
    calls: frozenset[str]
    """The names of all methods that it calls."""


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A Python file."""

    path: Path
    imports: tuple[Import, ...] = ()
    classes: tuple[HookClass, ...] = ()
    chains: tuple[tuple[tuple[str, ...], int], ...] = ()
    """Dotted names that begin with an imported module, as ``("mmcv", "runner", "Hook")``."""
    points: tuple[tuple[str, int], ...] = ()
    """Arguments of ``call_hook`` with their lines: points of a runner of the project's own."""
    mmcv_limits: tuple[tuple[str, str, int], ...] = ()
    """Assigned versions of names like ``mmcv_maximum_version``, with their lines."""
    makes: tuple[str, ...] = ()
    """Names assigned from a call, as ``HOOKS = Registry("hook")``."""
    error: str | None = None
    error_line: int = 0
