"""What there is to know of a file of old hooks."""

from __future__ import annotations

import dataclasses
from typing import Literal

__all__ = ["HookClass", "Import", "Method", "SourceFile", "Use"]


@dataclasses.dataclass(frozen=True)
class Import:
    """One imported name."""

    module: str
    name: str
    """The name in the module; empty for the module itself."""
    bound: str
    """What it is called in the file."""
    line: int
    is_needed: bool
    """Whether the file cannot be imported without it."""


@dataclasses.dataclass(frozen=True)
class Use:
    """One touch of an attribute of the runner."""

    attribute: str
    line: int
    kind: Literal["reads", "writes", "asks"]
    """``"asks"``: by ``hasattr`` or with a default, so that it may be missing."""


@dataclasses.dataclass(frozen=True)
class Method:
    """A method and what it takes."""

    name: str
    line: int
    arguments: tuple[str, ...]
    """Those by position, without ``self``."""
    required: int
    """How many of them have no default."""
    takes_any: bool
    """Whether it has ``*args`` or ``**kwargs``."""


@dataclasses.dataclass(frozen=True)
class HookClass:
    """A class, which may be a hook."""

    name: str
    line: int
    bases: tuple[str, ...]
    methods: dict[str, Method]
    uses: tuple[Use, ...]
    registers: tuple[str, ...]
    """The names that a ``register_module`` without ``force=True`` gives it."""
    registry: tuple[str, ...]
    """The dotted name of the registry for hooks that it is put in, if any."""
    calls_backward: int | None
    """The line of the first ``something.backward()``."""
    raises_stop: int | None
    """The line of the first ``raise StopIteration``."""
    reads_checkpoint: int | None
    """The line of the first ``checkpoint_hook.out_dir``: it wants a file that is written."""
    calls: frozenset[str]
    """The names of the methods that it calls, of whatever."""

    @property
    def is_registered(self) -> bool:
        """Whether it is put in a registry for hooks."""
        return bool(self.registry)


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A Python file."""

    path: str
    imports: tuple[Import, ...] = ()
    classes: tuple[HookClass, ...] = ()
    chains: tuple[tuple[tuple[str, ...], int], ...] = ()
    """Dotted names that begin with an imported module, as ``("mmcv", "runner", "Hook")``."""
    points: tuple[tuple[str, int], ...] = ()
    """What it gives ``call_hook``, as a runner of one's own does."""
    mmcv_limits: tuple[tuple[str, str, int], ...] = ()
    """Names like ``mmcv_maximum_version`` with the version that they are given."""
    makes: tuple[str, ...] = ()
    """What the file itself makes by a call, as ``HOOKS = Registry("hook")``."""
    error: str | None = None
    error_line: int = 0
