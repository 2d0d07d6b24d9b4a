"""Patch a method of a single object: call a function before, after or instead of the method."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["MethodPatch", "patched"]


class MethodPatch:
    """A method of a module, or of another object, with callbacks before and after.

    Lightning calls some events for the module only: ``on_save_checkpoint`` of a weights-only file,
    ``on_load_checkpoint`` of a file without callbacks; and Lightning passes the result of
    ``training_step`` to no callback. The patch is an instance attribute with the method's
    signature, so Lightning treats the patch as the method. A copy or a pickle of the module has the
    plain method.

    Args:
        module: The object with the method.
        name: The method's name.
        before: Called before the method, with the method's arguments.
        after: Called with the method's result.
        instead: Called in place of the method.
    """

    def __init__(
        self,
        module: Any,
        name: str,
        before: Callable[..., None] | None = None,
        after: Callable[[Any], None] | None = None,
        instead: Callable[..., Any] | None = None,
    ) -> None:
        self._own = vars(module).get(name)  # an earlier instance attribute
        self._module = module
        self._name = name
        self._before, self._after, self._instead = before, after, instead
        self._is_active = True
        self._call: Any = getattr(module, name)
        # Lightning unwraps a single layer: each of several patches wraps the method itself
        inner = isinstance(self._call, MethodPatch)
        self.__wrapped__: Any = self._call.__wrapped__ if inner else self._call
        vars(module)[name] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the method, or the function instead, between the two callbacks."""
        if self._before is not None:
            self._before(*args, **kwargs)
        result = (self._instead or self._call)(*args, **kwargs)
        if self._after is not None:
            self._after(result)
        return result

    def remove(self) -> None:
        """Remove the patch; of several patches the last removal restores the method."""
        self._before = self._after = self._instead = None
        self._is_active = False
        found = vars(self._module).get(self._name)
        while isinstance(found, MethodPatch) and not found._is_active:
            found = found._own
        if found is None:
            vars(self._module).pop(self._name, None)
        else:
            vars(self._module)[self._name] = found

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        module = memo.get(id(self._module), self._module)
        return types.MethodType(getattr(type(module), self._name), module)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._module, self._name)  # the class's: the copy has no patch


@contextlib.contextmanager
def patched(module: Any, name: str, before: Callable[..., None]) -> Iterator[None]:
    """Call ``before`` ahead of the method inside the block."""
    patch = MethodPatch(module, name, before)
    try:
        yield
    finally:
        patch.remove()
