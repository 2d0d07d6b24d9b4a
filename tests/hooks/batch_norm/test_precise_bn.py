"""PreciseBNHook: exact population statistics of the current weights, without side effects."""

from __future__ import annotations

import copy
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback, RichProgressBar, TQDMProgressBar
from torch import nn
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric

from lightning_hooks import CheckpointHook, EMAHook, Hook, HookAdapter, TrainStepModule
from lightning_hooks.hooks.batch_norm.population_stats import bn_layers, update_bn_stats
from lightning_hooks.hooks.batch_norm.precise_bn import PreciseBNHook
from support.training import TinyModule, TinyNormModule, make_loader, make_trainer

SIZES = (7, 2, 5, 3)
pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step`")


def batches(*shape: int, sizes: tuple[int, ...] = SIZES, mean: float = 3.0) -> list[torch.Tensor]:
    """Batches of unequal size, of different means, in float64."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(n, *shape, generator=generator, dtype=torch.float64) * (i + 1) + mean * i
        for i, n in enumerate(sizes)
    ]


def population(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean and variance of each channel over all values."""
    flat = values.transpose(0, 1).flatten(1)
    return flat.mean(1), flat.var(1, unbiased=False)


def seen_by(model: nn.Module, layer: nn.Module, data: list[torch.Tensor]) -> torch.Tensor:
    """Return all inputs of a layer in train mode."""
    model, found = copy.deepcopy(model), []
    name = next(n for n, m in model.named_modules() if type(m) is type(layer))
    model.get_submodule(name).register_forward_pre_hook(lambda _, args: found.append(args[0]))
    with torch.no_grad():
        for batch in data:
            model(batch)
    return torch.cat(found)


def state(model: nn.Module) -> dict[str, Any]:
    return {k: v.clone() for k, v in model.state_dict().items()}


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


# -- the estimator -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "shape"),
    [(nn.BatchNorm1d(3), (3,)), (nn.BatchNorm1d(3), (3, 4)), (nn.BatchNorm2d(3), (3, 2, 5))],
    ids=["1d", "1d with length", "2d"],
)
def test_departure_equals_one_pass_over_all_data_with_unequal_batches(
    layer: nn.Module, shape: tuple[int, ...]
) -> None:
    layer, data = copy.deepcopy(layer).double(), batches(*shape)
    assert update_bn_stats(layer, data) == len(SIZES)
    mean, var = population(torch.cat(data))
    torch.testing.assert_close(layer.running_mean, mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(layer.running_var, var, rtol=1e-12, atol=1e-12)


def test_a_deeper_layer_gets_the_statistics_of_what_it_sees() -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3)
    )
    model = nn.Sequential(model, nn.BatchNorm1d(3)).double()
    data = batches(2, 5, 5)
    expected = [population(seen_by(model, layer, data)) for layer in (model[0][1], model[1])]
    update_bn_stats(model, data)
    for layer, (mean, var) in zip((model[0][1], model[1]), expected, strict=True):
        torch.testing.assert_close(layer.running_mean, mean, rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(layer.running_var, var, rtol=1e-11, atol=1e-12)


def test_a_momentum_with_a_setter_is_used_and_kept() -> None:
    class Scheduled(nn.BatchNorm1d):
        @property
        def momentum(self) -> float:
            return self.value

        @momentum.setter
        def momentum(self, value: float) -> None:
            self.value = value

    layer, data = Scheduled(3, momentum=0.2).double(), batches(3)
    update_bn_stats(layer, data)
    torch.testing.assert_close(layer.running_mean, population(torch.cat(data))[0])
    assert layer.momentum == 0.2
    assert "momentum" not in vars(layer)


def test_a_large_mean_costs_no_precision() -> None:
    layer = nn.BatchNorm1d(4)
    data = [batch.float() + 1e3 for batch in batches(4, sizes=(50, 50, 50), mean=0.0)]
    update_bn_stats(layer, data)
    mean, var = population(torch.cat(data).double())
    torch.testing.assert_close(layer.running_mean.double(), mean, rtol=1e-6, atol=0)
    torch.testing.assert_close(layer.running_var.double(), var, rtol=1e-4, atol=0)


def test_a_layer_called_twice_for_a_batch_counts_every_call() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(x) + self.norm(input=x[:-1] * 2).sum()

    model, data = Shared().double(), batches(3, sizes=(7, 3, 5))
    update_bn_stats(model, data)
    mean, var = population(torch.cat([y for x in data for y in (x, x[:-1] * 2)]))
    torch.testing.assert_close(model.norm.running_mean, mean)
    torch.testing.assert_close(model.norm.running_var, var)


def test_departure_frozen_unused_and_untracked_layers_are_untouched() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.live, self.evaluated, self.frozen, self.unused, self.untracked, self.no_affine = (
                nn.BatchNorm1d(3, track_running_stats=i != 4, affine=i != 5) for i in range(6)
            )
            self.evaluated.eval()
            self.frozen.requires_grad_(False)
            self.other = nn.InstanceNorm1d(3, track_running_stats=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in (self.live, self.evaluated, self.frozen, self.untracked, self.no_affine):
                x = layer(x)
            self.other(x[..., None].expand(-1, -1, 2))
            return x

    model = Model().double()
    assert bn_layers(model) == [model.live, model.unused, model.no_affine]
    before = state(model)
    update_bn_stats(model, batches(3))
    changed = {key for key, value in state(model).items() if not torch.equal(value, before[key])}
    assert changed == {f"{x}.running_{y}" for x in ("live", "no_affine") for y in ("mean", "var")}


def test_momentum_flags_and_buffers_themselves_are_put_back() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, momentum=None), nn.Dropout()).double()
    layer, buffers = model[1], dict(model.named_buffers())
    model[0].eval()
    flags = [m.training for m in model.modules()]
    update_bn_stats(model, batches(3))
    assert layer.momentum is None
    assert [m.training for m in model.modules()] == flags
    assert "forward" not in vars(layer)
    assert all(buffer is buffers[name] for name, buffer in model.named_buffers())
    assert layer.num_batches_tracked == 0


def test_everything_is_put_back_after_an_error() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3, momentum=0.3), nn.Dropout()).double()
    model(torch.randn(4, 3, dtype=torch.float64))
    data = [*batches(3), torch.randn(4, 2, dtype=torch.float64)]
    before, drawn = state(model), torch.get_rng_state()
    with pytest.raises(RuntimeError):
        update_bn_stats(model, data)
    assert same(state(model), before)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert model[0].momentum == 0.3
    assert all(module.training for module in model.modules())
    assert "forward" not in vars(model[0])


def test_departure_dropout_is_off() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(3)).double()
    data = batches(3)
    update_bn_stats(model, data)
    torch.testing.assert_close(model[1].running_mean, population(torch.cat(data))[0])


def test_statistics_that_are_nan_are_replaced() -> None:
    layer = nn.BatchNorm1d(3).double()
    layer.running_mean.fill_(float("nan"))
    layer.running_var.fill_(float("inf"))
    data = batches(3)
    update_bn_stats(layer, data)
    torch.testing.assert_close(layer.running_mean, population(torch.cat(data))[0])


def test_no_batch_changes_nothing() -> None:
    layer = nn.BatchNorm1d(3)
    assert update_bn_stats(layer, []) == 0
    assert update_bn_stats(layer, [torch.empty(0, 3)]) == 1
    assert same(state(layer), state(nn.BatchNorm1d(3)))


def test_a_compiled_model_is_seen() -> None:
    layer = nn.BatchNorm1d(3).double()
    model = torch.compile(nn.Sequential(layer), backend="eager")
    data = batches(3)
    is_advised_against = sys.version_info[:3] == (3, 13, 0)  # by torch: a later 3.13 is faster
    with pytest.warns(RuntimeWarning, match="3.13.1") if is_advised_against else nullcontext():
        model(data[0])
    update_bn_stats(model, data)
    torch.testing.assert_close(layer.running_mean, population(torch.cat(data))[0])


def test_runs_as_many_batches_as_asked_through_a_function() -> None:
    layer, data = nn.BatchNorm1d(3).double(), batches(3)
    stream = iter([(x, "label") for x in data])
    assert update_bn_stats(layer, stream, 2, forward=lambda model, batch: model(batch[0])) == 2
    torch.testing.assert_close(layer.running_mean, population(torch.cat(data[:2]))[0])
    assert len(list(stream)) == 2


@pytest.mark.parametrize("bad", [0, -1, 2.0, True])
def test_refuses_a_bad_number_of_batches(bad: Any) -> None:
    with pytest.raises(ValueError, match="num_iters must be an int"):
        update_bn_stats(nn.BatchNorm1d(3), [], bad)


# -- the hook ----------------------------------------------------------------------------------


class Look(Callback):
    """Compares the module's statistics with the statistics of all data."""

    def __init__(self, loader: Any) -> None:
        self.data = torch.cat([x for x, _ in loader])
        self.found: list[tuple[str, bool]] = []

    def look(self, when: str, module: Any, weights: Any = None) -> None:
        layer = module.net[1]
        with torch.no_grad():
            mean, var = population(module.net[0](self.data))
        good = torch.allclose(layer.running_mean, mean, atol=1e-5)
        self.found.append((when, good and torch.allclose(layer.running_var, var, rtol=1e-4)))

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self.look("val", pl_module)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.look("end", pl_module)


def test_runs_before_validation_and_checkpoint_every_interval(tmp_path: Path) -> None:
    loader = make_loader(5, 3)
    look = Look(loader)
    trainer = make_trainer(
        tmp_path,
        CheckpointHook(),
        PreciseBNHook(num_samples=15, interval=2),
        look,
        max_epochs=4,
        enable_checkpointing=True,
    )
    trainer.fit(TinyNormModule(), loader, make_loader(1))
    expected = [(when, epoch % 2 == 1) for epoch in range(4) for when in ("val", "end")]
    assert look.found == expected
    module = TinyNormModule()
    module.load_state_dict(torch.load(tmp_path / "epoch_4.pth", weights_only=True)["state_dict"])
    look.look("saved", module)
    assert look.found[-1] == ("saved", True)


def test_runs_without_validation_and_last_batch_uneven(tmp_path: Path) -> None:
    loader = DataLoader(make_loader(5, 3).dataset, batch_size=4, shuffle=True)
    look = Look(loader)
    make_trainer(tmp_path, PreciseBNHook(15), look).fit(TinyNormModule(), loader)
    assert look.found == [("end", True)]


class Plain(Callback):
    """Records the sum of each training batch."""

    def __init__(self) -> None:
        self.batches: list[float] = []

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        self.batches.append(batch[0].sum().item())


class Noisy(TinyNormModule):
    """Draws random numbers, logs, and has a metric."""

    def __init__(self) -> None:
        super().__init__()
        self.net.append(nn.Dropout(0.5))
        self.metric = MeanMetric()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss((batch[0] + torch.randn(4), batch[1]))
        self.metric(loss.detach())
        self.log("metric", self.metric, on_step=False, on_epoch=True)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss


@pytest.mark.parametrize("own_generator", [False, True])
@pytest.mark.parametrize("validate", [False, True])
def test_leaves_no_trace_in_training(tmp_path: Path, own_generator: bool, validate: bool) -> None:
    results = []
    for hooks in ([], [PreciseBNHook(num_iters=3)]):
        generator = torch.Generator().manual_seed(3) if own_generator else None
        data = make_loader(4).dataset
        loader = DataLoader(data, batch_size=2, shuffle=True, generator=generator)
        torch.manual_seed(7)
        plain, module = Plain(), Noisy()
        trainer = make_trainer(tmp_path, *hooks, plain, max_epochs=3)
        trainer.fit(module, loader, make_loader(1) if validate else None)
        weights = [p.tolist() for p in module.parameters()]
        own = ("loss", "loss_step", "loss_epoch", "metric")  # a hook brings lr and momentum
        metrics = {k: trainer.callback_metrics[k].item() for k in own}
        results.append((plain.batches, weights, metrics, torch.rand(1).item()))
    assert results[0] == results[1]


def test_sees_the_live_weights_beside_an_average(tmp_path: Path) -> None:
    loader = make_loader(5, 3)
    look = Look(loader)
    adapter = HookAdapter([(EMAHook(momentum=0.01), 49), PreciseBNHook(15)])
    trainer = make_trainer(tmp_path, adapter, look, max_epochs=2)
    trainer.fit(TinyNormModule(lr=0.5), loader, make_loader(1))
    assert [good for when, good in look.found if when == "end"] == [True, True]


@pytest.mark.parametrize("buffers", ["average", "copy"])
def test_after_an_average_it_gives_that_its_own_statistics(tmp_path: Path, buffers: Any) -> None:
    loader = make_loader(5, 3)
    look, average = Look(loader), EMAHook(momentum=0.01, buffers=buffers)
    hooks = [average, PreciseBNHook(15), (PreciseBNHook(15), "BELOW_NORMAL"), CheckpointHook()]
    trainer = make_trainer(tmp_path, HookAdapter(hooks), look, max_epochs=2)
    trainer.fit(TinyNormModule(lr=0.5), loader, make_loader(1))
    # validation sees the average, the end of the epoch the weights
    assert look.found == [("val", True), ("end", True)] * 2
    saved = torch.load(tmp_path / "epoch_2.pth", weights_only=True)
    for state_dict in (saved["current_model_state"], saved["state_dict"], average.ema_state_dict()):
        module = TinyNormModule()
        module.load_state_dict(state_dict)
        look.look("saved", module)
        assert look.found[-1] == ("saved", True)


class Model(nn.Module):
    """An old model."""

    def __init__(self) -> None:
        super().__init__()
        self.net = TinyNormModule().net

    def train_step(self, data: Any, optimizer: Any) -> dict[str, Any]:
        loss = nn.functional.mse_loss(self.net(data[0]), data[1])
        return {"loss": loss, "log_vars": {"loss": loss.item()}, "num_samples": len(data[0])}

    val_step = train_step


@pytest.mark.parametrize("owned", [False, True])
def test_runs_the_train_step_of_an_old_model(tmp_path: Path, owned: bool) -> None:
    model, loader = Model(), make_loader(5, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hooks: list[Any] = [dict(type="PreciseBNHook", num_samples=15)]
    hooks += [dict(type="OptimizerHook")] if owned else []
    trainer = make_trainer(tmp_path, HookAdapter(hooks), max_epochs=2)
    trainer.fit(TrainStepModule(model, optimizer), loader, make_loader(1))
    look = Look(loader)
    look.look("", model)
    assert look.found == [("", True)]
    assert trainer.global_step == 10


def test_takes_its_own_loader_and_function(tmp_path: Path) -> None:
    other = make_loader(3, 4, seed=5)
    calls = []

    def forward(module: Any, batch: Any) -> None:
        calls.append(module.trainer.training)
        module.net(batch[0])

    look = Look(other)
    hook = PreciseBNHook(num_iters=3, dataloader=other, forward=forward)
    make_trainer(tmp_path, hook, look).fit(TinyNormModule(), make_loader(5, 3), make_loader(1))
    assert look.found == [("val", True), ("end", True)]
    assert calls == [True] * 3


def test_departure_num_samples_is_rounded_up_to_whole_batches(tmp_path: Path) -> None:
    """mmclassification would run no batch, and set mean and variance to 0."""
    calls = []
    hook = PreciseBNHook(num_samples=1, forward=lambda module, batch: calls.append(len(batch[0])))
    make_trainer(tmp_path, hook).fit(TinyNormModule(), make_loader(2, 4))
    assert calls == [4]


@pytest.mark.parametrize(
    ("hook", "messages"),
    [
        (PreciseBNHook(), []),  # 8192 samples, or all
        (
            PreciseBNHook(num_iters=9),
            [
                "PreciseBNHook: the loader gave 5 batches and num_iters=9 were asked for: "
                "the statistics are those of the fewer samples"
            ],
        ),
    ],
)
def test_a_short_loader_is_used_and_warned_of_once_where_batches_were_asked_for(
    hook: PreciseBNHook, messages: list[str], tmp_path: Path
) -> None:
    loader = make_loader(5, 3)
    look = Look(loader)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = make_trainer(tmp_path, hook, look, max_epochs=2)
        trainer.fit(TinyNormModule(), loader)
    ours = [str(w.message) for w in caught if "PreciseBNHook" in str(w.message)]
    assert ours == messages
    assert look.found == [("end", True), ("end", True)]


def test_an_empty_loader_is_warned_of_and_changes_nothing(tmp_path: Path) -> None:
    states = []
    for hooks in ([], [PreciseBNHook(num_iters=2, dataloader=[])]):
        module = TinyNormModule()
        trainer = make_trainer(tmp_path, *hooks)
        if hooks:
            with pytest.warns(UserWarning, match="gave no batch: the statistics stay"):
                trainer.fit(module, make_loader(2, 3))
        else:
            trainer.fit(module, make_loader(2, 3))
        states.append(state(module))
    assert same(*states)


def test_a_model_without_batchnorm_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="no BatchNorm layer"):
        make_trainer(tmp_path, PreciseBNHook(4)).fit(TinyModule(), make_loader(2))


def test_an_error_in_the_pass_leaves_the_module_as_it_was(tmp_path: Path) -> None:
    def broken(module: Any, batch: Any) -> None:
        module.net(batch[0])
        raise OSError("the disk is gone")

    seen: list[Any] = []

    class Before(Hook):
        priority = "VERY_HIGH"

        def after_train_epoch(self, runner: Any) -> None:
            seen.append(state(runner.module))

    module = TinyNormModule()
    trainer = make_trainer(tmp_path, Before(), PreciseBNHook(4, forward=broken))
    with pytest.raises(OSError, match="the disk is gone") as caught:
        trainer.fit(module, make_loader(2), make_loader(1))
    assert "PreciseBNHook" in caught.value.__notes__[0]
    assert same(state(module), seen[0])
    assert module.net[1].momentum == 0.1
    assert "log" not in module.__dict__


@pytest.mark.parametrize("kind", [TQDMProgressBar, RichProgressBar])
def test_shows_a_bar_beside_the_trainers(tmp_path: Path, kind: Any, capsys: Any) -> None:
    if kind is RichProgressBar:
        pytest.importorskip("rich")
    titles = []
    bar = kind()

    def forward(module: Any, batch: Any) -> None:
        if kind is RichProgressBar:
            titles.extend(task.description for task in bar.progress.tasks)

    hook = PreciseBNHook(num_iters=3, forward=forward)
    trainer = make_trainer(tmp_path, hook, bar, enable_progress_bar=True)
    trainer.fit(TinyNormModule(), make_loader(3), make_loader(1))
    if kind is TQDMProgressBar:
        shown = capsys.readouterr()
        assert "Precise BN" in shown.out + shown.err
    else:
        assert titles.count("Precise BN") == 3
        assert not any(task.description == "Precise BN" for task in bar.progress.tasks)


class Manual(TinyNormModule):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


def test_a_module_that_steps_by_itself_needs_a_function(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give PreciseBNHook\\(forward="):
        make_trainer(tmp_path, PreciseBNHook(4)).fit(Manual(), make_loader(2))


def test_a_run_counted_in_iterations_is_refused(tmp_path: Path) -> None:
    adapter = HookAdapter(PreciseBNHook(4), by_epoch=False)
    with pytest.raises(ValueError, match="counted in iterations; call"):
        make_trainer(tmp_path, adapter, max_steps=2).fit(TinyNormModule(), make_loader(2))


def test_loaders_that_cannot_be_counted_are_refused(tmp_path: Path) -> None:
    def fit(loader: Any, **kwargs: Any) -> None:
        make_trainer(tmp_path, PreciseBNHook(**kwargs)).fit(TinyNormModule(), loader)

    with pytest.raises(ValueError, match="batch size of list is not known"):
        fit(make_loader(2), dataloader=[])
    with pytest.raises(ValueError, match="several training loaders"):
        fit([make_loader(2), make_loader(2)], num_iters=2)


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        ({"num_samples": 0}, ValueError, "num_samples must be at least 1, got 0"),
        ({"num_samples": make_loader(1)}, TypeError, "num_samples must be an int"),
        ({"interval": 1.5}, TypeError, "interval must be an int, got 1.5"),
        ({"num_iters": -1}, ValueError, "num_iters must be at least 1"),
        ({"dataloader": 3}, TypeError, "dataloader must be"),
        ({"forward": 3}, TypeError, "forward must be a function"),
    ],
)
def test_refuses_bad_arguments(bad: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        PreciseBNHook(**bad)


def test_departure_stands_before_the_hooks_that_save() -> None:
    adapter = HookAdapter([CheckpointHook(), EMAHook(), PreciseBNHook()])
    assert type(adapter.hooks[0]) is PreciseBNHook
