"""What a ``DefaultTrainer`` does by its config, and what strangers' trainers are given."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lightning_hooks.dialects import detectron2 as d2
from lightning_hooks.dialects.detectron2 import default_trainer
from support.dialect_hooks.detectron2_script import DATA, Net, Trainer, Untested, by_hand, config
from support.dialect_hooks.detectron2_style import Trace

names = types.SimpleNamespace


class Mean(d2.DatasetEvaluator):
    """The mean prediction."""

    def reset(self) -> None:
        self.outputs: list[float] = []

    def process(self, inputs: Any, outputs: Any) -> None:
        self.outputs.append(float(outputs))

    def evaluate(self) -> dict[str, float]:
        return {"mean": sum(self.outputs) / len(self.outputs)}


class Evaluates(Untested):
    """A stranger's trainer with evaluators."""

    @classmethod
    def build_test_loader(cls, cfg: Any, dataset_name: str) -> Any:
        return {"ones": [torch.ones(2)], "twos": [2 * torch.ones(2)] * 2}[dataset_name]

    @classmethod
    def build_evaluator(cls, cfg: Any, dataset_name: str) -> Any:
        return Mean()


def evaluating(folder: Path, *data_sets: str, max_iter: int = 0) -> Any:
    cfg = config(folder, max_iter)
    cfg.DATASETS = names(TEST=data_sets)
    return cfg


# -- evaluation ----------------------------------------------------------------------------------


def test_the_evaluators_of_the_data_sets(tmp_path: Path) -> None:
    net = Net()
    assert Evaluates.test(evaluating(tmp_path, "ones"), net) == {"mean": 2.0}
    both = evaluating(tmp_path, "ones", "twos")
    assert Evaluates.test(both, net) == {"ones": {"mean": 2.0}, "twos": {"mean": 4.0}}
    assert Evaluates.test(both, net, [None, Mean()]) == {"ones": {}, "twos": {"mean": 4.0}}
    assert net.training
    with pytest.raises(ValueError, match=r"2 data sets \['ones', 'twos'\], but 1 evaluators"):
        Evaluates.test(both, net, Mean())
    with pytest.raises(ValueError, match="two evaluators have results of the name 'mean'"):
        d2.inference_on_dataset(net, [torch.ones(2)], [Mean(), Mean()])
    with pytest.raises(NotImplementedError, match="must define the class method build_test_loader"):
        Trainer.build_test_loader(both, "ones")


def test_the_results_are_stored_and_returned(tmp_path: Path) -> None:
    trainer = Evaluates(evaluating(tmp_path, "ones", max_iter=2))
    results = trainer.train()
    assert results == {"mean": pytest.approx(float(by_hand(2).sum()))}
    rows = [json.loads(line) for line in (tmp_path / "metrics.json").read_text().splitlines()]
    assert rows[-1]["mean"] == results["mean"]


def test_no_evaluation_after_the_run_if_it_is_not_wanted() -> None:
    calls: list[int] = []
    hook = d2.EvalHook(2, lambda: calls.append(1), eval_after_train=False)
    simple(d2.SimpleTrainer, [hook]).train(0, 4)
    assert len(calls) == 1  # after two iterations; the last one is left out, as in detectron2


def test_without_an_evaluation_one_line_names_it(tmp_path: Path, caplog: Any) -> None:
    with caplog.at_level("WARNING"):
        Untested(config(tmp_path))
    assert "Untested evaluates nothing: it has no build_evaluator() or test()" in caplog.text


# -- the config ----------------------------------------------------------------------------------


class Normed(Net):
    """A net with statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)

    def forward(self, data: Any) -> Any:
        return super().forward(self.norm(torch.stack([data, 3 * data])))


def test_precise_statistics_where_the_config_wants_them(tmp_path: Path) -> None:
    class Precise(Trainer):
        @classmethod
        def build_model(cls, cfg: Any) -> Net:
            return Normed()

    cfg = config(tmp_path, 1)
    cfg.TEST.PRECISE_BN = names(ENABLED=True, NUM_ITER=2)
    trainer = Precise(cfg)
    trainer.train()
    means = torch.stack([2 * data for data in DATA[:2]]).mean(0)
    torch.testing.assert_close(trainer.model.norm.running_mean, means)  # type: ignore[union-attr]
    without = Trainer(cfg).build_hooks()  # that model has no BatchNorm
    assert not any(isinstance(hook, d2.PreciseBN) for hook in without)


class Config(types.SimpleNamespace):
    """A config that is copied as detectron2's."""

    frozen = True

    def clone(self) -> Any:
        copy = {k: names(**vars(v)) if k.isupper() else v for k, v in vars(self).items()}
        return Config(**copy)

    def is_frozen(self) -> bool:
        return self.frozen

    def defrost(self) -> None:
        self.frozen = False

    def freeze(self) -> None:
        self.frozen = True


def test_a_config_for_another_number_of_processes() -> None:
    solver = dict(IMS_PER_BATCH=16, BASE_LR=0.1, MAX_ITER=5000, WARMUP_ITERS=100, STEPS=(4000,))
    solver |= dict(REFERENCE_WORLD_SIZE=8, CHECKPOINT_PERIOD=1000)
    cfg = Config(SOLVER=names(**solver), TEST=names(EVAL_PERIOD=50))
    scaled = d2.DefaultTrainer.auto_scale_workers(cfg, 16)
    assert vars(scaled.SOLVER) == dict(
        IMS_PER_BATCH=32,
        BASE_LR=0.2,
        MAX_ITER=2500,
        WARMUP_ITERS=50,
        STEPS=(2000,),
        REFERENCE_WORLD_SIZE=16,
        CHECKPOINT_PERIOD=500,
    )
    assert (scaled.TEST.EVAL_PERIOD, scaled.frozen) == (25, True)
    assert vars(cfg.SOLVER) == solver
    assert d2.DefaultTrainer.auto_scale_workers(cfg, 8) is cfg
    cfg.SOLVER.IMS_PER_BATCH = 12
    with pytest.raises(ValueError, match=r"IMS_PER_BATCH=12 must be a multiple of .*=8"):
        d2.DefaultTrainer.auto_scale_workers(cfg, 16)


def test_without_tensorboard_one_line_names_the_writer(
    tmp_path: Path, caplog: Any, monkeypatch: Any
) -> None:
    pytest.importorskip("tensorboard")
    trainer = Trainer(config(tmp_path))
    kinds = [type(writer).__name__ for writer in trainer.build_writers()]
    assert kinds == ["CommonMetricPrinter", "JSONWriter", "TensorboardXWriter"]
    monkeypatch.setattr(default_trainer, "find_spec", lambda name: None)
    with caplog.at_level("WARNING"):
        assert len(trainer.build_writers()) == 2
    assert "TensorboardXWriter is left out: tensorboard is not installed" in caplog.text


def test_results_that_are_expected_are_named(tmp_path: Path, caplog: Any) -> None:
    cfg = config(tmp_path)
    cfg.TEST.EXPECTED_RESULTS = [["bbox", "AP", 38.5, 0.2]]
    with caplog.at_level("WARNING"):
        Trainer(cfg)
    assert "TEST.EXPECTED_RESULTS is not compared" in caplog.text


def test_model_optimizer_and_loader_can_be_replaced(tmp_path: Path) -> None:
    trainer = Trainer(config(tmp_path))
    net = Net()
    sgd = torch.optim.SGD(net.parameters(), lr=0.01)
    trainer.model, trainer.data_loader, trainer.optimizer = net, DATA[:1], sgd
    inside = trainer._trainer
    assert (inside.model, inside.data_loader, inside.optimizer) == (net, DATA[:1], sgd)


# -- mixed precision -----------------------------------------------------------------------------


def simple(cls: Any, hooks: list[Any], **options: Any) -> Any:
    net = Net()
    trainer = cls(net, DATA, torch.optim.SGD(net.parameters(), lr=0.01), **options)
    trainer.register_hooks(hooks)
    return trainer


def test_mixed_precision_scales_the_gradients() -> None:
    seen: list[Any] = []

    class Reads(Trace):
        def after_backward(self) -> None:
            seen.append(self.trainer.model.weight.grad.tolist())

    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    trainer = simple(d2.AMPTrainer, [Reads()], grad_scaler=scaler, log_grad_scaler=True)
    trainer.train(0, 1)
    plain = simple(d2.SimpleTrainer, [])
    plain.train(0, 1)
    assert seen == [[4 * value for value in plain.model.weight.grad.tolist()]]
    torch.testing.assert_close(trainer.model.weight, plain.model.weight)
    assert trainer.storage.latest()["[metric]grad_scaler"] == (4.0, 0)
    state = trainer.state_dict()
    assert state["grad_scaler"]["scale"] == 4.0
    trainer.load_state_dict({**state, "grad_scaler": {**state["grad_scaler"], "scale": 8.0}})
    assert scaler.get_scale() == 8.0


def test_a_step_with_infinite_gradients_is_left_out() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=3e38)
    trainer = simple(d2.AMPTrainer, [], grad_scaler=scaler, precision=torch.bfloat16)
    trainer.train(0, 1)
    assert trainer.model.weight.tolist() == [1.0, 1.0]
    assert scaler.get_scale() == pytest.approx(1.5e38)


def test_the_model_runs_in_the_wanted_type() -> None:
    class Typed(Net):
        def forward(self, data: Any) -> Any:
            self.type_inside = nn.functional.linear(data, self.weight).dtype
            return super().forward(data)

    net = Typed()
    sgd = torch.optim.SGD(net.parameters(), lr=0.01)
    d2.AMPTrainer(net, DATA, sgd, precision=torch.bfloat16).train(0, 1)
    assert net.type_inside == torch.bfloat16
    with pytest.raises(TypeError, match="AMPTrainer trains no DataParallel"):
        d2.AMPTrainer(nn.DataParallel(net), DATA, sgd)


def test_a_config_with_mixed_precision(tmp_path: Path) -> None:
    cfg = config(tmp_path, 4)
    cfg.SOLVER.AMP = names(ENABLED=True)
    trainer = Trainer(cfg)
    hook = Trace()
    trainer.register_hooks([hook])
    trainer.train()
    assert "grad_scaler" in trainer.state_dict()["_trainer"]
    assert ("after_backward", 3) in hook.calls
    torch.testing.assert_close(trainer.model.weight.detach(), by_hand(4))  # type: ignore[arg-type]


def test_lightnings_own_scaling_is_refused() -> None:
    class Own(d2.SimpleTrainer):
        lightning_options = {"precision": "16-mixed"}  # noqa: RUF012

    with pytest.raises(ValueError, match=r"must not have precision='16-mixed'.* AMPTrainer"):
        simple(Own, []).train(0, 1)


# -- strangers' trainers -------------------------------------------------------------------------


def test_the_hooks_are_in_a_module_too_as_in_its_engine() -> None:
    names = {"HookBase", "BestCheckpointer", "EvalHook", "PeriodicWriter", "TorchMemoryStats"}
    assert {name for name in names if getattr(d2.hooks, name) is getattr(d2, name)} == names


def test_a_loader_that_is_built_anew() -> None:
    trainer = simple(d2.SimpleTrainer, [], async_write_metrics=True)
    trainer.train(0, 2)
    trainer.reset_data_loader(lambda: [torch.zeros(2)])
    trainer.train(2, 3)
    assert trainer.storage.latest()["loss_a"] == (0.0, 2)


def test_the_librarys_own_functions_find_the_storage(monkeypatch: Any) -> None:
    events: Any = types.ModuleType("detectron2.utils.events")  # as far as it matters here
    events._CURRENT_STORAGE_STACK, events.EventStorage = [], object
    monkeypatch.setitem(sys.modules, "detectron2.utils.events", events)
    found: list[Any] = []

    class Reads(Trace):
        def after_step(self) -> None:
            found.append(events._CURRENT_STORAGE_STACK[-1] is self.trainer.storage)
            raise ArithmeticError("boom")

    with pytest.raises(ArithmeticError, match="boom"):
        simple(d2.SimpleTrainer, [Reads()]).train(0, 2)
    assert found == [True]
    assert events._CURRENT_STORAGE_STACK == []
