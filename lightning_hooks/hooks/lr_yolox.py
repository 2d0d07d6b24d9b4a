"""The learning rate policy of YOLOX: warm-up, cosine, and some last epochs at the minimum."""

from __future__ import annotations

from functools import partial
from operator import mul
from typing import Any

from lightning_hooks import schedules
from lightning_hooks.arguments import check_int
from lightning_hooks.hooks.lr_annealing import CosineAnnealingLrUpdaterHook
from lightning_hooks.hooks.param_groups import Values, groups_of, of_each
from lightning_hooks.hooks.phase_policies import by_iteration
from lightning_hooks.registry import HOOKS

__all__ = ["YOLOXLrUpdaterHook"]


@HOOKS.register_module()
class YOLOXLrUpdaterHook(CosineAnnealingLrUpdaterHook):
    """Anneals the rate between warm-up and last epochs: :func:`~lightning_hooks.schedules.yolox`.

    Its warm-up, of whatever name, is :func:`~lightning_hooks.schedules.yolox_warm_up` times the
    base rate; the cosine begins where it ends.

    Args:
        num_last_epochs: How many epochs at the end have the minimum.
        min_lr: That minimum; give this or the ratio.
        min_lr_ratio: The same as a ratio of each group's base rate.
        by_epoch: False: this policy counts iterations.
        kwargs: Those of :class:`~lightning_hooks.hooks.lr.LrUpdaterHook`.

    Raises:
        ValueError: for an argument outside its range, if both or neither minimum is given, and at
            the start of a run in which warm-up and last epochs leave no iteration between.
        TypeError: for a ``num_last_epochs`` that is no int.

    Source: mmdetection's ``YOLOXLrUpdaterHook``.

    Note:
        Departures from mmdetection: ``by_epoch=True`` is refused (there epochs are compared with
        iterations), and is not the default. An epoch has as many iterations as are trained.
    """

    def __init__(
        self,
        num_last_epochs: int,
        min_lr: float | None = None,
        min_lr_ratio: float | None = None,
        by_epoch: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(min_lr, min_lr_ratio, by_epoch=by_iteration(self, by_epoch), **kwargs)
        check_int("num_last_epochs", num_last_epochs, 0)
        self.num_last_epochs = num_last_epochs

    def before_run(self, runner: Any) -> None:
        """Take the bases, and look ahead: the cosine needs room."""
        super().before_run(runner)
        runner = self.seen(runner)
        first, last, total = self._warmup_length(runner), self._last(runner), self.total_of(runner)
        if first + last >= total:
            raise ValueError(
                f"{type(self).__name__} of {groups_of(runner.optimizer)}: a warm-up of {first} and "
                f"last epochs of {last} {self.small_unit}s leave none of {total} between them"
            )

    def get_lr(self, runner: Any, base_lr: float) -> float:
        """Return :func:`~lightning_hooks.schedules.yolox`."""
        return schedules.yolox(
            base_lr,
            runner.iter,
            self.total_of(runner),
            first=self._warmup_length(runner),
            last=self._last(runner),
            minimum=self.min_lr,  # type: ignore[arg-type]  # None beside a ratio
            ratio=self.min_lr_ratio,
        )

    def get_warmup_lr(self, cur_iters: int) -> Values:
        """Return the rates of all groups in the warm-up."""
        assert self.warmup_iters is not None
        factor = schedules.yolox_warm_up(cur_iters, self.warmup_iters, ratio=self.warmup_ratio)
        return of_each(partial(mul, factor), self.base_lr)

    def judges(self) -> bool:
        """Whether rates are known beforehand: the whole cosine has the same bounds."""
        return True

    def _last(self, runner: Any) -> int:
        if not self.num_last_epochs:
            return 0
        end = runner.max_epochs or self.num_last_epochs
        return self.iters_of(runner, end) - self.iters_of(runner, end - self.num_last_epochs)
