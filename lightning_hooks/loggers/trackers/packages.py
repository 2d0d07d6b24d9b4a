"""Optional packages: asked for at construction, imported when a run begins."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lightning_hooks.utils.suggestions import suggest

__all__ = ["Package", "check_arguments", "environment", "import_all", "require", "tolerant"]


class Package:
    """A class attribute that is a package, imported when it is first read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if self._name in sys.modules:
            return sys.modules[self._name]
        with tolerant():
            return importlib.import_module(self._name)


def import_all(names: Iterable[str]) -> None:
    """Import modules; what cannot be imported is left to whoever needs it.

    Imports make a million objects that stay, and all of them would be looked through for garbage
    again and again, the last time perhaps in the middle of a step: that is done once, afterwards.

    Args:
        names: The modules.
    """
    before, enabled = len(sys.modules), gc.isenabled()
    gc.disable()
    try:
        with tolerant():
            for name in names:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
    finally:
        if enabled:
            gc.enable()
            if len(sys.modules) > before:
                gc.collect()


def require(package: str, user: str, extra: str | None = None) -> None:
    """Complain if a package is not installed; it is not imported.

    Args:
        package: Its name.
        user: Who needs it.
        extra: The extra of ours that it comes with; one of the same name by default.

    Raises:
        ImportError: if it is missing; the message says what to install.
    """
    if importlib.util.find_spec(package) is None:
        raise ImportError(
            f'{user} needs {package}: pip install "lightning_hooks[{extra or package}]"',
            name=package,
        )


def check_arguments(function: Callable[..., Any], given: Iterable[str], user: str) -> None:
    """Complain about arguments that a client's function does not have.

    Raises:
        TypeError: for the first of them.

    >>> check_arguments(os.makedirs, ["mod"], "Mine")
    Traceback (most recent call last):
    TypeError: Mine: makedirs has no argument 'mod'; did you mean 'mode'? Known: exist_ok, mode,
    name
    """
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for name in given:
        if name not in parameters:
            known = suggest(name, parameters)
            raise TypeError(f"{user}: {function.__name__} has no argument {name!r}; {known}")


@contextlib.contextmanager
def environment(**defaults: str) -> Iterator[None]:
    """Set environment variables that the user has not, for a while."""
    missing = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


@contextlib.contextmanager
def tolerant() -> Iterator[None]:
    """Silence what clients warn of each other: with ``-W error`` it would be an error.

    For the main thread only: the filters are the whole process's.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
