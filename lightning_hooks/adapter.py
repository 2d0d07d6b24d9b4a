"""``HookAdapter``: a Callback that hosts many hooks, native or foreign, in mmcv's order."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import lightning as L

from lightning_hooks.dialects import foreign, host_as
from lightning_hooks.dialects.hosting import Hosted, load_states, save_states
from lightning_hooks.engine.checkpoint_file import CheckpointFile
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.hook_callback import HookCallback, RunnerOptions
from lightning_hooks.engine.hook_list import HookList, hook_info
from lightning_hooks.engine.priority import default_priority, get_priority
from lightning_hooks.engine.registry import HOOKS, build_with_order
from lightning_hooks.engine.roster import check_each_once
from lightning_hooks.hooks.saving.best import BestFiles
from lightning_hooks.hooks.saving.directory import newest_of
from lightning_hooks.hooks.saving.due import SavingHook, files_of, last_directory
from lightning_hooks.hooks.saving.last import CheckpointHook
from lightning_hooks.storage import find_checkpoints
from lightning_hooks.utils.arguments import (
    check_bool,
    check_dict,
    check_function,
    check_path,
    shown,
)
from lightning_hooks.utils.secrets import masked

__all__ = ["HookAdapter"]

T = TypeVar("T")


class HookAdapter(Hook):
    """Runs hooks of mmcv's style unchanged inside a ``lightning.Trainer``.

    A hook is a hook of this package, an object of a real mmcv class, or any object with mmcv's
    methods. Pass the object, ``(hook, priority)`` or a config dict (``dict(type="EMAHook",
    momentum=2e-4, priority=49)``). The default priority is the priority of the hook's family.
    ``run_before`` and ``run_after``, attributes of the hook or keys of the config, order a hook
    against other hooks whatever the priorities (:mod:`lightning_hooks.engine.hook_order`). All
    hooks of a Trainer, in several adapters or none, share a Runner and an order. The adapter's own
    points are never called. An adapter in another adapter gives its hooks, with their priorities;
    the options are the outer adapter's.

    Args:
        hooks: A hook or several: objects, ``(hook, priority)`` pairs, config dicts.
        dialect: Library of the hooks: ``"mmcv"``, ``"mmengine"``,
            ``"detectron2"``, ``"cvpods"``, ``"cvpods_master"``, ``"pet"`` or ``"pointrix"`` (see
            ``lightning_hooks.dialects``); ``"auto"`` detects the library by class and methods.
        work_dir: Directory for the hooks' files; the Trainer's ``default_root_dir`` by default.
        by_epoch: Whether the run is counted in epochs (mmcv's EpochBasedRunner) or in iterations
            (IterBasedRunner).
        meta: mmcv's ``runner.meta`` at the start.
        model: Function that picks ``runner.model.module``: ``lambda module: module.backbone``; by
            default the LightningModule itself, or the inner model of a ``TrainStepModule``.
        attributes: Attributes set on the runner, for old hooks. A ``data_loader`` is only visible
            in ``before_run``; epochs iterate the Trainer's loader.
        owns_backward: Whether the hooks call ``loss.backward()`` and ``optimizer.step()``;
            ``"auto"``: if an OptimizerHook does.

    Raises:
        UnknownNameError: for an unknown hook type, priority or dialect, with the closest name.
        TypeError: for an object without points, or an argument of the wrong type.
        ValueError: for a hook given twice, an ambiguous dialect, or contradictory ``run_before``
            and ``run_after``.

    >>> from lightning_hooks import Hook
    >>> adapter = HookAdapter([dict(type="IterTimerHook"), (Hook(), "LOW")])
    >>> [type(hook).__name__ for hook in adapter.hooks]
    ['IterTimerHook', 'Hook']
    """

    def __init__(
        self,
        hooks: Any = (),
        *,
        dialect: str = "auto",
        work_dir: str | None = None,
        by_epoch: bool = True,
        meta: dict[str, Any] | None = None,
        model: Callable[[Any], Any] | None = None,
        attributes: Mapping[str, Any] | None = None,
        owns_backward: bool | Literal["auto"] = "auto",
    ) -> None:
        super().__init__()
        is_auto = isinstance(owns_backward, str) and owns_backward == "auto"
        if not (is_auto or isinstance(owns_backward, bool)):
            raise ValueError(
                f'owns_backward must be True, False or "auto", got {shown(owns_backward)}'
            )
        check_bool(by_epoch=by_epoch)
        check_function("model", model)
        if meta is not None and not isinstance(meta, dict):
            raise TypeError(f"meta must be a dict or None, got {shown(meta)}")
        self._dialect = dialect
        self._options = RunnerOptions(
            by_epoch=by_epoch,
            work_dir=check_path("work_dir", work_dir),
            meta=copy.deepcopy(meta),
            model=model,
            attributes=check_dict("attributes", attributes) or None,
            owns_backward=None if is_auto else owns_backward,
        )
        self._hooks = HookList()
        is_pair = isinstance(hooks, tuple) and len(hooks) == 2 and isinstance(hooks[1], (str, int))
        are_several = isinstance(hooks, (list, tuple, Iterator)) and not is_pair
        self._host([self._made(item) for item in (hooks if are_several else [hooks])])

    def _made(self, item: Any) -> tuple[Any, int]:
        """Return the hook to call, built if given as a config, and the priority."""
        if isinstance(item, tuple) and len(item) != 2:
            raise TypeError(
                f"a hook in a tuple must be (hook, priority), got {shown(masked(item))}"
            )
        hook, priority = item if isinstance(item, tuple) else (item, None)
        if isinstance(hook, Mapping):
            hook, own = build_with_order(HOOKS, hook)
            priority = own if priority is None else priority
        return self._entry(hook, priority)

    def _entry(self, hook: Any, priority: int | str | None) -> tuple[Any, int]:
        """Return the hook to call, which may call a hook of another library, and the priority."""
        is_native = self._dialect == "auto" and isinstance(hook, HookCallback)
        hosted = hook if is_native else host_as(hook, self._dialect)
        if hosted is hook and not is_native and hasattr(type(hook), "priority"):
            raise ValueError('"priority" is a reserved attribute for hooks: write (hook, priority)')
        return hosted, default_priority(hosted) if priority is None else get_priority(priority)

    def _host(self, entries: Sequence[tuple[Any, int]]) -> None:
        check_each_once([*self._entries(), *entries])
        self._hooks.add(*entries)

    def register_hook(self, hook: Any, priority: int | str | None = None) -> None:
        """Host another hook, as mmcv's ``runner.register_hook``.

        Args:
            hook: The hook object.
            priority: A name, or an integer from 0 (first) to 100; by default the priority of the
                hook's family.
        """
        self._host([self._entry(hook, priority)])

    @property
    def last_checkpoint(self) -> str | None:
        """The newest undamaged file of the hosted CheckpointHooks, or None.

        Before the first fit, ``work_dir`` is searched, or else the current directory. A damaged
        file is skipped with a warning.
        """
        return newest_of(
            (files_of([hook])[-1].store.template, self._directory_of(hook))
            for hook in self._of_kind(CheckpointHook)
        )

    @property
    def best_checkpoint(self) -> str | None:
        """The best file by the first key of the first hook that saves the best, or None.

        After a fit, the best file of the fit; in a new process, the best file in the directory
        searched by ``last_checkpoint``.
        """
        for hook in self._of_kind(SavingHook):
            for kind in files_of([hook]):
                if isinstance(kind, BestFiles) and kind.is_used:
                    directory, key = self._directory_of(hook), kind.fields().monitor
                    path = kind.path or find_checkpoints.best_valid(directory, key)
                    if path:
                        return path
        return None

    def _directory_of(self, hook: SavingHook) -> str:
        return last_directory(hook, self._options.work_dir)

    def _of_kind(self, kind: type[T]) -> list[T]:
        return [hook for hook, _ in self._entries() if isinstance(hook, kind)]

    @property
    def hooks(self) -> Sequence[Any]:
        """The hosted hooks in calling order."""
        hooks = self._hooks
        return [foreign(hook) for hook in hooks] if self._of_other_dialects() else hooks

    def _of_other_dialects(self) -> list[Hosted]:
        return [hook for hook in self._hooks if isinstance(hook, Hosted)]

    def _foreign_hooks(self) -> list[Any]:
        return [hook for hook in self._hooks if not isinstance(hook, HookCallback)]

    def _method_at(self, point: str) -> None:
        """Return None: only the points of the hosted hooks are called."""

    def __repr__(self) -> str:
        return self.get_hook_info()

    def get_hook_info(self) -> str:
        """Return mmcv's table of the stages and hooks.

        >>> print(HookAdapter([dict(type="IterTimerHook")]).get_hook_info().splitlines()[1])
        (LOW         ) IterTimerHook
        """
        return hook_info(self._hooks)

    def _entries(self) -> Sequence[tuple[Any, int]]:
        """Return the hosted hooks, and the hooks of hosted adapters, with priorities."""
        entries: list[tuple[Any, int]] = []
        for hook, priority in self._hooks.entries():
            inner = hook._entries() if isinstance(hook, HookAdapter) else ()
            entries += [(hook, priority), *inner]
        return entries

    def _runner_options(self) -> RunnerOptions:
        """Return the options of the Runner."""
        return self._options

    def _state_arguments(self) -> dict[str, Any]:
        """Return no arguments: the adapter itself has no state."""
        return {}

    # -- Lightning's events ------------------------------------

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Prepare the dialects of the hosted hooks."""
        hosted = self._of_other_dialects()
        for dialect in {hook.dialect.name: hook.dialect for hook in hosted}.values():
            if dialect.at_setup is not None:
                dialect.at_setup(trainer, dialect)

    def _add_to_file(self, file: CheckpointFile) -> None:
        """Add the states of stateful hooks that are no callbacks."""
        if file.is_whole:
            save_states(file, self._foreign_hooks())

    def _take_from_file(self, file: CheckpointFile) -> None:
        """Keep the states of the hooks until the run begins."""
        load_states(file, self._foreign_hooks())

    def call_hook(self, fn_name: str, **kwargs: Any) -> None:
        """Call a custom point on the hooks of other dialects.

        Args:
            fn_name: The point.
            kwargs: Arguments of the point, besides those of the dialect.

        Raises:
            RuntimeError: outside of a run.
        """
        facades = dict.fromkeys(hosted.facade for hosted in self._of_other_dialects())
        if not facades or any(facade is None or facade.ended for facade in facades):
            raise RuntimeError("call_hook() needs a run in progress")
        for facade in facades:
            if facade is not None:
                facade.call_hook(fn_name, **kwargs)
