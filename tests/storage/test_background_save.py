"""The copy of a checkpoint in reused memory, and the writing thread."""

from __future__ import annotations

import copy
import io
import pickle
import threading
import time
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

from lightning_hooks.storage.background_save import BackgroundSaver, Snapshot


def example() -> dict[str, Any]:
    whole = torch.arange(12.0)
    return {
        "state_dict": OrderedDict(w=torch.randn(3, 4), b=torch.randn(3).to(torch.bfloat16)),
        "tied": [whole[2:6], whole[4:].view(2, 4).t()],
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(3),
        "bool": torch.tensor([True, False]),
        "complex": torch.randn(2, dtype=torch.complex64),
        "conjugate": torch.randn(2, dtype=torch.complex64).conj(),
        "sparse": torch.eye(3).to_sparse(),
        "parameter": nn.Parameter(torch.randn(2)),
        "needs_grad": torch.randn(2, requires_grad=True),
        "plain": {"epoch": 3, "names": ("a", None), "set": {1}, 7: b"x"},
    }


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        alike = a.dtype == b.dtype and a.shape == b.shape
        return alike and torch.equal(a.to_dense(), b.to_dense())
    if isinstance(a, dict):
        return type(a) is type(b) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_a_copy_is_the_object_as_it_was():
    torch.manual_seed(0)
    value, snapshot = example(), Snapshot()
    expected = copy.deepcopy(value)
    value["result"] = value["needs_grad"] + 1  # not a leaf of the graph
    make = snapshot.take(value)
    with torch.no_grad():  # the training goes on
        for tensor in (*value["state_dict"].values(), value["tied"][0], value["parameter"]):
            tensor.zero_()
    value["plain"]["epoch"] = 4
    found = make()
    assert same({k: found[k] for k in expected}, expected)
    # tensors of one storage still share the storage
    found["tied"][0][2] = 99
    assert found["tied"][1][0, 0] == 99


def test_the_file_is_as_large_as_without_a_copy():
    value = example()
    del value["sparse"]  # torch 2.15 warns of every loaded sparse tensor
    sizes = []
    for obj in (value, Snapshot().take(value)()):
        file = io.BytesIO()
        torch.save(obj, file)
        sizes.append(file.tell())
    assert abs(sizes[0] - sizes[1]) < 500
    assert torch.load(io.BytesIO(file.getvalue()), weights_only=True)["plain"]["epoch"] == 3


def test_the_memory_is_kept_and_no_larger_than_the_tensors():
    snapshot, value = Snapshot(), {"a": torch.zeros(10_000), "b": torch.zeros(3)}
    value["c"] = value["a"][5:]
    snapshot.take(value)
    address = snapshot._kept[0].data_ptr()
    assert snapshot.nbytes == 40_012
    value["a"] += 1
    assert snapshot.take(value)()["c"].sum() == 9_995
    assert snapshot._kept[0].data_ptr() == address
    value["b"] = torch.zeros(10_000)
    assert snapshot.take(value)()["b"].shape == (10_000,)
    assert snapshot.nbytes == 80_000


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_copy_is_of_the_moment_and_the_program_goes_on():
    snapshot, value = Snapshot(), {"a": torch.zeros(50_000_000, device="cuda")}
    snapshot.take(value)()
    assert snapshot._kept[0].is_pinned()
    for i in range(3):
        value["a"].fill_(i)
        torch.cuda.synchronize()
        torch.cuda._sleep(200_000_000)  # the GPU is busy
        start = time.perf_counter()
        make = snapshot.take(value)
        value["a"] += 100
        assert time.perf_counter() - start < 0.05
        found = make()["a"]
        assert found.device.type == "cpu"
        assert (found.min(), found.max()) == (i, i)


def test_errors_come_up_at_the_next_save_and_say_where():
    saver = BackgroundSaver()

    def fail(found: Any) -> None:
        raise OSError(28, "No space left on device")

    saver.save({}, fail, "epoch_3.pth")
    with pytest.raises(OSError, match="No space") as caught:
        saver.save({}, print, "epoch_4.pth")
    if hasattr(caught.value, "__notes__"):
        assert caught.value.__notes__ == ["while epoch_3.pth was written in the background"]
    saver.wait()  # told once


def test_a_save_waits_for_the_one_before():
    saver, events, go = BackgroundSaver(), [], threading.Event()

    def write(found: Any) -> None:
        go.wait(10)
        events.append(found["x"].item())

    value = {"x": torch.tensor(1)}
    saver.save(value, write, "a")
    value["x"] += 1
    assert events == []  # the first has not even begun
    threading.Timer(0.05, go.set).start()
    saver.save(value, write, "b")
    assert events[0] == 1
    saver.wait()
    assert events == [1, 2]


def test_copies_and_pickles_have_their_own():
    saver = BackgroundSaver()
    saver.save({"x": torch.ones(3)}, repr, "a")
    for other in (copy.deepcopy(saver), pickle.loads(pickle.dumps(saver))):
        assert other._snapshot.nbytes == 0
    saver.wait()
