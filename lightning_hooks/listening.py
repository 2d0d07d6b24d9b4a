"""A method of a module that tells a listener before it runs."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import lightning as L

__all__ = ["Listening", "listens"]


class Listening:
    """Stands for a module's method, on the instance, and calls a listener first.

    Lightning calls some events for the module only: ``on_save_checkpoint`` of a weights-only
    file, ``on_load_checkpoint`` of a file without callbacks. A copy or a pickle of the module
    has the plain method again.

    Args:
        module: The module.
        name: The method's name.
        listener: Called with the method's arguments.
    """

    def __init__(self, module: L.LightningModule, name: str, listener: Callable[..., None]) -> None:
        self._own = module.__dict__.get(name)  # set on the instance by someone else
        self._module = module
        self._name = name
        self._listener: Callable[..., None] | None = listener
        self.__wrapped__ = getattr(module, name)
        module.__dict__[name] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Tell the listener, then do what the method does."""
        if self._listener is not None:
            self._listener(*args, **kwargs)
        return self.__wrapped__(*args, **kwargs)

    def remove(self) -> None:
        """Stop listening; in whatever order several do, the last gives the method back."""
        self._listener = None
        found = self._module.__dict__.get(self._name)
        while isinstance(found, Listening) and found._listener is None:
            found = found._own
        if found is None:
            self._module.__dict__.pop(self._name, None)
        else:
            self._module.__dict__[self._name] = found

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        module = memo.get(id(self._module), self._module)
        return types.MethodType(getattr(type(module), self._name), module)

    def __reduce__(self) -> tuple[Any, ...]:
        method = getattr(type(self._module), self._name)
        return types.MethodType, (method, self._module)


@contextlib.contextmanager
def listens(module: L.LightningModule, name: str, listener: Callable[..., None]) -> Iterator[None]:
    """Listen inside the block."""
    one = Listening(module, name, listener)
    try:
        yield
    finally:
        one.remove()
