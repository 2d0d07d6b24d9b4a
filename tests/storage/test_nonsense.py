"""Nonsense under any key of a checkpoint is refused with the file and the key."""

from __future__ import annotations

import copy
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import BestCheckpointHook, CheckpointHook, EMAHook, TextLoggerHook
from lightning_hooks.storage.layout import DamagedCheckpointError, check_layout
from lightning_hooks.storage.verification import load
from support.training import TinyModule, make_loader, make_trainer

OURS = "lightning_hooks"
OPTIMIZERS = "loops", "fit_loop", "epoch_loop.automatic_optimization.optim_progress", "optimizer"
BUFFER = OURS, "log_buffer", 0, 0
LIKE = {"fx": "x", "reduce_fx": "mean", "flags": {"sync_dist": False}}
GROUP = LIKE | {"values": [], "batch_sizes": []}
SUMS = {"groups": [GROUP], "without_sum": []}
STEPS = {"values": [], "counts": torch.ones(1), "iterations": torch.ones(1)}
NONSENSE: list[tuple[list[Any], list[Any]]] = [
    (["state_dict", "meta", "loops", "callbacks", OURS], [5, [1]]),
    (["optimizer_states", "lr_schedulers"], [5, {"a": 1}, [5]]),
    (["current_model_state", "averaging_state"], [5, "x"]),
    (["pytorch-lightning_version"], [5, "x", None]),
    ([("loops", "fit_loop"), ("meta", "hook_msgs")], [5, None]),
    ([("optimizer_states", 0, "param_groups")], [5, [5]]),
    ([("meta", "epoch"), ("meta", "iter")], ["1", float("nan"), -1, 2**64, True, None]),
    (["global_step"], ["x", None, -1]),
    ([("loops", "fit_loop", "epoch_loop.batch_progress", "is_last_batch")], ["x", None]),
    ([("loops", "fit_loop", "epoch_loop.state_dict", "_batches_that_stepped")], ["x", None]),
    ([(*OPTIMIZERS, "step"), (*OPTIMIZERS, "step", "total", "ready")], ["x", None]),
    ([("loops", "fit_loop", "epoch_progress", "total", "ready")], ["x", None, float("nan")]),
    ([("meta", "hook_msgs", "best_ckpts")], [5, {"val_loss": 5}, {"val_loss": [5]}]),
    ([("meta", "hook_msgs", "best_ckpts", "val_loss")], [[[1, 2, 3]], [["x", 5]], [[0.5, None]]]),
    ([("meta", "hook_msgs", "best_score")], ["x", None, [1]]),
    ([("loops", "fit_loop", "epoch_progress"), ("optimizer_states", 0, "state")], [5, [1], None]),
    ([("optimizer_states", 0, "param_groups", 0, "params")], [5, None]),
    ([(OURS, "iter"), (OURS, "last_val_iter")], ["x", -1, 2**70, True, None]),
    ([(OURS, "waiting"), (OURS, "ahead")], ["x", -1, 2**70, True, None]),
    ([(OURS, "rng")], [5, {"a": 1}, [[1, 2]], [{"python": 1}]]),
    ([(OURS, "rng", 0, "python"), (OURS, "rng", 0, "numpy")], [5, [1], (3, 4, 5)]),
    ([(OURS, "rng", 0, "torch")], [5, [1], torch.zeros(2)]),
    ([(OURS, "loaders")], [5, [5], [[{"batches": -1}]], [[{"start": {}}]], [[{"workers": [5]}]]]),
    ([(OURS, "data"), (OURS, "hooks"), (OURS, "averages")], [5, [5], {"a": 1}]),
    ([(OURS, "averages", 0, "steps"), (OURS, "averages", 0, "arguments")], [[1], "x"]),
    (
        [(OURS, name) for name in ("text_logs", "trackers", "log_buffer", "watch", "skips")],
        [5, "x"],
    ),
    ([(*BUFFER, "groups")], [5, {"a": 1}, [5], [STEPS | {"values": 5}]]),
    ([(*BUFFER, "groups")], [[STEPS | {name: [5]}] for name in ("values", "counts", "iterations")]),
    ([(*BUFFER, "groups")], [[STEPS | {"counts": torch.ones(())}], [{"values": []}]]),
    ([(*BUFFER, "output"), (*BUFFER, "averages")], [5, [1]]),
    ([(OURS, "sums")], [5, [5], [SUMS | {"groups": [{"fx": "x"}]}], [SUMS | {"without_sum": 1}]]),
    ([(OURS, "sums")], [[SUMS | {"groups": [GROUP | {name: 1}]}] for name in GROUP]),
    ([(OURS, "logged")], [5, [5], {"a": 1}]),
    (
        [(OURS, "metrics", 0, 0)],
        [
            {"loss": torch.ones(1)},
            [5],
            [{"names": ["loss"], "lengths": [2], "values": torch.ones(1)}],
            [{"names": ["loss"], "lengths": [-1], "values": torch.ones(1)}],
            [{"names": ["loss"], "lengths": [], "values": torch.ones(1)}],
            [{"names": [1], "lengths": [1], "values": torch.ones(1)}],
            [{"names": ["loss"], "lengths": [1], "values": torch.ones(1, 1)}],
        ],
    ),
]
CASES = [
    ((key,) if isinstance(key, str) else key, value)
    for keys, values in NONSENSE
    for key in keys
    for value in values
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("saved")
    hooks = CheckpointHook(1), EMAHook(), TextLoggerHook(interval=3), BestCheckpointHook("val_loss")
    trainer = make_trainer(folder, *hooks, enable_checkpointing=True)
    trainer.fit(TinyModule(), make_loader(), make_loader(1))
    found: dict[str, Any] = torch.load(folder / "epoch_1.pth", weights_only=True)
    return found


def write(saved: dict[str, Any], keys: tuple[Any, ...], nonsense: Any, path: Path) -> None:
    place = checkpoint = copy.deepcopy(saved)
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = nonsense
    torch.save(checkpoint, path)


@pytest.mark.parametrize(("keys", "nonsense"), CASES, ids=repr)
def test_nonsense_is_refused_by_file_and_key(
    saved: dict[str, Any], tmp_path: Path, keys: Any, nonsense: Any
) -> None:
    path = tmp_path / "odd.pth"
    write(saved, keys, nonsense, path)
    with pytest.raises(DamagedCheckpointError) as error:
        load(str(path))
    assert str(error.value).startswith(f"{path}'s {keys[0]!r} is damaged: ")
    names = [key for key in keys if key not in (0, "python", "numpy", "torch")]
    assert all(repr(name) in str(error.value) for name in names)


@pytest.mark.parametrize(
    ("keys", "nonsense"),
    [(("state_dict",), 5), (("meta",), 7), ((OURS, "rng"), [[1, 2]]), (("optimizer_states",), 5)],
    ids=repr,
)
@pytest.mark.parametrize("hook", [EMAHook, CheckpointHook])
def test_a_run_is_not_resumed_from_nonsense(
    saved: dict[str, Any], tmp_path: Path, keys: Any, nonsense: Any, hook: Any
) -> None:
    path = tmp_path / "odd.pth"
    write(saved, keys, nonsense, path)
    options = {"enable_checkpointing": hook is CheckpointHook}
    trainer = make_trainer(tmp_path, hook(), max_epochs=2, **options)
    with pytest.raises(DamagedCheckpointError, match=f"odd.pth's '{keys[0]}' is damaged"):
        trainer.fit(TinyModule(), make_loader(), make_loader(1), ckpt_path=path)


WEIGHT = "net.weight"
AVERAGES = (OURS, "averages", 0)


@pytest.mark.parametrize("nonsense", [5, "x", [1]])
@pytest.mark.parametrize(
    "keys", [("state_dict",), ("current_model_state",), (*AVERAGES, "exact")], ids=repr
)
@pytest.mark.parametrize("way", ["ckpt_path", "resume_from", "validate"])
def test_a_weight_that_is_no_tensor_is_named_by_file_and_key(
    saved: dict[str, Any], tmp_path: Path, keys: Any, nonsense: Any, way: str
) -> None:
    path = tmp_path / "odd.pth"
    saved = copy.deepcopy(saved)
    saved[OURS]["averages"][0]["exact"] = {}
    write(saved, (*keys, WEIGHT), nonsense, path)
    hook = EMAHook(resume_from=str(path) if way == "resume_from" else None)
    trainer = make_trainer(tmp_path, hook, max_epochs=2)
    wanted = f"odd.pth's '{keys[0]}' is damaged: '{WEIGHT}' must be a Tensor, got {nonsense!r}"
    run = trainer.validate if way == "validate" else trainer.fit
    loaders = [make_loader()] * (1 if way == "validate" else 2)
    with pytest.raises(DamagedCheckpointError) as error:
        run(TinyModule(), *loaders, ckpt_path=None if hook._resume_from else path)
    assert str(error.value).endswith(wanted)


def test_an_error_shows_the_beginning_of_a_value_without_end() -> None:
    value: list[Any] = ["ha"] * 10
    for _ in range(30):  # 10 ** 31 references to one text
        value = [value] * 10
    with pytest.raises(DamagedCheckpointError, match=r"it must be a count, got \[\["):
        check_layout({"global_step": value})


def shared_without_end(make: Any) -> Any:
    """Return 10 ** 31 texts in a few hundred bytes of a file."""
    value: Any = "ha"
    for _ in range(31):
        value = make([value] * 10)
    return value


PARTS = [
    ("meta", "notes"),
    ("meta", "hook_msgs", "last_ckpt"),
    (OURS, "averages", 0, "arguments", "interval"),
    (OURS, "trackers", "tensorboard", 0, "key"),
    (OURS, "rng", 0, "numpy"),
    (OURS, "loaders"),
    (OURS, "text_logs", "x"),
]


@pytest.mark.parametrize("make", [list, tuple, lambda parts: OrderedDict(enumerate(parts))])
@pytest.mark.parametrize("keys", PARTS, ids=lambda keys: ".".join(map(str, keys)))
def test_shared_values_without_end_are_refused_at_once(
    saved: dict[str, Any], tmp_path: Path, keys: Any, make: Any
) -> None:
    path = tmp_path / "odd.pth"
    intact = copy.deepcopy(saved)
    intact[OURS]["trackers"] = {"tensorboard": [{"key": "1f"}]}
    intact["meta"].setdefault("hook_msgs", {})
    write(intact, keys, shared_without_end(make), path)
    assert path.stat().st_size < 50_000
    with pytest.raises(DamagedCheckpointError, match=f"odd.pth's '{keys[0]}' is damaged: "):
        load(str(path))


def test_the_random_states_of_many_ranks_are_no_nonsense(
    saved: dict[str, Any], tmp_path: Path
) -> None:
    many = copy.deepcopy(saved)
    many[OURS]["rng"] *= 10_000
    torch.save(many, tmp_path / "epoch_1.pth")
    assert len(load(str(tmp_path / "epoch_1.pth"))[OURS]["rng"]) == 10_000
