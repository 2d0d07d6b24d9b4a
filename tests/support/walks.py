"""Count how often a walk through the package changes file, in real fits.

A walk is the sequence of the package's calls from a Lightning event, or a user's call, to an
effect: a hook object, a line in a file, a checkpoint. ``sys.setprofile`` records the calls in order
on the training thread. A walk changes file at each call of a function in another file than the
previously called function. Resuming a generator or a comprehension counts as a call; a return does
not.

``python -m support.walks`` prints all walks; ``--calls save text_log`` prints every change of the
named walks. The numbers are for Python 3.10 and 3.11; from 3.12 on, a comprehension is not a call.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import lightning as L
import torch

import lightning_hooks
from lightning_hooks import (
    CheckpointHook,
    EMAHook,
    HookAdapter,
    IterTimerHook,
    MlflowLoggerHook,
    StepLrUpdaterHook,
    TextLoggerHook,
    register_training_hooks,
)
from lightning_hooks.train_step import TrainStepModule
from support.training import make_loader, make_trainer

__all__ = [
    "WALKS",
    "Call",
    "Walk",
    "config",
    "mlflow",
    "old_hook",
    "quiet_step",
    "rate",
    "resumed_start",
    "save",
    "text_log",
]

PACKAGE = os.path.dirname(os.path.abspath(lightning_hooks.__file__)) + os.sep

INTERVAL = 4
"""Batches between two log lines."""

LOGGING_BATCH = 2 * INTERVAL - 1
"""The batch with the run's second log line, because the first line takes a longer walk."""


class Function(NamedTuple):
    """Names a function of the package."""

    file: str
    """The path in the package, with ``/``."""
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.name}"


class Call(NamedTuple):
    """Holds a call of a function of the package."""

    caller: Function | None
    """The nearest calling function of the package, None for an entry."""
    callee: Function

    @property
    def crosses(self) -> bool:
        """Whether caller and callee are in different files."""
        return self.caller is not None and self.caller.file != self.callee.file

    def __str__(self) -> str:
        return f"{self.caller or 'from outside'} -> {self.callee}"


class Walk(NamedTuple):
    """The package's calls from an event to its effect."""

    name: str
    calls: list[Call]

    @property
    def visits(self) -> list[str]:
        """The visited files in order of the calls, with repeated visits."""
        return [file for file, _ in itertools.groupby(call.callee.file for call in self.calls)]

    @property
    def changes(self) -> int:
        """The number of file changes in the walk."""
        return len(self.visits) - 1

    @property
    def files(self) -> list[str]:
        """The visited files in order of the first visit."""
        return list(dict.fromkeys(self.visits))

    @property
    def crossings(self) -> int:
        """The number of calls whose caller is in another file."""
        return sum(call.crosses for call in self.calls)

    @property
    def arrivals(self) -> list[Call]:
        """The first call of each visit to a file."""
        groups = itertools.groupby(self.calls, key=lambda call: call.callee.file)
        return [next(calls) for _, calls in groups]


class Recorder:
    """Records the calls of the package's functions in the current thread."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._before: Any = sys.getprofile()

    def start(self) -> None:
        """Start recording."""
        sys.setprofile(self._note)

    def stop(self) -> None:
        """Stop recording."""
        sys.setprofile(self._before)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and _is_ours(frame.f_code):
            outer = frame.f_back
            while outer is not None and not _is_ours(outer.f_code):
                outer = outer.f_back
            caller = None if outer is None else _function(outer.f_code)
            self.calls.append(Call(caller, _function(frame.f_code)))


IN_THEIR_PLACE = {TrainStepModule.__setattr__.__code__}
"""Functions called by Lightning at each event in place of slower functions."""


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(PACKAGE) and code not in IN_THEIR_PLACE


def _function(code: CodeType) -> Function:
    file = code.co_filename.removeprefix(PACKAGE).replace(os.sep, "/")
    return Function(file, getattr(code, "co_qualname", code.co_name))  # Python 3.10 has no qualname


class At(L.Callback):
    """Calls a function at a Lightning event in one batch of the fit.

    Args:
        event: The name of the event, ``on_train_batch_start`` or ``on_train_batch_end``.
        batch: The index of the batch.
        act: The function to call.
    """

    def __init__(self, event: str, batch: int, act: Callable[[], None]) -> None:
        self._event, self._batch, self._act = event, batch, act

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Call the function if the event and batch match."""
        if self._event == "on_train_batch_start" and batch_idx == self._batch:
            self._act()

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Call the function if the event and batch match."""
        if self._event == "on_train_batch_end" and batch_idx == self._batch:
            self._act()


class AtEnd(L.Callback):
    """Calls a function at the end of training.

    Args:
        act: The function to call.
    """

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Call the function."""
        self._act()


class Module(L.LightningModule):
    """A linear layer without logged values.

    Args:
        at_epoch_end: The function to call at the end of the epoch, after all callbacks except
            Lightning's ``Checkpoint`` callbacks, which come last.
    """

    def __init__(self, at_epoch_end: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 2)
        self._at_epoch_end = at_epoch_end

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Return the loss."""
        x, y = batch
        return torch.nn.functional.mse_loss(self.net(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Use plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_train_epoch_end(self) -> None:
        """Call the given function."""
        self._at_epoch_end()


class OldHook:
    """An old project's hook: mmcv's points without a base class."""

    def before_run(self, runner: Any) -> None:
        """Do nothing."""

    def after_train_iter(self, runner: Any) -> None:
        """Do nothing."""


def _walk(name: str, go: Callable[[Recorder], object]) -> Walk:
    """Run twice and record the second run, after all lazy imports.

    Raises:
        RuntimeError: if no call was recorded, for example because the event did not occur.
    """
    for recorder in (Recorder(), Recorder()):
        try:
            go(recorder)
        finally:
            recorder.stop()
        if not recorder.calls:
            raise RuntimeError(f"the walk {name!r} has no calls: its event has not come")
    return Walk(name, recorder.calls)


def _fit(folder: Path, module: Module, *callbacks: Any, **trainer: Any) -> None:
    make_trainer(folder, *callbacks, **trainer).fit(module, make_loader(batches=2 * INTERVAL))


def _event(name: str, folder: Path, event: str, batch: int, make: Callable[[], Any]) -> Walk:
    """Walk through an event of one batch with the hook from ``make``."""

    def go(recorder: Recorder) -> None:
        first, last = At(event, batch, recorder.start), At(event, batch, recorder.stop)
        _fit(folder, Module(), first, make(), last)

    return _walk(name, go)


def config(folder: Path) -> Walk:
    """Walk from mmcv's ``lr_config`` to an adapter with the schedule and the default timer."""

    def go(recorder: Recorder) -> None:
        recorder.start()
        register_training_hooks(lr_config=dict(policy="step", step=[8, 11]))
        recorder.stop()

    return _walk("config", go)


def text_log(folder: Path) -> Walk:
    """Walk from the end of a batch to the line in the second file of the text log."""
    name, calls = _event("text_log", folder, "on_train_batch_end", LOGGING_BATCH, _text_logger)
    appends = [n for n, call in enumerate(calls) if call.callee.name.endswith("append")]
    last = appends[-1]
    inside = itertools.takewhile(lambda call: not call.crosses, calls[last + 1 :])
    return Walk(name, [*calls[: last + 1], *inside])


def quiet_step(folder: Path) -> Walk:
    """Walk through the end of a batch without a logged line."""
    return _event("quiet_step", folder, "on_train_batch_end", LOGGING_BATCH - 1, _text_logger)


def _text_logger() -> TextLoggerHook:
    return TextLoggerHook(interval=INTERVAL, by_epoch=False)


def save(folder: Path) -> Walk:
    """Walk from the end of an epoch with a due checkpoint to the run's first file."""

    def go(recorder: Recorder) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as new:
            module, last = Module(at_epoch_end=recorder.start), AtEnd(recorder.stop)
            hook = CheckpointHook(interval=1)
            _fit(Path(new), module, last, hook, enable_checkpointing=True)

    return _walk("save", go)


def rate(folder: Path) -> Walk:
    """Walk from the start of a batch to the learning rate, with warm-up, in the optimizer."""

    def make() -> StepLrUpdaterHook:
        return StepLrUpdaterHook(step=[4, 6], by_epoch=False, warmup="linear", warmup_iters=8)

    return _event("rate", folder, "on_train_batch_start", LOGGING_BATCH, make)


def old_hook(folder: Path) -> Walk:
    """Walk from a training step to ``after_train_iter`` of an old project's hook."""

    def go(recorder: Recorder) -> None:
        first = At("on_train_batch_start", LOGGING_BATCH, recorder.start)
        last = At("on_train_batch_end", LOGGING_BATCH, recorder.stop)
        _fit(folder, Module(), HookAdapter([OldHook()]), first, last)

    return _walk("old_hook", go)


def mlflow(folder: Path) -> Walk:
    """Walk from the end of a batch to the loss in the spool file of the sender thread."""

    def make() -> MlflowLoggerHook:
        return MlflowLoggerHook(interval=INTERVAL, by_epoch=False, log_model=False)

    return _event("mlflow", folder, "on_train_batch_end", LOGGING_BATCH, make)


def resumed_start(folder: Path) -> Walk:
    """Walk from ``fit(ckpt_path="last")`` to the first batch, with the hooks of most runs."""

    def train(recorder: Recorder, path: Path, epochs: int, ckpt_path: str | None) -> None:
        hooks = [
            StepLrUpdaterHook(step=[4, 6]),
            EMAHook(),
            CheckpointHook(interval=1),
            IterTimerHook(),
            _text_logger(),
        ]
        first = At("on_train_batch_start", 0, recorder.stop)
        options = {"max_epochs": epochs, "enable_checkpointing": True}
        trainer = make_trainer(path, first, HookAdapter(hooks), **options)
        if ckpt_path:
            recorder.start()
        trainer.fit(Module(), make_loader(batches=2), ckpt_path=ckpt_path)

    def go(recorder: Recorder) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as new:
            train(Recorder(), Path(new), 1, None)
            train(recorder, Path(new), 2, "last")

    return _walk("resumed_start", go)


WALKS: dict[str, Callable[[Path], Walk]] = {
    walk.__name__: walk
    for walk in (
        *(config, text_log, quiet_step, save, rate, old_hook, mlflow),
        resumed_start,
    )
}
"""The walks by name; each takes a folder to train in."""


def _print_table(walks: Sequence[Walk]) -> None:
    print(f"{'walk':14}{'changes':>8}{'files':>8}{'calls':>8}{'calls across files':>20}")
    for walk in walks:
        numbers = f"{walk.changes:8}{len(walk.files):8}{len(walk.calls):8}{walk.crossings:20}"
        print(f"{walk.name:14}{numbers}")


def _print_changes(walk: Walk) -> None:
    print(f"\n{walk.name}: every change of file, by the call that makes it")
    for number, call in enumerate(walk.arrivals):
        is_back = call.caller is not None and not call.crosses
        print(f"{number:4}  {call}{'  (back in its file)' if is_back else ''}")


def _print_visits(walk: Walk) -> None:
    print(f"\n{walk.name}: {walk.changes} changes over {len(walk.files)} files")
    print(" > ".join(walk.visits))


def main() -> None:
    """Print the named walks, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="WALK", help=", ".join(WALKS))
    parser.add_argument("--calls", action="store_true", help="print the call of every change")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in WALKS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(WALKS)}")
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        walks = [WALKS[name](Path(folder)) for name in given.names or WALKS]
    _print_table(walks)
    for walk in walks:
        (_print_changes if given.calls else _print_visits)(walk)


if __name__ == "__main__":
    main()
