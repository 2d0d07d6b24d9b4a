"""``plot`` and ``table``: learning rates and momenta over a run, as a picture and as text."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lightning_hooks.engine.priority import is_family
from lightning_hooks.schedules.phases import ends_of_phases, length_of
from lightning_hooks.schedules.preview import Bases, columns_of, hooks_of, quantity_of, sample
from lightning_hooks.utils.arguments import check_count
from lightning_hooks.utils.pictures import new_figure

__all__ = ["plot", "table"]

MOST_TICKS = 12
TITLES = {"lr": "learning rate"}


def plot(
    hooks: Any,
    path: str | PathLike[str] = "schedule.png",
    *,
    max_epochs: int,
    iters_per_epoch: int,
    base_lr: Bases = 0.1,
    base_momentum: Bases = 0.9,
    accumulate_grad_batches: int = 1,
    fields: Mapping[str, Bases] = MappingProxyType({}),
) -> Path:
    """Draw the learning rates, momenta and fields set by hooks over a run, a panel for each.

    Epochs are marked below, warm-ups shaded, and borders of phases dotted. Hooks for the same
    quantity share a panel, for a comparison of policies. Of a ``WSDLrUpdaterHook`` a dashed line
    shows a decay on demand, halfway to the planned one.

    Args:
        hooks: A hook or several hooks; see :func:`~lightning_hooks.schedules.sample`.
        path: The file to write; the ending sets the format (``.png``, ``.svg``).
        max_epochs: Epochs of the run.
        iters_per_epoch: Iterations of an epoch.
        base_lr: The optimizer's learning rate, or a rate for each group, or by optimizer.
        base_momentum: The optimizer's momentum, in the same ways.
        accumulate_grad_batches: Iterations of an optimizer step, for hooks with ``by_step=True``.
        fields: The optimizer's value of each field that a ``FieldUpdaterHook`` sets.

    Returns:
        The path.

    Raises:
        ModuleNotFoundError: if matplotlib is not installed.
        ValueError: for no hook, or if a hook refuses the run.
    """
    panels: dict[str, list[Any]] = {}
    for hook in hooks_of(hooks):
        quantity = TITLES.get(quantity_of(hook), quantity_of(hook))
        panels.setdefault(quantity, []).append(hook)
    figure = new_figure(7, 0.8 + 2.6 * len(panels))
    axes = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    total = max_epochs * iters_per_epoch
    run: dict[str, Any] = {
        "max_epochs": max_epochs,
        "iters_per_epoch": iters_per_epoch,
        "base_lr": base_lr,
        "base_momentum": base_momentum,
        "accumulate_grad_batches": accumulate_grad_batches,
        "fields": fields,
    }
    lengths = max_epochs, iters_per_epoch, accumulate_grad_batches
    for axis, (quantity, some) in zip(axes, sorted(panels.items()), strict=True):
        names = list(dict.fromkeys(type(hook).__name__ for hook in some))
        for hook in some:
            rows = sample(hook, **run)
            for label, values in columns_of(rows).items():
                own = [type(hook).__name__] if len(names) > 1 else []
                # a value holds until the next iteration, the last value to the end of the run
                axis.plot(
                    range(total + 1),
                    [*values, values[-1]],
                    drawstyle="steps-post",
                    label=", ".join([*own, *label]) or None,
                )
            early = _decay_on_demand(hook, *lengths)
            if early is not None:
                rates = columns_of(sample(early[0], **run)).values()
                for values in rates:
                    axis.plot(
                        range(early[1], early[2] + 1),
                        values[early[1] : early[2] + 1],
                        "--",
                        color="gray",
                        label="start_decay()" if values is next(iter(rates)) else None,
                    )
            for border in _borders(hook, *lengths):
                axis.axvline(border, color="gray", lw=0.8, ls=":")
            length = min(_warm_up_length(hook, *lengths), total)
            if length and not any(patch.get_label() == "warm-up" for patch in axis.patches):
                axis.axvspan(0, length, color="tab:orange", alpha=0.15, lw=0, label="warm-up")
        axis.set_ylabel(quantity)
        axis.set_title(", ".join(names), fontsize=10)
        axis.grid(alpha=0.3)
        axis.margins(x=0.01)
        if axis.get_legend_handles_labels()[1]:
            axis.legend(fontsize=8)
    epochs = range(0, max_epochs + 1, -(-max_epochs // MOST_TICKS))
    axes[-1].set_xticks([epoch * iters_per_epoch for epoch in epochs], list(map(str, epochs)))
    axes[-1].set_xlabel(f"epoch ({iters_per_epoch} iterations each)")
    figure.savefig(path, dpi=120)
    return Path(path)


def _warm_up_length(hook: Any, max_epochs: int, *epoch: int) -> int:
    """Return the iterations of a hook's warm-up."""
    if hook.warmup is None:
        return 0
    epochs: int | None = getattr(hook, "warmup_epochs", None)
    if epochs is not None:
        return epochs * epoch[0]
    length = int(hook.warmup_iters or 0)
    if getattr(hook, "_warmup_share", None) is not None:
        length = length_of(hook._warmup_share, max_epochs * _epoch_length(hook, *epoch))
    return _iterations(hook, length, *epoch)


def _borders(hook: Any, max_epochs: int, *epoch: int) -> list[int]:
    """Return the iterations at which the phases of a hook begin, after the first."""
    phased = getattr(hook, "policy", hook)  # of a field
    if not hasattr(phased, "windows"):
        return []
    unit = 1 if hook.by_epoch else _epoch_length(hook, *epoch)
    ends = ends_of_phases([phase.length for phase in phased.windows], max_epochs * unit)
    return [
        end * epoch[0] if hook.by_epoch else _iterations(hook, end, *epoch)
        for end in ends[:-1]
        if end < max_epochs * unit
    ]


def _decay_on_demand(hook: Any, max_epochs: int, *epoch: int) -> tuple[Any, int, int] | None:
    """Return a copy of a hook that decays on demand, and the decay's first and last iteration."""
    if not is_family(hook, "WSDLrUpdaterHook") or hook.span is not None:
        return None
    total = max_epochs * (1 if hook.by_epoch else _epoch_length(hook, *epoch))
    length = length_of(hook.decay, total)
    if length * 2 > total:
        return None
    early = copy.deepcopy(hook)
    early.span = begin, end = (total - length) // 2, (total - length) // 2 + length
    if hook.by_epoch:
        return early, begin * epoch[0], end * epoch[0]
    return early, _iterations(hook, begin, *epoch), _iterations(hook, end, *epoch)


def _epoch_length(hook: Any, iters_per_epoch: int, accumulate: int) -> int:
    """Return the iterations, or optimizer steps, of an epoch, as the hook counts."""
    by_step = getattr(hook, "_by_step", False)
    return -(-iters_per_epoch // accumulate) if by_step else iters_per_epoch


def _iterations(hook: Any, length: int, iters_per_epoch: int, accumulate: int) -> int:
    """Return a length in iterations, which the hook may count in optimizer steps."""
    if not getattr(hook, "_by_step", False):
        return length
    epochs, steps = divmod(length, _epoch_length(hook, iters_per_epoch, accumulate))
    return epochs * iters_per_epoch + steps * accumulate


def table(
    hooks: Any, *, max_epochs: int, iters_per_epoch: int, rows: int = 12, **sampling: Any
) -> str:
    """Return a table of the values set by hooks over a run: a :func:`plot` in numbers.

    :func:`~lightning_hooks.schedules.sample` has the values of all iterations in full.

    Args:
        hooks: A hook or several hooks; a column for each hook and parameter group.
        max_epochs: Epochs of the run.
        iters_per_epoch: Iterations of an epoch.
        rows: The approximate number of rows: several iterations of each epoch, or the first
            iterations of some epochs. The last iteration of the run always has a row.
        sampling: Further arguments of :func:`~lightning_hooks.schedules.sample`.

    Raises:
        ValueError: for no hook, ``rows`` below 1, or if a hook refuses the run.

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
    listed = hooks_of(hooks)
    check_count("rows", rows)
    shown = _shown(max_epochs, iters_per_epoch, rows)
    columns = [["epoch", *(str(i // iters_per_epoch) for i in shown)], ["iter", *map(str, shown)]]
    for hook in listed:
        values = sample(hook, max_epochs=max_epochs, iters_per_epoch=iters_per_epoch, **sampling)
        quantity = quantity_of(hook)
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
    """Return the iterations to show: the first of an epoch, or several of each epoch."""
    every = max(1, max_epochs // rows)  # epochs
    step = max(1, iters_per_epoch // max(1, rows // max_epochs))
    within = range(0, iters_per_epoch if every == 1 else 1, step)
    firsts = range(0, max_epochs * iters_per_epoch, every * iters_per_epoch)
    return sorted({*(first + i for first in firsts for i in within), firsts.stop - 1})
