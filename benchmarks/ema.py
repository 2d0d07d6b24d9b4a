"""The cost of an average of the weights: the update after a step, the swap for a validation.

Each contender is the real hook or callback, called as its trainer calls it, without a training
step. The floor is ``torch._foreach_lerp_`` on prepared lists.

    python -m benchmarks ema
"""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging
from lightning.pytorch.trainer.states import TrainerFn, TrainerState, TrainerStatus
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from benchmarks.measure import Bench, has, in_turns
from benchmarks.precise_bn import loaded_by_path
from lightning_hooks import EMAHook

MOMENTUM = 2e-4
FLOOR, OURS = "foreach_lerp on prebuilt lists", "EMAHook"
LIGHTNING, MMCV = "Lightning EMAWeightAveraging", "mmcv EMAHook"


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


SETS: dict[str, list[tuple[int, ...]]] = {
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
    """Run only the kernel that averages."""
    values: list[torch.Tensor] = [*module.parameters()]
    averages = [value.detach().clone() for value in values]
    return Contender(torch.no_grad()(lambda: torch._foreach_lerp_(averages, values, MOMENTUM)))


def ours(module: Module) -> Contender:
    """The hook as its Trainer calls it."""
    hook = EMAHook(momentum=MOMENTUM, warm_up=0)
    trainer: Any = SimpleNamespace(
        # of another library: its steps are those of global_step
        **{"global_step": 0, "current_epoch": 0, "callbacks": [hook], "optimizers": [object()]},
        **{"precision_plugin": None, "strategy": None},
        state=TrainerState(TrainerStatus.RUNNING, TrainerFn.FITTING),
    )
    module.trainer = trainer
    runner: Any = SimpleNamespace(trainer=trainer, module=module, iter=0, run_id="")
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
    """Use torch's ``AveragedModel`` with its fastest function."""
    average = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(1 - MOMENTUM))  # type: ignore[no-untyped-call]
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


def mmengine(module: Module) -> Contender:
    """mmengine's average, which its hook updates."""
    from mmengine.model.averaged_model import ExponentialMovingAverage

    average = ExponentialMovingAverage(module, momentum=MOMENTUM)
    return Contender(lambda: average.update_parameters(module))


def ignite(module: Module) -> Contender:
    """Ignite's handler, as its engine calls it."""
    from ignite.handlers import EMAHandler

    handler = EMAHandler(module, momentum=MOMENTUM)
    engine = SimpleNamespace(state=SimpleNamespace(ema=MOMENTUM))
    return Contender(lambda: handler._update_ema_model(engine, "ema"))


def timm(module: Module) -> Contender:
    """Use timm's newest average."""
    average = loaded_by_path("timm", "utils/model_ema.py").ModelEmaV3(module, decay=1 - MOMENTUM)
    return Contender(lambda: average.update(module))


def ema_pytorch(module: Module) -> Contender:
    """ema-pytorch, from its first step on and with the fused operations."""
    from ema_pytorch import EMA

    average = EMA(module, beta=1 - MOMENTUM, update_after_step=0, update_every=1, use_foreach=True)
    average.update()
    average.update()
    return Contender(average.update)


def makers() -> dict[str, Callable[[Module], Contender]]:
    """Return the contenders that are installed."""
    found: dict[str, Callable[[Module], Contender]] = {
        FLOOR: floor,
        OURS: ours,
        LIGHTNING: lightning,
    }
    found["torch AveragedModel, multi_avg_fn"] = averaged_model
    peers = {
        MMCV: ("mmcv", mmcv),
        "mmengine ExponentialMovingAverage": ("mmengine", mmengine),
        "ignite EMAHandler": ("ignite", ignite),
        "timm ModelEmaV3": ("timm", timm),
        "ema-pytorch EMA": ("ema_pytorch", ema_pytorch),
    }
    return found | {name: make for name, (package, make) in peers.items() if has(package)}


def timed(*calls: Callable[[], Any]) -> float:
    """Return the milliseconds of a call, on average."""
    start = time.perf_counter()
    for call in calls:
        call()
    return (time.perf_counter() - start) / len(calls) * 1e3


def run(rounds: int = 15) -> Iterator[Bench]:
    """Measure all sets."""
    torch.set_num_threads(1)
    for name, shapes in SETS.items():
        module = Module(shapes)
        contenders = {maker: make(module) for maker, make in makers().items()}
        updates = {who: functools.partial(timed, c.update) for who, c in contenders.items()}
        swaps = {
            who: functools.partial(timed, c.put_in, c.take_out)
            for who, c in contenders.items()
            if c.put_in
        }
        bench = Bench(f"EMA update, {name}", "ms", in_turns(updates, rounds, 2))
        tiny = "tiny" in name
        goals = {FLOOR: None if tiny else 1.1, MMCV: 0.1 if tiny else None, LIGHTNING: 0.33}
        for peer, goal in goals.items():
            if peer in updates:
                found = bench.figures
                bench.compare(f"EMA update, {name}", found[OURS], peer, found[peer], goal)
        yield bench
        bench = Bench(f"EMA swap, {name}", "ms one way", in_turns(swaps, rounds, 2))
        for peer, goal in ((MMCV, None if tiny else 0.02), (LIGHTNING, None)):
            if peer in swaps:
                found = bench.figures
                bench.compare(f"EMA swap, {name}", found[OURS], peer, found[peer], goal)
        yield bench
