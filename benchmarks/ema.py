"""What an average of the weights costs: its update after a step, and its swap for validation.

Each contender is the hook or callback itself, called as a trainer would, without a training step
around it. All run in one process, in turns; a figure is the median over the rounds, and a ratio the
median of the ratios of the same rounds, with their quartiles. The floor is ``torch._foreach_lerp_``
on lists made before. mmcv takes part where it is installed, as in the oracle's environment.

    PYTHONPATH=.:tests/golden .oracle/bin/python -m benchmarks.ema [--threads 1] [--rounds 15]
"""

from __future__ import annotations

import argparse
import copy
import gc
import importlib.util
import statistics
import time
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from lightning_hooks import EMAHook

MOMENTUM = 2e-4
FLOOR, OURS, MMCV = "foreach_lerp on prebuilt lists", "EMAHook", "mmcv EMAHook"


def resnet50() -> list[tuple[int, ...]]:
    """Return the shapes of the parameters of a ResNet-50."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    inputs = 64
    for planes, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            convolutions = [(planes, inputs, 1), (planes, planes, 3), (planes * 4, planes, 1)]
            if block == 0:
                convolutions.append((planes * 4, inputs, 1))
            for outputs, channels, kernel in convolutions:
                shapes += [(outputs, channels, kernel, kernel), (outputs,), (outputs,)]
            inputs = planes * 4
    return [*shapes, (1000, 2048), (1000,)]


def vit_b() -> list[tuple[int, ...]]:
    """Return the shapes of the parameters of a ViT-B/16."""
    width = 768
    block = [(width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,)]
    block += [(width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    head = [(1, 1, width), (1, 197, width), (width, 3, 16, 16), (width,)]
    return [*head, *block * 12, (width,), (width,), (1000, width), (1000,)]


SETS = {
    "ResNet-50": resnet50(),
    "ViT-B": vit_b(),
    "5000 tiny": [(16,)] * 5000,
}


class Module(L.LightningModule):
    """Parameters of given shapes."""

    def __init__(self, shapes: list[tuple[int, ...]]) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.randn(shape) * 0.02 for shape in shapes)


class Contender:
    """Something to update, and perhaps to swap in and out."""

    def __init__(
        self, update: Callable[[], Any], put_in: Any = None, take_out: Any = None, owner: Any = None
    ) -> None:
        self.update, self.put_in, self.take_out, self.owner = update, put_in, take_out, owner


def floor(module: Module) -> Contender:
    """The one kernel that averages."""
    values = [*module.parameters()]
    averages = [value.detach().clone() for value in values]
    return Contender(torch.no_grad()(lambda: torch._foreach_lerp_(averages, values, MOMENTUM)))


def ours(module: Module) -> Contender:
    """The hook as its Trainer calls it."""
    hook = EMAHook(momentum=MOMENTUM, warm_up=0)
    trainer: Any = SimpleNamespace(global_step=0, current_epoch=0, callbacks=[hook])
    runner = SimpleNamespace(trainer=trainer, module=module, iter=0)
    hook.before_run(runner)

    def update() -> None:
        trainer.global_step += 1
        hook.after_train_iter(runner)

    return Contender(
        update, lambda: hook.after_train_epoch(runner), lambda: hook.before_train_epoch(runner)
    )


def lightning(module: Module) -> Contender:
    """Lightning's callback."""
    callback = EMAWeightAveraging(decay=1 - MOMENTUM)
    trainer: Any = SimpleNamespace(global_step=0)
    callback.setup(trainer, module, "fit")

    def update() -> None:
        trainer.global_step += 1
        callback.on_train_batch_end(trainer, module, None, None, 0)

    return Contender(
        update,
        lambda: callback.on_validation_epoch_start(trainer, module),
        lambda: callback.on_validation_epoch_end(trainer, module),
    )


def averaged_model(module: Module) -> Contender:
    """torch's, with its fastest function."""
    average = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(1 - MOMENTUM))
    return Contender(lambda: average.update_parameters(module))


def mmcv(module: Module) -> Contender:
    """The real hook of mmcv 1.x."""
    from oracle import HOOKS  # tests/golden: it makes mmcv import without torchvision

    model = torch.nn.Module()
    model.weights = copy.deepcopy(module.weights)
    hook = HOOKS.get("EMAHook")(momentum=MOMENTUM)
    runner = SimpleNamespace(model=model, iter=0)
    hook.before_run(runner)

    def update() -> None:
        runner.iter += 1
        hook.after_train_iter(runner)

    return Contender(
        update, lambda: hook.after_train_epoch(runner), lambda: hook.before_train_epoch(runner)
    )


def timed(work: Callable[[], Any]) -> float:
    """Return the milliseconds of one call."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def measure(shapes: list[tuple[int, ...]], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return the times of updates and swaps (one way), by contender."""
    module = Module(shapes)
    makers = {FLOOR: floor, OURS: ours, "Lightning EMAWeightAveraging": lightning}
    makers["torch AveragedModel, multi_avg_fn"] = averaged_model
    if importlib.util.find_spec("mmcv"):
        makers[MMCV] = mmcv
    contenders = {name: make(module) for name, make in makers.items()}
    times: dict[str, dict[str, list[float]]] = {"update": {}, "swap": {}}
    for index in range(rounds + 2):
        for name, contender in contenders.items():
            taken = {"update": timed(contender.update)}
            if contender.put_in:
                there, back = timed(contender.put_in), timed(contender.take_out)
                taken["swap"] = (there + back) / 2
            for kind, value in taken.items() if index >= 2 else ():
                times[kind].setdefault(name, []).append(value)
        gc.collect()
    return times


def ratio(these: list[float], those: list[float]) -> str:
    """Return the median of the same-round ratios, and their quartiles."""
    ratios = [one / other for one, other in zip(these, those, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    """Measure all sets and print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")  # mmcv's, about what torch deprecates
    gc.disable()
    for name, shapes in SETS.items():
        times = measure(shapes, arguments.rounds)
        for kind, by_contender in times.items():
            peers = [p for p in (FLOOR, MMCV, "Lightning EMAWeightAveraging") if p in by_contender]
            title = f"{kind}, {name}: {len(shapes)} tensors, {arguments.threads} thread(s)"
            print(f"\n{title:40}{'ms':>8}", *(f"{'x ' + peer:>30}" for peer in peers))
            for contender, values in by_contender.items():
                ratios = [ratio(values, by_contender[peer]) for peer in peers]
                median = statistics.median(values)
                print(f"{contender:40}{median:8.2f}", *(f"{each:>30}" for each in ratios))


if __name__ == "__main__":
    main()
