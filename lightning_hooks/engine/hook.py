"""``Hook``: the base of every native hook, a Lightning Callback with mmcv's ten points."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import lightning as L

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook_callback import HookCallback
from lightning_hooks.engine.lightning_api.callback_list import check_callbacks
from lightning_hooks.engine.lightning_api.events import EVENTS
from lightning_hooks.engine.points import GENERIC, POINTS, STAGES
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.engine.usage_errors import parameter_names, plain_arguments
from lightning_hooks.utils.attributes import weak_property
from lightning_hooks.utils.origin import is_ours
from lightning_hooks.utils.secrets import masked

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Hook"]


def _joins(setup: Callable[..., None]) -> Callable[..., None]:
    """Make a ``setup`` join the Trainer first, also without a call of ``super().setup()``."""

    @functools.wraps(setup)
    def join(self: Any, trainer: Any, pl_module: Any = None, stage: str = "fit") -> None:
        if isinstance(self, L.Trainer):  # Lightning has called the function of a class
            check_callbacks(self)
        if not isinstance(trainer, L.Trainer):
            raise TypeError(
                f"{type(self).__name__} needs lightning.Trainer, got that of "
                f"{type(trainer).__module__.partition('.')[0]}: the two packages share no classes; "
                "write `import lightning as L` and L.Trainer, L.LightningModule. If the import is "
                "a library's, call lightning_hooks.use_with_pytorch_lightning() before the library "
                "is imported"
            )
        if self._joined_fit is None or not self._joined_fit.is_of(trainer):
            if not Driver.of(trainer).take_in(self, trainer, stage):
                return
        elif type(self).setup is join:  # the second call; else a subclass's setup has joined
            return
        setup(self, trainer, pl_module, stage)

    return join


class Hook(HookCallback):
    """A Lightning Callback with mmcv's points: override points, pass to ``Trainer(callbacks=...)``.

    :class:`~lightning_hooks.engine.points.Point` draws the loop with the ten points. The four
    generic points (``before_iter`` ...) are called from specific points that are not overridden.
    The argument is the run's :class:`~lightning_hooks.engine.runner.runner.Runner`.
    ``super().__init__()`` need not be called.

    Note:
        Departures from mmcv: ``end_of_epoch`` finds the last batch also with a loader without
        length and with Lightning's limits.

    >>> class Greeter(Hook):
    ...     def before_run(self, runner):
    ...         print("hello")
    >>> Greeter().get_triggered_stages()
    ['before_run']
    """

    stages: tuple[str, ...] = STAGES
    """The ten points, in mmcv's order."""

    run_before: Any = ()
    """Hooks to call after this hook, whatever the priorities (a class, a name, or several)."""

    run_after: Any = ()
    """Hooks to call before the hook; see :mod:`lightning_hooks.engine.hook_order`."""

    _plain_arguments: dict[str, Any]

    # -- the ten points --------------------------------------------------------------------

    def before_run(self, runner: Runner) -> None:
        """Before the first epoch; optimizers and loaders exist."""

    def after_run(self, runner: Runner) -> None:
        """After the last epoch, unless an error ended the run."""

    def before_epoch(self, runner: Runner) -> None:
        """Before each training and each validation epoch."""

    def after_epoch(self, runner: Runner) -> None:
        """After each training and each validation epoch."""

    def before_iter(self, runner: Runner) -> None:
        """Before each training and each validation step."""

    def after_iter(self, runner: Runner) -> None:
        """After each training and each validation step."""

    def before_train_epoch(self, runner: Runner) -> None:
        """Before each training epoch."""
        self.before_epoch(runner)

    def before_val_epoch(self, runner: Runner) -> None:
        """Before each validation epoch."""
        self.before_epoch(runner)

    def after_train_epoch(self, runner: Runner) -> None:
        """After each training epoch, before the epoch's last validation."""
        self.after_epoch(runner)

    def after_val_epoch(self, runner: Runner) -> None:
        """After each validation epoch."""
        self.after_epoch(runner)

    def before_train_iter(self, runner: Runner) -> None:
        """Before each training step."""
        self.before_iter(runner)

    def before_val_iter(self, runner: Runner) -> None:
        """Before each validation step."""
        self.before_iter(runner)

    def after_train_iter(self, runner: Runner) -> None:
        """After each training step; ``runner.iter`` does not count the step yet."""
        self.after_iter(runner)

    def after_val_iter(self, runner: Runner) -> None:
        """After each validation step."""
        self.after_iter(runner)

    # -- helpers ---------------------------------------------------------------------------

    def every_n_epochs(self, runner: Runner, n: int) -> bool:
        """Whether the epoch is an ``n``-th; never for ``n`` of 0 or less."""
        return (runner.epoch + 1) % n == 0 if n > 0 else False

    def every_n_inner_iters(self, runner: Runner, n: int) -> bool:
        """Whether the iteration is an ``n``-th of the epoch; never for ``n`` of 0 or less."""
        return (runner.inner_iter + 1) % n == 0 if n > 0 else False

    def every_n_iters(self, runner: Runner, n: int) -> bool:
        """Whether the iteration is an ``n``-th of the run; never for ``n`` of 0 or less."""
        return (runner.iter + 1) % n == 0 if n > 0 else False

    def end_of_epoch(self, runner: Runner) -> bool:
        """Whether the iteration is the epoch's last."""
        last = getattr(runner, "is_last_batch", None)
        if last is None:
            return bool(runner.inner_iter + 1 == len(runner.data_loader))
        return bool(last)

    def is_last_epoch(self, runner: Runner) -> bool:
        """Whether the epoch is the run's last."""
        return bool(runner.epoch + 1 == runner.max_epochs)

    def is_last_iter(self, runner: Runner) -> bool:
        """Whether the iteration is the run's last."""
        return bool(runner.iter + 1 == runner.max_iters)

    def get_triggered_stages(self) -> list[str]:
        """The overridden points, in mmcv's order."""
        return [stage for stage in STAGES if self._method_at(stage) is not None]

    def _method_at(self, point: str) -> Callable[..., None] | None:
        """Return the method of a point, or of the point's generic one, if it is no stock method."""
        for name in (point, GENERIC.get(point, point)):
            method = getattr(self, name, None)
            if callable(method) and getattr(method, "__func__", method) is not STOCK.get(name):
                return method  # type: ignore[no-any-return]
        return None

    # -- as a callback ---------------------------------------------------------------------

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Answer likely mistakes; keep the plain arguments, which distinguish hooks of a class."""
        hook = super().__new__(cls)
        hook.__dict__ = {}  # CPython reads such a dict twice as fast as one that vars() has made
        hook._plain_arguments = plain_arguments(cls, args, kwargs)
        return hook

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make a subclass's own ``setup``, or a mixin's, join the Trainer; name our arguments."""
        super().__init_subclass__(**kwargs)
        owner = next(base for base in cls.__mro__ if "setup" in vars(base))
        if owner is cls or not issubclass(owner, Hook):
            cls.setup = _joins(cls.setup)  # type: ignore[method-assign]
        if is_ours(cls) and "__init__" in vars(cls):
            # an argument kept as _<name>, for old subclasses that use the name, is read by name;
            # an annotated attribute is kept under the name, and is read faster without a property
            for name in parameter_names(cls.__init__)[1:]:
                if not hasattr(cls, name) and name not in cls.__annotations__:
                    setattr(cls, name, weak_property(attrgetter(f"_{name}")))

    @_joins
    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Make sure that the Trainer has its driver.

        Raises:
            TypeError: if the Trainer is from the package ``pytorch_lightning``, or has a callback
                that is a class or no callback.
        """

    _transient: Sequence[str] = ("_joined_fit", "log", "log_dict", "state_key")
    """Attributes of a run, left out of copies and pickles; those of all base classes count."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the attributes of a run, and skipped events."""
        left_out = {name for cls in type(self).__mro__ for name in vars(cls).get("_transient", ())}
        state = {name: v for name, v in vars(self).items() if v is not None or name not in EVENTS}
        return {name: value for name, value in state.items() if name not in left_out}

    def _state_arguments(self) -> dict[str, Any]:
        """Return the arguments that distinguish stateful hooks of a class, without secrets."""
        return dict(masked(self._plain_arguments))

    @functools.cached_property
    def state_key(self) -> str:
        """The key of the hook's state in a checkpoint, from class, arguments and hosted place.

        Lightning reads the key at every event.
        """
        place = "" if self._hosted_at is None else f"[{self._hosted_at}]"
        return f"{type(self).__qualname__}{self._state_arguments() or ''}{place}"


STOCK = {name: getattr(Hook, name) for name in POINTS}
"""The methods that do nothing."""
