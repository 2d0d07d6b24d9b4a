"""``StepTimeHook``: split the time of a run among its phases and hooks."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import lightning as L
import torch

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.profiling.step_time_probes import DATA, OTHER, Account, Probes
from lightning_hooks.utils.arguments import check_bool, check_int
from lightning_hooks.utils.packages import require

__all__ = ["StepTimeHook"]

PHASES = (
    "data",
    "forward",
    "backward",
    "optimizer",
    "hooks",
    "logging",
    "evaluation",
    "checkpoint",
    "other",
)
"""The phases, in the order of the table."""


@HOOKS.register_module()
class StepTimeHook(Hook):
    """Splits the time of a run among phases and hooks, and prints a table at the end.

    Every moment belongs to exactly one phase, so the phases add up to the whole run:

    ===========  ==============================================================================
    phase        content
    ===========  ==============================================================================
    data         from the end of a batch until the next batch is on the device
    forward      the training step, without the phases below
    backward     backward, with the synchronisation of gradients
    optimizer    zero_grad, clipping and step; the hooks of the family ``OptimizerHook``
    hooks        all hooks of no other phase
    logging      calls of the Trainer's loggers; the hooks of the family ``LoggerHook``
    evaluation   validation, with the data; the hooks of the family ``EvalHook``
    checkpoint   ``Trainer.save_checkpoint``; the hooks of the family ``CheckpointHook``
    other        Lightning itself, other callbacks, the ends of epochs
    ===========  ==============================================================================

    A native hook's time includes its Lightning events. Nothing waits for a GPU: phases of a GPU are
    timed by CUDA events, read after the GPU has passed the events, with the host's time beside.

    With ``log=True`` the log has, every ``interval`` iterations:

    =====================  ======================================================
    key                    seconds
    =====================  ======================================================
    step_time/<phase>      of the phase, per iteration of this interval
    =====================  ======================================================

    Args:
        interval: Iterations between two readings of the events and, with ``log``, two log records.
        warmup_iters: Iterations at the start without measurement: caches fill, kernels are chosen.
        log: Whether the log gets the keys above.
        table: Whether rank 0 prints the table.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: if ``interval`` is below 1 or ``warmup_iters`` below 0.
        ImportError: for ``table=True`` without rich.

    Source: detectron2's ``IterationTimer``, Ignite's ``HandlersTimeProfiler`` and Lightning's
    profilers; for mmcv's ``time`` and ``data_time`` see
    :class:`~lightning_hooks.hooks.profiling.iter_timer.IterTimerHook`.
    """

    _reads_step = False
    _transient = ("_probes",)
    _probes: Probes | None = None  # while a run is measured
    _summary: dict[str, Any] | None = None  # of the last run
    _logged: tuple[int, dict[str, float]] = (0, {})  # iterations and phases of the last record

    def __init__(
        self, interval: int = 50, warmup_iters: int = 3, log: bool = False, table: bool = True
    ) -> None:
        check_int("interval", interval, 1)
        check_int("warmup_iters", warmup_iters, 0)
        check_bool(log=log, table=table)
        if table:
            require("rich", "StepTimeHook(table=True)")
        self.interval = interval
        self.warmup_iters = warmup_iters
        self.write_log = log
        self.table = table

    # -- the results -------------------------------------------------------------------------

    def summary(self) -> dict[str, Any]:
        """Return the numbers of the run so far, or of the last run.

        ``iterations``, ``seconds``, ``ranks``; ``phases`` and ``hooks`` map names to ``total``
        seconds, seconds ``per_iter``, the ``share`` of the run, ``max`` and ``mean`` over the
        ranks (during the run: of this rank). Phases of a GPU also have ``host`` seconds, hooks
        ``calls`` and ``phase``.

        Raises:
            RuntimeError: before the first measured run.
        """
        if self._probes is not None:
            own = self._probes.numbers()
            return across_ranks(own, [own])
        if self._summary is None:
            raise RuntimeError("StepTimeHook has measured nothing yet: it does in Trainer.fit()")
        return self._summary

    # -- the run -----------------------------------------------------------------------------

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the measurement."""
        self._summary, self._logged = None, (0, {})
        self._probes = Probes(Driver.of(trainer).runner, pl_module, self.warmup_iters)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Time the wait for the first batch."""
        self._switch(DATA)

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """End the wait for the batch."""
        self._switch(OTHER)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """End the wait for a batch: the epoch has no more batches."""
        self._switch(OTHER)

    def _switch(self, account: Account) -> None:
        if self._probes is not None:
            self._probes.watch.switch(account)

    def after_train_iter(self, runner: Runner) -> None:
        """Read the times finished by the GPU, and log the phases."""
        if self._probes is None or not self.every_n_iters(runner, self.interval):
            return
        if self._probes.watch.gpu is not None:
            self._probes.watch.gpu.collect()
        done, (before, then) = self._probes.iterations(open_batch=True), self._logged
        if self.write_log and done > before:
            now = self._probes.numbers()["phases"]
            self._logged = done, now
            values = {
                f"step_time/{phase}": (now[phase] - then.get(phase, 0.0)) / (done - before)
                for phase in PHASES
                if phase in now
            }
            runner.log_buffer.update(values)

    # -- the end -----------------------------------------------------------------------------

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Gather the ranks' numbers and print the tables."""
        self._finish(trainer, ended=True)

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Print this rank's numbers without raising: a second error would hide the first."""
        with contextlib.suppress(Exception):
            self._finish(trainer, ended=False)

    def _finish(self, trainer: L.Trainer, ended: bool) -> None:
        probes, self._probes = self._probes, None
        if probes is None:
            return
        gpu = probes.watch.gpu
        if gpu is not None:
            gpu.mark(OTHER[0])
            gpu.collect(wait=ended)  # after an error the GPU may never finish
        own = probes.numbers()
        ranks: list[Any] = [own]
        if ended and trainer.world_size > 1:
            ranks = [None] * trainer.world_size
            torch.distributed.all_gather_object(ranks, own)
        self._summary = across_ranks(own, ranks)
        if self.table and trainer.is_global_zero:
            from rich.console import Console

            Console().print(*tables(self._summary), sep="\n")


def across_ranks(own: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a rank's numbers with the shares, and the maximum and mean over the ranks.

    Args:
        own: ``iterations``; ``phases``, seconds by phase; ``host``, with a GPU the same by the
            host's clock, else empty; ``hooks``, by name with ``phase``, ``calls`` and ``total``
            seconds.
        ranks: The same of all ranks, with this rank.

    >>> row = {"iterations": 4, "phases": {"data": 1.0, "forward": 3.0}, "host": {}, "hooks": {}}
    >>> other = {**row, "phases": {"data": 2.0, "forward": 2.0}}
    >>> across_ranks(row, [row, other])["phases"]["data"]
    {'total': 1.0, 'per_iter': 0.25, 'share': 0.25, 'max': 2.0, 'mean': 1.5}
    """
    iterations, seconds = own["iterations"], sum(own["phases"].values())
    phases = {}
    for phase in PHASES:
        totals = [rank["phases"].get(phase, 0.0) for rank in ranks]
        if any(phase in rank["phases"] for rank in ranks):
            row = _row(own["phases"].get(phase, 0.0), totals, seconds, iterations)
            host = {"host": own["host"].get(phase, 0.0)} if own["host"] else {}
            phases[phase] = {**row, **host}
    hooks = {}
    spent = sum(own["host"].values()) if own["host"] else seconds
    for name, hook in own["hooks"].items():
        totals = [rank["hooks"].get(name, {}).get("total", 0.0) for rank in ranks]
        hooks[name] = {**hook, **_row(hook["total"], totals, spent, iterations)}
    return {
        "iterations": iterations,
        "seconds": seconds,
        "ranks": len(ranks),
        "phases": phases,
        "hooks": dict(sorted(hooks.items(), key=lambda item: -item[1]["total"])),
    }


def _row(total: float, totals: Sequence[float], whole: float, iterations: int) -> dict[str, Any]:
    return {
        "total": total,
        "per_iter": total / iterations if iterations else 0.0,
        "share": total / whole if whole else 0.0,
        "max": max(totals),
        "mean": sum(totals) / len(totals),
    }


def tables(summary: Mapping[str, Any]) -> list[Any]:
    """Return rich's tables of a summary: the phases, and the hooks if any."""
    from rich.table import Table

    over_ranks = ["max s", "mean s"] if summary["ranks"] > 1 else []
    drawn = []
    for kind, rows in (("phase", summary["phases"]), ("hook", summary["hooks"])):
        if not rows:
            continue
        columns = ["total s", "ms / iter", "share", *over_ranks]
        if kind == "hook":
            columns += ["calls", "phase"]
        elif any("host" in row for row in rows.values()):
            columns += ["host s"]
        table = Table(title_justify="left")
        table.add_column(kind)
        for column in columns:
            table.add_column(column, justify="left" if column == "phase" else "right")
        for name, row in rows.items():
            cells = {
                "total s": f"{row['total']:.3f}",
                "ms / iter": f"{1e3 * row['per_iter']:.3f}",
                "share": f"{row['share']:.1%}",
                "max s": f"{row['max']:.3f}",
                "mean s": f"{row['mean']:.3f}",
                "host s": f"{row.get('host', 0.0):.3f}",
                "calls": str(row.get("calls")),
                "phase": row.get("phase"),
            }
            table.add_row(name, *(cells[column] for column in columns))
        drawn.append(table)
    if drawn:
        drawn[0].title = f"{summary['iterations']} iterations in {summary['seconds']:.2f} s"
    return drawn
