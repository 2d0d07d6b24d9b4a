"""A method of a module, or another object, that tells a listener before or after it runs."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Listening", "listens"]


class Listening:
    """Stands for a module's method, on the instance, and tells a listener of its calls.

    Lightning calls some events for the module only: ``on_save_checkpoint`` of a weights-only
    file, ``on_load_checkpoint`` of a file without callbacks; and only the module's own
    ``training_step`` sees what it returned. To Lightning it is the method: same signature, same
    answer to "is it overridden". A copy or a pickle of the module has the plain method again.

    Args:
        module: The module, or other object, whose method it is.
        name: The method's name.
        before: Called with the method's arguments, before it.
        after: Called with the method's result.
    """

    def __init__(
        self,
        module: Any,
        name: str,
        before: Callable[..., None] | None = None,
        after: Callable[[Any], None] | None = None,
    ) -> None:
        self._own = module.__dict__.get(name)  # set on the instance by someone else
        self._module = module
        self._name = name
        self._before, self._after = before, after
        self._listens = True
        self._call: Any = getattr(module, name)
        # the method itself, where several listen: Lightning looks below one layer only
        inner = isinstance(self._call, Listening)
        self.__wrapped__: Any = self._call.__wrapped__ if inner else self._call
        module.__dict__[name] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Do what the method does, and tell the listeners."""
        if self._before is not None:
            self._before(*args, **kwargs)
        result = self._call(*args, **kwargs)
        if self._after is not None:
            self._after(result)
        return result

    def remove(self) -> None:
        """Stop listening; in whatever order several do, the last gives the method back."""
        self._before = self._after = None
        self._listens = False
        found = self._module.__dict__.get(self._name)
        while isinstance(found, Listening) and not found._listens:
            found = found._own
        if found is None:
            self._module.__dict__.pop(self._name, None)
        else:
            self._module.__dict__[self._name] = found

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        module = memo.get(id(self._module), self._module)
        return types.MethodType(getattr(type(module), self._name), module)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._module, self._name)  # the class's: the copy has none of its own


@contextlib.contextmanager
def listens(module: Any, name: str, before: Callable[..., None]) -> Iterator[None]:
    """Listen inside the block."""
    one = Listening(module, name, before)
    try:
        yield
    finally:
        one.remove()
