"""Statements of the docs about sister libraries, tested with MMEngine and detectron2."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from mmengine.evaluator import BaseMetric
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch import nn
from torch.utils.data import DataLoader

BATCHES = 2


class Model(BaseModel):
    """A model with a falling parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor, mode: str = "tensor") -> Any:
        return {"loss": (self.weight * x).mean()} if mode == "loss" else [x]


class Count(BaseMetric):
    """Counts the batches of a validation."""

    def process(self, data_batch: Any, data_samples: Any) -> None:
        self.results.append(1)

    def compute_metrics(self, results: list[Any]) -> dict[str, float]:
        return {"count": float(len(results))}


class Sampler(torch.utils.data.SequentialSampler):
    """A sampler that records its epochs."""

    def __init__(self) -> None:
        super().__init__(range(BATCHES))
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


def loader(sampler: Any = None, value: float = 1.0) -> Any:
    return DataLoader([{"x": torch.full((1,), value)}] * BATCHES, sampler=sampler)


names = itertools.count()


def run_of(folder: Path, *hooks: Hook, data: Any = None, **loop: Any) -> Runner:
    """Train under mmengine's runner, validating every second epoch of three by default."""
    runner = Runner(
        Model(),
        str(folder),
        experiment_name=f"run{next(names)}",
        train_dataloader=data or loader(),
        train_cfg=loop or {"by_epoch": True, "max_epochs": 3, "val_interval": 2},
        optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.1}},
        val_dataloader=loader(),
        val_cfg={},
        val_evaluator=[Count()],
        default_hooks=dict.fromkeys(("timer", "logger", "checkpoint", "sampler_seed")),
        custom_hooks=list(hooks),
        log_level="ERROR",
    )
    with mock.patch("time.sleep"):
        runner.train()
    return runner


def test_last_validation(tmp_path: Path) -> None:
    """mmengine validates after the last epoch too."""
    validated = []

    class Seen(Hook):
        def before_val(self, runner: Any) -> None:
            validated.append(runner.epoch)

    run_of(tmp_path, Seen())
    assert validated == [2, 3]


def test_mode_of_an_epoch(tmp_path: Path) -> None:
    """`model.train()` comes after `before_train_epoch`."""
    modes = []

    class Evaluates(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            runner.model.eval()

        def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
            modes.append(runner.model.training)

    run_of(tmp_path, Evaluates())
    assert set(modes) == {True}


def test_accumulation_over_epochs(tmp_path: Path) -> None:
    """`accumulative_counts` goes on from one epoch to the next."""
    weights = []

    class Accumulates(Hook):
        def before_train(self, runner: Any) -> None:
            runner.optim_wrapper._accumulative_counts = 2 * BATCHES

        def after_train_epoch(self, runner: Any) -> None:
            weights.append(runner.model.weight.item())

    run_of(tmp_path, Accumulates())
    assert weights[0] == 1 > weights[1]


def test_pass_of_a_hook(tmp_path: Path) -> None:
    """`val_loop.run()` leaves the model in evaluation, and `val_loop.run()` runs one loader to its
    end.
    """

    class Again(Hook):
        def after_train_iter(self, runner: Any, *given: Any, **named: Any) -> None:
            self.found = runner.val_loop.run()
            self.training = runner.model.training

    again = Again()
    run_of(tmp_path, again)
    assert again.found == {"count": BATCHES}
    assert not again.training


def test_a_stop_in_a_step(tmp_path: Path) -> None:
    """`stop_training = True` ends an epoch first, and in a run by iterations validates nothing."""
    points: list[tuple[str, int]] = []

    class Stops(Hook):
        def after_train_iter(self, runner: Any, *given: Any, **named: Any) -> None:
            runner.train_loop.stop_training = True

        def before_val(self, runner: Any) -> None:
            points.append(("before_val", runner.iter))

        def after_train(self, runner: Any) -> None:
            points.append(("after_train", runner.iter))

    run_of(tmp_path, Stops())
    run_of(tmp_path, Stops(), by_epoch=False, max_iters=9, val_interval=3)
    assert points == [("after_train", BATCHES), ("after_train", 1)]


def test_rates_of_several_groups(tmp_path: Path) -> None:
    """An optimizer with several groups has a `base_lr`, too."""
    from mmengine.optim import OptimWrapper

    groups = [{"params": [nn.Parameter(torch.ones(1))]} for _ in range(2)]
    wrapper = OptimWrapper(torch.optim.SGD(groups, lr=0.1))
    assert wrapper.get_lr() == {"base_lr": [0.1], "lr": [0.1, 0.1]}


def test_a_hook_registered_by_a_hook(tmp_path: Path) -> None:
    """It is called at the rest of the point, and stays in the runner."""
    calls: list[str] = []

    class Late(Hook):
        def before_train(self, runner: Any) -> None:
            calls.append("late")

    class Starts(Hook):
        def before_train(self, runner: Any) -> None:
            runner.register_hook(Late(), "LOWEST")

    runner = run_of(tmp_path, Starts())
    assert calls == ["late"]
    assert isinstance(runner.hooks[-1], Late)


def test_loader_of_a_run_by_iterations(tmp_path: Path) -> None:
    """A dataloader assigned in a run by iterations is not iterated."""
    seen = []

    class Assigns(Hook):
        def before_train(self, runner: Any) -> None:
            runner.train_loop.dataloader = loader(value=2.0)

        def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
            seen.append(data_batch["x"].item())

    run_of(tmp_path, Assigns(), by_epoch=False, max_iters=3 * BATCHES, val_interval=100)
    assert seen == [1.0] * 3 * BATCHES


def test_epochs_of_samplers(tmp_path: Path) -> None:
    """Without `DistSamplerSeedHook`, samplers get no epoch; after `dataloader_iterator = ...` they
    count its passes.
    """
    from mmengine.runner.loops import _InfiniteDataloaderIterator

    sampler, later = Sampler(), Sampler()

    class Assigns(Hook):
        def before_train(self, runner: Any) -> None:
            runner.train_loop.dataloader_iterator = _InfiniteDataloaderIterator(loader(later))

    run_of(tmp_path, data=loader(sampler))
    assert sampler.epochs == []
    run_of(tmp_path, Assigns(), by_epoch=False, max_iters=3 * BATCHES, val_interval=100)
    assert later.epochs == [1, 2]


def test_information_of_the_run(tmp_path: Path) -> None:
    """`RuntimeInfoHook` comes after hooks of a priority below 10."""
    found = []

    class First(Hook):
        priority = 5

        def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
            found.append(runner.message_hub.get_info("iter"))

    run_of(tmp_path, First())
    assert found == [0, *range(3 * BATCHES - 1)]  # of the iteration before


def test_what_the_runner_computes(tmp_path: Path) -> None:
    """`runner.max_epochs = ...`, and what else mmengine computes, raises AttributeError."""
    runner = run_of(tmp_path)
    for name in ("max_epochs", "max_iters", "epoch", "iter"):
        with pytest.raises(AttributeError):
            setattr(runner, name, 5)


def test_model_of_a_test() -> None:
    """`runner.model = ...` in `before_test`, as `PrepareTTAHook` does."""
    from mmengine.hooks import PrepareTTAHook

    runner = SimpleNamespace(model=Model())
    with mock.patch("mmengine.registry.MODELS.build", return_value=None):
        PrepareTTAHook({"type": "Model"}).before_test(runner)
    assert runner.model is None


def test_resumed_with_todays_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mmengine 0.10.7 alone fails unless `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` is set."""
    from mmengine.runner.checkpoint import load_checkpoint

    runner, file = run_of(tmp_path), str(tmp_path / "a.pth")
    runner.message_hub.update_scalar("train/loss", 1.0)
    runner.save_checkpoint(str(tmp_path), "a.pth")
    monkeypatch.delenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", raising=False)
    with pytest.raises(Exception, match="Weights only load failed"):
        load_checkpoint(Model(), file)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    load_checkpoint(Model(), file)


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return detectron2's DefaultTrainer with an inner SimpleTrainer in the first step."""
    for unused in ("omegaconf", "tabulate", "torchvision"):
        monkeypatch.setitem(sys.modules, unused, mock.Mock())
    from detectron2.engine.defaults import DefaultTrainer
    from detectron2.engine.train_loop import SimpleTrainer

    model = nn.Linear(1, 1)
    model.forward = lambda data: {"loss": model.weight.sum()}  # type: ignore[method-assign]
    trainer = DefaultTrainer.__new__(DefaultTrainer)
    super(DefaultTrainer, trainer).__init__()
    trainer._trainer = SimpleTrainer(model, [0], torch.optim.SGD(model.parameters(), lr=0.1))
    trainer.iter = 0
    return trainer


@pytest.mark.parametrize("rank", [0, 1])
def test_losses_of_a_rank(trainer: Any, rank: int) -> None:
    """detectron2's has them on rank 0."""
    from detectron2.utils import comm
    from detectron2.utils.events import EventStorage

    with EventStorage() as storage, mock.patch.object(comm, "get_rank", return_value=rank):
        trainer.run_step()
    assert ("total_loss" in storage.latest()) == (rank == 0)


def test_scalars_of_a_single_loss(trainer: Any) -> None:
    """detectron2 stores `total_loss` alone, and raises for a loss that is infinite or NaN."""
    from detectron2.utils.events import EventStorage

    trainer._trainer._data_loader_iter_obj = iter([0, 0])
    with EventStorage() as storage:
        trainer.run_step()
        assert storage.latest().keys() == {"total_loss", "data_time", "rank_data_time"}
        with torch.no_grad():
            trainer._trainer.model.weight.fill_(torch.inf)
        with pytest.raises(FloatingPointError, match="infinite or NaN"):
            trainer.run_step()
