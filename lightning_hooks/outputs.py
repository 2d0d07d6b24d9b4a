"""What a step returned, as hooks see it."""

from __future__ import annotations

from typing import Any

from lightning_hooks import loops
from lightning_hooks.suggest import UnknownNameError

__all__ = ["StepOutputs"]


class StepOutputs(dict[str, Any]):
    """A step's dict, which knows the batch's ``num_samples`` where the step did not say it.

    A LightningModule need not return what mmcv's ``train_step`` does, and old hooks ask for it.
    What else is missing is answered with what to return. A copy is a plain dict.

    >>> StepOutputs(loss=0.5)["log_vars"]
    Traceback (most recent call last):
    lightning_hooks.suggest.UnknownNameError: the step returned no 'log_vars', only: loss; return \
dict(loss=..., log_vars=...) from it
    """

    __slots__ = ("runner",)

    runner: Any
    """The run, whose batch is counted when somebody asks."""

    @classmethod
    def of(cls, runner: Any, values: dict[str, Any]) -> StepOutputs:
        """Return what a step of a run returned."""
        outputs = cls(values)
        outputs.runner = runner
        return outputs

    def __missing__(self, key: str) -> Any:
        """Count the samples, or say what to do.

        Raises:
            UnknownNameError: for another key, and where the batch has no tensor to count by.
        """
        batch = getattr(getattr(self, "runner", None), "data_batch", None)
        count = loops.batch_size(batch) if key == "num_samples" else None
        if count is not None:
            return count
        raise UnknownNameError(
            f"the step returned no {key!r}, only: {', '.join(map(str, self)) or 'nothing'}; "
            f"return dict(loss=..., {key}=...) from it"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
