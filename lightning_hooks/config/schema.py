"""``json_schema``: the JSON Schema of config files with hooks, for editors."""

from __future__ import annotations

from lightning_hooks._exports import PACKAGE
from lightning_hooks.config.hook_dicts import EVALUATIONS
from lightning_hooks.config.hook_schemas import (
    HOOK,
    INHERITING,
    ORDER,
    HookSchemas,
    Schema,
    definition_of,
)
from lightning_hooks.engine.registry import HOOKS

__all__ = ["json_schema"]

DICT = ["object", "null"]
COUNT: Schema = {"type": "integer", "minimum": 1}
STRINGS: Schema = {"type": ["string", "array"], "items": {"type": "string"}}
STEP: Schema = {"type": "array", "items": [{"enum": ["train", "val"]}, COUNT]}

OTHER_KEYS: Schema = {
    "_base_": {**STRINGS, "description": "Files from which this one inherits."},
    "custom_imports": {
        "type": DICT,
        "properties": {"imports": STRINGS, "allow_failed_imports": {"type": "boolean"}},
        "description": "Modules that are imported first, as they register hooks.",
    },
    "fp16": {"description": "Arguments of Fp16OptimizerHook: half precision."},
    "runner": {
        "type": DICT,
        "properties": {
            "type": {"enum": ["EpochBasedRunner", "IterBasedRunner", "Runner"]},
            "max_epochs": COUNT,
            "max_iters": COUNT,
        },
        "description": "The length of the run, and whether it is counted in iterations.",
    },
    "total_epochs": {**COUNT, "description": "The old name of the runner's max_epochs."},
    "total_iters": {**COUNT, "description": "The old name of the runner's max_iters."},
    "work_dir": {"type": ["string", "null"], "description": "The directory of the run's files."},
    "workflow": {
        "type": ["array", "null"],
        "items": STEP,
        "description": "[[train, n], [val, 1]] validates every n epochs.",
    },
}
"""Keys that are no hooks."""


def json_schema() -> Schema:
    """Return the JSON Schema (draft 7) of mmcv-style configs and of a LightningCLI's callbacks.

    It has the arguments of all registered hooks with their types, defaults and descriptions, from
    their annotations and docstrings. Keys that are of no hook, as ``model``, are left alone. In a
    file with ``_base_`` a dict may leave out what the base has.

    >>> schema = json_schema()
    >>> schema["definitions"]["EMAHook"]["properties"]["momentum"]["type"]
    'number'
    """
    hooks = dict(sorted(HOOKS.module_dict.items()))
    all_hooks = {**hooks, **EVALUATIONS}
    whole, inheriting = HookSchemas(hooks), HookSchemas(hooks, complete=False)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"Hooks of {PACKAGE}",
        "type": "object",
        "properties": {**OTHER_KEYS, "trainer": _lightning_cli(HookSchemas(all_hooks))},
        "if": {"required": ["_base_"]},
        "then": {"properties": _hook_keys(inheriting)},
        "else": {"properties": _hook_keys(whole)},
        "definitions": {
            **{name: definition_of(cls) for name, cls in all_hooks.items()},
            "order": {"properties": ORDER},
            HOOK: whole.chosen_by("type", {name: [name] for name in hooks}),
            INHERITING: inheriting.chosen_by("type", {name: [name] for name in hooks}),
        },
    }


def _hook_keys(hooks: HookSchemas) -> Schema:
    """Return the schemas of the keys that become hooks."""
    one = {"$ref": f"#/definitions/{HOOK}"}
    several = {"type": "array", "items": {"type": "object", "allOf": [one]}}
    keys: Schema = {
        "lr_config": ("A learning rate schedule.", hooks.by_policy("LrUpdaterHook")),
        "momentum_config": ("A momentum schedule.", hooks.by_policy("MomentumUpdaterHook")),
        "optimizer_config": ("Clipping, accumulation.", hooks.by_type("OptimizerHook")),
        "checkpoint_config": ("Checkpoints.", hooks.by_type("CheckpointHook")),
        "timer_config": ("The timer of iterations.", hooks.by_type()),
        "evaluation": ("Evaluation, and the best checkpoint.", _evaluation(hooks)),
        "log_config": (
            "Loggers, and the iterations from one line to the next.",
            {
                "properties": {"interval": {"type": "integer"}, "hooks": several},
                **({"required": ["interval", "hooks"]} if hooks.complete else {}),
            },
        ),
    }
    schemas = {
        key: {"type": DICT, "description": text, **schema} for key, (text, schema) in keys.items()
    }
    custom = {**several, "type": ["array", *DICT], "allOf": [one], "description": "Further hooks."}
    return {**schemas, "custom_hooks": custom}


def _evaluation(hooks: HookSchemas) -> Schema:
    """Return the schema of ``evaluation``, whose data loader is given elsewhere."""
    schema = hooks.by_type()
    for name, cls in sorted(EVALUATIONS.items()):  # DistEvalHook, and EvalHook without a type too
        arguments = HookSchemas({name: cls}, complete=False).arguments(name, "type")
        required = {} if name == "EvalHook" else {"required": ["type"]}
        chosen = {"properties": {"type": {"enum": [name]}}, **required}
        schema = {"if": chosen, "then": arguments, "else": schema}
    return schema


def _lightning_cli(hooks: HookSchemas) -> Schema:
    """Return the schema of ``trainer`` in a LightningCLI's YAML, as far as hooks concern it."""
    chosen = [
        {
            "if": {"properties": {"class_path": {"enum": [f"{PACKAGE}.{name}", name]}}},
            "then": {"properties": {"init_args": hooks.arguments(name)}},
        }
        for name in hooks.classes
    ]
    known = [f"{PACKAGE}.{name}" for name in hooks.classes]
    class_path = {"anyOf": [{"enum": known}, {"type": "string"}]}
    callback = {"required": ["class_path"], "properties": {"class_path": class_path}}
    items = {"if": {"type": "object"}, "then": {**callback, "allOf": chosen}}
    return {
        "description": "The Trainer's arguments, in a LightningCLI's file.",
        "properties": {"callbacks": {"items": items}},
    }
