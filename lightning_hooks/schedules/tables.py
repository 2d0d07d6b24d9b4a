"""``table``: the learning rate and the momentum over a run, as text."""

from __future__ import annotations

from typing import Any

from lightning_hooks.schedules.preview import columns_of, hooks_of, is_of_momentum, sample

__all__ = ["table"]


def table(
    hooks: Any, *, max_epochs: int, iters_per_epoch: int, rows: int = 12, **sampling: Any
) -> str:
    """Return what hooks set over a run, to be printed: what :func:`plot` draws, in numbers.

    ``sample(...)[iteration]`` has those of any iteration, in full.

    Args:
        hooks: A hook, or several; a column for each parameter group of each.
        max_epochs: Epochs of the run.
        iters_per_epoch: Iterations of each.
        rows: About how many rows to show. Every epoch's first iteration has one, if there are so
            few, and the run's last.
        sampling: Further arguments of :func:`~lightning_hooks.schedules.sample`.

    Raises:
        ValueError: if there is no hook, ``rows`` is below 1, or a hook refuses the run.

    >>> from lightning_hooks import LinearAnnealingLrUpdaterHook, StepMomentumUpdaterHook
    >>> hooks = [LinearAnnealingLrUpdaterHook(min_lr=0, by_epoch=False), StepMomentumUpdaterHook(1)]
    >>> print(table(hooks, max_epochs=2, iters_per_epoch=4, rows=4))
    epoch  iter         lr  momentum
        0     0        0.1       0.9
        0     2      0.075       0.9
        1     4       0.05      0.45
        1     6      0.025      0.45
        1     7     0.0125      0.45
    """
    given = hooks_of(hooks)
    if type(rows) is not int or rows < 1:
        raise ValueError(f"rows must be an int of at least 1, got {rows!r}")
    columns: list[list[str]] = [["epoch"], ["iter"]]
    shown = _shown(max_epochs, iters_per_epoch, rows)
    columns[0] += [str(i // iters_per_epoch) for i in shown]
    columns[1] += [str(i) for i in shown]
    for hook in given:
        values = sample(hook, max_epochs=max_epochs, iters_per_epoch=iters_per_epoch, **sampling)
        quantity = "momentum" if is_of_momentum(hook) else "lr"
        for label, column in columns_of(values).items():
            title = ", ".join([quantity, *label])
            columns.append([title.rjust(9), *(f"{column[i]:.4g}" for i in shown)])
    widths = [max(map(len, column)) for column in columns]
    lines = zip(*columns, strict=True)
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def _shown(max_epochs: int, iters_per_epoch: int, rows: int) -> list[int]:
    """Return the iterations to show: the first ones of epochs, or some of each."""
    every = max(1, max_epochs // rows)  # epochs
    step = max(1, iters_per_epoch // max(1, rows // max_epochs))
    within = range(0, iters_per_epoch if every == 1 else 1, step)
    firsts = range(0, max_epochs * iters_per_epoch, every * iters_per_epoch)
    return sorted({*(first + i for first in firsts for i in within), firsts.stop - 1})
