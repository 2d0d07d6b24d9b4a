"""param_groups: rates and decays equal the constructors' of mmcv, mmseg and mmselfsup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from grouped import BACKBONES, DECAY, LAYER_DECAY, LR, PARAMWISE, Model
from torch import nn

from lightning_hooks import (
    CheckpointHook,
    CosineAnnealingLrUpdaterHook,
    EMAHook,
    FreezeHook,
    Hook,
    param_groups,
)
from support.golden import assert_close, recorded
from support.training import TinyModule, TinyNormModule, fit

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")
GOLDEN = recorded("param_groups")["cases"]


def by_name(model: nn.Module, groups: Any) -> dict[str, list[float]]:
    """Return rate and decay of every trained parameter, by name."""
    found = {id(p): g for g in torch.optim.AdamW(groups, lr=7.0).param_groups for p in g["params"]}
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    assert len(found) == len(trained)
    return {n: [found[id(p)]["lr"], found[id(p)]["weight_decay"]] for n, p in trained}


@pytest.mark.parametrize("kind", BACKBONES)
@pytest.mark.parametrize("case", range(len(PARAMWISE)))
def test_paramwise_is_that_of_mmcvs_constructor(kind: str, case: int) -> None:
    model, rules = Model(BACKBONES[kind]), PARAMWISE[case]
    groups = param_groups(model, LR, DECAY, **rules)
    assert_close(by_name(model, groups), GOLDEN["paramwise"][kind][case], rel=1e-12)
    assert len(groups) <= 6  # mmcv has a group for each parameter


def test_layers_are_those_of_mmsegs_constructor() -> None:
    model = Model(BACKBONES["vit"])
    options = {"layer_decay": LAYER_DECAY, "blocks": "backbone.layers.*", "flat_decay_mult": 0.0}
    groups = param_groups(model, LR, DECAY, embeddings=[], **options)
    assert_close(by_name(model, groups), GOLDEN["layer_decay"]["vit"], rel=1e-12)
    assert len(groups) == 2 * 5  # in each layer, parameters with and without decay


def test_stages_are_those_of_mmselfsups_constructor() -> None:
    model = Model(BACKBONES["swin"])
    blocks = {"layer_decay": LAYER_DECAY, "blocks": "backbone.stages.*.blocks.*"}
    groups = param_groups(model, LR, DECAY, embeddings=[], **blocks)
    rates = {name: rate for name, (rate, _) in by_name(model, groups).items()}
    theirs = {name: rate for name, (rate, _) in GOLDEN["layer_decay"]["swin"].items()}
    assert_close(rates, theirs, rel=1e-12)


def test_a_function_counts_layers_in_any_other_way() -> None:
    def stage(name: str) -> int:  # mmdet's for ConvNeXt, with num_layers=6
        if name.startswith("backbone.stages."):
            return int(name.split(".")[2]) + 1
        return 0 if name.startswith("backbone.") else 7

    model = Model(BACKBONES["swin"])
    found = by_name(model, param_groups(model, 1.0, layer_decay=0.5, blocks=stage))
    assert found["head.weight"][0] == 1
    assert found["backbone.stages.1.blocks.0.attn.weight"][0] == 0.5**5


def test_without_rules_there_is_one_group() -> None:
    model = Model(BACKBONES["resnet"])
    (group,) = param_groups(model, 0.1, 0.5)
    assert (group["lr"], group["weight_decay"]) == (0.1, 0.5)
    assert model.backbone.conv1.weight not in set(group["params"])  # frozen


def test_a_shared_parameter_is_in_one_group() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    groups = param_groups(model, 0.1, bias_lr_mult=2.0)
    assert [len(group["params"]) for group in groups] == [1, 2]


def test_a_block_whose_parameters_are_an_earlier_ones_is_no_layer() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model = nn.ModuleDict({"layers": model, "head": nn.Linear(2, 1)})
    model["layers"][1].weight = model["layers"][0].weight
    found = by_name(model, param_groups(model, 1.0, layer_decay=0.5, blocks="layers.*"))
    assert {name: rate for name, (rate, *_) in found.items()} == {
        "layers.0.weight": 0.5,
        "head.weight": 1.0,
        "head.bias": 1.0,
    }


@pytest.mark.parametrize("embeddings", [["scale"], []])
def test_what_comes_before_the_backbone_is_asked_for(embeddings: list[str]) -> None:
    model = Model(BACKBONES["vit"])
    options: dict[str, Any] = {"layer_decay": 0.5, "blocks": "backbone.layers.*"}
    with pytest.raises(ValueError, match=r"scale come before the backbone; write embeddings=\['sc"):
        param_groups(model, 1.0, **options)
    found = by_name(model, param_groups(model, 1.0, embeddings=embeddings, **options))
    assert found["scale"][0] == (0.5**4 if embeddings else 1)
    assert found["backbone.cls_token"][0] == 0.5**4
    assert found["head.weight"][0] == 1


def test_of_a_bare_backbone_all_before_its_blocks_are_embeddings() -> None:
    model = BACKBONES["vit"]()
    found = by_name(model, param_groups(model, 1.0, layer_decay=0.5, blocks="layers.*"))
    assert found["patch_embed.weight"][0] == 0.5**4
    assert found["layers.2.attn.weight"][0] == 0.5
    assert found["norm.weight"][0] == 1


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"layer_decay": 0.5}, ValueError, r'write blocks="backbone\.layers\.\*"'),
        ({"layer_decay": 0.5, "blocks": "layers.*"}, ValueError, r"'layers\.\*' finds no block"),
        ({"layer_decay": 1.5, "blocks": "backbone.layers.*"}, ValueError, r"\(0, 1\], got 1\.5"),
        ({"blocks": "backbone.layers.*"}, ValueError, "needs a layer_decay"),
        ({"layer_decay": 0.5, "blocks": str.upper}, TypeError, "must be the number of a layer, go"),
        (
            {"layer_decay": 0.5, "blocks": "backbone.layers.*", "embeddings": "scale"},
            TypeError,
            r"write \['scale'\]",
        ),
        (
            {"layer_decay": 0.5, "blocks": "backbone.layers.*", "embeddings": ["scal"]},
            ValueError,
            "the model has no 'scal'; did you mean 'scale'",
        ),
        ({"custom_keys": {"norm": {"decay": 0.0}}}, ValueError, "no 'decay'; did you mean 'decay_"),
        ({"custom_keys": {"norm": 0.0}}, TypeError, "must be a dict"),
        ({"norm_decay_mult": "0"}, TypeError, "norm_decay_mult must be a number"),
        ({"lr_mult": 0.1}, TypeError, "unexpected keyword argument 'lr_mult'"),
    ],
)
def test_mistakes_are_answered(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        param_groups(Model(BACKBONES["vit"]), 0.1, **arguments)


class Grouped(TinyNormModule):
    """A module with parameter groups of different rates."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        rules = {"bias_lr_mult": 2.0, "norm_decay_mult": 0.0, "layer_decay": 0.5, "blocks": "net.*"}
        return torch.optim.AdamW(param_groups(self, 0.1, 0.05, **rules), lr=0.1)


class Rates(Hook):
    """Records the rate of each group after the schedule."""

    priority = "VERY_LOW"

    def __init__(self) -> None:
        super().__init__()
        self.found: list[list[float]] = []

    def before_train_iter(self, runner: Any) -> None:
        self.found.append(runner.current_lr())


@pytest.mark.parametrize("host", [False, True])
def test_schedules_averages_and_resumed_runs_know_the_groups(tmp_path: Path, host: bool) -> None:
    def run(name: str, epochs: int, path: Any = None) -> Any:
        rates, average = Rates(), EMAHook(0.1)
        schedule = CosineAnnealingLrUpdaterHook(min_lr_ratio=0.0, by_epoch=False)
        hooks = [schedule, average, FreezeHook("net.0"), CheckpointHook(), rates]
        ends = {"max_epochs": 2, "limit_train_batches": 3, "ckpt_path": path, "host": host}
        module = Grouped()
        if epochs == 1:
            ends["callbacks"] = [Stop()]
        fit(tmp_path / name, *hooks, module=module, **ends)
        return rates.found, module.state_dict(), average.ema_state_dict()

    whole = run("whole", 2)
    first = [0.1 * 0.5 ** (3 + 1 - layer) for layer in (2, 3)]  # a ReLU is no block
    assert whole[0][0] == pytest.approx([first[0], first[1], 2 * first[1]])
    assert whole[0][3] == pytest.approx([rate / 2 for rate in whole[0][0]])
    before = run("part", 1)
    after = run("part", 2, tmp_path / "part" / "latest.pth")
    assert before[0] + after[0] == whole[0]
    for ours, theirs in zip(after[1:], whole[1:], strict=True):
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


class Stop(Hook):
    """Ends the run after an epoch."""

    def after_train_epoch(self, runner: Any) -> None:
        runner.should_stop = True


@pytest.mark.parametrize(
    "options",
    [
        {"layer_decay": 0.5, "blocks": "layers.*"},
        {
            "layer_decay": 0.5,
            "blocks": lambda name: int(name.split(".")[1]) if "layers" in name else 2,
        },
        {"custom_keys": {"layers.0": {"lr_mult": 0.1}}},
    ],
    ids=["blocks", "function", "keys"],
)
@pytest.mark.parametrize("part", ["layers", "all"])
def test_a_compiled_model_has_the_rates_of_the_model(options: Any, part: str) -> None:
    model = nn.Module()
    model.layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model.head = nn.Linear(2, 1)
    plain = param_groups(model, 1.0, 0.1, **options)
    compiled: Any = torch.compile(model if part == "all" else model.layers, backend="eager")
    if part == "layers":
        model.layers, compiled = compiled, model
    assert [{**group} for group in param_groups(compiled, 1.0, 0.1, **options)] == plain
    assert len({group["lr"] for group in plain}) > 1


def test_in_an_ordinary_module() -> None:
    module = TinyModule()
    groups = param_groups(module, 0.1, 0.05, bias_decay_mult=0.0)
    assert [len(group["params"]) for group in groups] == [1, 1]
