"""Answer likely mistakes: wrong arguments of hooks, and misspelt points."""

from __future__ import annotations

import copy
import difflib
import functools
import inspect
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from lightning_hooks.engine.hosted import HostedHook
from lightning_hooks.engine.points import POINTS
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.origin import is_ours
from lightning_hooks.utils.secrets import masked
from lightning_hooks.utils.suggestions import suggest

__all__ = [
    "check_names",
    "check_python_lists",
    "misspelt_points",
    "parameter_names",
    "plain_arguments",
]

DECAYS = ("beta", "decay", "ema_decay")
"""Names of an average's decay in other libraries; momentum is ``1 - decay``."""

SAME_ELSEWHERE = {
    "background": "async_save save_async",
    "max_keep_ckpts": "n_saved save_top_k save_total_limit",
    "begin_epoch": "update_starting_at_epoch",
    "begin_iter": "update_after_step update_starting_at_step",
    "buffers": "use_buffers",
    "device": "cpu_offload offload",
    "eval_mode": "train_bn",
    "cumulative_iters": "accumulate_grad_batches",
    "every_minutes": "train_time_interval",
    "exp_name": "experiment experiment_name project",
    "filename_tmpl": "filename",
    "grad_clip": "clip_grad_norm clip_val gradient_clip_val max_grad_norm max_norm",
    "hours": "duration max_time",
    "init_kwargs": "config id job_type",
    "interval": "every_n_epochs every_n_steps every_n_train_steps log_every_n_steps log_freq "
    "period update_every update_every_n_steps",
    "keep_best": "max_keep_ckpts n_saved save_top_k save_total_limit",
    "load_at_end": "load_best",
    "min_lr": "eta_min lr_min",
    "mode": "offline",
    "momentum": " ".join(DECAYS),
    "names": "layers modules",
    "out_dir": "dirpath save_dir",
    "log_dir": "save_dir",
    "periods": "t_0",
    "samples": "batch_size batch_size_fn",
    "save_optimizer": "save_weights_only",
    "project_name": "project",
    "rule": "mode",
    "save_best": "monitor",
    "step": "milestones step_size",
    "tokens": "length_fn",
    "upload": "log_model",
    "validate": "evaluate_ema_weights_instead validate_original_weights",
    "warmup_iters": "num_warmup_steps total_iters warmup_epochs warmup_steps warmup_t",
    "warmup_ratio": "start_factor warmup_lr_init",
}
"""Arguments of hooks here, with the names in Lightning, torch, W&B, timm, transformers, Ignite."""

_LENGTH = (
    "T_max", "epochs", "max_epochs", "max_steps", "num_epochs", "num_training_steps",
    "steps_per_epoch", "total_steps",
)  # fmt: skip
NOT_NEEDED = {
    **dict.fromkeys(_LENGTH, "the length of the run is the Trainer's"),
    **dict.fromkeys(("model", "module", "optimizer", "optimizers"), "it is the Trainer's"),
    "param_scheduler": "hooks_from_config(dict(param_scheduler=[...])) reads MMEngine's lists",
    "patience": "stopping is for Lightning's EarlyStopping(monitor=..., patience=...)",
}
"""Arguments of other libraries without a counterpart here, with the reason."""

FIRST_ARGUMENTS = {
    ("by_epoch", int): ("interval",),
    ("by_epoch", str): ("out_dir",),
    ("dataloader", str): ("save_best",),
    ("init_kwargs", str): ("project", "project_name", "server"),
    ("interval", str): ("out_dir", "action", "log"),
}
"""The likely argument for a first positional value of a wrong type."""

PASSED_ON = ("kwargs", "options")
"""The names of ``**kwargs`` passed on to the next class by constructors of this package."""

PLAIN = (bool, int, float, str, type(None))
"""The types of plain arguments, alone or in a list."""


# -- arguments -------------------------------------------------------------------------------


def plain_arguments(cls: type, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Check the arguments of a constructor; return copies of the plain arguments by name.

    Args:
        cls: The class of the hook or adapter.
        args: The positional arguments.
        kwargs: The keyword arguments.

    Raises:
        TypeError: for a misspelt keyword, a value in another argument's place, or OmegaConf's
            lists, with the argument to write instead.
    """
    known = _known_arguments(cls) if kwargs else None
    if known is not None:
        check_names(cls.__name__, kwargs, known)
    check_python_lists(cls.__name__, (*args, *kwargs.values()))
    if args:
        _check_first(cls, args[0])
    if cls.__init__ is object.__init__ and (args or kwargs):  # type: ignore[misc]
        raise TypeError(f"{cls.__name__}() takes no arguments, got {shown(masked(args or kwargs))}")
    try:
        given = _signature(cls.__init__).bind(cls, *args, **kwargs).arguments  # type: ignore[misc]
    except TypeError:  # a copy has no arguments; else __init__ raises
        return {}
    return {name: copy.copy(value) for name, value in given.items() if _is_plain(value)}


def _is_plain(value: object) -> bool:
    several = value if isinstance(value, (list, tuple)) else [value]
    return all(isinstance(value, PLAIN) for value in several)


def check_python_lists(user: str, values: Iterable[object]) -> None:
    """Raise for a list of OmegaConf's, as Hydra gives one: it is neither a list nor a tuple."""
    for value in values:
        kind = type(value)
        if kind.__module__.startswith("omegaconf.") and isinstance(value, Sequence):
            raise TypeError(
                f"{user} got a {kind.__name__} of OmegaConf's: {value}; it takes Python's lists: "
                "write `_convert_: all` beside the `_target_`, or give it "
                "OmegaConf.to_container(config, resolve=True)"
            )


def check_names(user: str, given: Iterable[object], known: Collection[str]) -> None:
    """Raise for an unknown argument, in Python's words and with a did-you-mean hint.

    >>> check_names("EMAHook", ["momentm"], ["interval", "momentum"])
    Traceback (most recent call last):
    TypeError: EMAHook() got an unexpected keyword argument 'momentm'; did you mean 'momentum'? \
Known: interval, momentum
    """
    for name in given:
        if name not in known:
            value = given[name] if isinstance(given, Mapping) else None
            advice = _instead(user, name, known, value)
            raise TypeError(f"{user}() got an unexpected keyword argument {name!r}; {advice}")


def _instead(user: str, name: object, known: Collection[str], value: object) -> str:
    """Return what to write instead of an unknown argument; the keys of a config may be no text."""
    if not isinstance(name, str):
        return suggest(name, known, f"help({user})")
    if name in NOT_NEEDED:
        return f"leave it out: {NOT_NEEDED[name]}"
    if name == "priority":  # among the arguments in mmcv's configs
        return f"write HookAdapter([({user}(...), priority)])"
    if name.lower() in DECAYS and "momentum" in known and isinstance(value, float):
        return f"{name}={value} is momentum={1 - value:.6g}"
    same = [ours for ours, names in SAME_ELSEWHERE.items() if name.lower() in names.split()]
    return suggest(name, known, f"help({user})", same)


def _check_first(cls: type, value: object) -> None:
    """Raise for a first argument that is another argument's value.

    >>> class TextLog:
    ...     def __init__(self, by_epoch=True, interval=10): ...
    >>> _check_first(TextLog, 50)
    Traceback (most recent call last):
    TypeError: the first argument of TextLog is by_epoch, got 50; write TextLog(interval=50)
    """
    _, first, *others = [*parameter_names(cls.__init__), "", ""]  # type: ignore[misc]
    takes_none = cls.__module__.startswith("lightning_hooks.hooks.")
    if takes_none and (hasattr(value, "named_parameters") or hasattr(value, "param_groups")):
        raise TypeError(
            f"{cls.__name__} takes no {type(value).__name__}: it works on the Trainer's; "
            + (f"its first argument is {first}" if first else "it takes no arguments")
        )
    meant = [name for name in FIRST_ARGUMENTS.get((first, type(value)), ()) if name in others]
    if meant and value != "validation":  # EvalHook's word for the Trainer's own data
        name = cls.__name__
        raise TypeError(
            f"the first argument of {name} is {first}, got {shown(value)}; "
            f"write {name}({meant[0]}={shown(value)})"
        )


@functools.lru_cache(maxsize=1024)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function, computed once."""
    return inspect.signature(function)


def parameter_names(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's keyword arguments.

    >>> parameter_names(lambda interval, *, priority=None, **more: None)
    ['interval', 'priority']
    """
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in _signature(function).parameters.values() if p.kind in by_name]


@functools.lru_cache(maxsize=1024)
def _known_arguments(cls: type) -> frozenset[str] | None:
    """Return the keywords of a class and the base classes; None if any keyword is accepted."""
    names: set[str] = set()
    for base in cls.__mro__[:-1]:
        init = vars(base).get("__init__")
        if init is None:
            continue
        names.update(parameter_names(init)[1:])
        rest = {p.kind: p.name for p in _signature(init).parameters.values()}
        if inspect.Parameter.VAR_KEYWORD not in rest:
            return frozenset(names)
        passes_on = rest[inspect.Parameter.VAR_KEYWORD] in PASSED_ON
        in_order = rest.get(inspect.Parameter.VAR_POSITIONAL, "arguments") == "arguments"
        if not (is_ours(base) and passes_on and in_order):
            return None
    return None


# -- methods ---------------------------------------------------------------------------------

LIBRARIES = ("lightning_hooks", "lightning", "mmcv", "mmengine")
"""Packages with classes that are not searched for misspelt points."""


def misspelt_points(hooks: Iterable[Any]) -> list[tuple[Any, str, str]]:
    """Return each method of a user's hook with a name close to a point, and the point.

    >>> class Late:
    ...     __module__ = "my_hooks"
    ...     def after_train_iters(self, runner): ...
    >>> [(name, point) for _, name, point in misspelt_points([Late()])]
    [('after_train_iters', 'after_train_iter')]
    """
    misspelt: list[tuple[Any, str, str]] = []
    for hook in hooks:
        is_hosted = isinstance(hook, HostedHook)
        kind = type(hook.foreign_hook if is_hosted else hook)
        points = hook.known_points if is_hosted else POINTS
        bases = [c for c in kind.__mro__[:-1] if c.__module__.partition(".")[0] not in LIBRARIES]
        own = {name: value for base in bases for name, value in vars(base).items()}
        for name, value in own.items():
            if isinstance(value, types.FunctionType) and name[0] != "_" and name not in points:
                close = difflib.get_close_matches(name, points, n=1, cutoff=0.9)
                misspelt += [(hook, name, point) for point in close]
    return misspelt
