"""Calling the hooks at a point: who, in which order, and what is put right afterwards."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import lightning as L
import torch

from lightning_hooks.engine.driver.ownership import is_ours, trains_like_mmcv
from lightning_hooks.engine.driver.train_mode import TrainFlags
from lightning_hooks.engine.error_notes import add_hook_note, stopped
from lightning_hooks.engine.runner.runner import Runner

__all__ = ["BatchEvent", "Call", "Calls"]

Call = tuple[Any, Callable[[Any], None]]
"""A hook and its method for a point."""

BatchEvent = Callable[..., None]
"""Takes what Lightning gives: the Trainer, the module, outputs if there are any, batch, index."""


class _CallsByPoint(dict[str, list[Call]]):
    """Who is called at a point, looked up when it is first asked for."""

    def __init__(self, runner: Runner) -> None:
        super().__init__()
        self._runner = runner

    def __missing__(self, point: str) -> list[Call]:
        hooks = self._runner.hooks
        found = [(hook, hooks.method_at(hook, point)) for hook in hooks]
        self[point] = calls = [(hook, method) for hook, method in found if method]
        return calls


class Calls:
    """The calls of one Runner's hooks."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._flags = TrainFlags()
        self.at = _CallsByPoint(runner)
        """Who is called at a point; to be cleared when the hook list changes."""
        self.settles = False
        """Whether all ranks settle together what one of them decides, after each iteration."""

    def at_batch(
        self,
        point: str,
        calls: list[Call],
        *,
        first: Callable[..., None] | None = None,
        ends: bool = False,
        last: Callable[[], None] | None = None,
    ) -> BatchEvent:
        """Return an event of Lightning's that makes these calls, in every batch.

        It is one function, as a call more is paid for in each batch; of what may happen in one,
        only what nearly every batch has is in it.

        Args:
            point: The point, to name it in an error.
            calls: Those of the point, or a part of them.
            first: Called before them with the event's third and fourth argument.
            ends: Whether the batch ends with it, and hooks see it no more.
            last: Called after that in place of :meth:`settle_stop`, which is called if a hook
                wants the run to stop.
        """
        runner, module = self._runner, self._runner.module
        methods = [method for _, method in calls]
        if len({*map(id, methods)}) < len(methods):  # shared by hooks; an error is one hook's
            methods = [partial(method) for method in methods]

        def on_batch(
            trainer: L.Trainer, pl_module: L.LightningModule, one: Any, two: Any, three: Any = None
        ) -> None:
            batch = two if ends else one  # it has the step's outputs before it where it ends
            if batch is None and ends:  # the loader gave none: no step has run
                return
            runner.data_batch = batch
            if first is not None:
                first(one, two)
            method: Any = None  # the one that raises
            runner.calls_hooks = True
            try:
                for method in methods:
                    method(runner)
            except StopIteration as error:
                raise stopped(error, whose(method), point, runner) from error
            except BaseException as error:
                add_hook_note(error, whose(method), point, runner)
                raise
            finally:
                runner.calls_hooks = False
            if runner.optimizer is not runner._known_optimizer:
                runner.take_optimizer()
            # nothing has been evaluated in nearly every batch
            if runner.flags_before_eval or not module.training:
                self._put_flags_back()
            if ends:
                runner.data_batch = None  # an attribute less in each batch has its dict rebuilt
                if last is not None:
                    last()
                elif runner._stop_requested:
                    self.settle_stop()

        def whose(method: Any) -> Any:
            found = (hook for (hook, _), one in zip(calls, methods, strict=True) if one is method)
            return next(found, None)

        return on_batch

    def now(self, point: str) -> None:
        """Call a point of each epoch or run, on the list as it changes under way."""
        if point != "before_run" and vars(self._runner).get("data_batch", self) is None:
            del self._runner.data_batch  # left so by the last batch
        self._runner.call_hook(point)
        self.put_right()

    def put_right(self) -> None:
        """Train with the optimizer that a hook has assigned; undo an evaluation of a hook's."""
        self._runner.take_optimizer()
        self._put_flags_back()

    def capture_flags(self) -> None:
        """Remember the module's train flags as those to go back to."""
        self._flags.capture(self._runner)

    def ask_ranks(self) -> bool:
        """Find out, on all ranks together, whether a hook of any of them may decide for itself.

        Ours decide as one. The answer is the same on all ranks, whose hooks may be others, and so
        they meet in every :meth:`settle_stop`, or in none.
        """
        runner = self._runner
        if runner.world_size > 1:
            foreign = self._has_foreign()
            self.settles = runner.trainer.strategy.reduce_boolean_decision(foreign, all=False)
        return self.settles

    def common_dialects(self) -> frozenset[str]:
        """Find out, on all ranks together, of which dialects each of them has a hook."""
        runner = self._runner
        own = {hook.dialect.name for hook in runner.hooks if hasattr(hook, "foreign_hook")}
        if runner.world_size == 1 or not torch.distributed.is_initialized():
            return frozenset(own)
        all_ranks: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(all_ranks, own)
        return frozenset(own.intersection(*all_ranks))

    def _has_foreign(self) -> bool:
        return not all(is_ours(hook) for hook in self._runner.hooks)

    def _put_flags_back(self) -> None:
        runner = self._runner
        # a module that trains as in mmcv gets its train() with the next epoch, as there
        if runner.mode != "val" and not trains_like_mmcv(runner.module):
            self._flags.put_back(runner)

    def settle_stop(self) -> None:
        """Tell the Trainer of ``runner.should_stop``, on all ranks if it is set on one."""
        runner = self._runner
        stop = runner._stop_requested
        if stop and not self.settles and runner.world_size > 1 and self._has_foreign():
            return  # a hook has come into this epoch: the other ranks are asked in the next
        if self.settles:
            stop = runner.trainer.strategy.reduce_boolean_decision(stop, all=False)
        if stop:
            runner.trainer.should_stop = True
