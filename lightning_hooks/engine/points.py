"""The ten points of an mmcv training run, drawn in the loop."""

from __future__ import annotations

from enum import Enum

__all__ = ["GENERIC", "POINTS", "STAGES", "Point"]


class Point(str, Enum):
    """A moment of the run for calling hooks.

    The loop, by epoch (``iter`` and ``epoch`` are incremented as in mmcv)::

        # <BEFORE_RUN>
        while epoch < max_epochs:
            # <BEFORE_TRAIN_EPOCH>
            for inner_iter, batch in enumerate(train_loader):
                # <BEFORE_TRAIN_ITER>
                outputs = training_step(batch)
                # <AFTER_TRAIN_ITER>
                iter += 1
            # <AFTER_TRAIN_EPOCH>
            epoch += 1
            # <BEFORE_VAL_EPOCH>          in eval mode, without gradients
            for inner_iter, batch in enumerate(val_loader):
                # <BEFORE_VAL_ITER>
                outputs = validation_step(batch)
                # <AFTER_VAL_ITER>
            # <AFTER_VAL_EPOCH>
        # <AFTER_RUN>

    A run by iteration has no epochs: ``before_epoch`` and ``after_epoch`` are called once each,
    right inside ``BEFORE_RUN`` and ``AFTER_RUN``, and the four ``*_iter`` points as above.
    """

    BEFORE_RUN = "before_run"
    BEFORE_TRAIN_EPOCH = "before_train_epoch"
    BEFORE_TRAIN_ITER = "before_train_iter"
    AFTER_TRAIN_ITER = "after_train_iter"
    AFTER_TRAIN_EPOCH = "after_train_epoch"
    BEFORE_VAL_EPOCH = "before_val_epoch"
    BEFORE_VAL_ITER = "before_val_iter"
    AFTER_VAL_ITER = "after_val_iter"
    AFTER_VAL_EPOCH = "after_val_epoch"
    AFTER_RUN = "after_run"


STAGES: tuple[str, ...] = tuple(point.value for point in Point)
"""The ten points by name, in mmcv's order."""

GENERIC: dict[str, str] = {
    f"{when}_{mode}_{span}": f"{when}_{span}"
    for when in ("before", "after")
    for mode in ("train", "val")
    for span in ("epoch", "iter")
}
"""The generic method of each of the eight specific points."""

POINTS: tuple[str, ...] = (*STAGES, *dict.fromkeys(GENERIC.values()))
"""The names of all methods of a hook: of the ten points, and the generic ones."""
