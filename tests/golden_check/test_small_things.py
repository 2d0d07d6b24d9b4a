"""Small utilities of the stand-in give the results and random numbers of real mmcv."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import mmcv
import oracle
import pytest
import torch
from mmcv import cnn, parallel, runner, utils
from torch import nn

from lightning_hooks.standin.cnn import base_module
from lightning_hooks.standin.fileio import file_client
from lightning_hooks.standin.parallel import data_container as containers
from lightning_hooks.standin.runner import builders as optimizers
from lightning_hooks.standin.runner import checkpoint as checkpoints
from lightning_hooks.standin.runner import seed as seeds
from lightning_hooks.standin.utils import logging as loggers
from lightning_hooks.standin.utils import version as versions

assert oracle.mmcv_runner is runner


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "padding_value"):
        return (one.stack, one.cpu_only, one.padding_value, one.pad_dims) == (
            other.stack, other.cpu_only, other.padding_value, other.pad_dims
        ) and same(one.data, other.data)  # fmt: skip
    return bool(one == other)


@pytest.mark.parametrize(
    "version", ["1.7.2", "1.13.0+cu117", "2.0.0rc1", "1.0.0a2", "1.2.3.post1", "1.3.dev4", "10"]
)
def test_versions(version: str) -> None:
    assert versions.digit_version(version) == utils.digit_version(version)
    if "dev" not in version and "post" not in version:
        assert versions.parse_version_info(version) == mmcv.parse_version_info(version)


def test_files(tmp_path: Path) -> None:
    for name in ("a.txt", "b.JPG", ".hidden", "d/c.jpg", "d/.e/f.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x y\nz 1 2\n")
    path = tmp_path / "a.txt"
    ours, theirs = (m.FileClient.infer_client(uri=str(tmp_path)) for m in (file_client, mmcv))
    assert ours.name == theirs.name == "HardDiskBackend"
    assert ours.allow_symlink == theirs.allow_symlink
    for options in ({}, {"recursive": True}, {"list_dir": False, "suffix": "txt"}):
        found = [sorted(c.list_dir_or_file(str(tmp_path), **options)) for c in (ours, theirs)]
        assert found[0] == found[1]
    assert ours.get_text(str(path)) == theirs.get_text(str(path))
    assert (ours.isfile(str(path)), ours.isdir(str(path))) == (True, False)


def batch_of(container: Any) -> list[Any]:
    torch.manual_seed(0)
    return [
        {
            "img": container(torch.rand(1, 2 + i, 4 - i), stack=True, padding_value=-1),
            "plain": container(torch.rand(3), stack=True, pad_dims=None),
            "boxes": container(torch.rand(i, 4)),
            "meta": container({"i": i}, cpu_only=True),
            "label": torch.tensor(i),
            "pair": (i, torch.ones(1)),
        }
        for i in range(3)
    ]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_batches_are_collated_and_taken_apart(size: int) -> None:
    ours = containers.collate(batch_of(containers.DataContainer), size)
    theirs = parallel.collate(batch_of(parallel.DataContainer), size)
    assert same(ours, theirs)
    ours, theirs = (
        [m.scatter_kwargs((batch, [batch["img"]]), {"x": 1, "y": None}, [-1])]
        for m, batch in ((containers, ours), (parallel, theirs))
    )
    assert same(ours, theirs)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = cnn.ConvModule(1, 4, 3, norm_cfg={"type": "BN"}, padding=1)
        self.depth = cnn.ConvModule(
            4, 4, 3, groups=4, act_cfg={"type": "LeakyReLU"}, padding=1, padding_mode="reflect"
        )
        self.norm = nn.GroupNorm(2, 4)
        self.frozen = nn.Linear(4, 4)
        self.frozen.requires_grad_(False)
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.fc(self.frozen(self.norm(self.depth(self.first(x))).mean((2, 3))))


def test_base_modules_initialize_their_parts() -> None:
    states = []
    for module in (base_module, runner):
        torch.manual_seed(0)
        model = module.Sequential(
            module.ModuleList([nn.Linear(2, 2)], init_cfg={"type": "Normal", "layer": "Linear"}),
            nn.Linear(2, 2),
            init_cfg={"type": "Constant", "val": 0.5, "layer": "Linear"},
        )
        model.init_weights()
        assert model.is_init
        states.append(dict(model.state_dict()))
    assert same(*states)


@pytest.mark.parametrize(
    "paramwise",
    [
        None,
        {"bias_lr_mult": 2.0, "bias_decay_mult": 0.0},
        {"norm_decay_mult": 0.0, "dwconv_decay_mult": 0.5},
        {"custom_keys": {"first": {"lr_mult": 0.1}, "first.conv": {"decay_mult": 0.0}}},
    ],
)
def test_optimizers_have_the_same_groups(paramwise: Any) -> None:
    config = {"type": "AdamW", "lr": 0.1, "weight_decay": 0.01, "paramwise_cfg": paramwise}
    model = Net()
    found = [m.build_optimizer(model, dict(config)) for m in (optimizers, runner)]
    groups = [
        [{k: v for k, v in g.items() if k != "params"} for g in one.param_groups] for one in found
    ]
    assert groups[0] == groups[1]
    ids = [[id(p) for g in one.param_groups for p in g["params"]] for one in found]
    assert ids[0] == ids[1]


def test_states_are_loaded_and_complained_of_alike(caplog: Any, tmp_path: Path) -> None:
    logger = logging.getLogger("states")
    texts = []
    for module in (checkpoints, runner):
        model = Net()
        state = model.state_dict()
        state.pop("fc.bias")
        state["more"] = torch.ones(1)
        state["norm.weight"] = torch.ones(7)
        caplog.clear()
        with caplog.at_level("WARNING", "states"):
            module.load_state_dict(model, state, logger=logger)
        texts.append(caplog.messages)
        with pytest.raises(RuntimeError, match="more"):
            module.load_state_dict(model, state, strict=True)
    assert texts[0] == texts[1]
    model = parallel.MMDataParallel(Net(), device_ids=[])
    checkpoints.save_checkpoint(model, str(tmp_path / "a.pth"), meta={"x": 1})
    runner.save_checkpoint(model, str(tmp_path / "b.pth"), meta={"x": 1})
    ours, theirs = (torch.load(tmp_path / f"{n}.pth", weights_only=False) for n in "ab")
    assert same(dict(ours["state_dict"]), dict(theirs["state_dict"]))
    assert list(ours["meta"]) == list(theirs["meta"])
    for name in "ab":
        found = checkpoints.load_checkpoint(model, str(tmp_path / f"{name}.pth"))
        assert found["meta"]["x"] == 1
    assert same(
        checkpoints._load_checkpoint_with_prefix("fc", str(tmp_path / "a.pth")),
        runner._load_checkpoint_with_prefix("fc", str(tmp_path / "a.pth")),
    )


def test_seeds_and_objects() -> None:
    seeds.set_random_seed(3)
    first = torch.rand(2)
    runner.set_random_seed(3)
    assert torch.equal(first, torch.rand(2))
    assert seeds.get_host_info() == runner.get_host_info()
    info = {"type": "Linear", "in_features": 1}
    for module in (seeds, runner):
        assert module.obj_from_dict(info, nn, {"out_features": 2}).out_features == 2


def test_print_log(capsys: Any) -> None:
    for module in (loggers, utils):
        module.print_log("hello")
        module.print_log("hush", "silent")
        with pytest.raises(TypeError, match="logger"):
            module.print_log("x", 1)
    assert capsys.readouterr().out == "hello\nhello\n"
