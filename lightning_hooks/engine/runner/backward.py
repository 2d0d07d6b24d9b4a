"""Run backward inside the training step, for hooks that own it.

A hook that owns backward calls ``runner.outputs["loss"].backward()`` and ``optimizer.step()``
itself. It then runs inside Lightning's ``training_step`` under manual optimization: there the
optimizer's steps are counted, and unless a tensor's own ``backward`` does the same, the loss is of
a class whose ``backward`` goes through the Trainer's strategy, so that DDP synchronises and the
precision plugin scales.
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
    """A loss that is shown as any other tensor."""

    def __repr__(self) -> str:  # type: ignore[override]  # torch's is decorated, without types
        return repr(self.as_subclass(torch.Tensor))


class StrategyLoss(_Loss):
    """A loss whose ``backward`` goes through a strategy; what is computed from it is one too."""

    strategy: ClassVar[Any]

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Run backward as ``LightningModule.manual_backward`` does."""
        type(self).strategy.backward(self.as_subclass(torch.Tensor), None, *args, **kwargs)


def strategy_loss_class(strategy: Any) -> type[StrategyLoss]:
    """Return a loss class of one run: two Trainers in one process do not share a strategy."""
    return type("StrategyLoss", (StrategyLoss,), {"strategy": strategy})


class OrphanLoss(_Loss):
    """A loss whose backward Lightning has run: a hook cannot run it again."""

    plain: torch.Tensor
    """The same tensor as a plain one: each operation on a subclass goes through Python."""

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
    """Make ``param_groups`` and ``state`` of a LightningOptimizer those of the optimizer inside.

    Lightning copies the attributes: a hook that rebinds ``optimizer.param_groups`` or loads a
    state dict would change the copy only.
    """
    for name in ("param_groups", "state"):
        # Lightning makes a class for each wrapper it makes, so no other optimizer is touched
        setattr(type(optimizer), name, _inner_attribute(name))
    type(optimizer).load_state_dict = _load_inner
    # a hook's GradScaler would report overflows to the wrapper, not to the fused optimizer inside
    optimizer._step_supports_amp_scaling = False
    return optimizer


def optimizers_of_hooks(module: Any) -> Any:
    """Return the optimizer for hooks that step it, a dict of them by name where there are several.

    Lightning counts the steps that are made through it.
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
