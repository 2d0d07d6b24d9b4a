"""Change objects for the length of a fit: patched methods, and a stack that undoes the changes."""

from __future__ import annotations

import contextlib
import copy
import types
from collections.abc import Callable, Iterator
from typing import Any

import lightning as L
from lightning.pytorch.trainer.states import TrainerState, TrainerStatus

__all__ = ["FitChanges", "MethodPatch", "setting"]


@contextlib.contextmanager
def setting(owner: Any, **values: Any) -> Iterator[None]:
    """Set attributes of an object in the block; restore or delete the attributes afterwards."""
    own, kind = vars(owner), type(owner)
    kept = [n for n in values if n in own or isinstance(getattr(kind, n, None), property)]
    before = {name: getattr(owner, name) for name in kept}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name in values:
            own.pop(name, None)
        for name, value in before.items():
            setattr(owner, name, value)


class MethodPatch:
    """A method of a module, or of another object, with callbacks before and after.

    Lightning calls some events for the module only: ``on_save_checkpoint`` of a weights-only file,
    ``on_load_checkpoint`` of a file without callbacks; and Lightning passes the result of
    ``training_step`` to no callback. The patch is an instance attribute with the method's
    signature, so Lightning treats the patch as the method. A deep copy or a pickle of the module
    has the plain method.

    Args:
        module: The object with the method.
        name: The method's name.
        before: Called before the method, with the method's arguments.
        after: Called with the method's result.
        instead: Called in place of the method.
    """

    fit: FitChanges | None = None
    """The fit of the patch. The first call after the fit undoes all changes of the fit."""

    def __init__(
        self,
        module: Any,
        name: str,
        before: Callable[..., None] | None = None,
        after: Callable[[Any], None] | None = None,
        instead: Callable[..., Any] | None = None,
    ) -> None:
        self.earlier = vars(module).get(name)  # an earlier instance attribute
        self._module = module
        self._name = name
        self._before, self._after, self._instead = before, after, instead
        self.is_active = True
        self._call: Any = getattr(module, name)
        # Lightning unwraps a single layer: each of several patches wraps the method itself
        inner = isinstance(self._call, MethodPatch)
        self.__wrapped__: Any = self._call.__wrapped__ if inner else self._call
        vars(module)[name] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the method, or the function instead, between the two callbacks."""
        if self.fit is not None and self.fit.state.status is not TrainerStatus.RUNNING:
            self.fit.close()
            self.remove()
        if self._before is not None:
            self._before(*args, **kwargs)
        result = (self._instead or self._call)(*args, **kwargs)
        if self._after is not None:
            self._after(result)
        return result

    def remove(self) -> None:
        """Remove the patch; of several patches the last removal restores the method."""
        self._before = self._after = self._instead = None
        self.is_active = False
        outer = vars(self._module).get(self._name)
        while isinstance(outer, MethodPatch) and not outer.is_active:
            outer = outer.earlier
        if outer is None:
            vars(self._module).pop(self._name, None)
        else:
            vars(self._module)[self._name] = outer

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if self.earlier is not None:
            return copy.deepcopy(self.earlier, memo)
        module = memo.get(id(self._module), self._module)
        return types.MethodType(getattr(type(module), self._name), module)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._module, self._name)  # the class's: the copy has no patch


class FitChanges(contextlib.ExitStack):
    """All changes made for a fit, validation or test of a Trainer; closing the stack undoes them.

    A hook finds the stack at ``Driver.of(trainer).fit``, from the hook's ``setup`` on, and keeps no
    patch itself::

        fit = Driver.of(trainer).fit
        fit.patch(module, "on_save_checkpoint", before=self._save)  # until the end of the fit
        fit.callback(handle.remove)  # any other change, undone likewise
        fit.enter_context(setting(loader, collate_fn=collate))

        probes = fit.part()  # changes to undo earlier, with probes.close()
        fit.patch(module, "training_step", after=self._stop, until=probes)

    A change that must outlive the fit, as of a file saved after the run, is a :class:`MethodPatch`
    of the hook.

    If a callback raises in ``on_exception``, Lightning calls no further event of any callback. The
    changes are then undone by the next fit of a hook or of the Trainer, or at the first call of a
    patched method.

    Args:
        trainer: The Trainer; None for a stack without changes.
    """

    def __init__(self, trainer: L.Trainer | None = None) -> None:
        super().__init__()
        self.trainer, self.state = trainer, TrainerState()
        self._module: L.LightningModule | None = None
        if trainer is not None:
            self.state, self._module = trainer.state, trainer.lightning_module
            self.callback(setattr, self, "_module", None)

    def is_of(self, trainer: L.Trainer) -> bool:
        """Whether the stack is for the Trainer's present fit, and not closed yet."""
        return self.trainer is trainer and self._module is trainer.lightning_module

    @property
    def is_running(self) -> bool:
        """Whether the Trainer is at work; false after an error, before any ``on_exception``."""
        return self.state.status is TrainerStatus.RUNNING

    def close_if_over(self) -> None:
        """Close the stack where Lightning calls ``configure_callbacks`` for the Trainer's next fit.

        Neither an evaluation by another Trainer in the fit, nor a call by the user, ends the fit.
        """
        module: Any = self._module
        by_lightning = getattr(module, "_current_fx_name", "") == "configure_callbacks"
        if not self.is_running or (by_lightning and module.trainer is self.trainer):
            self.close()

    def part(self) -> contextlib.ExitStack:
        """Return a stack for changes to undo before the end of the fit."""
        return self.enter_context(contextlib.ExitStack())

    def patch(
        self,
        owner: Any,
        name: str,
        before: Callable[..., None] | None = None,
        after: Callable[[Any], None] | None = None,
        instead: Callable[..., Any] | None = None,
        *,
        until: contextlib.ExitStack | None = None,
    ) -> None:
        """Patch a method, as :class:`MethodPatch` does, for the length of the fit.

        Args:
            owner: The object with the method.
            name: The method's name.
            before: Called before the method, with the method's arguments.
            after: Called with the method's result.
            instead: Called in place of the method.
            until: A part of the fit, for a patch to remove earlier.
        """
        self.hold(MethodPatch(owner, name, before, after, instead), until)

    def hold(self, patch: MethodPatch, until: contextlib.ExitStack | None) -> None:
        """Keep a patch until the end of the fit, or of a part of the fit."""
        patch.fit = self
        (until or self).callback(patch.remove)
