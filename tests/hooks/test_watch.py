"""WatchHook: the histograms equal numpy's, at every due step."""

from __future__ import annotations

import contextlib
import functools
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lightning_hooks import (
    CheckpointHook,
    ClosureHook,
    HookAdapter,
    LoggerHook,
    TextLoggerHook,
    WatchHook,
)
from lightning_hooks.hooks.watch import CELLS, histograms_of, sizes_of
from lightning_hooks.loggers.trackers.tensorboard import moments
from lightning_hooks.utils.samples import Histogram
from support.device_reads import Reads
from support.training import NoValidation, make_loader, make_trainer


class Kept(LoggerHook):
    """A logger that records the histograms by step and name."""

    _takes = ("histograms",)

    def __init__(self, by_epoch: bool = True) -> None:
        super().__init__(by_epoch=by_epoch)
        self.found: dict[int, dict[str, Histogram]] = {}

    def log(self, runner: Any) -> None:
        """Keep no numbers."""

    def _log_sample(self, runner: Any, name: str, sample: Any) -> None:
        self.found.setdefault(self.get_iter(runner), {})[name] = sample


class Watched(NoValidation):
    """A module that records its parameters and gradients before each optimizer step."""

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        values = {f"parameters/{n}": p.detach().clone() for n, p in self.named_parameters()}
        values |= {f"gradients/{n}": p.grad.clone() for n, p in self.named_parameters()}  # type: ignore[union-attr]
        self.__dict__.setdefault("seen", []).append(values)


@pytest.mark.parametrize("adapted", [False, True], ids=["bare", "adapter"])
@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iterations"])
def test_the_histograms_are_those_of_the_steps(
    tmp_path: Path, adapted: bool, by_epoch: bool
) -> None:
    kept, module = Kept(by_epoch), Watched()
    hooks = [WatchHook(3), kept]
    callbacks = [HookAdapter(hooks, by_epoch=by_epoch)] if adapted or not by_epoch else hooks
    make_trainer(tmp_path, *callbacks, max_epochs=2).fit(module, make_loader())
    assert [*kept.found] == [1, 4, 7]
    for step, histograms in kept.found.items():
        seen = module.seen[step - 1]  # type: ignore[attr-defined]
        assert histograms.keys() == seen.keys()
        for name, histogram in histograms.items():
            values = seen[name].numpy()
            assert (histogram.low, histogram.high) == (values.min(), values.max())
            assert sum(histogram.counts) == values.size
            counts, edges = np.histogram(values, CELLS)
            assert histogram.edges == pytest.approx(edges, abs=1e-6)
            assert np.abs(np.cumsum(counts) - np.cumsum(histogram.counts)).max() <= 1  # rounding


@pytest.mark.parametrize("log", ["gradients", "parameters"])
def test_one_kind_alone(tmp_path: Path, log: str) -> None:
    kept = Kept()
    make_trainer(tmp_path, WatchHook(log=log), kept).fit(NoValidation(), make_loader())
    assert {name.partition("/")[0] for name in kept.found[1]} == {log}


def test_the_next_step_is_taken_while_gradients_are_accumulated(tmp_path: Path) -> None:
    kept = Kept()
    trainer = make_trainer(tmp_path, WatchHook(4), kept, max_epochs=2, accumulate_grad_batches=3)
    trainer.fit(NoValidation(), make_loader(6))
    assert [*kept.found] == [3, 6, 9]


def test_each_optimizer_has_the_histograms_of_its_own_step(tmp_path: Path) -> None:
    class Two(NoValidation):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.critic = nn.Linear(2, 1)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            generator, critic = self.optimizers()  # type: ignore[misc]
            for optimizer in (generator, critic):
                optimizer.zero_grad()
                self.manual_backward(self.critic(self.net(batch[0])).mean())
                optimizer.step()

        def configure_optimizers(self) -> Any:
            parts = self.net, self.critic
            return [torch.optim.SGD(part.parameters(), lr=0.1) for part in parts]

    kept = Kept()
    make_trainer(tmp_path, WatchHook(2, "gradients"), kept).fit(Two(), make_loader())
    names = {
        f"gradients/{part}.{kind}" for part in ("net", "critic") for kind in ("weight", "bias")
    }
    assert {step: {*found} for step, found in kept.found.items()} == {1: names, 3: names}


def test_without_a_logger_for_them_nothing_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counted: list[Any] = []
    monkeypatch.setattr("lightning_hooks.hooks.watch.histograms_of", counted.append)
    trainer = make_trainer(tmp_path, WatchHook(1), TextLoggerHook())
    trainer.fit(NoValidation(), make_loader())
    (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warning == (
        "no logger of this run holds histograms: they are not logged; W&B, TensorBoard and ClearML "
        "hold them: WandbLoggerHook(), ..."
    )
    assert not counted


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_odd_values_are_counted(dtype: torch.dtype) -> None:
    nan, inf = float("nan"), float("inf")
    found = histograms_of(
        {
            "some": torch.tensor([nan, -inf, 1.0, 2.0, inf], dtype=dtype),
            "none": torch.tensor([nan], dtype=dtype),
            "empty": torch.empty(0, dtype=dtype),
            "one": torch.full((3,), 2.0, dtype=dtype),
        }
    )
    assert [*found] == ["some", "one"]
    assert (found["some"].low, found["some"].high, found["some"].left_out) == (1.0, 2.0, 3)
    assert (sum(found["some"].counts), sum(found["one"].counts)) == (2, 3)
    assert (found["one"].low, found["one"].high) == (1.5, 2.5)


@pytest.mark.filterwarnings("error")
def test_values_beyond_float32_are_counted_as_by_numpy() -> None:
    wide = torch.tensor([-1e300, 0.0, 5e299, 1e300, 1e300], dtype=torch.float64)
    near = 1 + torch.arange(100, dtype=torch.float64) * 1e-12  # all equal in float32
    for values in (wide, near):
        (found,) = histograms_of({"w": values}).values()
        counts, edges = np.histogram(values.numpy(), CELLS)
        assert (found.low, found.high) == (values.min(), values.max())
        assert sum(abs(np.cumsum(counts) - np.cumsum(found.counts)) > 1) == 0
        assert found.edges == pytest.approx(edges.tolist(), rel=1e-12)
        assert moments(found)["num"] == len(values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_at_the_end_of_their_type_do_not_spoil_the_others(dtype: torch.dtype) -> None:
    most = torch.finfo(dtype).max
    (found,) = histograms_of({"w": torch.tensor([-most, 1.0, 2.0, most], dtype=dtype)}).values()
    assert (found.low, found.high, sum(found.counts), found.left_out) == (1.0, 2.0, 2, 2)
    alone = histograms_of({"w": torch.full((3,), most / 2, dtype=dtype)})["w"]
    assert alone.low < most / 2 < alone.high
    assert sum(alone.counts) == 3


def test_sparse_and_complex_gradients_are_counted() -> None:
    sparse = torch.sparse_coo_tensor([[0, 2]], [1.0, 3.0], (4,), check_invariants=True)
    found = histograms_of({"sparse": sparse, "complex": torch.tensor([1 + 2j])})
    assert (found["sparse"].low, found["sparse"].high) == (1.0, 3.0)
    assert (found["complex"].low, found["complex"].high) == (1.0, 2.0)


def test_many_values_in_one_cell_are_all_counted() -> None:
    many = torch.zeros(2**24 + 2, dtype=torch.bfloat16)
    many[0] = 1.0
    found = histograms_of({"rows that no sample has": many})["rows that no sample has"]
    assert (found.counts[0], found.counts[-1], found.left_out) == (2**24 + 1, 1, 0)


def test_the_device_is_read_once_for_all_of_them() -> None:
    tensors = {f"layer{index}": torch.randn(5) for index in range(20)}
    with Reads() as reads:
        histograms_of(tensors)
    assert len(reads.found) == 1


# -- norms -------------------------------------------------------------------------------------


class Deep(NoValidation):
    """Two layers, trained by Adam; records weights and gradients around each step."""

    def make_net(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2)))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        parameters = dict(self.named_parameters())
        before = {name: p.detach().clone() for name, p in parameters.items()}
        gradients = {name: p.grad.clone() for name, p in parameters.items() if p.grad is not None}
        states = {
            name: {key: value.clone() for key, value in optimizer.state[p].items()}
            for name, p in parameters.items()
            if p in optimizer.state
        }
        seen = (self.current_epoch, before, gradients, states)
        self.__dict__.setdefault("seen", []).append(seen)


def norm(tensors: dict[str, torch.Tensor], module: str) -> float:
    """Return the norm of the tensors of a module by plain arithmetic."""
    parts = [t.double().flatten() for name, t in tensors.items() if f"{name}.".startswith(module)]
    return float(torch.cat(parts).norm())


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return the training lines of the JSON log."""
    (file,) = folder.glob("*.log.json")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [row for row in rows if row.get("mode") == "train"]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_norms_are_those_of_the_steps_in_every_line_that_is_due(
    tmp_path: Path, accumulate: int
) -> None:
    module, hook = Deep(), WatchHook(4, "norms", depth=3)
    options = {"max_epochs": 2, "accumulate_grad_batches": accumulate}
    make_trainer(tmp_path, hook, TextLoggerHook(interval=2), **options).fit(module, make_loader(8))
    rows = lines(tmp_path)
    due = [row for row in rows if any("norm" in key for key in row)]
    assert len(rows) == 8
    assert len(due) == 4
    modules = ("net.0", "net.1.0", "net.1.1")
    steps = range(0, len(module.seen), 4 // accumulate)  # type: ignore[attr-defined]
    for row, step in zip(due, steps, strict=True):
        _, before, gradients, _ = module.seen[step]  # type: ignore[attr-defined]
        after = [s[1] for s in module.seen[step + 1 :]]  # type: ignore[attr-defined]
        moved = {name: after[0][name] - value for name, value in before.items()}
        kinds = ("grad_norm", "weight_norm", "update_ratio")
        assert {k for k in row if "/" in k} == {f"{kind}/{m}" for kind in kinds for m in modules}
        for name in modules:
            close = functools.partial(pytest.approx, rel=1e-5, abs=1e-5)  # a line has five digits
            assert row[f"grad_norm/{name}"] == close(norm(gradients, name))
            assert row[f"weight_norm/{name}"] == close(norm(before, name))
            assert row[f"update_ratio/{name}"] == close(norm(moved, name) / norm(before, name))


def test_a_resumed_run_has_norms_where_the_whole_one_has(tmp_path: Path) -> None:
    due = []
    for stop in (None, 3):
        folder = tmp_path / str(stop)
        for ends in filter(None, (stop, 8)):
            hooks = WatchHook(4, "norms"), CheckpointHook(1, by_epoch=False)
            last = {"ckpt_path": "last"} if ends == 8 and stop else {}
            options = {"max_steps": ends, "enable_checkpointing": True}
            trainer = make_trainer(folder, *hooks, TextLoggerHook(interval=1), **options)
            trainer.fit(Deep(), make_loader(8), **last)
        due += [[i for i, row in enumerate(lines(folder)) if "grad_norm/net.0" in row]]
    assert due == [[0, 4], [0, 4]]


class StepsRarely(Deep):
    """A module with a second optimizer that steps after every third batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.head = nn.Linear(2, 1)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        often, rarely = self.optimizers()  # type: ignore[misc]
        for optimizer in (often, rarely) if batch_idx % 3 == 2 else (often,):
            optimizer.zero_grad()
            self.manual_backward(self.head(self.net(batch[0])).mean())
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.net, self.head)]


def test_a_resumed_run_has_the_norms_of_an_optimizer_that_steps_rarely(tmp_path: Path) -> None:
    due = []
    for stop in (9, 5):  # at 5 the interval has begun, and the second optimizer has not stepped
        for ckpt, ends in ((None, stop), ("last", 9))[: 1 + (stop < 9)]:
            hooks = WatchHook(4, "norms", depth=1), TextLoggerHook(interval=1)
            keep = CheckpointHook(1, by_epoch=False, save_last=False)
            cut = ClosureHook("before_train_iter", raises_at(ends))
            options = {"enable_checkpointing": True}
            trainer = make_trainer(tmp_path / str(stop), *hooks, keep, cut, **options)
            with contextlib.suppress(InterruptedError):
                trainer.fit(StepsRarely(), make_loader(9), ckpt_path=ckpt)
        rows = lines(tmp_path / str(stop))
        due += [[i for i, row in enumerate(rows) if "grad_norm/head" in row]]
    assert due == [[2, 5, 8], [2, 5, 8]]


def raises_at(iteration: int) -> Any:
    def check(runner: Any) -> None:
        if runner.iter == iteration:
            raise InterruptedError

    return check


@pytest.mark.parametrize(
    ("depth", "modules"), [(0, {"all"}), (1, {"net"}), (2, {"net.0", "net.1"})]
)
def test_modules_are_grouped_by_the_depth_of_their_names(
    tmp_path: Path, depth: int, modules: set[str]
) -> None:
    hook = WatchHook(1, "norms", depth=depth, moments=True)
    module = Deep()
    make_trainer(tmp_path, hook, TextLoggerHook(interval=1)).fit(module, make_loader(3))
    first, second, _ = lines(tmp_path)
    assert {key.partition("/")[2] for key in first if "/" in key} == modules
    assert not any("exp_avg" in key for key in first)  # Adam has no moments yet
    *_, states = module.seen[1]  # type: ignore[attr-defined]
    for key in ("exp_avg", "exp_avg_sq"):
        whole = norm({name: state[key] for name, state in states.items()}, "net")
        squares = sum(second[f"{key}_norm/{module}"] ** 2 for module in modules)
        assert squares**0.5 == pytest.approx(whole, abs=1e-4)


def test_norms_are_copied_with_the_other_values_of_the_line(tmp_path: Path) -> None:
    def copies(*hooks: Any) -> int:
        with Reads() as reads:
            trainer = make_trainer(tmp_path, TextLoggerHook(interval=2), *hooks)
            trainer.fit(NoValidation(), make_loader(8))
        return sum(read.is_ours for read in reads.found)

    assert copies(WatchHook(2, "norms")) == copies()


# -- memory ------------------------------------------------------------------------------------


def test_out_of_memory_names_the_largest_modules(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Greedy(Deep):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            if batch_idx == 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().training_step(batch, batch_idx)

    trainer = make_trainer(tmp_path, WatchHook(1000, "norms", depth=3))
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        trainer.fit(Greedy(), make_loader())
    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    # Adam: a weight and two moments; Lightning has set the gradients to None
    assert line.startswith("out of memory in iteration 3; the largest modules: net.1.0 0.0 MiB, ")
    assert [*tmp_path.rglob("*.pickle")] == []


def test_the_snapshot_of_a_gpu_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: [{"address": 1}])
    hook, module = WatchHook(1000), Deep()
    trainer = make_trainer(tmp_path, hook)
    trainer.fit(module, make_loader(1))
    monkeypatch.setattr(Deep, "device", torch.device("cuda", 0))
    hook.on_exception(trainer, module, torch.OutOfMemoryError())
    snapshot = pickle.loads((tmp_path / "out_of_memory_rank0.pickle").read_bytes())
    assert snapshot == {"segments": [{"address": 1}], "device_traces": []}


def test_weights_gradients_and_moments_are_counted_by_module() -> None:
    net = nn.Sequential(nn.Linear(1000, 100), nn.Linear(100, 1))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 1000)).sum().backward()
    optimizer.step()
    (first, size), (second, other) = sizes_of(net, [optimizer.state], 1)
    assert (first, second) == ("0", "1")
    assert size == pytest.approx(4 * 100_100 * 4, abs=16)  # weight, gradient and two moments
    assert other == pytest.approx(4 * 101 * 4, abs=16)
