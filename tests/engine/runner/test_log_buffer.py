"""LogBuffer averages as mmcv's does, to the last bit; tensors are read once."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lightning_hooks import LogBuffer
from lightning_hooks.engine.runner import log_buffer
from lightning_hooks.utils.concatenated import separated
from lightning_hooks.utils.plain_types import packed
from support.golden import recorded

GOLDEN = recorded("log_buffer")["cases"]


def play(calls: Any, as_tensors: bool) -> list[Any]:
    buffer, outputs = LogBuffer(), []
    for name, *arguments in calls:
        if name == "update" and as_tensors:
            values = {k: torch.tensor(v, dtype=torch.float64) for k, v in arguments[0].items()}
            arguments = [values, *arguments[1:]]
        getattr(buffer, name)(*arguments)
        if name == "average":
            outputs.append(dict(buffer.output))
    return outputs


def same(a: Any, b: Any) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("as_tensors", [False, True])
@pytest.mark.parametrize("case", range(len(GOLDEN)))
def test_averages_are_mmcvs(case: int, as_tensors: bool) -> None:
    ours, theirs = play(GOLDEN[case]["calls"], as_tensors), GOLDEN[case]["outputs"]
    assert len(ours) == len(theirs)
    for our, their in zip(ours, theirs, strict=True):
        assert list(our) == list(their)
        assert all(same(our[key], their[key]) for key in their)


def test_departure_one_stack_reads_all_tensors_of_the_window(monkeypatch: Any) -> None:
    reads = []
    tolist = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: reads.append(1) or tolist(self))
    monkeypatch.setattr(torch.Tensor, "item", lambda self: reads.append("item"))
    buffer = LogBuffer()
    for i in range(50):
        buffer.update({"a": torch.tensor(float(i)), "b": torch.tensor(i), "c": 1.0}, count=2)
    buffer.average(10)
    assert reads == [1]
    assert buffer.output == {"a": 44.5, "b": 44.5, "c": 1.0}
    buffer.average(10)  # numbers by now
    assert reads == [1]


def test_values_are_kept_detached() -> None:
    buffer = LogBuffer()
    buffer.update({"loss": torch.ones(1, requires_grad=True).sum()})
    assert not buffer.val_history["loss"][0].requires_grad


def test_hooks_may_rewrite_histories_and_output() -> None:
    buffer = LogBuffer()
    buffer.update({"a": 1.0, "b": 5.0})
    buffer.val_history["a"] = []
    buffer.n_history["a"] = []
    buffer.output = {"kept": 1}  # type: ignore[assignment]
    buffer.average()
    assert buffer.output == {"kept": 1, "b": 5.0}
    buffer.clear_output()
    assert (buffer.output, buffer.ready) == ({}, False)


def test_bad_arguments() -> None:
    with pytest.raises(TypeError, match="vars must be a dict"):
        LogBuffer().update([1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n must be at least 0, got -1"):
        LogBuffer().average(-1)


def test_departure_memory_does_not_grow_with_the_run() -> None:
    buffer = LogBuffer()
    for value in range(100_030):
        buffer.update({"loss": float(value)})
    buffer.average(10)
    assert buffer.output["loss"] == 100_024.5
    assert len(buffer.val_history["loss"]) == len(buffer.n_history["loss"]) == 100_000
    assert buffer.val_history["loss"][0] == 30
    buffer.average(100_000)
    buffer.average()  # the average of the current values
    assert buffer.output["loss"] == 50_029.5


def test_departure_tensors_that_nobody_averages_are_read_every_10_000_values() -> None:
    buffer = LogBuffer()
    value = torch.tensor(0.5)
    for _ in range(10_001):
        buffer.update({"time": 0.1, "loss": value})
    kinds = [isinstance(kept, torch.Tensor) for kept in buffer.val_history["loss"]]
    assert kinds == [False] * 10_000 + [True]
    buffer.average()
    assert buffer.output["loss"] == 0.5


def test_each_value_is_looked_at_once_where_many_values_are_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at, read = [], LogBuffer._read

    def noting_read(buffer: LogBuffer, lengths: dict[str, int]) -> None:
        looked_at.append(sum(lengths.values()))
        read(buffer, lengths)

    monkeypatch.setattr(log_buffer, "MAX_UNREAD", 10)
    monkeypatch.setattr(LogBuffer, "_read", noting_read)
    buffer = LogBuffer()
    values = {f"loss_{number}": torch.tensor(0.5) for number in range(30)}
    for _ in range(100):
        buffer.update(values)
    assert sum(looked_at) == 30 * 100
    assert {type(each) for kept in buffer.val_history.values() for each in kept} == {float}


@pytest.mark.parametrize("number", [1, 7, 8, 9, 50, 129, 1000])
@pytest.mark.parametrize("kind", [float, np.float32, int])
@pytest.mark.parametrize("count", [1, 3])
def test_averages_are_those_of_numpys_weighted_sums_to_the_last_bit(
    number: int, kind: Any, count: int
) -> None:
    values = [kind(value) for value in np.random.default_rng(number).normal(0, 100, number)]
    buffer = LogBuffer()
    for value in values:
        buffer.update({"loss": value}, count)
    buffer.average()
    weights = np.array([count] * number)
    assert buffer.output["loss"] == np.sum(np.array(values) * weights) / np.sum(weights)


def test_a_history_rewritten_in_place_is_averaged_anew() -> None:
    buffer = LogBuffer()
    for value in (1.0, 2.0, 3.0):
        buffer.update({"loss": value})
    buffer.average(2)
    assert buffer.output["loss"] == 2.5
    buffer.val_history["loss"][-1] = 5.0
    buffer.average(2)
    assert buffer.output["loss"] == 3.5
    buffer.n_history["loss"][-1] = 3
    buffer.average(2)
    assert buffer.output["loss"] == 4.25
    buffer.average(1)
    assert buffer.output["loss"] == 5.0


def test_a_dict_that_an_old_hook_assigns_is_the_output() -> None:
    buffer = LogBuffer()
    buffer.output["acc"] = 0.5
    buffer.output = {"score": 1.0}  # type: ignore[assignment]
    kept = buffer.output.copy()
    buffer.update({"loss": 2.0})
    buffer.average()
    buffer.output = kept
    assert dict(buffer.output) == {"score": 1.0}


def test_a_file_has_the_steps_of_all_values_once() -> None:
    progress = SimpleNamespace(completed=0)
    buffer = LogBuffer(progress)
    for progress.completed in range(100):
        buffer.update({f"loss_{number}": number / 7 for number in range(30)}, count=3)
        if progress.completed % 10 == 0:
            buffer.update({"rare": 1})
    state = buffer.state_dict()
    losses, rare = state["groups"]
    assert len(separated(losses["values"])) == 30
    assert (len(losses["counts"]), len(losses["iterations"])) == (100, 100)
    assert (len(rare["counts"]), len(rare["iterations"])) == (10, 10)

    restored = LogBuffer(progress)
    restored.load_state_dict(state)
    assert restored.val_history == buffer.val_history
    assert restored.n_history == buffer.n_history
    assert restored.window(20) == buffer.window(20)
    assert restored.window(5) == buffer.window(5)


def test_a_resumed_line_has_its_values_in_the_same_order() -> None:
    buffer, restored = LogBuffer(), LogBuffer()
    buffer.update({"loss": 0.5, "boxes": 3, "acc": 0.25})
    buffer.update({"loss": 1.5, "boxes": 5})
    restored.load_state_dict(buffer.state_dict())
    for each in (buffer, restored):
        each.average()
    assert [*restored.output.items()] == [*buffer.output.items()]
    assert [*restored.names] == [*buffer.names]


@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [
        ([], torch.int64),
        ([1, np.int32(-2), True], torch.int64),
        ([2**63 - 1, -(2**63)], torch.int64),
        ([2**63, 0], torch.float64),
        ([np.uint64(2**63)], torch.float64),
        ([1, 0.5, np.float32(0.25)], torch.float64),
    ],
)
def test_numbers_are_packed_in_the_type_that_holds_them(numbers: Any, dtype: Any) -> None:
    assert packed(numbers).dtype == dtype
    assert packed(numbers).tolist() == numbers
