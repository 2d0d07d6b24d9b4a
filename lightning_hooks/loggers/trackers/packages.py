"""Handle optional packages: required at construction, imported when a run begins."""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import operator
import os
import sys
import threading
import typing
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Literal

from lightning_hooks.utils.arguments import check_choice
from lightning_hooks.utils.suggestions import suggest

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = [
    "Package",
    "check_arguments",
    "check_client",
    "environment",
    "import_clients",
    "tolerant",
    "uses_package",
]


class Package:
    """A class attribute for a package, imported by the first access."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if self._name in sys.modules:
            return sys.modules[self._name]
        with tolerant():
            return importlib.import_module(self._name)


def import_clients(hooks: Iterable[Any], runner: Runner) -> None:
    """Import the clients of tracker hooks: an import in a thread holds up each step.

    Imports make a million permanent objects, and the garbage collector would search all objects
    repeatedly, perhaps in the middle of a step. The collector runs once, after the imports.
    """
    before, enabled = len(sys.modules), gc.isenabled()
    gc.disable()
    try:
        with tolerant():
            for hook in hooks:
                with contextlib.suppress(Exception):  # a broken client is reported later
                    for name in hook._modules(runner):
                        importlib.import_module(name)
    finally:
        if enabled:
            gc.enable()
            if len(sys.modules) > before:
                gc.collect()


def uses_package(cls: type, package: str) -> bool:
    """Whether the file of a class, or of a parent, imports a package or a part of the package."""
    files = filter(None, (sys.modules.get(each.__module__) for each in cls.__mro__))
    for value in (value for file in files for value in [*vars(file).values()]):
        is_part = isinstance(value, (type, FunctionType))
        home = value.__name__ if isinstance(value, ModuleType) else is_part and value.__module__
        if isinstance(home, str) and home.partition(".")[0] == package:
            return True
    return False


def check_arguments(function: Callable[..., Any], given: Mapping[str, Any], user: str) -> None:
    """Check that a client's function has the given arguments, with these words for a closed choice.

    Raises:
        TypeError: for the first unknown name.
        ValueError: for a word that is none of the ``Literal`` of the function's annotation.

    >>> check_arguments(os.makedirs, {"mod": 1}, "Mine")
    Traceback (most recent call last):
    TypeError: Mine: makedirs has no argument 'mod'; did you mean 'mode'? Known: exist_ok, mode,
    name
    """
    parameters = inspect.signature(function).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name, value in given.items():
        if words := _words_of(function, name):
            if isinstance(value, str):
                check_choice(f"{user}: {name}", value, words)
        elif not (takes_all or name in parameters):
            listed_by = f"help({function.__module__}.{function.__qualname__})"
            known = suggest(name, parameters, listed_by)
            raise TypeError(f"{user}: {function.__name__} has no argument {name!r}; {known}")


def _words_of(function: Callable[..., Any], name: str) -> list[str]:
    """Return the words that an argument's annotation allows; none for an open choice."""
    hints: dict[str, Any] = {}
    with contextlib.suppress(Exception):  # annotations that do not exist at run time
        hints = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function)
    kind = hints.get(name)
    kinds = [kind] if typing.get_origin(kind) is Literal else [*typing.get_args(kind)]
    words = [word for each in kinds for word in typing.get_args(each)]
    return [] if str in kinds else [word for word in words if isinstance(word, str)]


def check_client(hook: Any, given: Mapping[str, Any]) -> None:
    """Check a user's arguments for the client of a tracker hook; the client is imported."""
    function = None
    with contextlib.suppress(Exception), tolerant():  # a broken client is reported later
        function = operator.attrgetter(hook._start_function)(importlib.import_module(hook._package))
    if inspect.isroutine(function) or inspect.isclass(function):  # no mock of a test
        check_arguments(function, given, type(hook).__name__)


_ENVIRONMENT = threading.Lock()
_BLOCKS: Counter[str] = Counter()  # of `environment` that are open, by a variable set there


@contextlib.contextmanager
def environment(**defaults: str) -> Iterator[None]:
    """Set environment variables temporarily; variables with a value are left unchanged.

    If blocks of several threads overlap, a variable stays until the last block ends.
    """
    with _ENVIRONMENT:
        missing = [name for name in defaults if name not in os.environ or _BLOCKS[name]]
        for name in missing:
            os.environ.setdefault(name, defaults[name])
        _BLOCKS.update(missing)
    try:
        yield
    finally:
        with _ENVIRONMENT:
            _BLOCKS.subtract(missing)
            for name in missing:
                if not _BLOCKS[name]:
                    os.environ.pop(name, None)


@contextlib.contextmanager
def tolerant() -> Iterator[None]:
    """Silence warnings inside clients, which would be errors with ``-W error``.

    For the main thread only: the filters belong to the whole process.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
