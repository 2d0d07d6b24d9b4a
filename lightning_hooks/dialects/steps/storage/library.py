"""The stacks of storages that a loaded library keeps: its own hooks and writers read them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

__all__ = ["enter", "gives_iterations", "leave", "storage_modules"]

_STACK = "_CURRENT_STORAGE_STACK"
"""The name of the stack in the modules of detectron2, cvpods, Pet, and copies of theirs."""


def enter(storage: Any, modules: Iterable[ModuleType]) -> None:
    """Make a storage the innermost one of the modules."""
    for module in modules:
        vars(module)[_STACK].append(storage)


def leave(storage: Any, modules: Iterable[ModuleType]) -> None:
    """Remove a storage from the stacks of the modules."""
    for module in modules:
        stack = vars(module)[_STACK]
        stack[:] = [other for other in stack if other is not storage]


def storage_modules(packages: Iterable[str], objects: Iterable[Any]) -> list[ModuleType]:
    """Return the loaded modules that have a stack of storages.

    Args:
        packages: Names of the library's packages.
        objects: Hooks and others; the packages of their classes and of their writers' are searched
            too, since projects have copies of the library.
    """
    given = list(objects)
    given += [writer for one in given for writer in getattr(one, "_writers", None) or ()]
    classes = {base for one in given for base in type(one).__mro__}
    roots = {*packages, *(cls.__module__.partition(".")[0] for cls in classes)}
    roots -= {"builtins", "lightning_hooks"}
    found: dict[int, ModuleType] = {}
    for name, module in sys.modules.copy().items():  # other threads import
        stack = vars(module).get(_STACK) if name.partition(".")[0] in roots else None
        # others may have imported it from the module of the storage
        if isinstance(stack, list) and (id(stack) not in found or "EventStorage" in vars(module)):
            found[id(stack)] = module
    return list(found.values())


def gives_iterations(module: ModuleType) -> bool:
    """Return whether ``latest()`` of a module's EventStorage gives values with their iterations."""
    if "EventStorage" not in vars(module):
        return False
    storage = vars(module)["EventStorage"](0)
    storage.put_scalar("value", 0.0)
    return isinstance(storage.latest()["value"], tuple)
