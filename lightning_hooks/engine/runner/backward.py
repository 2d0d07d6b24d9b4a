"""Run backward inside the training step, for hooks that own backward.

A hook that owns backward calls ``runner.outputs["loss"].backward()`` and ``optimizer.step()``,
inside Lightning's ``training_step`` under manual optimization, where Lightning counts optimizer
steps. Unless a plain ``backward`` would do the same, the loss is a ``StrategyLoss``, so that
DDP synchronises and the precision plugin scales.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

__all__ = [
    "OrphanLoss",
    "StrategyLoss",
    "optimizers_of_hooks",
    "share_state",
    "strategy_loss_class",
]


class _Loss(torch.Tensor):
    """A loss with the ``repr`` of a plain tensor."""

    def __repr__(self) -> str:  # type: ignore[override]  # torch's is decorated, without types
        return repr(self.as_subclass(torch.Tensor))


class StrategyLoss(_Loss):
    """A loss with ``backward`` through a strategy; operations on the loss keep the class."""

    strategy: ClassVar[Any]

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Run backward as ``LightningModule.manual_backward`` does."""
        type(self).strategy.backward(self.as_subclass(torch.Tensor), None, *args, **kwargs)


def strategy_loss_class(strategy: Any) -> type[StrategyLoss]:
    """Return a loss class for a single run: two Trainers in a process do not share a strategy."""
    return type("StrategyLoss", (StrategyLoss,), {"strategy": strategy})


class OrphanLoss(_Loss):
    """A loss that refuses ``backward``: Lightning runs backward for the step."""

    plain: torch.Tensor
    """The same tensor without the subclass, whose operations would go through Python."""

    @classmethod
    def of(cls, loss: torch.Tensor) -> OrphanLoss:
        """Return a step's loss as an OrphanLoss, detached."""
        plain = loss.detach()
        orphan = plain.as_subclass(cls)
        orphan.plain = plain
        return orphan

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


def share_state(optimizer: Any) -> Any:
    """Link ``param_groups`` and ``state`` of a LightningOptimizer to the optimizer inside.

    Lightning copies the attributes: a hook that rebinds ``optimizer.param_groups`` or loads a
    state dict would change only the copy.
    """
    for name in ("param_groups", "state"):
        # Lightning makes a class for each wrapper, so no other optimizer is touched
        setattr(type(optimizer), name, _inner_attribute(name))
    type(optimizer).load_state_dict = _load_inner
    # a hook's GradScaler would report overflows to the wrapper, not to the fused optimizer inside
    optimizer._step_supports_amp_scaling = False
    return optimizer


def optimizers_of_hooks(module: Any) -> Any:
    """Return the optimizer for hooks to step, or a dict of several optimizers by name.

    Lightning counts the steps of the returned wrappers.
    """
    found = module.optimizers()
    names = getattr(module, "optimizer_names", None)
    if not (isinstance(found, list) or names):
        return share_state(found)
    many = found if isinstance(found, list) else [found]
    names = names or [str(index) for index in range(len(many))]
    return {name: share_state(one) for name, one in zip(names, many, strict=True)}


def _load_inner(wrapper: Any, state_dict: dict[str, Any]) -> None:
    wrapper.optimizer.load_state_dict(state_dict)  # torch's own writes to the wrapper's __dict__


def _inner_attribute(name: str) -> property:
    def get(wrapper: Any) -> Any:
        return getattr(wrapper.optimizer, name)

    def put(wrapper: Any, value: Any) -> None:
        setattr(wrapper.optimizer, name, value)

    return property(get, put)
