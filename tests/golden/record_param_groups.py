"""Record rates and decays by mmcv's, mmseg's and mmselfsup's constructors of optimizers."""

import copy
import logging
import subprocess
import sys
import tempfile
import types
import warnings
import zipfile
from pathlib import Path
from typing import Any

from grouped import BACKBONES, DECAY, LAYER_DECAY, LR, PARAMWISE, SWIN_RULES, Model
from mmcv.runner import build_optimizer
from mmcv.runner.optimizer.builder import OPTIMIZER_BUILDERS

SOURCES = {
    "mmsegmentation==0.30.0": "mmseg/core/optimizers/layer_decay_optimizer_constructor.py",
    "mmselfsup==0.11.0": "mmselfsup/core/optimizer/transformer_finetune_constructor.py",
}


def load_constructors() -> None:
    """Register the constructors of two wheels, whose packages need a compiled mmcv."""
    for name in ("mmseg", "mmseg.core", "mmseg.core.optimizers", "mmselfsup"):
        sys.modules[name] = types.ModuleType(name)
    utils, builder = types.ModuleType("mmseg.utils"), types.ModuleType("mmseg.core.builder")
    utils.get_root_logger = lambda: logging.getLogger("mmseg")  # type: ignore[attr-defined]
    builder.OPTIMIZER_BUILDERS = OPTIMIZER_BUILDERS  # type: ignore[attr-defined]
    sys.modules |= {"mmseg.utils": utils, "mmseg.core.builder": builder}
    for wheel, path in SOURCES.items():
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "--no-deps", wheel, "-d", folder]
            subprocess.run(command, check=True, capture_output=True)
            (file,) = Path(folder).glob("*.whl")
            source = zipfile.ZipFile(file).read(path)
        package = path.removesuffix(".py").replace("/", ".").rpartition(".")[0]
        exec(compile(source, path, "exec"), {"__name__": path, "__package__": package})


def options_of(kind: str, **config: Any) -> dict[str, list[float]]:
    """Return rate and decay of every trained parameter, by name."""
    model = Model(BACKBONES[kind])
    given = {"type": "AdamW", "lr": LR, "weight_decay": DECAY, **copy.deepcopy(config)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = build_optimizer(model, given)
    found = {id(p): g for g in optimizer.param_groups for p in g["params"]}
    return {
        name: [found[id(one)]["lr"], found[id(one)]["weight_decay"]]
        for name, one in model.named_parameters()
        if one.requires_grad
    }


def record() -> dict[str, Any]:
    """Return the content of param_groups.json."""
    load_constructors()
    beit = {"num_layers": 3, "layer_decay_rate": LAYER_DECAY}
    swin = {"model_type": "swin", "layer_decay": LAYER_DECAY, "paramwise_cfg": SWIN_RULES}
    layers = "LayerDecayOptimizerConstructor", "TransformerFinetuneConstructor"
    paramwise = {
        kind: [options_of(kind, paramwise_cfg=rules) for rules in PARAMWISE] for kind in BACKBONES
    }
    layer_decay = {
        "vit": options_of("vit", constructor=layers[0], paramwise_cfg=beit),
        "swin": options_of("swin", constructor=layers[1], **swin),
    }
    return {"cases": {"paramwise": paramwise, "layer_decay": layer_decay}}
