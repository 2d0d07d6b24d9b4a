"""The number of waits for the device that hooks cause, and on a GPU their time in a step.

The models have the parameters of a ResNet-50 and of a ViT-B, and a training step that only sums the
parameters: the host is slower than the device, so each wait shows. The main figures are counts per
interval between two log lines, checks or saves: on a GPU the CUDA synchronizations in torch's
profiler, on a CPU the reads of tensor values. The counts of Lightning's loop without hooks are
subtracted. No other bench uses the GPU.

    python -m benchmarks device
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile

from benchmarks.defaults import Metered
from benchmarks.ema import SETS
from benchmarks.invalid_loss import Assertion
from benchmarks.measure import Bench, in_turns, make_loader, quiet_trainer
from lightning_hooks import CheckInvalidLossHook, CheckpointHook, EMAHook, TextLoggerHook

GPU = torch.cuda.is_available()
INTERVAL, KEYS = 50 if GPU else 10, 5
FIRST, LAST = INTERVAL, 3 * INTERVAL
MODELS = ("ResNet-50", "ViT-B")

WAITS = {
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cudaMemcpy",
    "cudaStreamSynchronize",
}
"""What of CUDA's runtime makes the host wait."""

READS = {
    getattr(torch.Tensor, name)
    for name in (
        *("__bool__", "__float__", "__format__", "__index__", "__int__"),
        *("cpu", "item", "tolist"),
    )
}
"""What makes it wait where the tensor is on another device."""


class Module(L.LightningModule):
    """Parameters of given shapes; ``how`` selects the reader of the five numbers of each step."""

    def __init__(self, shapes: list[tuple[int, ...]], how: str = "") -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.zeros(shape) for shape in shapes)
        self.how = how

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = torch.stack([weight.sum() for weight in self.weights]).sum() * batch.sum()
        values = {f"loss_{i}": loss.detach() for i in range(KEYS)}
        if self.how == "self.log":
            for name, value in values.items():
                self.log(name, value)
        if self.how == "item()":
            return {"loss": loss, "log_vars": {k: value.item() for k, value in values.items()}}
        return {"loss": loss, "log_vars": values} if self.how == "returns" else loss

    def validation_step(self, batch: Any, batch_idx: int) -> None: ...

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


class Meter:
    """Measures the steps between two marks; this base class measures microseconds per step."""

    marks = FIRST, LAST
    figure = 0.0

    def mark(self, step: int) -> None:
        """Note the begin of a marked step."""
        if step == FIRST:
            self.start()
        else:
            self.stop()

    def start(self) -> None:
        """Start to measure."""
        self.figure = -self._now()

    def stop(self) -> None:
        """Stop measuring."""
        self.figure = (self.figure + self._now()) / (LAST - FIRST) * 1e6

    @staticmethod
    def _now() -> float:
        if GPU:
            torch.cuda.synchronize()
        return time.perf_counter()


class GpuWaits(Meter):
    """Counts the waits in an interval with torch's profiler."""

    def start(self) -> None:
        self._profile = profile(activities=[ProfilerActivity.CUDA])
        self._profile.start()

    def stop(self) -> None:
        self._profile.stop()
        found = sum(event.count for event in self._profile.key_averages() if event.key in WAITS)
        self.figure = found / (LAST - FIRST) * INTERVAL


class Reads(Meter, TorchFunctionMode):
    """Counts the reads in an interval at calls of torch's functions."""

    def start(self) -> None:
        self._found = 0
        self.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self.figure = self._found / (LAST - FIRST) * INTERVAL

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._found += func in READS
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Case:
    """Callbacks made in a directory, the loop to subtract, and how the module logs."""

    make: Callable[[str], list[Any]] = lambda directory: []
    base: str = "no hooks"
    how: str = ""
    validates: bool = False
    saves: bool = False
    logs: bool = False


def checkpoint(directory: str) -> Any:
    """Make a hook with one save per interval."""
    return CheckpointHook(
        INTERVAL, by_epoch=False, out_dir=directory, max_keep_ckpts=1, background=True
    )


VALIDATED = "no hooks, validated"
CASES = {
    "no hooks": Case(),
    VALIDATED: Case(validates=True),
    "EMAHook": Case(lambda _: [EMAHook()]),
    "EMAHook, swapped": Case(lambda _: [EMAHook()], base=VALIDATED, validates=True),
    "Lightning EMAWeightAveraging": Case(lambda _: [EMAWeightAveraging()]),
    "CheckInvalidLossHook": Case(lambda _: [CheckInvalidLossHook(INTERVAL)]),
    "isfinite + assert, each step": Case(lambda _: [Assertion()]),
    "5 scalars, TextLoggerHook": Case(lambda _: [TextLoggerHook(interval=INTERVAL)], how="returns"),
    "5 scalars, item() in each step": Case(
        lambda _: [TextLoggerHook(interval=INTERVAL)], how="item()"
    ),
    "5 scalars, self.log": Case(how="self.log", logs=True),
    "CheckpointHook(background=True)": Case(lambda folder: [checkpoint(folder)], saves=True),
    "Lightning ModelCheckpoint": Case(
        lambda folder: [ModelCheckpoint(folder, every_n_train_steps=INTERVAL)], saves=True
    ),
    "all four": Case(
        lambda folder: [
            *(EMAHook(), CheckInvalidLossHook(INTERVAL)),
            *(TextLoggerHook(interval=INTERVAL), checkpoint(folder)),
        ],
        how="returns",
        saves=True,
    ),
}


def measure(case: Case, model: str, make: Callable[[], Meter]) -> float:
    """Train with a case; return a meter's figure."""
    meter = make()
    with tempfile.TemporaryDirectory() as directory:
        options: dict[str, Any] = {"enable_checkpointing": case.saves}
        if case.logs:
            options |= {"logger": CSVLogger(directory), "log_every_n_steps": INTERVAL}
        if case.validates:
            options |= {"val_check_interval": INTERVAL, "num_sanity_val_steps": 0}
        if GPU:
            options["accelerator"] = "gpu"
        callbacks = [Metered(meter), *case.make(directory)]
        trainer = quiet_trainer(directory, *callbacks, devices=1, **options)
        loader, val_loader = (make_loader(torch.ones(n, 1)) for n in (LAST + 1, 1))
        trainer.fit(Module(SETS[model], case.how), loader, val_loader if case.validates else None)
    return meter.figure


def run(rounds: int = 3) -> Iterator[Bench]:
    """Count, and on a GPU measure all cases in turns: a processor is busy with the numbers."""
    torch.set_num_threads(1)
    bases = {case.base for case in CASES.values()}
    for model in MODELS:
        waits = {
            name: [measure(case, model, GpuWaits if GPU else Reads)] for name, case in CASES.items()
        }
        extra = {
            name: [waits[name][0] - waits[case.base][0]]
            for name, case in CASES.items()
            if name not in bases
        }
        where = "GPU" if GPU else "CPU"
        unit = f"in {INTERVAL} steps"
        bench = Bench(f"Waits for the device, {model}, {where}", unit, extra)
        for ours, peer, goal in (
            ("EMAHook", "Lightning EMAWeightAveraging", 0.0),
            ("CheckInvalidLossHook", "isfinite + assert, each step", 1 / INTERVAL),
            ("5 scalars, TextLoggerHook", "5 scalars, item() in each step", 1 / INTERVAL),
            ("5 scalars, TextLoggerHook", "5 scalars, self.log", None),
        ):
            if extra[peer] > [0]:
                what = f"waits, {ours}, {model}"
                bench.compare(what, extra[ours], peer, extra[peer], goal)
        yield bench
        if not GPU:
            continue
        turns = {
            name: functools.partial(measure, case, model, Meter) for name, case in CASES.items()
        }
        times = in_turns(turns, rounds, collecting=True)
        yield Bench(f"A step with hooks, {model}, {where}", "us", times)
