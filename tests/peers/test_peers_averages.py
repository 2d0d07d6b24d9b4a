"""Statements of the documentation about averages in other libraries, tested with the libraries."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from torch import nn

from lightning_hooks.schedules import averages

STEPS = 12


def models() -> Iterator[nn.Module]:
    """Yield a model with other weights for each step."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    for _ in range(STEPS):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        yield model


def expected(weight: Callable[[int], float], first: nn.Module) -> torch.Tensor:
    """Return the average by our rule."""
    average = first.weight.detach().clone()
    for step, model in enumerate(models()):
        average += weight(step) * (model.weight.detach() - average)
    return average


def start() -> nn.Module:
    """Return the initial model of every average."""
    torch.manual_seed(1)
    return nn.Linear(3, 2).double()


def check(
    make: Callable[[nn.Module], nn.Module],
    update: Callable[[nn.Module, nn.Module], None],
    weight: Callable[[int], float],
) -> None:
    """Compare a library's average of the steps with the average by our formula."""
    average = make(start())
    for model in models():
        update(average, model)
    found = getattr(average, "module", average).weight
    torch.testing.assert_close(found, expected(weight, start()), rtol=1e-6, atol=1e-8)


def test_timm() -> None:
    """timm's rule is ``annealing_momentum`` with a power of 2/3 and a gamma of 1."""
    from timm.utils.model_ema import ModelEmaV3

    average = ModelEmaV3(start(), decay=0.8, use_warmup=True)
    for updates, model in enumerate(models(), start=1):
        average.update(model, step=updates)
    rule = partial(averages.annealing_momentum, momentum=0.2, gamma=1, power=2 / 3)
    torch.testing.assert_close(average.module.weight, expected(rule, start()))


@pytest.mark.parametrize("library", ["torch", "timm", "ema-pytorch"])
def test_fast_warm_up(library: str) -> None:
    """``fast_momentum`` is what users of these write as ``(1 + t) / (10 + t)``."""
    average: object
    if library == "torch":
        average = torch.optim.swa_utils.AveragedModel(
            start(), avg_fn=lambda e, p, n: e.lerp(p, 1 - min(0.6, (1 + n) / (10 + n)))
        )
        average.n_averaged += 1  # else torch copies the first model
        update, skipped = average.update_parameters, 1
    elif library == "timm":
        from timm.utils.model_ema import ModelEmaV3

        arguments = {"use_warmup": True, "warmup_gamma": 9, "warmup_power": 1}
        average = ModelEmaV3(start(), decay=0.6, **arguments)
        counted, skipped = iter(range(2, STEPS + 2)), 0
        update = lambda model: average.update(model, step=next(counted))  # noqa: E731
    else:
        from ema_pytorch import EMA

        live = start()
        average = EMA(live, beta=0.6, inv_gamma=9, power=1, update_after_step=-1, update_every=1)
        average.initted.fill_(True)  # else the first model is copied
        skipped = 0

        def update(model: nn.Module) -> None:
            live.load_state_dict(model.state_dict())
            average.update()

    for model in models():
        update(model)
    found = getattr(average, "ema_model", getattr(average, "module", None)).weight
    rule = partial(averages.fast_momentum, momentum=0.4)
    wanted = expected(lambda step: rule(step + skipped), start())
    torch.testing.assert_close(found, wanted)


def test_ignite() -> None:
    """Ignite's rule is ``ramped_momentum``."""
    from ignite.engine import Engine
    from ignite.handlers import EMAHandler

    model, given = start(), models()

    def step(engine: Engine, batch: int) -> None:
        model.load_state_dict(next(given).state_dict())

    engine = Engine(step)
    handler = EMAHandler(model, momentum=0.4, momentum_warmup=0.1, warmup_iters=4)
    handler.attach(engine)
    engine.run(range(STEPS), max_epochs=1)
    rule = partial(averages.ramped_momentum, start=0.1, momentum=0.4, warm_up=4)
    torch.testing.assert_close(handler.ema_model.weight, expected(rule, start()))


def test_composer() -> None:
    """Composer's rule is ``half_life_momentum``."""
    wanted = ("composer.utils.misc", "composer.callbacks.checkpoint_saver")
    import_module("composer").utils = mock.Mock()
    with mock.patch.dict(sys.modules, {name: mock.Mock() for name in wanted}):
        ema = import_module("composer.algorithms.ema.ema")
    times = mock.Mock(from_timestring=lambda text: SimpleNamespace(value=int(text[:-2]), unit=1))
    given = {
        "Time": times,
        "Event": mock.MagicMock(),
        "TimeUnit": SimpleNamespace(BATCH=1, EPOCH=2),
    }
    with mock.patch.multiple(ema, **given):
        smoothing = ema.EMA("3ba", ema_start="0ba", update_interval="1ba").smoothing
    with mock.patch.object(ema, "get_model_context_manager", return_value=mock.MagicMock()):
        check(
            copy.deepcopy,
            lambda average, model: ema.compute_ema(model, average, smoothing),
            lambda step: averages.half_life_momentum(3),
        )


@pytest.mark.parametrize("name", ["exponential", "annealing", "equal"])
def test_mmengine(name: str) -> None:
    """MMEngine's rules are the plain average, ``annealing_momentum`` and ``equal_share``."""
    from mmengine.model import averaged_model as theirs

    make, rule = {
        "exponential": (
            partial(theirs.ExponentialMovingAverage, momentum=0.1),
            lambda step: 1.0 if step == 0 else 0.1,
        ),
        "annealing": (
            partial(theirs.MomentumAnnealingEMA, momentum=0.2, gamma=3),
            partial(averages.annealing_momentum, momentum=0.2, gamma=3),
        ),
        "equal": (theirs.StochasticWeightAverage, averages.equal_share),
    }[name]
    check(make, lambda average, model: average.update_parameters(model), rule)


def test_adaptive_clipping() -> None:
    """The defaults of adaptive clipping are timm's."""
    import inspect

    from timm.utils.agc import adaptive_clip_grad

    from lightning_hooks.hooks.optimizer.clipping import adaptively

    ours = inspect.signature(adaptively).parameters
    theirs = inspect.signature(adaptive_clip_grad).parameters
    assert all(ours[name].default == theirs[name].default for name in ("clip_factor", "eps"))


def mmcv_average(**arguments: float) -> tuple[nn.Module, object, object]:
    """Return a model, mmcv's hook and a runner at the start of a run."""
    from mmcv.runner.hooks import EMAHook

    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    hook, runner = EMAHook(**arguments), SimpleNamespace(model=model, iter=0)
    hook.before_run(runner)
    nn.init.ones_(model.weight)
    return model, hook, runner


@pytest.mark.parametrize("interval", [1, 2])
def test_power_of_the_momentum(interval: int) -> None:
    """In mmcv `interval=k` gives the model the weight $m^k$, where it should be $1-(1-m)^k$."""
    model, hook, runner = mmcv_average(momentum=0.1, interval=interval, warm_up=1)
    hook.after_train_iter(runner)
    assert model.ema_weight.item() == pytest.approx(0.1**interval)


def test_warm_up_without_effect() -> None:
    """Its `warm_up` has no effect by default."""
    model, hook, runner = mmcv_average()
    hook.after_train_iter(runner)
    assert model.ema_weight.item() == pytest.approx(hook.momentum) == 0.0002


def test_average_between_epochs() -> None:
    """Its model holds the average from the end of an epoch until the next begins, also if there is
    an error in between.
    """
    model, hook, runner = mmcv_average(momentum=0.1)
    hook.after_train_iter(runner)
    raw, average = model.weight.item(), model.ema_weight.item()
    hook.after_train_epoch(runner)
    assert (model.weight.item(), model.ema_weight.item()) == (average, raw)
