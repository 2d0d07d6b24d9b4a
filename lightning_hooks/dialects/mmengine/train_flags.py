"""``TrainFlags``: ``model.training`` at the borders of epochs and validations, as in mmengine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["BORDERS", "TrainFlags"]


_SWITCHES = {
    "before_train_iter": True,
    **dict.fromkeys(("before_val_iter", "after_val_epoch"), False),
    **dict.fromkeys(("before_test_iter", "after_test_epoch"), False),
}
"""The mode of the model from a point on; some hook is called at one of each pair."""


class TrainFlags:
    """Shows hooks the model in the mode in which mmengine's loops call them.

    mmengine calls ``model.train()`` after ``before_train_epoch``, ``model.eval()`` after
    ``before_val_epoch``, and leaves the model so: after a validation it is in evaluation until the
    next epoch has begun. Lightning switches at other moments, to which its own flags come back
    after the call of a hook.

    Args:
        runner: The runner.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._training = True

    def enter(self, point: str) -> None:
        """Follow mmengine's switches; the point's hooks are called next."""
        if point == "before_train_iter":
            self._training = True
        elif point in (
            "before_val_iter",
            "after_val_epoch",
            "before_test_iter",
            "after_test_epoch",
        ):
            self._training = False

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show a hook mmengine's flags at a border; its own changes of them do not last there."""
        module = self._runner.module
        flags = {part: part.training for part in module.modules()}
        if module.training != self._training:
            module.train(self._training)
        try:
            yield
        finally:
            for part, training in flags.items():
                part.training = training


BORDERS = frozenset(
    f"{when}_{what}"
    for when in ("before", "after")
    for what in ("train", "train_epoch", "val", "val_epoch", "test", "test_epoch", "run")
)
"""The points around passes, and not in them."""
