"""Counted costs of an iteration: calls, objects and modules, independent of the machine."""

from __future__ import annotations

import gc
import itertools
import sys
import zipfile
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import lightning as L
import pytest
import torch
from torch.utils.data import DataLoader

import lightning_hooks
from lightning_hooks import (
    CheckInvalidLossHook,
    CheckpointHook,
    CosineAnnealingLrUpdaterHook,
    EMAHook,
    Hook,
    HookAdapter,
    IterTimerHook,
    TextLoggerHook,
)
from support.device_reads import Reads
from support.processes import run_new
from support.training import TinyModule, TinyNormModule, make_loader, make_trainer
from support.walks import IN_THEIR_PLACE

PACKAGE = str(Path(lightning_hooks.__file__).parent)


class Old:
    """A foreign hook with two points of the batch."""

    _reads_step = False

    def before_train_iter(self, runner: Any) -> None: ...

    def after_train_iter(self, runner: Any) -> None: ...


class Idle:
    """A foreign hook without a point in the step."""

    _reads_step = False

    def before_run(self, runner: Any) -> None: ...


class Logging(TinyModule):
    """Logs many values."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch)
        for number in range(self.count):
            self.log(f"loss_{number}", loss + number, on_step=True, on_epoch=True)
        return loss


class Steps(L.LightningModule):
    """A module with trivial steps; ``seen`` has the results of ``look`` before each step."""

    def __init__(self, look: Any) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.look = look
        self.seen: list[Any] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.seen.append(self.look())
        return {"loss": self.weight.detach()[0]}

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Validations(Steps):
    """The same steps in a validation."""

    def training_step(self, batch: Any, batch_idx: int) -> None: ...

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.seen.append(self.look())


def steps(
    tmp_path: Path, count: int, look: Any, *hooks: Any, kind: type[Steps] = Steps
) -> list[Any]:
    """Train for a number of steps; return the result of ``look`` in each step."""
    module, loader = kind(look), DataLoader(range(count), batch_size=None)
    val_loader = loader if kind is Validations else None
    make_trainer(tmp_path, *hooks, num_sanity_val_steps=0).fit(module, loader, val_loader)
    return module.seen


def calls_per_step(
    tmp_path: Path, *hooks: Any, count: int = 12, kind: type[Steps] = Steps
) -> list[int]:
    """Return the number of calls in each step to functions of the package and of this file."""
    calls: list[str] = []  # a list, because before Python 3.11 an int is reset after look's event

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        ours = code.co_filename.startswith((PACKAGE, __file__)) and code not in IN_THEIR_PLACE
        if event == "call" and ours:
            calls.append(code.co_name)

    def look() -> int:
        return len(calls)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        seen = steps(tmp_path, count, look, *hooks, kind=kind)
    finally:
        sys.setprofile(before)
    looks = 1
    return [later - one - looks for one, later in itertools.pairwise(seen[2:])]


def test_a_point_without_a_hook_costs_nothing_and_each_hook_one_call(tmp_path: Path) -> None:
    def calls(hook: type, number: int) -> int:
        (count,) = {*calls_per_step(tmp_path, HookAdapter([hook() for _ in range(number)]))}
        return count

    assert calls(Idle, 20) == calls(Idle, 1) <= 2
    assert calls(Old, 20) - calls(Old, 10) == 2 * 10


def test_a_validation_batch_beside_an_average_makes_few_calls(tmp_path: Path) -> None:
    assert max(calls_per_step(tmp_path, EMAHook(), kind=Validations)) <= 9


def usual_hooks() -> list[Hook]:
    return [
        CosineAnnealingLrUpdaterHook(min_lr=0.0, by_epoch=False),
        EMAHook(),
        IterTimerHook(),
        CheckInvalidLossHook(interval=10),
        CheckpointHook(interval=1),
        TextLoggerHook(interval=10),
    ]


def test_a_step_makes_as_many_calls_late_in_a_run_as_early(tmp_path: Path) -> None:
    adapter = HookAdapter(usual_hooks(), work_dir=str(tmp_path / "work"))
    calls = calls_per_step(tmp_path, adapter, count=300)
    assert sum(calls[20:70]) == sum(calls[220:270])  # whole intervals


def test_memory_does_not_grow_with_a_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Objects left by log lines would grow with every line, other objects only once."""
    caplog.set_level("ERROR", "lightning_hooks")  # pytest stores logged messages
    looks = (50, 100, 200, 300)  # the first leaves objects itself
    lines = 100 // 10
    found: list[Counter[type]] = []

    def look() -> None:
        looked.append(None)
        if len(looked) in looks:
            gc.collect()
            found.append(Counter(map(type, gc.get_objects())))

    looked: list[None] = []
    adapter = HookAdapter(usual_hooks(), work_dir=str(tmp_path / "work"))
    steps(tmp_path, looks[-1], look, adapter)
    first, second = (later - one for one, later in itertools.pairwise(found[1:]))
    assert {kind: count for kind, count in (first & second).items() if count >= lines} == {}


def test_nothing_is_read_from_the_device_in_a_step_after_which_nothing_is_due(
    tmp_path: Path,
) -> None:
    class Quiet(TinyNormModule):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            counts.append(sum(read.waits for read in reads.found))
            return self.loss(batch)

    reads, counts = Reads(), list[int]()
    saving = {"interval": 10, "by_epoch": False, "background": True}
    hooks = [*usual_hooks(), CheckpointHook(**saving, out_dir=str(tmp_path / "saved"))]
    adapter = HookAdapter(hooks, work_dir=str(tmp_path / "work"))
    with reads:
        make_trainer(tmp_path, adapter).fit(Quiet(), make_loader(31), make_loader(1))
    found = [later - one for one, later in itertools.pairwise(counts)]
    of_losses, of_log, of_what_ema_left_out = 2, 1, 1  # the losses once more before a file
    due = {9: of_losses + of_log + of_what_ema_left_out}
    assert found == [due.get(step % 10, 0) for step in range(30)]


def test_a_file_has_as_many_records_however_many_values_are_logged(tmp_path: Path) -> None:
    def records(count: int) -> int:
        folder = tmp_path / str(count)
        hooks = CheckpointHook(2, by_epoch=False), TextLoggerHook(interval=3)
        trainer = make_trainer(folder, *hooks, enable_checkpointing=True)
        trainer.fit(Logging(count), make_loader(4), make_loader(1))
        with zipfile.ZipFile(folder / "iter_2.pth") as archive:
            return len(archive.namelist())

    assert records(1) == records(30)


def test_importing_us_imports_only_us_file_locks_and_the_standard_library() -> None:
    program = (
        "import sys, lightning.pytorch, torchmetrics; before = set(sys.modules)\n"
        "from lightning_hooks import *; print(*set(sys.modules) - before)"
    )
    printed = run_new(program).split()
    imported = {name.partition(".")[0] for name in printed} - {*sys.stdlib_module_names}
    assert imported - {"filelock"} == {"lightning_hooks"}  # torch may have imported filelock
