"""The small hooks: caches, samplers, functions, and two loggers of discontinued services."""

from __future__ import annotations

import inspect
import pickle
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader
from torch.utils.data.distributed import DistributedSampler

from lightning_hooks import HOOKS, Hook, HookAdapter
from lightning_hooks.hooks.closure import ClosureHook
from lightning_hooks.hooks.empty_cache import EmptyCacheHook
from lightning_hooks.hooks.sampler_seed import DistSamplerSeedHook
from lightning_hooks.hooks.sync_buffers import SyncBuffersHook
from lightning_hooks.loggers.discontinued import PaviLoggerHook, SegmindLoggerHook
from lightning_hooks.utils.suggestions import UnknownNameError
from support import training
from support.training import TinyModule, TinyNormModule, make_loader, make_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step`"),
]


fit = partial(training.fit, batches=2)


# -- EmptyCacheHook, SyncBuffersHook -----------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "calls"),
    [
        ({}, 4),  # two epochs of training, two of validation
        ({"before_epoch": True, "after_epoch": False}, 4),
        ({"after_epoch": False, "after_iter": True}, 10),
    ],
)
def test_departure_empties_the_cache_of_the_modules_device(
    flags: Any, calls: int, tmp_path: Path, monkeypatch: Any
) -> None:
    found: list[int] = []
    monkeypatch.setattr(torch.cpu, "empty_cache", lambda: found.append(1), raising=False)
    fit(tmp_path, EmptyCacheHook(**flags), batches=3, val=2, max_epochs=2)
    assert len(found) == calls


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gives_memory_of_a_gpu_back(tmp_path: Path) -> None:
    class Spend(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            torch.empty(2**26, device=runner.module.device)

    fit(tmp_path, (Spend(), 10), (EmptyCacheHook(), 20), accelerator="gpu")
    assert torch.cuda.memory_reserved() < 2**26


def test_buffers_of_a_single_process_stay_as_they_are(tmp_path: Path) -> None:
    states = []
    for hooks in ([], [SyncBuffersHook()]):
        module = TinyNormModule()
        make_trainer(tmp_path, *hooks).fit(module, make_loader(2))
        states.append([value.tolist() for value in module.state_dict().values()])
    assert states[0] == states[1]


# -- DistSamplerSeedHook -----------------------------------------------------------------------


def orders(tmp_path: Path, make: Any, *hooks: Any, **kwargs: Any) -> list[list[float]]:
    found: list[list[float]] = []

    class Look(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            found.append([])

        def after_train_iter(self, runner: Any) -> None:
            found[-1] += runner.data_batch[0][:, 0].tolist()

    data = make_loader(4).dataset
    sampler = DistributedSampler(data, num_replicas=1, rank=0, shuffle=True)
    trainer = make_trainer(tmp_path, *hooks, Look(), max_epochs=2, **kwargs)
    trainer.fit(TinyModule(), make(data, sampler))
    return found


@pytest.mark.parametrize(
    "make",
    [
        lambda data, sampler: DataLoader(data, batch_size=2, sampler=sampler),
        lambda data, sampler: DataLoader(data, batch_sampler=BatchSampler(sampler, 2, False)),
    ],
    ids=["sampler", "batch_sampler"],
)
def test_samplers_get_the_epoch(make: Any, tmp_path: Path) -> None:
    data = make_loader(4).dataset
    sampler, expected = DistributedSampler(data, num_replicas=1, rank=0, shuffle=True), []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        expected.append([data[i][0][0].item() for i in sampler])
    assert orders(tmp_path, make, DistSamplerSeedHook()) == expected
    assert expected[0] != expected[1]


@pytest.mark.parametrize("by_epoch", [True, False])
def test_departure_loaders_without_samplers_are_left_alone(by_epoch: bool, tmp_path: Path) -> None:
    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(list(make_loader(2).dataset))

    trainer = make_trainer(
        tmp_path, HookAdapter(DistSamplerSeedHook(), by_epoch=by_epoch), max_steps=2
    )
    trainer.fit(TinyModule(), DataLoader(Stream(), batch_size=2))
    assert trainer.global_step == 2


def test_departure_each_of_several_loaders_gets_the_epoch() -> None:
    data = make_loader(4).dataset
    samplers = [DistributedSampler(data, 1, 0), DistributedSampler(data, 1, 0)]
    loaders = {str(i): DataLoader(data, sampler=s) for i, s in enumerate(samplers)}
    DistSamplerSeedHook().before_epoch(SimpleNamespace(epoch=3, data_loader=loaders))
    assert [sampler.epoch for sampler in samplers] == [3, 3]


# -- ClosureHook -------------------------------------------------------------------------------


@pytest.mark.parametrize("host", [False, True])
def test_a_function_is_called_at_its_point(host: bool, tmp_path: Path) -> None:
    found: list[Any] = []
    hooks = [
        ClosureHook("after_train_iter", lambda runner: found.append(runner.iter)),
        ClosureHook("before_epoch", lambda runner: found.append(runner.mode)),
        ClosureHook("after_run", lambda runner: found.append("end")),
    ]
    fit(tmp_path, *([HookAdapter(hooks)] if host else hooks), val=1)
    assert found == ["train", 0, 1, "val", "end"]


def test_a_generic_point_stands_for_its_two() -> None:
    hook = ClosureHook("after_iter", print)
    assert hook.get_triggered_stages() == ["after_train_iter", "after_val_iter"]
    assert pickle.loads(pickle.dumps(hook)).after_iter is print


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("after_train_step", print), UnknownNameError, "did you mean 'after_train_iter'"),
        (("on_fit_start", print), UnknownNameError, "is not a point"),
        (("after_run", 3), TypeError, "fn must be a function of the runner, got 3"),
    ],
)
def test_departure_closure_refuses(arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        ClosureHook(*arguments)


# -- all ---------------------------------------------------------------------------------------

# mmcv 1.7.2's arguments and defaults
ARGUMENTS: dict[str, dict[str, Any]] = {
    "EmptyCacheHook": {"before_epoch": False, "after_epoch": True, "after_iter": False},
    "SyncBuffersHook": {"distributed": True},
    "DistSamplerSeedHook": {},
    "ClosureHook": {"fn_name": inspect.Parameter.empty, "fn": inspect.Parameter.empty},
    "ProfilerHook": {
        "by_epoch": True,
        "profile_iters": 1,
        "activities": ("cpu", "cuda"),
        "schedule": None,
        "on_trace_ready": None,
        "record_shapes": False,
        "profile_memory": False,
        "with_stack": False,
        "with_flops": False,
        "json_trace_path": None,
    },
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_and_defaults_are_mmcvs(name: str) -> None:
    cls: Any = HOOKS.get(name)
    found = inspect.signature(cls).parameters.values() if "__init__" in vars(cls) else []
    assert [(p.name, p.default) for p in found] == list(ARGUMENTS[name].items())


@pytest.mark.parametrize("cls", [EmptyCacheHook, SyncBuffersHook])
def test_flags_must_be_bools(cls: Any) -> None:
    with pytest.raises(TypeError, match="must be a bool, got 'yes'"):
        cls("yes")


@pytest.mark.parametrize("cls", [PaviLoggerHook, SegmindLoggerHook])
def test_departure_a_service_that_is_gone_says_what_to_use(cls: Any) -> None:
    name = cls.__name__
    with pytest.raises(RuntimeError, match=f"{name} logged to .* use TextLoggerHook"):
        HookAdapter([dict(type=name, interval=10)])
