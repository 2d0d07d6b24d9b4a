"""Collect the hooks and the runner's options from a Trainer's callbacks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from lightning_hooks.engine.error_notes import calling
from lightning_hooks.engine.lightning_api.events import skip_unused_events
from lightning_hooks.engine.participant import Participant, RunnerOptions
from lightning_hooks.engine.runner.runner import EpochRunner, IterRunner, Runner
from lightning_hooks.utils.default_logger import default_logger

__all__ = [
    "HostedHooks",
    "callbacks_of",
    "hooks_of",
    "is_lightnings_default",
    "make_runner",
    "participants_of",
    "work_dir_of",
]


def callbacks_of(trainer: L.Trainer) -> list[Callback]:
    """Return the Trainer's callbacks; Lightning does not declare the attribute."""
    return trainer.callbacks  # type: ignore[attr-defined,no-any-return]


def participants_of(trainer: L.Trainer) -> list[Participant]:
    """Return the hooks and adapters among the Trainer's callbacks."""
    return [callback for callback in callbacks_of(trainer) if isinstance(callback, Participant)]


def hooks_of(trainer: L.Trainer) -> list[Any]:
    """Return the hooks of all participants in the order given, in an adapter or not."""
    found: dict[int, Any] = {}
    for participant in participants_of(trainer):
        for hook, _ in participant.entries():
            found.setdefault(id(hook), hook)
    return [*found.values()]


def is_lightnings_default(callback: Callback) -> bool:
    """Return whether a callback is Lightning's default ModelCheckpoint."""
    if type(callback) is not ModelCheckpoint:
        return False
    return callback.monitor is callback.filename is callback.save_last is None


def make_runner(trainer: L.Trainer, module: L.LightningModule, options: RunnerOptions) -> Runner:
    """Return a runner for the options: by epoch, by iteration, or the given object."""
    if options.runner is not None:
        return options.runner  # type: ignore[no-any-return]
    kind = IterRunner if options.by_epoch is False else EpochRunner
    return kind(trainer, module, work_dir_of(trainer, options), default_logger(trainer.global_rank))


def work_dir_of(trainer: L.Trainer, options: RunnerOptions) -> str:
    """Return the directory for the hooks' files: an absolute or a remote path."""
    work_dir = options.work_dir or trainer.default_root_dir
    return work_dir if "://" in work_dir else os.path.abspath(work_dir)


class HostedHooks(list[Participant]):
    """The native hooks of adapters; as callbacks of the Trainer they get Lightning's events."""

    def update(self, trainer: L.Trainer, hooks: Sequence[Any], stage: str) -> None:
        """Make ``trainer.callbacks`` match the hooks."""
        old = [one for one in self if not any(one is hook for hook in hooks)]
        if old:  # a module's configure_callbacks made others for this fit
            lists: tuple[list[Any], ...] = (self, callbacks_of(trainer))
            for among in lists:
                among[:] = [one for one in among if not any(one is hook for hook in old)]
        for hook in hooks:
            self._add(trainer, hook, stage)

    def join_run(self, runner: Runner, *, has_begun: bool) -> None:
        """Make native hooks registered during a run callbacks, and prepare them for the run.

        ``before_run`` is called for hooks of this package and of subclasses. Other hooks are
        called from the next point on, as in mmcv.

        Args:
            runner: The runner of the run.
            has_begun: Whether ``before_run`` has been called for the other hooks.
        """
        for hook in list(runner.hooks):
            if self._add(runner.trainer, hook, "fit"):
                hook.on_fit_start(runner.trainer, runner.module)
                if has_begun and _prepares_in_before_run(hook):
                    with calling(hook, "before_run", runner):
                        hook.before_run(runner)
                if has_begun:
                    hook.on_train_start(runner.trainer, runner.module)
                    skip_unused_events([hook])

    def _add(self, trainer: L.Trainer, hook: Any, stage: str) -> bool:
        """Make a native hook a callback; return whether the hook is new among the callbacks."""
        callbacks = callbacks_of(trainer)
        is_new = isinstance(hook, Participant) and not any(c is hook for c in callbacks)
        if is_new:
            hook.hosted_at = len(self)
            self.append(hook)
            # before Lightning's default ModelCheckpoint, so that ckpt_path="best" is the hook's
            defaults = [i for i, one in enumerate(callbacks) if is_lightnings_default(one)]
            callbacks.insert(min(defaults, default=len(callbacks)), hook)
            hook.setup(trainer, trainer.lightning_module, stage)
        return is_new


def _prepares_in_before_run(hook: Any) -> bool:
    """Whether a class of this package, besides the base of all hooks, has a ``before_run``."""
    return any(
        "before_run" in vars(base) and base.__name__ != "Hook"
        for base in type(hook).__mro__
        if base.__module__.startswith("lightning_hooks.")
    )
