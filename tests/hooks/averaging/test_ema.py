"""EMAHook: the average's values, when the module has the average, and the checkpoint contents."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import job
import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks import (
    Hook,
    HookAdapter,
    LinearMomentumEMAHook,
    StochasticWeightAverageHook,
    TrainStepModule,
)
from lightning_hooks.hooks.averaging.ema import EMAHook
from lightning_hooks.hooks.averaging.nan_safe_update import NanSafeUpdate
from lightning_hooks.schedules.averages import ema_momentum
from lightning_hooks.utils.weight_swap import WeightSwap
from support.golden import recorded
from support.probes import Probe, averages_in, equal, weights
from support.training import TinyModule, TinyNormModule, make_loader, make_trainer

GOLDEN = recorded("training")["cases"]
pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
]
hosted = pytest.mark.parametrize("host", [lambda h: h, lambda h: HookAdapter([h])])
adapted = pytest.mark.parametrize("host", [lambda h: HookAdapter([h])])


class Reference(Callback):
    """The average by the formula, in float64, of the weights after each step."""

    def __init__(self, momentum: float, warm_up: int = 0, interval: int = 1) -> None:
        self.momentum, self.warm_up, self.interval = momentum, warm_up, interval
        self.ema: dict[str, torch.Tensor] = {}
        self.step = 0

    def on_train_start(self, trainer, module) -> None:
        self.ema = {k: v.detach().double() for k, v in module.named_parameters()}

    def on_train_batch_end(self, trainer, module, *args: Any) -> None:
        if trainer.global_step == self.step:
            return
        self.step = trainer.global_step
        if (self.step - 1) % self.interval == 0:
            m = ema_momentum(self.step - 1, self.momentum, self.warm_up)
            for k, v in module.named_parameters():
                self.ema[k] = (1 - m) * self.ema[k] + m * v.detach().double()

    def check(self, state: dict[str, torch.Tensor]) -> None:
        for k, v in self.ema.items():
            torch.testing.assert_close(state[k].double(), v, rtol=1e-6, atol=1e-7)


# -- numbers -----------------------------------------------------------------------------------


class GoldenCheck(Hook):
    """Compares the average with mmcv's at each epoch's end."""

    def __init__(self, ema: EMAHook, rows: list[dict[str, Any]]) -> None:
        self.ema, self.rows, self.compared = ema, rows, 0

    def after_train_epoch(self, runner: Any) -> None:
        self.compared += 1
        row = self.rows[self.compared]  # recorded swapped: the model's keys hold the EMA
        for name, value in self.ema.ema_state_dict().items():
            if value.is_floating_point() and name in dict(runner.module.model.named_parameters()):
                want = row[name]
                if isinstance(want, dict):
                    got = value.double().sum().item()
                    assert got == pytest.approx(want["sum"], rel=1e-6, abs=1e-6)
                    want, value = want["first"], value.flatten()[:5]
                torch.testing.assert_close(
                    value.flatten(), torch.tensor(want), rtol=1e-6, atol=1e-7
                )


@pytest.mark.parametrize("kind", ["linear", "conv"])
@pytest.mark.parametrize(
    ("case", "arguments"),
    [
        ("ema", {"momentum": 0.05, "warm_up": 0}),
        ("ema_warm_up", {"momentum": 0.2, "warm_up": 10}),
        # this momentum per step equals mmcv's effective momentum of 0.05 ** 2
        ("ema_interval_2", {"momentum": 1 - (1 - 0.05**2) ** 0.5, "warm_up": 0, "interval": 2}),
    ],
)
def test_equals_mmcv(tmp_path, kind, case, arguments):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        ema = EMAHook(**arguments)
        check = GoldenCheck(ema, GOLDEN[f"{kind}/{case}"]["weights"])
        model = job.make_model(0, kind)
        hooks = HookAdapter([(ema, 49), (check, "LOWEST")])
        make_trainer(tmp_path, hooks, max_epochs=3).fit(
            TrainStepModule(model, job.make_optimizer(model)), *job.make_data(0)
        )
    finally:
        torch.set_num_threads(threads)
    assert check.compared == 3


def test_departure_warm_up_acts_at_the_default():
    assert ema_momentum(0, 2e-4, 100) == pytest.approx(2e-6)
    assert ema_momentum(49, 2e-4, 100) == pytest.approx(1e-4)
    assert ema_momentum(99, 2e-4, 100) == ema_momentum(10**6, 2e-4, 100) == 2e-4
    assert ema_momentum(0, 0.3, 0) == ema_momentum(0, 0.3, 1) == 0.3


def test_where_mmcv_warms_up_it_is_mmcvs_formula():
    for step in range(30):
        assert ema_momentum(step, 0.2, 10) == min(0.2, (1 + step) / (10 + step))


@hosted
def test_is_the_formula(tmp_path, host):
    ema, reference = EMAHook(momentum=0.1, warm_up=5), Reference(0.1, 5)
    make_trainer(tmp_path, host(ema), reference, max_epochs=3).fit(TinyModule(), make_loader())
    reference.check(ema.ema_state_dict())


def test_departure_interval_of_k_has_k_times_the_weight(tmp_path):
    ema, reference = EMAHook(momentum=0.1, warm_up=0, interval=3), Reference(1 - 0.9**3, 0, 3)
    make_trainer(tmp_path, ema, reference, max_epochs=2).fit(TinyModule(), make_loader(5))
    reference.check(ema.ema_state_dict())


def test_departure_counts_optimizer_steps(tmp_path):
    ema, reference = EMAHook(momentum=0.1, warm_up=5), Reference(0.1, 5)
    trainer = make_trainer(tmp_path, ema, reference, max_epochs=3, accumulate_grad_batches=2)
    trainer.fit(TinyModule(), make_loader(5))
    assert ema.steps == 9
    reference.check(ema.ema_state_dict())


def test_departure_a_lerp_is_closer_to_the_exact_average_than_mmcvs_update():
    torch.manual_seed(0)
    start = torch.randn(1000)
    value, lerp, mul, exact = start.clone(), start.clone(), start.clone(), start.double()
    update = NanSafeUpdate([(lerp, value)], torch.zeros(()), False)
    for _ in range(2000):
        value.copy_(start + torch.randn(1000) * 0.1)
        update(2e-4)
        mul.mul_(1 - 2e-4).add_(value, alpha=2e-4)
        exact = exact + 2e-4 * (value.double() - exact)
    assert (lerp - exact).abs().max() < (mul - exact).abs().max()


def test_buffers_are_the_models_own(tmp_path):
    ema, module = EMAHook(momentum=0.1, after_fit="raw"), TinyNormModule()
    make_trainer(tmp_path, ema, max_epochs=2).fit(module, make_loader())
    state = ema.ema_state_dict()
    for name, buffer in module.named_buffers():
        assert torch.equal(state[name], buffer)
    assert state["net.1.num_batches_tracked"].dtype == torch.long
    assert not torch.equal(state["net.0.weight"], module.net[0].weight)


# -- when the average is in the model ----------------------------------------------------------


@hosted
@pytest.mark.parametrize("extra", [{}, {"val_check_interval": 2}])
def test_departure_validation_sees_the_average_and_training_never_does(tmp_path, host, extra):
    plain, probe = Probe(), Probe()
    make_trainer(tmp_path, plain, max_epochs=3, **extra).fit(
        TinyModule(), make_loader(), make_loader(1)
    )
    ema, module, reference = EMAHook(momentum=0.1, warm_up=0), TinyModule(), Reference(0.1)
    make_trainer(tmp_path, host(ema), reference, probe, max_epochs=3, **extra).fit(
        module, make_loader(), make_loader(1)
    )
    assert all(equal(a, b) for a, b in zip(plain.train, probe.train, strict=True))
    assert not any(equal(a, b) for a, b in zip(plain.val, probe.val, strict=True))
    assert equal(probe.val[-1], ema.ema_state_dict())
    reference.check(probe.val[-1])
    assert equal(weights(module), probe.val[-1])  # as in mmcv


def test_validation_of_a_run_counted_in_iterations_sees_it(tmp_path):
    probe, ema = Probe(), EMAHook(momentum=0.1)
    adapter = HookAdapter([ema], by_epoch=False)
    make_trainer(
        tmp_path, adapter, probe, max_steps=6, val_check_interval=3, check_val_every_n_epoch=None
    ).fit(TinyModule(), make_loader(), make_loader(1))
    assert len(probe.val) == 2
    assert equal(probe.val[-1], ema.ema_state_dict())


def test_hooks_of_lower_priority_evaluate_with_it_where_nothing_validates(tmp_path):
    class Look(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            self.seen = weights(runner.module)

        def before_train_epoch(self, runner: Any) -> None:
            self.trains_with = weights(runner.module)

    look, ema, module = Look(), EMAHook(momentum=0.1, after_fit="raw"), TinyModule()
    make_trainer(tmp_path, HookAdapter([ema, (look, "LOW")])).fit(module, make_loader())
    assert equal(look.seen, ema.ema_state_dict())
    assert not equal(look.seen, weights(module))


def test_stand_alone_evaluation_sees_it_and_gives_the_raw_weights_back(tmp_path):
    class Module(TinyModule):
        def test_step(self, batch: Any, i: int) -> None:
            self.seen = weights(self)

        def predict_step(self, batch: Any, i: int) -> int:
            self.seen = weights(self)
            return 0

        def validation_step(self, batch: Any, i: int) -> None:
            self.seen = weights(self)

    ema, module = EMAHook(momentum=0.1), Module()
    trainer = make_trainer(tmp_path, ema)
    trainer.fit(module, make_loader())
    raw = weights(module)
    for run in (
        partial(trainer.validate, verbose=False),
        partial(trainer.test, verbose=False),
        partial(trainer.predict, return_predictions=False),
    ):
        run(module, make_loader(1))
        assert equal(module.seen, ema.ema_state_dict())
        assert equal(weights(module), raw)
    other = Module(seed=3)
    trainer.test(other, make_loader(1), verbose=False)
    assert equal(other.seen, weights(other))  # another module is not averaged
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, make_loader())  # inference mode has left no trace
    assert not equal(weights(module), raw)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["validation_step", "after_train_epoch"])
def test_an_interrupt_leaves_the_raw_weights(tmp_path, error, where):
    class Breaks(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            if where == "after_train_epoch":
                assert not torch.equal(raw[-1]["net.weight"], runner.module.net.weight)
                raise error("x")

    class Module(TinyModule):
        def on_train_batch_end(self, *args: Any) -> None:
            raw.append(weights(self))

        def validation_step(self, batch: Any, i: int) -> None:
            if where == "validation_step":
                assert not torch.equal(raw[-1]["net.weight"], self.net.weight)
                raise error("x")

    raw: list[dict[str, Any]] = []
    module, hooks = Module(), HookAdapter([EMAHook(momentum=0.1), (Breaks(), "LOW")])
    trainer = make_trainer(tmp_path, hooks, num_sanity_val_steps=0)
    expected = SystemExit if error is KeyboardInterrupt else error
    with pytest.raises(expected):
        trainer.fit(module, make_loader(), make_loader(1))
    assert equal(weights(module), raw[-1])
    assert not {"on_save_checkpoint", "on_load_checkpoint"} & set(module.__dict__)


@pytest.mark.parametrize("host", [False, True], ids=["bare", "hosted"])
def test_weights_loaded_after_a_fit_that_failed_twice_are_trained(tmp_path, host):
    class Fails(Callback):
        def on_validation_batch_end(self, *args: Any) -> None:
            raise ValueError("the first")

        def on_exception(self, *args: Any) -> None:
            raise RuntimeError("the second")  # Lightning calls no later callback

    ema = EMAHook(momentum=0.1)
    hooks = HookAdapter([ema]) if host else ema
    module, fresh = TinyModule(), TinyModule()
    given = copy.deepcopy(module.state_dict())
    trainer = make_trainer(tmp_path, callbacks=[Fails(), hooks], num_sanity_val_steps=0)
    with pytest.raises(RuntimeError, match="the second"):
        trainer.fit(module, make_loader(), make_loader(1))
    for each in (module, fresh):
        each.train().load_state_dict(given)
        make_trainer(tmp_path).fit(each, make_loader(), make_loader(1))
    assert equal(weights(module), weights(fresh))
    assert "load_state_dict" not in vars(module)


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
def test_an_error_in_a_stand_alone_evaluation_leaves_the_raw_weights(tmp_path, stage):
    class Module(TinyModule):
        broken = False

        def validation_step(self, batch: Any, i: int) -> None:
            if self.broken:
                assert equal(weights(self), ema.ema_state_dict())
                raise RuntimeError("x")

        test_step = predict_step = validation_step

    ema, module = EMAHook(momentum=0.1), Module()
    trainer = make_trainer(tmp_path, ema)
    trainer.fit(module, make_loader())
    raw, module.broken = weights(module), True
    with pytest.raises(RuntimeError, match="x"):
        getattr(trainer, stage)(module, make_loader(1))
    assert equal(weights(module), raw)


def test_a_plain_checkpoint_is_evaluated_as_it_is_after_a_fit(tmp_path):
    plain = make_trainer(tmp_path)
    plain.fit(TinyModule(seed=3), make_loader())
    plain.save_checkpoint(tmp_path / "a.ckpt", weights_only=True)
    probe, ema, module = Probe(), EMAHook(momentum=0.1), TinyModule()
    trainer = make_trainer(tmp_path, ema, probe)
    trainer.fit(module, make_loader())
    trainer.validate(module, make_loader(1), ckpt_path=tmp_path / "a.ckpt", verbose=False)
    assert equal(probe.val[-1], weights(plain.lightning_module))


def test_swap_survives_an_interrupt_in_its_midst():
    class Interrupting(torch.nn.Parameter):
        @property
        def data(self) -> Any:
            return torch.nn.Parameter.data.__get__(self)

        @data.setter
        def data(self, value: Any) -> None:
            torch.nn.Parameter.data.__set__(self, value)
            if self.armed:
                raise KeyboardInterrupt

    parameters = [Interrupting(torch.full((2,), float(i))) for i in range(3)]
    for i, parameter in enumerate(parameters):
        parameter.armed = i == 1
    swap = WeightSwap(parameters, [torch.full((2,), 9.0) for _ in parameters])
    with pytest.raises(KeyboardInterrupt):
        swap.swap_in()
    parameters[1].armed = False
    assert parameters[0][0] == 9
    swap.swap_out()
    assert [p[0].item() for p in parameters] == [0, 1, 2]
    swap.swap_out()
    assert [p[0].item() for p in parameters] == [0, 1, 2]


def test_swap_points_at_the_average_and_copies_where_storage_is_shared():
    flat = torch.arange(4.0)
    view, own = torch.nn.Parameter(flat[:2]), torch.nn.Parameter(torch.ones(2))
    average = [torch.full((2,), 7.0), torch.full((2,), 8.0)]
    swap = WeightSwap([view, own], average)
    address = own.data_ptr()
    swap.swap_in()
    assert flat.tolist() == [7, 7, 2, 3]
    assert own.data_ptr() == average[1].data_ptr()
    swap.swap_out()
    assert flat.tolist() == [0, 1, 2, 3]
    assert own.data_ptr() == address


def test_tied_parameters_stay_tied(tmp_path):
    class Tied(TinyModule):
        def make_net(self) -> torch.nn.Module:
            net = torch.nn.Sequential(*(torch.nn.Linear(4, 4, bias=False) for _ in range(2)))
            net[1].weight = net[0].weight
            return torch.nn.Sequential(net, torch.nn.Linear(4, 2))

    ema, module = EMAHook(momentum=0.1, after_fit="raw"), Tied()
    make_trainer(tmp_path, ema).fit(module, make_loader(), make_loader(1))
    assert module.net[0][0].weight is module.net[0][1].weight
    state = ema.ema_state_dict()
    assert torch.equal(state["net.0.0.weight"], state["net.0.1.weight"])
    assert not torch.equal(state["net.0.0.weight"], module.net[0][0].weight)


# -- checkpoints -------------------------------------------------------------------------------


class SaveEverywhere(Callback):
    """Saves while the average is in the model, and after."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.raw: dict[str, Any] = {}

    def on_train_batch_end(self, trainer, module, *args: Any) -> None:
        self.raw = weights(module)

    def on_validation_batch_end(self, trainer, module, *args: Any) -> None:
        for only in (False, True):
            name = f"{'weights' if only else 'full'}.ckpt"
            trainer.save_checkpoint(self.directory / name, weights_only=only)
        self.swapped = weights(module)


@adapted
@pytest.mark.parametrize("name", ["full", "weights"])
def test_departure_a_checkpoint_has_the_average_and_the_raw_weights_also_while_swapped(
    tmp_path, host, name
):
    ema, save = EMAHook(momentum=0.1), SaveEverywhere(tmp_path)
    module = TinyNormModule()
    trainer = make_trainer(tmp_path, host(ema), save, num_sanity_val_steps=0)
    trainer.fit(module, make_loader(), make_loader(1))
    checkpoint = torch.load(tmp_path / f"{name}.ckpt", weights_only=True)
    assert equal(checkpoint["state_dict"], save.swapped)
    assert equal(checkpoint["current_model_state"], save.raw)
    assert not equal(save.raw, save.swapped)
    trainer.save_checkpoint(tmp_path / "after.ckpt", weights_only=False)
    after = torch.load(tmp_path / "after.ckpt", weights_only=True)
    assert equal(after["state_dict"], ema.ema_state_dict())
    assert equal(after["current_model_state"], save.raw)
    assert not {"on_save_checkpoint", "on_load_checkpoint"} & set(module.__dict__)


@adapted
@pytest.mark.parametrize("after_fit", ["average", "raw"])
def test_a_file_of_weights_saved_after_the_fit_has_the_average(tmp_path, host, after_fit):
    ema, swa = EMAHook(momentum=0.1, after_fit=after_fit), StochasticWeightAverageHook()
    raw: dict[str, Any] = {}
    module, trainer = TinyNormModule(), make_trainer(tmp_path, host(ema), host(swa))
    path = tmp_path / "a.ckpt"

    def saved(weights_only: bool = True) -> dict[str, Any]:
        trainer.save_checkpoint(path, weights_only=weights_only)
        return torch.load(path, weights_only=True)

    class Raw(Callback):
        def on_train_batch_end(self, trainer, module, *args: Any) -> None:
            raw.update(weights(module))

    trainer.callbacks.append(Raw())
    for epochs in (1, 2):  # the same after a second fit
        trainer.fit_loop.max_epochs = epochs
        trainer.fit(module, make_loader())
        for weights_only in (True, False):
            file = saved(weights_only)
            assert equal(file["state_dict"], ema.ema_state_dict())
            assert equal(file["current_model_state"], raw)
            assert equal(weights(module), raw if after_fit == "raw" else file["state_dict"])
            assert equal(averages_in(file)[1], swa.ema_state_dict())
    trainer.validate(module, make_loader(1), verbose=False)
    assert equal(saved()["state_dict"], ema.ema_state_dict())
    other = TinyNormModule(seed=3)
    trainer.validate(other, make_loader(1), verbose=False)
    assert equal(saved()["state_dict"], weights(other))  # the average is of another module
    assert "current_model_state" not in saved()


def test_what_listens_after_the_fit_stays_out_of_copies(tmp_path):
    ema, module = EMAHook(momentum=0.1), TinyModule()
    trainer = make_trainer(tmp_path, ema)
    trainer.fit(module, make_loader())
    assert not {"on_save_checkpoint", "on_load_checkpoint"} & set(module.__dict__)
    assert isinstance(pickle.loads(pickle.dumps(ema)), EMAHook)
    strategy = copy.deepcopy(trainer.strategy)
    assert strategy.save_checkpoint.__self__ is strategy
    other = make_trainer(tmp_path, ema)
    other.fit(TinyModule(seed=1), make_loader())  # the hook goes with the new run
    trainer.save_checkpoint(tmp_path / "a.ckpt", weights_only=True)
    assert "current_model_state" not in torch.load(tmp_path / "a.ckpt", weights_only=True)


@adapted
def test_resume_is_bit_equal(tmp_path, host):
    def fit(epochs: int, **kwargs: Any) -> tuple[EMAHook, Any, L.Trainer]:
        ema, module = EMAHook(momentum=0.1, warm_up=8, interval=2), TinyNormModule()
        trainer = make_trainer(tmp_path, host(ema), max_epochs=epochs)
        trainer.fit(module, make_loader(), make_loader(1), **kwargs)
        return ema, module, trainer

    whole, module, _ = fit(4)
    fit(2)[2].save_checkpoint(tmp_path / "a.ckpt", weights_only=False)
    ema, again, _ = fit(4, ckpt_path=tmp_path / "a.ckpt")
    assert equal(weights(again), weights(module))
    assert equal(ema.ema_state_dict(), whole.ema_state_dict())
    assert ema.steps == whole.steps


def test_a_checkpoint_without_an_average_is_started_from(tmp_path):
    plain = make_trainer(tmp_path, max_epochs=1)
    plain.fit(TinyModule(), make_loader())
    plain.save_checkpoint(tmp_path / "a.ckpt", weights_only=False)
    start = torch.load(tmp_path / "a.ckpt", weights_only=True)["state_dict"]

    class Look(Callback):
        def on_train_epoch_start(self, trainer, module) -> None:
            assert equal(ema.ema_state_dict(), start)

    ema = EMAHook(momentum=0.1)
    trainer = make_trainer(tmp_path, ema, Look(), max_epochs=2)
    with pytest.warns(
        UserWarning, match=r"EMAHook\(momentum=0.1, .*\) finds no average of its own"
    ):
        trainer.fit(TinyModule(seed=5), make_loader(), ckpt_path=tmp_path / "a.ckpt")
    assert ema.steps == 4


def test_evaluating_a_checkpoint_uses_its_average(tmp_path):
    class Module(TinyModule):
        def validation_step(self, batch: Any, i: int) -> None:
            self.seen = weights(self)

    for weights_only in (False, True):
        path = tmp_path / f"{weights_only}.ckpt"

        class Save(Callback):
            def on_train_end(self, trainer, module, path=path, only=weights_only) -> None:
                trainer.save_checkpoint(path, weights_only=only)

        make_trainer(tmp_path, EMAHook(momentum=0.1), Save()).fit(Module(), make_loader())
        module = Module(seed=7)
        fresh = make_trainer(tmp_path, EMAHook(momentum=0.1))
        fresh.validate(module, make_loader(1), ckpt_path=path, verbose=False)
        saved = torch.load(path, weights_only=True)
        assert equal(module.seen, saved["state_dict"])
        assert equal(weights(module), saved["state_dict"])


def test_resume_from(tmp_path):
    first = EMAHook(momentum=0.1, after_fit="raw")
    trainer = make_trainer(tmp_path, first, max_epochs=1)
    trainer.fit(TinyModule(), make_loader())
    trainer.save_checkpoint(tmp_path / "a.ckpt", weights_only=False)
    start = weights(trainer.lightning_module)

    class Look(Callback):
        def on_train_epoch_start(self, trainer, module) -> None:
            if trainer.current_epoch == 1:
                assert equal(weights(module), start)
                assert equal(ema.ema_state_dict(), first.ema_state_dict())

    ema = EMAHook(momentum=0.1, resume_from=str(tmp_path / "a.ckpt"))
    make_trainer(tmp_path, ema, Look(), max_epochs=2).fit(TinyModule(seed=5), make_loader())


def test_several_coexist(tmp_path):
    slow = EMAHook(momentum=0.01, warm_up=0, after_fit="raw")
    fast = EMAHook(momentum=0.3, warm_up=0)
    trainer = make_trainer(tmp_path, slow, fast, max_epochs=2)
    module = TinyModule()
    trainer.fit(module, make_loader(), make_loader(1))
    trainer.save_checkpoint(tmp_path / "a.ckpt", weights_only=False)
    checkpoint = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert equal(checkpoint["current_model_state"], weights(module))
    assert equal(checkpoint["state_dict"], slow.ema_state_dict())
    assert equal(averages_in(checkpoint)[1], fast.ema_state_dict())
    assert not equal(slow.ema_state_dict(), fast.ema_state_dict())
    again = [EMAHook(momentum=0.01, warm_up=0), EMAHook(momentum=0.3, warm_up=0)]
    module = TinyModule(seed=4)
    make_trainer(tmp_path, *again).validate(
        module, make_loader(1), ckpt_path=tmp_path / "a.ckpt", verbose=False
    )
    assert equal(again[0].ema_state_dict(), slow.ema_state_dict())
    assert equal(again[1].ema_state_dict(), fast.ema_state_dict())
    assert equal(weights(module), checkpoint["state_dict"])


@adapted
def test_of_several_the_first_is_evaluated_with_and_training_sees_none(tmp_path, host):
    plain, probe = Probe(), Probe()
    make_trainer(tmp_path, plain, max_epochs=3).fit(TinyModule(), make_loader(), make_loader(1))
    slow, fast, module = EMAHook(momentum=0.1, warm_up=0), EMAHook(momentum=0.3), TinyModule()
    save = SaveEverywhere(tmp_path)
    trainer = make_trainer(tmp_path, host(slow), host(fast), probe, save, max_epochs=3)
    trainer.fit(module, make_loader(), make_loader(1))
    for name in ("full", "weights"):
        checkpoint = torch.load(tmp_path / f"{name}.ckpt", weights_only=True)
        assert equal(checkpoint["current_model_state"], save.raw)
        assert equal(checkpoint["state_dict"], slow.ema_state_dict())
        assert equal(averages_in(checkpoint)[1], fast.ema_state_dict())
    assert all(equal(a, b) for a, b in zip(plain.train, probe.train, strict=True))
    assert equal(probe.val[-1], slow.ema_state_dict())
    assert equal(weights(module), slow.ema_state_dict())


def test_two_equal_ones_coexist_and_a_line_says_so(tmp_path, caplog):
    for hooks in ([EMAHook(), EMAHook()], [HookAdapter([EMAHook(), EMAHook()])]):
        caplog.clear()
        make_trainer(tmp_path, *hooks).fit(TinyModule(), make_loader())
        assert caplog.text.count("two EMAHooks of equal arguments") == 1
    caplog.clear()
    hooks = [EMAHook(), EMAHook(interval=2), LinearMomentumEMAHook()]
    make_trainer(tmp_path, *hooks).fit(TinyModule(), make_loader())
    assert "of equal arguments" not in caplog.text


# -- the rest ----------------------------------------------------------------------------------


def test_departure_the_average_is_no_buffer_of_the_model(tmp_path):
    module, plain = TinyModule(), TinyModule()
    names = [*dict(module.named_buffers()), *module.state_dict()]
    ema = EMAHook(momentum=0.1, after_fit="raw")
    make_trainer(tmp_path, ema, max_epochs=2).fit(module, make_loader())
    make_trainer(tmp_path, max_epochs=2).fit(plain, make_loader())
    assert [*dict(module.named_buffers()), *module.state_dict()] == names
    assert equal(weights(module), weights(plain))


def test_apply_to_and_export(tmp_path):
    model = job.make_model(0, "conv")
    ema, data = EMAHook(momentum=0.1), job.make_data(0)
    make_trainer(tmp_path, HookAdapter([ema])).fit(
        TrainStepModule(model, job.make_optimizer(model)), data[0]
    )
    bare = job.make_model(3, "conv")
    ema.apply_to(bare)
    assert equal(weights(bare), ema.ema_state_dict())
    ema.export(str(tmp_path / "ema.pth"))
    bare = job.make_model(4, "conv")
    bare.load_state_dict(torch.load(tmp_path / "ema.pth", weights_only=True))
    assert equal(weights(bare), ema.ema_state_dict())


@pytest.mark.parametrize("used", [False, True])
def test_a_run_that_is_over_when_it_is_resumed_gives_the_average_of_its_file(tmp_path, used):
    first, again = EMAHook(momentum=0.1), EMAHook(momentum=0.1)
    trainer = make_trainer(tmp_path, first)
    trainer.fit(TinyModule(), make_loader())
    trainer.save_checkpoint(tmp_path / "last.ckpt", weights_only=False)
    if used:
        make_trainer(tmp_path, again).fit(TinyModule(seed=1), make_loader())
    module = TinyModule()
    make_trainer(tmp_path, again).fit(module, make_loader(), ckpt_path=tmp_path / "last.ckpt")
    assert equal(again.ema_state_dict(), first.ema_state_dict())
    again.apply_to(module)
    assert equal(weights(module), first.ema_state_dict())


def test_fits_twice_as_one_fit(tmp_path):
    whole, ema = EMAHook(momentum=0.1), EMAHook(momentum=0.1)
    make_trainer(tmp_path, whole, max_epochs=4).fit(TinyNormModule(), make_loader())
    module, trainer = TinyNormModule(), make_trainer(tmp_path, ema, max_epochs=2)
    trainer.fit(module, make_loader())
    between = ema.steps
    trainer.fit_loop.max_epochs = 4
    trainer.fit(module, make_loader())
    assert between == 8
    assert ema.steps == whole.steps == 16
    assert not {"on_save_checkpoint", "on_load_checkpoint"} & set(module.__dict__)
    make_trainer(tmp_path, ema).fit(TinyModule(), make_loader())  # another run starts anew
    assert ema.steps == 4


def test_a_copy_has_the_arguments_and_no_run(tmp_path):
    ema = EMAHook(momentum=0.1, warm_up=3)
    make_trainer(tmp_path, ema).fit(TinyModule(), make_loader())
    for other in (pickle.loads(pickle.dumps(ema)), copy.deepcopy(ema)):
        assert other._state_arguments() == ema._state_arguments()
        with pytest.raises(RuntimeError, match="no average yet"):
            other.ema_state_dict()
        make_trainer(tmp_path, other).fit(TinyModule(), make_loader())
        assert equal(other.ema_state_dict(), ema.ema_state_dict())


def test_the_module_can_be_copied_during_a_fit(tmp_path):
    class Copies(Callback):
        def on_train_batch_end(self, trainer, module, *args: Any) -> None:
            other = copy.deepcopy(module)
            assert other.on_save_checkpoint.__self__ is other

    make_trainer(tmp_path, EMAHook(), EMAHook(momentum=0.1), Copies()).fit(
        TinyModule(), make_loader()
    )


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"momentum": 0}, ValueError, "momentum must be in"),
        ({"momentum": 1.0}, ValueError, "momentum must be in"),
        ({"momentum": "x"}, TypeError, "momentum must be a number"),
        ({"interval": 0}, ValueError, "interval must be at least 1, got 0"),
        ({"interval": 1.5}, TypeError, "interval must be an int"),
        ({"warm_up": -1}, ValueError, "warm_up must be at least 0"),
        (
            {"warm_up": "slow"},
            ValueError,
            "at least 0 or 'fast', got 'slow'",
        ),
        ({"resume_from": 3}, TypeError, "resume_from must be a path"),
    ],
)
def test_refuses(arguments, error, match):
    with pytest.raises(error, match=match):
        EMAHook(**arguments)


def test_positional_arguments_are_mmcvs():
    ema = EMAHook(0.1, 2, 3, None)
    assert (ema.momentum, ema.interval, ema.warm_up, ema._resume_from) == (0.1, 2, 3, None)
