"""Join a Trainer: the first of our callbacks in it puts a driver before itself."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import lightning as L

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.error_notes import class_name
from lightning_hooks.engine.lightning_api.events import EVENTS
from lightning_hooks.engine.participant import Participant
from lightning_hooks.engine.usage_errors import for_objects, refuse_misplaced
from lightning_hooks.utils.arguments import check_first, check_keywords, check_python_lists

__all__ = ["JoinsTrainer"]

LIGHTNING_LOGGING = ("log", "log_dict")
"""The methods of the module that Lightning sets on every callback before it calls any of them."""


class JoinsTrainer(Participant):
    """The base of hooks and adapters: checks how it is used, and joins the Trainer in ``setup``."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Suggest a name for a misspelt argument; refuse lists that are not Python's."""
        if kwargs:
            check_keywords(cls, kwargs)
        if args:
            check_python_lists(cls.__name__, args)
            cls._check_positional(args)
        return super().__new__(cls)

    @classmethod
    def _check_positional(cls, args: Sequence[Any]) -> None:
        """Raise a clearer error than Python's for a known mistake in positional arguments."""
        check_first(cls, args[0])

    def on_after_setup(self, fabric: Any, *args: Any, **kwargs: Any) -> None:
        """Refuse Fabric, which calls this event alone: hooks would do nothing in silence.

        Raises:
            TypeError: always.
        """
        name = class_name(self)
        raise TypeError(
            f"{name} is called by a Trainer, not by Fabric; write lightning.Trainer(callbacks=...)"
        )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make a subclass's own ``setup`` join the Trainer where it does not call ``super()``."""
        super().__init_subclass__(**kwargs)
        own = vars(cls).get("setup")
        if own is not None:

            @functools.wraps(own)
            def setup(
                self: Any, trainer: L.Trainer, pl_module: L.LightningModule, stage: str
            ) -> None:
                JoinsTrainer.setup(self, trainer, pl_module, stage)
                own(self, trainer, pl_module, stage)

            cls.setup = for_objects(setup)  # type: ignore[method-assign]

    @for_objects
    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Make sure that the Trainer has its driver.

        Raises:
            TypeError: if the Trainer is that of the package ``pytorch_lightning``, or was given
                what is no callback.
        """
        if not isinstance(trainer, L.Trainer):
            raise TypeError(
                f"{type(self).__name__} needs lightning.Trainer, got that of "
                f"{type(trainer).__module__.partition('.')[0]}: its classes are others; "
                "write `import lightning as L` and L.Trainer, L.LightningModule"
            )
        refuse_misplaced(trainer)
        for name in LIGHTNING_LOGGING:
            if callable(getattr(type(self), name, None)):  # an mmcv logger's log(runner)
                vars(self).pop(name, None)
        Driver.of(trainer, stage)

    @property
    def log_dict(self) -> Any:
        """The module's ``log_dict``, in a fit.

        Raises:
            AttributeError: before the first fit.
        """
        if "_log_dict" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no 'log_dict' before a fit")
        return self._log_dict

    @log_dict.setter
    def log_dict(self, method: Any) -> None:
        # Lightning sets it before it calls any callback: the first moment to look at all of them
        trainer = getattr(getattr(method, "__self__", None), "trainer", None)
        if isinstance(trainer, L.Trainer):
            refuse_misplaced(trainer)
        self._log_dict = method

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the module's ``log``, by which a copy would hold it, and skipped events."""
        state = {name: v for name, v in vars(self).items() if v is not None or name not in EVENTS}
        for name in (*LIGHTNING_LOGGING, "_log_dict"):
            state.pop(name, None)
        return state

    # -- what is given to another argument of the Trainer than callbacks ---------------------

    def __repr__(self) -> str:
        # Lightning shows it where one is given as plugin, strategy or loader
        return f"<{type(self).__name__}, for Trainer(callbacks=[...])>"

    def finalize(self, status: str) -> None:
        """Refuse to be a logger: Lightning calls this method of one first.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{self!r} was given as Trainer(logger=...)")

    def profile(self, action_name: str) -> Any:
        """Refuse to be a profiler: Lightning calls this method of one first.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{self!r} was given as Trainer(profiler=...)")
