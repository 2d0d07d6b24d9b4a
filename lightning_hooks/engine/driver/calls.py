"""Call hooks at a point, in order, and undo temporary changes of the module by hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lightning_hooks.engine.driver.ownership import Call, is_ours, trains_like_mmcv
from lightning_hooks.engine.error_notes import add_hook_note, stop_iteration_error
from lightning_hooks.engine.hosted import HostedHook
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.engine.runner.runner import Runner

__all__ = ["Calls"]


class Calls:
    """The dispatcher of one Runner's hooks."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._train_flags: dict[torch.nn.Module, bool] = {}
        self._by_point: dict[str, list[Call]] = {}
        self.settles_every_batch = False
        """Whether the ranks agree after each batch on whether to stop."""

    def calls_for(self, point: str) -> list[Call]:
        """Return the hooks with an own method for a point, and the methods, in order."""
        calls = self._by_point.get(point)
        if calls is None:
            hooks = self._runner.hooks
            found = [(hook, hooks.method_at(hook, point)) for hook in hooks]
            self._by_point[point] = calls = [(hook, method) for hook, method in found if method]
        return calls

    def forget(self) -> None:
        """Look the methods up again: the list of hooks has changed."""
        self._by_point.clear()

    def run(self, point: str, calls: Sequence[Call] | None = None) -> None:
        """Call a point of a batch.

        Args:
            point: The point.
            calls: Some of the point's calls; all calls by default.
        """
        runner = self._runner
        runner.calls_hooks = True
        hook: Any = None
        try:
            for hook, method in self.calls_for(point) if calls is None else calls:  # noqa: B007
                method(runner)
        except StopIteration as error:
            raise stop_iteration_error(error, hook, point, runner) from error
        except BaseException as error:
            add_hook_note(error, hook, point, runner)
            raise
        finally:
            runner.calls_hooks = False
        has_changes = runner.optimizer is not runner.known_optimizer or runner.flags_before_eval
        if has_changes or not runner.module.training:
            self.restore()

    def run_at_border(self, point: str) -> None:
        """Call a point of a run or an epoch; hooks may change the list of hooks meanwhile."""
        self._runner.call_hook(point)
        self.restore()

    def restore(self) -> None:
        """Use an optimizer assigned by a hook; undo an evaluation by a hook."""
        runner = self._runner
        runner.take_optimizer()
        # as in mmcv, a module with train_step is switched back by the next epoch
        if runner.mode != "val" and not trains_like_mmcv(runner.module):
            self._restore_train_mode()

    def capture_train_mode(self) -> None:
        """Remember the module's train flags, to restore after an evaluation by a hook."""
        self._train_flags = {part: part.training for part in self._runner.module.modules()}
        self._runner.flags_before_eval = None

    def _restore_train_mode(self) -> None:
        """Undo an evaluation of the whole module, or of ``runner.model.module``, by a hook.

        Flags of parts (frozen BatchNorm) are changed on purpose and stay. Flags noted by the model
        wrapper at ``eval()`` override the captured flags.
        """
        runner = self._runner
        before, runner.flags_before_eval = runner.flags_before_eval or {}, None
        if before and unwrap(runner.model).training:  # the hook has restored them itself
            before = {}
        module = runner.module
        if not module.training:
            for part in module.modules():
                part.training = self._train_flags.get(part, True)
            module.training = True
        for part, flag in before.items():
            part.training = flag

    # -- several ranks ---------------------------------------------------------------------

    def check_ranks(self) -> None:
        """Find out, on all ranks together, whether a hook of any rank may stop the run alone.

        The package's own hooks decide alike on all ranks. All ranks get the same answer, so either
        all ranks or none communicate in :meth:`settle_stop`.
        """
        runner = self._runner
        if runner.world_size > 1:
            foreign = self._has_foreign()
            reduce = runner.trainer.strategy.reduce_boolean_decision
            self.settles_every_batch = reduce(foreign, all=False)

    def settle_stop(self) -> None:
        """Pass ``runner.should_stop`` on to the Trainer, on all ranks if any rank has set it."""
        runner = self._runner
        stop = runner.stop_requested
        if self.settles_every_batch:
            stop = runner.trainer.strategy.reduce_boolean_decision(stop, all=False)
        elif stop and runner.world_size > 1 and self._has_foreign():
            return  # the hook came in during this epoch: the ranks agree from the next one on
        if stop:
            runner.trainer.should_stop = True

    def common_dialects(self) -> frozenset[str]:
        """Return the dialects, besides mmcv's, with a hook on every rank."""
        runner = self._runner
        own = {hook.dialect.name for hook in runner.hooks if isinstance(hook, HostedHook)}
        if runner.world_size == 1 or not torch.distributed.is_initialized():
            return frozenset(own)
        all_ranks: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(all_ranks, own)
        return frozenset(own.intersection(*all_ranks))

    def _has_foreign(self) -> bool:
        return not all(is_ours(hook) for hook in self._runner.hooks)
