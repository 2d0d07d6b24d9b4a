"""A resumed run restores each average, even if the order or arguments of the hooks have changed."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from lightning.pytorch.callbacks import Callback, LearningRateFinder

from lightning_hooks import (
    CosineAnnealingLrUpdaterHook,
    EMAHook,
    Hook,
    HookAdapter,
    IterTimerHook,
    LinearMomentumEMAHook,
    MomentumAnnealingEMAHook,
    StochasticWeightAverageHook,
)
from support.probes import Raw, equal
from support.training import NoValidation, TinyNormModule, make_loader, make_trainer


class Module(TinyNormModule):
    validation_step = NoValidation.validation_step


class Saves(Callback):
    def __init__(self, path: Path, epoch: int) -> None:
        self.path, self.epoch = path, epoch

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch + 1 == self.epoch:
            trainer.save_checkpoint(self.path, weights_only=False)


def train(
    folder: Path, *callbacks: Any, epochs: int, ckpt: Path | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Train; return the raw weights at the end, and the warnings about states."""
    raw = Raw()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make_trainer(folder, *callbacks, raw, max_epochs=epochs).fit(
            Module(), make_loader(3), ckpt_path=ckpt
        )
    told = [str(w.message) for w in caught]
    return raw.weights, [t for t in told if "Trainer takes it" in t or "finds no" in t]


def hosted(*hooks: Any) -> list[Any]:
    return [HookAdapter([*hooks])]


def by_iteration(*hooks: Any) -> list[Any]:
    return [HookAdapter([*hooks], by_epoch=False)]


def bare(*hooks: Any) -> list[Any]:
    return [*hooks]


PLACES = [bare, hosted]


@pytest.mark.parametrize(
    ("before", "after"), [(bare, hosted), (hosted, bare), (by_iteration, by_iteration)]
)
def test_a_hook_added_before_it_or_another_place_leaves_an_average_its_steps(
    tmp_path: Path, before: Any, after: Any
) -> None:
    whole, again = StochasticWeightAverageHook(), StochasticWeightAverageHook()
    train(tmp_path, *before(whole), epochs=3)
    train(tmp_path, *before(StochasticWeightAverageHook()), Saves(tmp_path / "a", 2), epochs=2)
    hooks = after(IterTimerHook(), again)
    _, told = train(tmp_path, *hooks, epochs=3, ckpt=tmp_path / "a")
    assert again.steps == whole.steps == 9
    assert equal(again.ema_state_dict(), whole.ema_state_dict())
    assert told == []


@pytest.mark.parametrize("host", PLACES)
def test_other_arguments_leave_an_average_its_steps(tmp_path: Path, host: Any) -> None:
    train(tmp_path, StochasticWeightAverageHook(), Saves(tmp_path / "a", 2), epochs=2)
    before = torch.load(tmp_path / "a", weights_only=True)["state_dict"]
    again = StochasticWeightAverageHook(interval=3, check="all", begin_iter=100)

    class Look(Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
            if again.steps == 7:  # 6 models have a weight of 6 / 7
                value = again.ema_state_dict()["net.0.weight"]
                mean = torch.lerp(before["net.0.weight"], pl_module.net[0].weight, 1 / 7)
                torch.testing.assert_close(value, mean)

    train(tmp_path, *host(again), Look(), epochs=3, ckpt=tmp_path / "a")
    assert (again.steps, again.updates) == (9, 7)


@pytest.mark.parametrize("host", PLACES)
def test_two_averages_given_in_the_other_order_keep_their_values(tmp_path: Path, host: Any) -> None:
    slow, fast = EMAHook(momentum=0.01), EMAHook(momentum=0.3)
    train(tmp_path, slow, fast, Saves(tmp_path / "a", 2), epochs=2)
    again = [EMAHook(momentum=0.3), EMAHook(momentum=0.01)]

    class Look(Callback):
        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            assert equal(again[0].ema_state_dict(), fast.ema_state_dict())
            assert equal(again[1].ema_state_dict(), slow.ema_state_dict())

    train(tmp_path, *host(*again), Look(), epochs=3, ckpt=tmp_path / "a")
    assert [hook.steps for hook in again] == [9, 9]


@pytest.mark.parametrize("host", PLACES)
def test_an_average_that_no_hook_takes_and_a_hook_that_finds_none_are_a_warning_each(
    tmp_path: Path, host: Any
) -> None:
    plain, _ = train(tmp_path, epochs=3)
    train(tmp_path, EMAHook(momentum=0.3), Saves(tmp_path / "a", 2), epochs=2)
    raw, told = train(tmp_path, *host(IterTimerHook()), epochs=3, ckpt=tmp_path / "a")
    assert equal(raw, plain)  # the run resumed with the raw weights
    (warning,) = told
    assert warning.startswith("the checkpoint has the average of EMAHook(momentum=0.3,")
    assert "Give the Trainer EMAHook(momentum=0.3, " in warning
    other = StochasticWeightAverageHook()
    raw, told = train(tmp_path, *host(other), epochs=3, ckpt=tmp_path / "a")
    assert equal(raw, plain)
    assert other.steps == 3
    assert len(told) == 2
    assert told[0].startswith("StochasticWeightAverageHook(interval=1) finds no average of its own")
    assert told[1] == warning


def test_a_run_without_an_average_warns_of_one_that_finds_none(tmp_path: Path) -> None:
    train(tmp_path, IterTimerHook(), Saves(tmp_path / "a", 2), epochs=2)
    _, told = train(tmp_path, EMAHook(momentum=0.3), epochs=3, ckpt=tmp_path / "a")
    assert len(told) == 1
    assert "resume from a checkpoint that was written with it" in told[0]


def test_the_learning_rate_finder_and_a_fresh_run_are_told_nothing(tmp_path: Path) -> None:
    ema = EMAHook(momentum=0.3)
    finder = LearningRateFinder(num_training_steps=3)
    _, told = train(tmp_path, IterTimerHook(), ema, finder, epochs=2)
    assert told == []
    assert ema.steps == 6


class Renames(Module):
    """A module whose weights have other names in files."""

    def on_save_checkpoint(self, checkpoint: Any) -> None:
        state = checkpoint["state_dict"].items()
        checkpoint["state_dict"] = {f"model.{key}": value for key, value in state}

    def on_load_checkpoint(self, checkpoint: Any) -> None:
        state = checkpoint["state_dict"].items()
        checkpoint["state_dict"] = {key.removeprefix("model."): value for key, value in state}


class RenamesAlways(Module):
    """A module whose weights have other names in its state dict."""

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        state = super().state_dict(*args, **kwargs)
        return {f"model.{key}": value for key, value in state.items()}

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        state = {key.removeprefix("model."): value for key, value in state_dict.items()}
        return super().load_state_dict(state, *args, **kwargs)


@pytest.mark.parametrize("kind", [Renames, RenamesAlways])
def test_an_average_under_other_names_is_told(tmp_path: Path, kind: type[Any]) -> None:
    def run(epochs: int, ckpt: Path | None = None) -> tuple[EMAHook, list[str]]:
        torch.manual_seed(0)
        ema = EMAHook(momentum=0.3)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trainer = make_trainer(tmp_path, ema, Saves(tmp_path / "a", 1), max_epochs=epochs)
            trainer.fit(kind(), make_loader(3), ckpt_path=ckpt)
        return ema, [str(each.message) for each in caught if "begins anew" in str(each.message)]

    whole, _ = run(2)
    part, told = run(2, tmp_path / "a")
    if kind is Renames:
        (line,) = told
        assert "has no name of the module's" in line
        assert part.steps == 3
    else:
        assert told == []
        assert part.steps == whole.steps == 6
        assert equal(part.ema_state_dict(), whole.ema_state_dict())


@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
def test_the_average_goes_on_after_a_search_for_a_rate_within_the_run(
    tmp_path: Path, epoch: int, is_first: bool
) -> None:
    class FindsInEpoch(LearningRateFinder):
        def on_fit_start(self, *args: Any) -> None: ...

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            if trainer.current_epoch == epoch:
                self.lr_find(trainer, pl_module)

    def run(*finders: Any) -> tuple[int, dict[str, Any]]:
        torch.manual_seed(0)
        ema = EMAHook(momentum=0.3)
        callbacks = [*finders, ema] if is_first else [ema, *finders]
        train(tmp_path, *callbacks, epochs=3)
        return ema.steps, ema.ema_state_dict()

    steps, average = run(FindsInEpoch(num_training_steps=6, update_attr=False))
    expected = run()
    assert steps == expected[0] == 9
    assert equal(average, expected[1])


# -- random resumes --------------------------------------------------------------------------------

KINDS: list[tuple[type[Any], dict[str, Any]]] = [
    (EMAHook, {"momentum": 0.05}),
    (EMAHook, {"momentum": 0.3, "buffers": "average"}),
    (StochasticWeightAverageHook, {}),
    (StochasticWeightAverageHook, {"interval": 2}),
    (MomentumAnnealingEMAHook, {"momentum": 0.2, "gamma": 2}),
    (LinearMomentumEMAHook, {"momentum": 0.1, "warm_up": 4}),
    (EMAHook, {"momentum": 0.3, "begin_iter": 4, "warm_up": 0}),
]
CHANGES: list[dict[str, Any]] = [{}, {}, {"check": "all"}, {"swap": "copy"}, {"momentum": 0.02}]


class Average(NamedTuple):
    """The class and arguments of an averaging hook, and the changed arguments on resume."""

    kind: type[Any]
    arguments: dict[str, Any]
    change: dict[str, Any]

    def make(self, resumed: bool = False) -> Any:
        return self.kind(**{**self.arguments, **(self.change if resumed else {})})


class Changes(Callback):
    """Changes the hooks' arguments during the uninterrupted run, at the epoch of the resume."""

    def __init__(self, epoch: int, made: list[tuple[Any, dict[str, Any]]]) -> None:
        self.epoch, self.made = epoch, made

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch == self.epoch:
            for hook, change in self.made:
                vars(hook).update(change)


class Total(Hook):
    """A stateful hook of the user's."""

    def __init__(self, factor: int) -> None:
        self.factor, self.total = factor, 0

    def after_train_iter(self, runner: Any) -> None:
        self.total += self.factor

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.total = state_dict["total"]


def arranged(draw: random.Random, hooks: list[Any], by_epoch: bool) -> list[Any]:
    """Put hooks beside others, in adapters or not."""
    hooks = [*hooks, IterTimerHook()]
    if draw.random() < 0.5:
        hooks.append(CosineAnnealingLrUpdaterHook(min_lr=0.1, by_epoch=False))  # changes nothing
    draw.shuffle(hooks)
    given: list[Any] = []
    while hooks:
        count = draw.randint(1, len(hooks))
        part, hooks = hooks[:count], hooks[count:]
        alone = by_epoch and draw.random() < 0.5
        given += part if alone else [HookAdapter(part, by_epoch=by_epoch)]
    return given


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(i, marks=pytest.mark.slow) for i in range(8, 100))]
)
def test_resumed_with_other_hooks_each_average_is_that_of_an_uninterrupted_run(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    by_epoch, half = draw.random() < 0.7, draw.randint(1, 2)
    changed: set[type[Any]] = set()
    averages = []
    for kind, arguments in draw.sample(KINDS, draw.randint(1, 4)):
        change = draw.choice(CHANGES) if kind not in changed else {}
        if "momentum" in change and "momentum" not in arguments:
            change = {}
        if change:
            changed.add(kind)
        averages.append(Average(kind, arguments, change))

    whole = [average.make() for average in averages]
    totals = [Total(1), Total(2)]
    changes = Changes(half, [(h, a.change) for h, a in zip(whole, averages, strict=True)])
    raw, _ = train(tmp_path, *arranged(draw, [*whole, *totals], by_epoch), changes, epochs=3)
    first = [average.make() for average in averages]
    train(
        tmp_path,
        *arranged(draw, [*first, Total(1), Total(2)], by_epoch),
        Saves(tmp_path / "a", half),
        epochs=half,
    )
    stays = [average.kind in changed or draw.random() < 0.7 for average in averages]
    again = [a.make(resumed=True) for a, one in zip(averages, stays, strict=True) if one]
    used = {average.kind for average in averages}
    new = [k(**v) for k, v in draw.sample(KINDS, 2) if k not in used][: draw.randint(0, 1)]
    resumed = [Total(2), Total(1)]
    given = arranged(draw, [*again, *new, *resumed], by_epoch)
    found, told = train(tmp_path, *given, epochs=3, ckpt=tmp_path / "a")

    assert equal(found, raw)
    kept = [hook for hook, one in zip(whole, stays, strict=True) if one]
    for hook, uninterrupted in zip(again, kept, strict=True):
        assert (hook.steps, hook.updates) == (uninterrupted.steps, uninterrupted.updates)
        assert equal(hook.ema_state_dict(), uninterrupted.ema_state_dict())
    assert [hook.total for hook in resumed] == [totals[1].total, totals[0].total]
    assert sum("no hook of this Trainer takes it" in text for text in told) == stays.count(False)
    assert sum("finds no average of its own" in text for text in told) == len(new)
