"""``lightning-hooks convert --to script``: print a script that trains an old config with Lightning.

The script builds the model and the data sets by the project's own builders, as the project's
``tools/train.py`` does, and gives a Trainer the hooks of the config. A line marked ``TODO`` names
what the config has and the script has not.
"""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lightning_hooks.cli.convert import OURS, argument, call, header, hooks_and_trainer, source
from lightning_hooks.config.training_hooks import ConfiguredHooks
from lightning_hooks.utils.arguments import check_dict

__all__ = ["as_script"]


class Builders(NamedTuple):
    """How a project builds what it trains."""

    registry: str
    """The registry of models in ``<project>.models``."""
    model: str
    """The function in ``<project>.models``."""
    further: str
    """Further arguments of the function."""
    optimizer: str
    """The module of ``build_optimizer``."""
    shared: Sequence[str] | None
    """The keys of ``data`` that are arguments of all loaders; None for all but the parts."""
    train: Mapping[str, Any]
    """Arguments of the training loader."""
    val: Mapping[str, Any]
    """Arguments of the loader of the evaluation."""


BUILDERS = {
    "mmcls": Builders(
        *("CLASSIFIERS", "build_classifier", "", "mmcv.runner", None),
        train={"round_up": True},
        val={"round_up": True, "shuffle": False, "drop_last": False},
    ),
    "mmdet": Builders(
        *("DETECTORS", "build_detector"),
        ', train_cfg=cfg.get("train_cfg"), test_cfg=cfg.get("test_cfg")',
        *("mmdet.core", ("samples_per_gpu", "workers_per_gpu", "persistent_workers")),
        train={},
        val={"samples_per_gpu": 1, "shuffle": False},
    ),
    "mmseg": Builders(
        *("SEGMENTORS", "build_segmentor"),
        ', train_cfg=cfg.get("train_cfg"), test_cfg=cfg.get("test_cfg")',
        *("mmseg.core", None),
        train={"drop_last": True},
        val={"drop_last": True, "samples_per_gpu": 1, "shuffle": False},
    ),
}
"""By the name of the project's package."""
PARTS = {part + kind for part in ("train", "val", "test") for kind in ("", "_dataloader")}

UNPACKED = '''def unpacked(collate, samples):
    """Return a batch without the containers of mmcv's data sets."""
    return scatter(collate(samples), [-1])[0]
'''


def as_script(
    path: str, config: Mapping[str, Any], hooks: ConfiguredHooks, comments: Sequence[str]
) -> str:
    """Return the script.

    Args:
        path: The config's path, from which the script reads model and data.
        config: The config, read.
        hooks: The hooks of the config, without the evaluation.
        comments: Comments on what of the hooks is not converted.

    Raises:
        ValueError: for a model of another project than mmcls, mmdet and mmseg.
        TypeError: for a part of the config that is no dict.
    """
    for key in ("model", "data", "evaluation", "auto_scale_lr"):
        check_dict(key, config.get(key))
    if "train" not in (config.get("data") or {}):
        raise ValueError("the config has no data.train, so there is nothing to train on")
    package = _package_of(config)
    builders = BUILDERS[package]
    imports: dict[str, set[str]] = {
        OURS: {"TrainStepModule"},
        "mmcv": {"Config"},
        "mmcv.parallel": {"scatter"},
        f"{package}.datasets": {"build_dataloader", "build_dataset"},
        f"{package}.models": {builders.model},
    }
    imports.setdefault(builders.optimizer, set()).add("build_optimizer")
    if config.get("load_from"):
        imports.setdefault("mmcv.runner", set()).add("load_checkpoint")
    by_epoch = hooks._runner_options().by_epoch
    evaluation, val_lines = [], []
    if config.get("evaluation") and config["data"].get("val"):
        imports[f"{package}.core"] = imports.get(f"{package}.core", set()) | {"EvalHook"}
        given = {**config["evaluation"], "by_epoch": by_epoch}
        arguments = [argument(*item, imports) for item in given.items()]
        evaluation = [f'({call("EvalHook", ["val_loader", *arguments])}, "LOW")']
        val_lines = [
            "val_dataset = build_dataset(cfg.data.val, dict(test_mode=True))",
            _loader("val_loader", "val_dataset", config, builders, "val", imports),
        ]
    work_dir = str(Path("work_dirs", Path(path).stem))
    body = hooks_and_trainer(hooks, imports, evaluation, work_dir, devices=1)
    quoted = source(path, "path", imports)
    title = f"Train {quoted[1:-1]} with Lightning; written by lightning-hooks convert --to script."
    train = {} if package != "mmdet" or by_epoch else {"runner_type": "IterBasedRunner"}
    main = [
        f"cfg = Config.fromfile({quoted})",
        *[f"# TODO {comment.removeprefix('# ')}" for comment in [*comments, *_left_out(config)]],
        "L.seed_everything(SEED)",
        f"model = {builders.model}(cfg.model{builders.further})",
        "model.init_weights()",
        *(["load_checkpoint(model, cfg.load_from)"] if config.get("load_from") else []),
        "optimizer = build_optimizer(model, cfg.optimizer)",
        "",
        "dataset = build_dataset(cfg.data.train)",
        "model.CLASSES = dataset.CLASSES",
        _loader("loader", "dataset", config, builders, "train", imports, **train),
        *val_lines,
        "",
        *body,
        "trainer.fit(TrainStepModule(model, optimizer), loader)",
    ]
    return "\n".join(
        [
            f'"""{title}"""',
            "",
            "from functools import partial",
            "",
            *header(imports),
            "",
            f"SEED = {source(config.get('seed') or 0, 'seed', imports)}",
            "",
            "",
            UNPACKED,
            "",
            "def main():",
            textwrap.indent("\n".join(main), "    "),
            "",
            "",
            'if __name__ == "__main__":',
            "    main()",
        ]
    )


def _package_of(config: Mapping[str, Any]) -> str:
    """Return the name of the package that has the config's model.

    Raises:
        ValueError: for a model of another project, or a config without a model.
    """
    model = config.get("model")
    kind = str((model or {}).get("type"))
    missing = []
    for package, builders in BUILDERS.items():
        try:
            models = importlib.import_module(f"{package}.models")
        except ImportError as error:
            missing.append(f"{package}: {error}")
            continue
        if getattr(models, builders.registry).get(kind) is not None:
            return package
    known = ", ".join(BUILDERS)
    why = f" ({'; '.join(missing)})" if missing else ""
    raise ValueError(f"model.type={kind!r} is a model of none of {known}{why}")


def _loader(
    name: str,
    dataset: str,
    config: Mapping[str, Any],
    builders: Builders,
    part: str,
    imports: dict[str, set[str]],
    **further: Any,
) -> str:
    """Return the Python of a data loader."""
    data = config["data"]
    shared = [*data.keys() - PARTS] if builders.shared is None else builders.shared
    own = builders.train if part == "train" else builders.val
    arguments = {
        "samples_per_gpu": 2,
        "workers_per_gpu": 2,
        **{key: value for key, value in data.items() if key in shared},
        **own,
        **further,
        **data.get(f"{part}_dataloader", {}),
        **{"num_gpus": 1, "dist": False},
    }
    given = [argument(*item, imports) for item in arguments.items()]
    made = call(f"{name} = build_dataloader", [dataset, *given, "seed=SEED"])
    return f"{made}\n{name}.collate_fn = partial(unpacked, {name}.collate_fn)"


def _left_out(config: Mapping[str, Any]) -> list[str]:
    """Return what the script leaves out, and what to do."""
    comments = []
    if len(config.get("workflow") or ()) > 1:
        comments.append("workflow: the second step is not run; give trainer.fit a second loader")
    if config.get("resume_from"):
        comments.append("resume_from: give trainer.fit a file of Lightning's as ckpt_path")
    if (config.get("auto_scale_lr") or {}).get("enable"):
        comments.append("auto_scale_lr: multiply cfg.optimizer.lr")
    if config.get("cudnn_benchmark"):
        comments.append("cudnn_benchmark: give the Trainer benchmark=True")
    if config.get("evaluation") and not config["data"].get("val"):
        comments.append("evaluation: the config has no data.val to evaluate")
    if config.get("sampler"):
        comments.append("sampler: give build_dataloader sampler_cfg=cfg.sampler")
    return comments
