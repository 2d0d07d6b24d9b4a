"""``lightning-hooks convert``: print the hooks of an mmcv config as Python code."""

from __future__ import annotations

import inspect
import json
import keyword
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning_hooks.cli.check.declarations import run_declarations
from lightning_hooks.config.full_config import hooks_from_config
from lightning_hooks.config.training_hooks import ConfiguredHooks
from lightning_hooks.engine.priority import FAMILIES, default_priority, get_priority
from lightning_hooks.engine.registry import HOOKS, ORDER_KEYS
from lightning_hooks.utils.printable import printable
from lightning_hooks.utils.secrets import describe, masked
from lightning_hooks.utils.suggestions import suggest

__all__ = ["argument", "call", "convert", "header", "hooks_and_trainer", "source", "split_unknown"]

WIDTH = 100
OURS = "lightning_hooks"
KEYS = {"optimizer_config", "checkpoint_config", "timer_config", "custom_hooks", "log_config"}
"""Keys of a config with hooks by ``type``."""


def split_unknown(
    config: Mapping[str, Any], script: Path | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Import a project's hooks; return a config without unknown hooks, and comments on them.

    The ``custom_imports`` are imported, and where hooks are unknown then, what the training script
    imports. An optimizer hook leaves its ``grad_clip`` to ours.

    Args:
        config: The config.
        script: The project's training script.

    >>> split_unknown(dict(custom_hooks=[dict(type="EMAHook"), dict(type="EMAHok")]))[0]
    {'custom_hooks': [{'type': 'EMAHook'}]}
    """
    comments = []
    try:
        hooks_from_config({"custom_imports": config.get("custom_imports")})
    except ImportError as error:
        config = {**config, "custom_imports": None}
        comments.append(f"# custom_imports: {describe(error)}")

    keys = [key for key in config if key in KEYS]
    unknown = [kind for key in keys for kind in _unknown(config[key])]
    if unknown and script is not None:
        try:
            run_declarations(script)
        except (Exception, SystemExit) as error:
            comments.append(f"# {script.name}: {describe(error)}")

    def known(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [hook for hook in map(known, value) if hook is not None]
        if not isinstance(value, Mapping):
            return value
        if "hooks" in value:
            return {**value, "hooks": known(value["hooks"])}
        if not _unknown(value):
            return value
        kind = value["type"]
        clips = kind.endswith("OptimizerHook") and "grad_clip" in value
        advice = f"{_advice_for(kind)}; of a hook of your own give the module as --import"
        instead = "; OptimizerHook clips in its place" if clips else ""
        comments.append(f"# not converted: {kind} is not registered{instead}; {advice}")
        return {"grad_clip": value["grad_clip"]} if clips else None

    config = {**config, **{key: known(config[key]) for key in keys}}
    return config, [*map(printable, comments)]  # a type may have several lines


def _advice_for(kind: str) -> str:
    """Return what to write instead of an unknown hook: a hook of the same family, if it has one."""
    family = next((family for family in FAMILIES if kind.endswith(family)), None)
    known = [name for name in HOOKS.module_dict if family and name.endswith(family)]
    return suggest(kind, known) if known else HOOKS.advice_for(kind)


def _unknown(value: Any) -> list[str]:
    """Return the unknown types of hooks in an item of a config."""
    if isinstance(value, (list, tuple)):
        return [kind for item in value for kind in _unknown(item)]
    if not isinstance(value, Mapping):
        return []
    kind = value.get("type")
    here = [kind] if isinstance(kind, str) and kind not in HOOKS else []
    return here + _unknown(value.get("hooks"))


def convert(hooks: ConfiguredHooks) -> str:
    """Return Python code for the hooks and the Trainer of a config, with ``***`` for secrets.

    Args:
        hooks: The result of ``register_training_hooks`` or ``hooks_from_config``.

    Raises:
        ValueError: for a value without a literal; the message has the key.

    >>> from lightning_hooks.config import register_training_hooks
    >>> config = dict(lr_config=dict(policy="step", step=[8, 11]), total_epochs=12)
    >>> print(convert(register_training_hooks(timer_config=None, **config)))
    import lightning as L
    from lightning_hooks import HookAdapter, StepLrUpdaterHook
    <BLANKLINE>
    hooks = HookAdapter([StepLrUpdaterHook(step=[8, 11])])
    trainer = L.Trainer(callbacks=[hooks], max_epochs=12)
    """
    imports: dict[str, set[str]] = {OURS: set()}
    body = hooks_and_trainer(hooks, imports)
    return "\n".join([*header(imports), "", *body])


def hooks_and_trainer(
    hooks: ConfiguredHooks,
    imports: dict[str, set[str]],
    further: Sequence[str] = (),
    work_dir: str | None = None,
    **options: Any,
) -> list[str]:
    """Return the Python of the hooks, and of the Trainer.

    Args:
        hooks: The hooks of a config.
        imports: Names by module, to which the code's are added.
        further: The Python of further hooks.
        work_dir: The work directory, if the config has none.
        options: Further arguments of the Trainer.
    """
    imports[OURS].add("HookAdapter")
    made = [_hook(masked(config), priority, imports) for config, priority in hooks.configs]
    runner = hooks._runner_options()
    arguments = [call("", [*made, *further], indent=4, brackets="[]")]
    if not runner.by_epoch:
        arguments.append("by_epoch=False")
    work_dir = work_dir if runner.work_dir is None else runner.work_dir
    if work_dir is not None:
        arguments.append(argument("work_dir", work_dir, imports))
    trainer = {**hooks.trainer_kwargs, **options}
    given = ["callbacks=[hooks]", *(argument(*item, imports) for item in trainer.items())]
    return [call("hooks = HookAdapter", arguments), call("trainer = L.Trainer", given)]


def header(imports: Mapping[str, set[str]]) -> list[str]:
    """Return the import lines; ``standin.install()`` precedes the imports of old files."""
    names = sorted(imports[OURS])
    old = [
        f"from {module} import {', '.join(sorted(members))}"
        for module, members in sorted(imports.items())
        if module != OURS
    ]
    if old:
        names = sorted([*names, "standin"])
        old = ["", "standin.install()", *old]
    line = f"from {OURS} import {', '.join(names)}"
    if len(line) > WIDTH:
        line = call(f"from {OURS} import ", names)
    return ["import lightning as L", line, *old]


def _hook(config: Any, priority: Any, imports: dict[str, set[str]]) -> str:
    if not isinstance(config, Mapping):
        raise ValueError(f"{config!r} is an object already, and cannot be written as Python")
    arguments = {key: value for key, value in config.items() if key != "priority"}
    hook_type = arguments.pop("type")
    cls: Any = HOOKS.get(hook_type) if isinstance(hook_type, str) else hook_type
    name = _imported(cls, imports)
    given = [argument(*item, imports) for item in arguments.items()]
    if arguments.keys() & {*ORDER_KEYS}:  # keys of a config dict that the class does not take
        given = [f"type={name}", *given, argument("priority", priority, imports)]
        return call("dict", given, indent=12)
    text = call(name, given, indent=12)
    if get_priority(priority) == default_priority(cls.__new__(cls)):
        return text
    return f"({text}, {source(priority, 'priority', imports)})"


def _imported(value: Any, imports: dict[str, set[str]]) -> str:
    """Return the name of a class or function, and add the name to the imports."""
    name, module = str(value.__name__), str(value.__module__)
    if module != "builtins":
        module = OURS if module.split(".")[0] == OURS else module
        imports.setdefault(module, set()).add(name)
    return name


def argument(key: str, value: Any, imports: dict[str, set[str]]) -> str:
    """Return a keyword argument as Python; a key may be no name.

    >>> argument("interval", 1, {}), argument("a b", 1, {}), argument("if", 1, {})
    ('interval=1', '**{"a b": 1}', '**{"if": 1}')
    """
    if isinstance(key, str) and key.isidentifier() and not keyword.iskeyword(key):
        return f"{key}={source(value, key, imports)}"
    return f"**{source({key: value}, key, imports)}"


def source(value: Any, key: str, imports: dict[str, set[str]]) -> str:
    """Return a value as Python."""
    if isinstance(value, Mapping):
        pairs = [[source(side, key, imports) for side in pair] for pair in value.items()]
        return "{" + ", ".join(map(": ".join, pairs)) + "}"
    if isinstance(value, (list, tuple)):
        items = [source(item, key, imports) for item in value]
        if isinstance(value, list):
            return f"[{', '.join(items)}]"
        return f"({', '.join(items)}{',' * (len(items) == 1)})"
    if isinstance(value, str):
        return printable(json.dumps(value, ensure_ascii=False))
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, int):
        return int.__repr__(value)  # of an enumeration, too
    if isinstance(value, float):
        value = float(value)
        return repr(value) if abs(value) < float("inf") else f'float("{value}")'
    importable = inspect.isclass(value) or inspect.isfunction(value)
    if importable and value.__qualname__ == value.__name__ != "<lambda>":
        return _imported(value, imports)
    raise ValueError(f"{key}={value!r} cannot be written as Python")


def call(name: str, arguments: Sequence[str], indent: int = 0, brackets: str = "()") -> str:
    """Return a call or list on a single line, or with a line for each argument if too long."""
    opening, closing = brackets[0], brackets[1]
    line = f"{name}{opening}{', '.join(arguments)}{closing}"
    if indent + len(line) <= WIDTH and "\n" not in line:
        return line
    inner = textwrap.indent("\n".join(f"{argument}," for argument in arguments), "    ")
    return f"{name}{opening}\n{inner}\n{closing}"
