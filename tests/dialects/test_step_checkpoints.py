"""Checkpoints of detectron2's and cvpods' hooks: periodic, best, and the Checkpointer."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import HookAdapter
from lightning_hooks.dialects import cvpods
from lightning_hooks.dialects import detectron2 as d2
from lightning_hooks.storage.layout import DamagedCheckpointError
from support import training
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")


fit = partial(training.fit, host=True, batches=3, max_epochs=2)


def test_checkpointer_loads_model_and_checkpointables(tmp_path: Path) -> None:
    module = TinyModule()
    sgd = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    module.configure_optimizers = lambda: sgd  # type: ignore[method-assign]
    saver = d2.DetectionCheckpointer(module, str(tmp_path), optimizer=sgd)
    assert saver.resume_or_load("") == {}
    fit(tmp_path, d2.PeriodicCheckpointer(saver, 2, max_to_keep=2), module=module)
    names = ["model_0000003.pth", "model_0000005.pth", "model_final.pth"]
    assert [Path(path).name for path in saver.get_all_checkpoint_files()] == names
    assert saver.get_checkpoint_file() == str(tmp_path / "model_final.pth")
    new = TinyModule(seed=1)
    other = torch.optim.SGD(new.parameters(), lr=1.0)
    resumed = d2.Checkpointer(new, str(tmp_path), optimizer=other)
    assert resumed.resume_or_load("") == {"iteration": 5}
    assert torch.equal(new.net.weight, module.net.weight)
    assert other.param_groups[0]["lr"] == 0.1
    assert resumed.load(str(tmp_path / names[0]))["iteration"] == 3
    weights_only = d2.Checkpointer(TinyModule(seed=1), "", optimizer=sgd)
    rest = weights_only.resume_or_load(str(tmp_path / names[0]), resume=False)
    assert sorted(rest) == ["iteration", "optimizer"]


def test_a_rank_that_saves_nothing_deletes_nothing(tmp_path: Path) -> None:
    """On a rank without files, ``last_checkpoint`` may name an older file, such as the best."""
    writing = d2.Checkpointer(TinyModule(), str(tmp_path))
    other = d2.PeriodicCheckpointer(
        d2.Checkpointer(TinyModule(), str(tmp_path), save_to_disk=False), 1, max_to_keep=1
    )
    writing.save("model_best")
    for iteration in range(3):  # ahead of the saving rank
        other.step(iteration)
        writing.save(other.name(iteration))
    kept = [Path(path).name for path in writing.get_all_checkpoint_files()]
    assert kept == ["model_0000000.pth", "model_0000001.pth", "model_0000002.pth", "model_best.pth"]


def zoo_file(path: Path, form: str) -> None:
    """Write the weights of a net with five classes, as other programs do."""
    weights = Parts(classes=5).state_dict()
    arrays = {f"bottom_up.{name}": value.numpy() for name, value in weights.items()}
    forms: dict[str, Any] = {
        "detectron2": {"model": weights},
        "bare": weights,
        "mmcv": {"meta": {}, "state_dict": weights},
        "DDP": {"model": {f"module.{name}": value for name, value in weights.items()}},
        "Lightning": {"state_dict": {f"model.{name}": value for name, value in weights.items()}},
        "zoo": {
            "model": {name: value.numpy() for name, value in weights.items()},
            "__author__": "torchvision",
            "matching_heuristics": True,
        },
        "zoo, other names": {"model": arrays, "__author__": "a"},
    }
    if form.startswith("zoo"):
        path.write_bytes(pickle.dumps(forms[form], protocol=2))
    else:
        torch.save(forms[form], path)


class Parts(torch.nn.ModuleDict):
    def __init__(self, classes: int, seed: int = 0) -> None:
        torch.manual_seed(seed)
        super().__init__({"body": torch.nn.Linear(3, 4), "head": torch.nn.Linear(4, classes)})


@pytest.mark.parametrize("form", ["detectron2", "bare", "mmcv", "DDP", "Lightning", "zoo"])
def test_weights_that_fit_are_loaded_and_the_others_named(
    form: str, tmp_path: Path, caplog: Any
) -> None:
    path = tmp_path / ("f.pkl" if form == "zoo" else "f.pth")
    zoo_file(path, form)
    for classes, named in ((5, ""), (2, "head.weight [5, 4], in the model [2, 4], head.bias")):
        caplog.clear()
        model = Parts(classes, seed=1)
        rest = cvpods.Checkpointer(model).load(str(path))
        assert torch.equal(model["body"].weight, Parts(5)["body"].weight)
        assert torch.equal(model["head"].bias, Parts(classes, 1 if named else 0)["head"].bias)
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == bool(named)
        assert all(named in line for line in lines)
        assert rest.keys() <= {"meta", "__author__"}


def test_a_backbone_of_the_zoo_gets_the_names_of_the_model(tmp_path: Path) -> None:
    zoo_file(tmp_path / "f.pkl", "zoo")
    model = torch.nn.ModuleDict({"backbone": Parts(5, seed=1)})
    d2.DetectionCheckpointer(model).load(str(tmp_path / "f.pkl"))
    assert torch.equal(model["backbone"]["head"].weight, Parts(5)["head"].weight)


def test_weights_of_another_model_are_named(tmp_path: Path, caplog: Any) -> None:
    zoo_file(tmp_path / "f.pkl", "zoo, other names")
    d2.DetectionCheckpointer(Parts(5)).load(str(tmp_path / "f.pkl"))
    unexpected, missing = (record.getMessage() for record in caplog.records)
    assert "unexpected keys: bottom_up.body.weight, bottom_up.body.bias" in unexpected
    assert "missing keys: body.weight, body.bias, head.weight, head.bias" in missing


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (pickle.dumps({"model": Path("a")}), "neither an array nor a plain type"),
        (pickle.dumps({"model": {}})[:-3], "cannot be read|truncated"),
        (pickle.dumps([1]), "holds a list, and no weights"),
    ],
)
def test_a_pickle_of_other_objects_is_refused(written: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "f.pkl"
    path.write_bytes(written)
    with pytest.raises((pickle.UnpicklingError, DamagedCheckpointError), match=message):
        d2.DetectionCheckpointer(Parts(5)).load(str(path))


def test_a_write_that_fails_leaves_the_file_before(tmp_path: Path) -> None:
    saver = cvpods.Checkpointer(TinyModule(), str(tmp_path))
    saver.save("model", iteration=1)
    with pytest.raises((AttributeError, pickle.PicklingError), match="local object"):
        saver.save("model", iteration=lambda: None)
    assert saver.resume_or_load("") == {"iteration": 1}
    assert len([*tmp_path.iterdir()]) == 2


@pytest.mark.parametrize(("mode", "best"), [("max", 1), ("min", 3)])
def test_best_checkpointer_saves_the_best_scalar(tmp_path: Path, mode: str, best: int) -> None:
    results = iter([{"box": {"AP": v}} for v in (0.3, 0.1, float("nan"), 0.2, 0.2, 0.2)])
    saver = d2.Checkpointer(TinyModule(), str(tmp_path))
    hook = d2.BestCheckpointer(2, saver, "box/AP", mode)
    trainer = fit(tmp_path, d2.EvalHook(2, lambda: next(results)), hook)
    assert saver.load(str(tmp_path / "model_best.pth")) == {"iteration": best}
    assert hook.best_iter == best
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    resumed = d2.BestCheckpointer(2, saver, "box/AP", mode)
    evaluates = d2.EvalHook(2, lambda: {"box": {"AP": 0.15}})  # between the two
    trainer = make_trainer(tmp_path, HookAdapter([evaluates, resumed]), max_epochs=4)
    trainer.fit(TinyModule(), make_loader(3), ckpt_path=tmp_path / "a.ckpt")
    assert resumed.best_iter == best


def test_best_checkpointer_warns_of_a_missing_scalar(tmp_path: Path, caplog: Any) -> None:
    saver = d2.Checkpointer(TinyModule(), str(tmp_path))
    fit(tmp_path, d2.BestCheckpointer(0, saver, "box/AP"))
    assert "BestCheckpointer: no scalar 'box/AP' has been put; nothing is saved" in caplog.text
    assert not saver.has_checkpoint()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: d2.Checkpointer(TinyModule(), "", lr=3), "lr must have state_dict"),
        (lambda: d2.BestCheckpointer(1, 3, "ap"), "checkpointer must have save"),
        (lambda: d2.BestCheckpointer(-1, d2.Checkpointer(TinyModule()), "ap"), "eval_period must"),
        (lambda: d2.BestCheckpointer(1, d2.Checkpointer(TinyModule()), "ap", "up"), "mode must be"),
    ],
)
def test_bad_arguments(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()
