"""Run backward inside the training step, for hooks that own backward.

A hook that owns backward calls ``runner.outputs["loss"].backward()`` and ``optimizer.step()``,
inside Lightning's ``training_step`` under manual optimization, where Lightning counts optimizer
steps. Unless a plain ``backward`` would do the same, the loss is a ``StrategyLoss``, so that
DDP synchronises and the precision plugin scales.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import Strategy

from lightning_hooks.engine.lightning_api import progress

if TYPE_CHECKING:
    from typing_extensions import Self

    from lightning_hooks.engine.runner.runner import Runner

__all__ = [
    "CountedOptimizer",
    "OrphanLoss",
    "StrategyLoss",
    "by_name",
    "optimizers_of_hooks",
    "strategy_loss_class",
]


class _Loss(torch.Tensor):
    """A loss that is printed, formatted and pickled as a plain tensor."""

    plain: torch.Tensor
    """The loss as a ``torch.Tensor``: operations on the subclass would run through Python."""

    @classmethod
    def of(cls, loss: torch.Tensor) -> Self:
        """Return a step's loss as a tensor of the subclass."""
        wrapped = loss.as_subclass(cls)
        wrapped.plain = loss
        return wrapped

    def _as_plain(self) -> torch.Tensor:
        # the result of an operation on a loss has the subclass, but no attribute ``plain``
        plain: torch.Tensor = vars(self).get("plain", self.as_subclass(torch.Tensor))
        return plain

    def __repr__(self) -> str:  # type: ignore[override]  # torch's is decorated, without types
        return repr(self._as_plain())

    def __format__(self, spec: str) -> str:
        return format(self._as_plain(), spec)

    def __reduce_ex__(self, protocol: Any) -> Any:
        plain: Any = self._as_plain()  # torch gives its method no types
        return plain.__reduce_ex__(protocol)


class StrategyLoss(_Loss):
    """A loss with ``backward`` through a strategy; operations on the loss keep the class."""

    strategy: ClassVar[Strategy]

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Run backward as ``LightningModule.manual_backward`` does."""
        type(self).strategy.backward(self.as_subclass(torch.Tensor), None, *args, **kwargs)


def strategy_loss_class(strategy: Strategy) -> type[StrategyLoss]:
    """Return a loss class for a single run: two Trainers in a process do not share a strategy."""
    return type("StrategyLoss", (StrategyLoss,), {"strategy": strategy})


class OrphanLoss(_Loss):
    """A loss that refuses ``backward``: Lightning runs backward for the step."""

    @classmethod
    def of(cls, loss: torch.Tensor) -> Self:
        """Return a step's loss as an OrphanLoss, detached."""
        return super().of(loss.detach())

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Refuse.

        Raises:
            RuntimeError: always, with what to write instead.
        """
        raise RuntimeError(
            "Lightning has already run backward for this step. For a hook that calls "
            "loss.backward() and optimizer.step() itself, pass "
            "HookAdapter([...], owns_backward=True)"
        )


class CountedOptimizer:
    """An optimizer whose steps Lightning counts; everything else is the optimizer inside.

    A hook sets attributes on the optimizer inside, and a copy of this object is a copy of the
    optimizer. If Lightning adds nothing to a step, the optimizer inside steps directly, and this
    object counts the step.

    Args:
        wrapper: Lightning's wrapper, which steps through the strategy and counts.
        runner: The run, which knows whether Lightning adds something to a step.
    """

    # a hook's GradScaler would report overflows to this object, not to the fused optimizer inside
    _step_supports_amp_scaling = False

    def __init__(self, wrapper: LightningOptimizer, runner: Runner) -> None:
        vars(self).update(optimizer=wrapper.optimizer, _wrapper=wrapper, _runner=runner)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class of the optimizer inside, for ``isinstance``."""
        return type(self.optimizer)

    def __getattr__(self, name: str) -> Any:
        """Read from the optimizer inside; ``toggle_model`` from Lightning's wrapper."""
        return getattr(self._wrapper if hasattr(LightningOptimizer, name) else self.optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Write to the optimizer inside; torch's schedulers replace the ``step`` of this object."""
        if name == "step":
            vars(self)[name] = value
        else:
            setattr(self.optimizer, name, value)

    def __repr__(self) -> str:
        return repr(self.optimizer)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.optimizer.__reduce_ex__(protocol)

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Step the optimizer inside, through the strategy if Lightning adds something."""
        self._runner.step_counts.note_step()
        if not self._runner.steps_directly:
            return self._wrapper.step(*args, **kwargs)
        result = self.optimizer.step(*args, **kwargs)
        progress.count_step(self._runner.trainer)
        return result


def optimizers_of_hooks(runner: Runner) -> Any:
    """Return the optimizer for hooks to step, or a dict of several optimizers by name.

    ``trainer.global_step`` counts the steps.
    """
    optimizers: Any = runner.module.optimizers()
    many = optimizers if isinstance(optimizers, list) else [optimizers]
    return by_name(runner.module, [CountedOptimizer(optimizer, runner) for optimizer in many])


def by_name(module: Any, optimizers: Sequence[Any]) -> Any:
    """Return the only optimizer; a dict of several, or of optimizers with names of the module."""
    names = getattr(module, "optimizer_names", None)
    if len(optimizers) == 1 and not names:
        return optimizers[0]
    return dict(zip(names or map(str, range(len(optimizers))), optimizers, strict=True))
