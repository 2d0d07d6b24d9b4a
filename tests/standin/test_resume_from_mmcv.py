"""A run resumes from a checkpoint of real mmcv, with numpy values in the meta."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from lightning_hooks import Hook
from support.standin import Idle, make, needs_lite


@pytest.mark.parametrize(
    ("kind", "inner_iter", "left"), [("EpochBasedRunner", 0, 2), ("IterBasedRunner", 2, 4)]
)
def test_a_run_goes_on_from_a_file_of_mmcvs(
    kind: str, inner_iter: int, left: int, tmp_path: Path
) -> None:
    seen: list[float] = []

    class Model(Idle):
        def train_step(self, data: Any, optimizer: Any = None, **kwargs: Any) -> dict[str, Any]:
            seen.append(self.weight.item())
            return super().train_step(data)

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    states = {**optimizer.state_dict(), "state": {0: {"momentum_buffer": torch.tensor([2.0])}}}
    meta = {
        "mmcv_version": "1.7.2",
        "time": "Mon Nov 23 03:46:00 2026",
        "env_info": "sys.platform: linux",
        "CLASSES": ("cat", "dog"),
        "epoch": 1,
        "iter": 2,
        "hook_msgs": {"best_score": np.float64(0.5), "last_ckpt": "work/epoch_1.pth"},
    }
    file = tmp_path / "from_mmcv.pth"
    state = {"weight": torch.tensor([7.0])}
    torch.save({"meta": meta, "state_dict": state, "optimizer": states}, file)

    limit = 2 if kind == "EpochBasedRunner" else 6
    runner = make(kind, limit, tmp_path / "work", model, optimizer=optimizer, meta={})
    runner.register_optimizer_hook({"grad_clip": None})
    runner.resume(str(file), map_location="cpu")
    assert (runner.epoch, runner.iter) == (1, 2)
    at_start: list[int] = []
    note = type("Note", (Hook,), {"before_run": lambda self, r: at_start.append(r.inner_iter)})
    runner.register_hook(note())
    runner.run([DataLoader([1.0, 1.0])], [("train", 1)])  # type: ignore[arg-type]
    # the gradient is 1, the momentum goes on from 2: 7 - 0.1 * (0.5 * 2 + 1)
    assert seen[:2] == pytest.approx([7.0, 6.8])
    assert len(seen) == left
    assert runner.iter == 2 + left
    assert at_start == [inner_iter]  # mmcv's resume sets inner_iter in runs by iteration


@pytest.mark.parametrize(
    ("gpu_ids", "kind", "resumed_at"),
    [
        ("range(0, 2)", "EpochBasedRunner", 8),
        ("[0,\n    1]", "EpochBasedRunner", 8),
        ("range(0, 1)", "EpochBasedRunner", 4),
        ("ids()", "EpochBasedRunner", 4),
        ("range(0, 2)", "IterBasedRunner", 4),  # the unit is iterations, as in mmcv
    ],
)
def test_a_run_on_fewer_gpus_has_more_iterations_an_epoch(
    gpu_ids: str, kind: str, resumed_at: int, tmp_path: Path
) -> None:
    model = Idle()
    meta = {"epoch": 1, "iter": 4, "config": f"lr = 1\ngpu_ids = {gpu_ids}\nseed = 0\n"}
    file = str(tmp_path / "epoch_1.pth")
    torch.save({"meta": meta, "state_dict": model.state_dict()}, file)
    runner = make(kind, 20, tmp_path / "work", model)
    runner.resume(file, map_location="cpu")
    assert (runner.epoch, runner.iter) == (1, resumed_at)


def test_departure_a_run_by_iteration_knows_its_best_score(tmp_path: Path) -> None:
    model = Idle()
    messages = {"best_score": 0.9, "best_ckpt": "best.pth"}
    file = str(tmp_path / "iter_4.pth")
    meta = {"epoch": 1, "iter": 4, "hook_msgs": messages}
    torch.save({"meta": meta, "state_dict": model.state_dict()}, file)
    runner = make("IterBasedRunner", 8, tmp_path / "work", model, meta={"seed": 3})
    runner.resume(file, map_location="cpu")
    assert runner.meta == {"seed": 3, "hook_msgs": messages}


@pytest.mark.parametrize("kind", ["EpochBasedRunner", "IterBasedRunner"])
@pytest.mark.parametrize(
    ("key", "nonsense"),
    [
        *(("meta", {"epoch": value, "iter": 4}) for value in ("1", -1)),
        *(("meta", {"epoch": 1, "iter": value}) for value in (float("nan"), 2**64)),
        *(("meta", value) for value in ("x", {"epoch": 1}, {"hook_msgs": 5})),
        *(("optimizer", value) for value in ("x", {"state": {}})),
        ("state_dict", 5),
    ],
    ids=repr,
)
def test_nonsense_is_named_by_file_and_key(
    kind: str, key: str, nonsense: Any, tmp_path: Path
) -> None:
    model, file = Idle(), str(tmp_path / "odd.pth")
    meta = {"epoch": 1, "iter": 4}
    torch.save({"meta": meta, "state_dict": model.state_dict(), key: nonsense}, file)
    runner = make(kind, 8, tmp_path / "work", model)
    with pytest.raises(ValueError, match=rf"odd\.pth's '{key}' is damaged: .* must "):
        runner.resume(file, map_location="cpu")


@needs_lite
@pytest.mark.parametrize("written_by", ["mmcv", "the stand-in"])
def test_a_config_in_a_files_meta_is_read(
    written_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mmgen's runner writes a config to the meta; weights-only loading refuses unknown classes."""
    import mmcv
    from mmcv.runner.checkpoint import _load_checkpoint

    meta: Any = mmcv.ConfigDict(epoch=1, inner=dict(a=1))
    if (
        written_by == "mmcv"
    ):  # mmcv's class has this name in the file and is pickled as a dict subclass
        module = ModuleType("mmcx.utils.config")
        ours = {"__module__": module.__name__}
        module.ConfigDict = heir = type("ConfigDict", (dict,), ours)  # type: ignore[attr-defined]
        for name in ("mmcx", "mmcx.utils", module.__name__):
            monkeypatch.setitem(sys.modules, name, module)
        meta = heir(epoch=1, inner=heir(a=1))
    path = tmp_path / "epoch_1.pth"
    torch.save({"meta": meta, "state_dict": {}}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes().replace(b"mmcx", b"mmcv"))
    found = _load_checkpoint(str(path))
    assert found["meta"] == {"epoch": 1, "inner": {"a": 1}}
