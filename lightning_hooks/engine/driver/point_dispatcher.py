"""Call hooks at a point, in order, and undo temporary changes of the module by hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lightning_hooks.engine.driver.ownership import Call, trains_like_mmcv
from lightning_hooks.engine.error_notes import add_hook_note, stop_iteration_error
from lightning_hooks.engine.lightning_api.model_state import set_train_flags, train_flags
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.engine.runner.runner import Runner

__all__ = ["PointDispatcher"]


class PointDispatcher:
    """The dispatcher of one Runner's hooks."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._train_flags: dict[torch.nn.Module, bool] = {}
        self._by_point: dict[str, list[Call]] = {}

    def calls_for(self, point: str) -> list[Call]:
        """Return the hooks with an own method for a point, and the methods, in order."""
        calls = self._by_point.get(point)
        if calls is None:
            hooks = self._runner.hooks
            methods = [(hook, hooks.method_at(hook, point)) for hook in hooks]
            self._by_point[point] = calls = [(hook, method) for hook, method in methods if method]
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
        if calls is None:
            calls = self._by_point.get(point) or self.calls_for(point)
        runner = self._runner
        runner.calls_hooks = True
        hook: Any = None
        try:
            for hook, method in calls:  # noqa: B007
                method(runner)
        except StopIteration as error:
            raise stop_iteration_error(error, hook, point, runner) from error
        except BaseException as error:
            add_hook_note(error, hook, point, runner)
            raise
        finally:
            runner.calls_hooks = False
        has_changes = runner.optimizer is not runner.known_optimizer or runner.flags_before_eval
        if has_changes or not (runner.module.training or runner.mode == "val"):
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
        self._train_flags = train_flags(self._runner.module)
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
            known = {part: self._train_flags.get(part, True) for part in module.modules()}
            set_train_flags({**known, module: True})
        set_train_flags(before)
