"""The picture of a schedule, drawn without a Trainer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import (
    FieldUpdaterHook,
    OneCycleMomentumUpdaterHook,
    PhasesLrUpdaterHook,
    WSDLrUpdaterHook,
    schedules,
)
from lightning_hooks.hooks.updaters.anneal import CosineAnnealingLrUpdaterHook
from lightning_hooks.hooks.updaters.cyclic import OneCycleLrUpdaterHook
from lightning_hooks.hooks.updaters.decay import StepLrUpdaterHook

pytest.importorskip("matplotlib")
RUN = {"max_epochs": 4, "iters_per_epoch": 5}


@pytest.fixture
def axes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The panels of the saved picture."""
    from matplotlib.figure import Figure

    found: list[Any] = []
    save = Figure.savefig

    def savefig(self: Any, *args: Any, **kwargs: Any) -> None:
        found.extend(self.axes)
        save(self, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return found


def test_a_panel_each_with_epochs_below_and_the_warm_up_shaded(tmp_path: Path, axes: Any) -> None:
    hooks = [
        OneCycleLrUpdaterHook(max_lr=1.0, warmup="linear", warmup_iters=3),
        OneCycleMomentumUpdaterHook(),
    ]
    path = schedules.plot(hooks, tmp_path / "run.png", **RUN)
    assert path == tmp_path / "run.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    rates, momenta = axes
    assert (rates.get_ylabel(), momenta.get_ylabel()) == ("learning rate", "momentum")
    [line] = rates.lines
    sampled = schedules.sample(hooks[0], **RUN)
    assert list(line.get_ydata()) == [*sampled, sampled[-1]]
    assert [patch.get_label() for patch in rates.patches] == ["warm-up"]
    assert rates.patches[0].get_extents().width > 0
    assert not momenta.patches
    assert list(momenta.get_xticks()) == [0, 5, 10, 15, 20]
    assert [tick.get_text() for tick in momenta.get_xticklabels()] == ["0", "1", "2", "3", "4"]


def test_groups_and_policies_are_told_apart(tmp_path: Path, axes: Any) -> None:
    policies = [StepLrUpdaterHook(step=2), CosineAnnealingLrUpdaterHook(min_lr=0.0)]
    schedules.plot(policies, tmp_path / "a.svg", **RUN, base_lr={"g": [0.1, 0.2], "d": 0.3})
    labels = axes[0].get_legend_handles_labels()[1]
    assert labels == [
        f"{name}LrUpdaterHook, {group}"
        for name in ("Step", "CosineAnnealing")
        for group in ("g, group 0", "g, group 1", "d")
    ]


def test_a_long_run_has_few_ticks(tmp_path: Path, axes: Any) -> None:
    schedules.plot(
        StepLrUpdaterHook(step=99), tmp_path / "a.png", max_epochs=100, iters_per_epoch=1
    )
    assert 8 <= len(axes[0].get_xticks()) <= 13


def test_a_warm_up_in_epochs_is_shaded_over_these(tmp_path: Path, axes: Any) -> None:
    hook = StepLrUpdaterHook(step=9, warmup="exp", warmup_iters=2, warmup_by_epoch=True)
    schedules.plot(hook, tmp_path / "a.png", **RUN)
    box = axes[0].patches[0].get_bbox()
    assert (box.x0, box.x1) == (0, 10)


def test_nothing_to_draw_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one hook"):
        schedules.plot([], tmp_path / "a.png", **RUN)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match="pip install matplotlib"):
        schedules.plot(StepLrUpdaterHook(step=1), **RUN)


def test_a_table_of_rates_and_momenta() -> None:
    hooks = [StepLrUpdaterHook(step=[30, 60]), OneCycleMomentumUpdaterHook()]
    run: dict[str, Any] = {"max_epochs": 90, "iters_per_epoch": 10, "base_lr": [0.1, 1.0]}
    lines = schedules.table(hooks, **run, base_momentum=[0.9, 0.9]).splitlines()
    assert lines[0].split("  ")[-3:] == ["lr, group 1", "momentum, group 0", "momentum, group 1"]
    cells = [line.split() for line in lines[1:]]
    assert len(cells) == 14
    assert cells[0] == ["0", "0", "0.1", "1", "0.95", "0.95"]
    assert cells[5] == ["35", "350", "0.01", "0.1", "0.854", "0.854"]
    assert cells[-1] == ["89", "899", "0.001", "0.01", "0.95", "0.95"]


def test_a_table_of_a_run_in_iterations_and_of_steps() -> None:
    hook = StepLrUpdaterHook(step=2, gamma=0.5, by_epoch=False, by_step=True)
    text = schedules.table(hook, max_epochs=1, iters_per_epoch=8, accumulate_grad_batches=2)
    assert [line.split()[-1] for line in text.splitlines()] == ["lr", *["0.1"] * 4, *["0.05"] * 4]


def test_a_table_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one hook"):
        schedules.table([], max_epochs=1, iters_per_epoch=1)
    with pytest.raises(ValueError, match="rows must be an int of at least 1, got 0"):
        schedules.table(StepLrUpdaterHook(1), max_epochs=1, iters_per_epoch=1, rows=0)


def test_a_warm_up_in_steps_is_shaded_over_its_batches(tmp_path: Path, axes: Any) -> None:
    hook = StepLrUpdaterHook(step=1, warmup="linear", warmup_iters=4, by_step=True)
    options = {"max_epochs": 2, "iters_per_epoch": 5, "accumulate_grad_batches": 2}
    schedules.plot(hook, tmp_path / "plot.png", **options)
    box = axes[0].patches[0].get_bbox()
    assert (box.x0, box.x1) == (0, 7)


@pytest.mark.parametrize("by_step", [True, False])
def test_phases_a_decay_on_demand_and_fields_are_drawn(
    axes: Any, tmp_path: Path, by_step: bool
) -> None:
    phases = [{"policy": "fixed", "length": 0.5}, {"policy": "exp", "gamma": 0.5}]
    hooks = [
        PhasesLrUpdaterHook(phases, by_epoch=False, by_step=by_step),
        WSDLrUpdaterHook(decay=0.25, by_step=by_step),
        FieldUpdaterHook("weight_decay", "phases", phases=phases),
    ]
    run = {"max_epochs": 4, "iters_per_epoch": 10, "accumulate_grad_batches": 2}
    schedules.plot(hooks, tmp_path / "all.png", **run, fields={"weight_decay": 0.05})
    assert [axis.get_ylabel() for axis in axes] == ["learning rate", "weight_decay"]
    styles = {one.get_linestyle(): list(one.get_xdata()) for axis in axes for one in axis.lines}
    assert styles[":"] == [20, 20]
    # the planned decay begins at 30 of 40
    assert [styles["--"][0], styles["--"][-1]] == ([14, 24] if by_step else [15, 25])
