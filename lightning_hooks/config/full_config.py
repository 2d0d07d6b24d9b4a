"""``hooks_from_config``: make a HookAdapter from a whole mmcv config, given as dict or file."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
from collections.abc import Mapping
from typing import Any

from lightning_hooks.config.trainer_args import validation
from lightning_hooks.config.training_hooks import ConfiguredHooks, register_training_hooks
from lightning_hooks.engine.usage_errors import parameter_names
from lightning_hooks.utils.arguments import check_int, shown
from lightning_hooks.utils.config_files import read_config
from lightning_hooks.utils.notes import add_note
from lightning_hooks.utils.secrets import masked
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = ["from_file", "hooks_from_config"]

KEYS = {name: name for name in [*parameter_names(register_training_hooks), "work_dir"]}
KEYS["custom_hooks"] = KEYS.pop("custom_hooks_config")
"""Keys of a whole config and the matching arguments of ``register_training_hooks``."""


def hooks_from_config(cfg: Any, *, val_dataloader: Any = None, **arguments: Any) -> ConfiguredHooks:
    """Return an adapter with the hooks of a whole mmcv config.

    ``lr_config``, ``optimizer_config``, ``fp16``, ``checkpoint_config``, ``log_config``,
    ``momentum_config``, ``timer_config``, ``custom_hooks``, ``evaluation``, ``workflow``,
    ``runner``, ``total_epochs``, ``total_iters`` and ``work_dir`` become the arguments of
    :func:`register_training_hooks`, the modules of ``custom_imports`` are imported first, and the
    rest (the model, the data) is ignored. Of MMEngine's keys ``param_scheduler``, ``custom_hooks``,
    and the length and ``val_interval`` in ``train_cfg`` count; a warning names what hooks and
    Trainer could follow besides::

        hooks = hooks_from_config("configs/resnet50_8xb32.py")
        L.Trainer(callbacks=[hooks], **hooks.trainer_kwargs)

    Args:
        cfg: A dict, a ``Config`` object of mmcv or mmengine, or the path of a ``.py``, YAML or
            JSON file (see :func:`~lightning_hooks.utils.config_files.read_config`).
        val_dataloader: The data of ``evaluation``; None for the Trainer's own validation.
        arguments: Arguments of :func:`register_training_hooks`, instead of the config's values.

    Raises:
        TypeError: for a config of another type, or an item of a wrong type.
        Exception: from :func:`~lightning_hooks.utils.config_files.read_config` and
            :func:`register_training_hooks`.

    Note:
        Departures from mmcv: as :func:`register_training_hooks`. An evaluation without a
        ``val_dataloader`` judges the Trainer's own validation.

    >>> hooks = hooks_from_config(
    ...     dict(
    ...         model=dict(type="ResNet"),
    ...         lr_config=dict(policy="Poly", power=0.9, min_lr=1e-4),
    ...         runner=dict(type="IterBasedRunner", max_iters=80000),
    ...         workflow=[("train", 1)],
    ...         evaluation=dict(interval=8000),
    ...     )
    ... )
    >>> [type(hook).__name__ for hook in hooks.hooks]
    ['PolyLrUpdaterHook', 'IterTimerHook', 'EvalHook']
    >>> hooks.trainer_kwargs["val_check_interval"]
    8000
    """
    if isinstance(cfg, (str, os.PathLike)):
        cfg = read_config(os.fspath(cfg))
    elif callable(getattr(cfg, "items", None)):
        cfg = dict(cfg.items())  # a Config of mmcv or mmengine is no dict
    if not isinstance(cfg, Mapping):
        raise TypeError(
            f"cfg must be a dict, a Config or the path of a file, got {shown(masked(cfg))}"
        )
    try:
        _import(cfg.get("custom_imports"))
    except ImportError as error:
        add_note(error, "in custom_imports of the config")
        raise
    given = {name: cfg[key] for key, name in KEYS.items() if key in cfg}
    if "param_scheduler" in cfg or _loop_of_mmengine(cfg):
        given |= _of_mmengine(cfg)
    given.update(arguments)
    _warn_of_misspelt_keys(cfg)
    if val_dataloader is not None and isinstance(given.get("evaluation"), Mapping):
        given["evaluation"] = {"dataloader": val_dataloader, **given["evaluation"]}
    hooks = register_training_hooks(**given)
    interval = _loop_of_mmengine(cfg).get("val_interval")
    if interval is not None and not given.keys() & {"evaluation", "workflow"}:
        check_int("val_interval", interval, 1)
        by_epoch = "max_steps" not in hooks.trainer_kwargs
        every = validation(None, by_epoch=by_epoch, interval=interval)
        hooks.trainer_kwargs = dict(sorted({**hooks.trainer_kwargs, **every}.items()))
    return hooks


def _of_mmengine(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for MMEngine's ``param_scheduler``, ``train_cfg``, ``custom_hooks``."""
    from lightning_hooks.dialects.mmengine.averages import with_own_average
    from lightning_hooks.dialects.mmengine.param_scheduler import hooks_of_param_scheduler

    loop = _loop_of_mmengine(cfg)
    length = {key: loop[key] for key in ("max_epochs", "max_iters") if key in loop}
    kind = "IterBasedRunner" if "max_iters" in length else "EpochBasedRunner"
    schedulers = cfg.get("param_scheduler")
    hooks = [] if schedulers is None else hooks_of_param_scheduler(schedulers, **length)
    unused = [key for key in ("default_hooks", "log_processor", "optim_wrapper") if key in cfg]
    unused += [f"train_cfg's {key}" for key in ("val_begin", "dynamic_intervals") if key in loop]
    if unused:
        rank_zero_warn(
            f"not used of MMEngine's config: {', '.join(unused)}; write their hooks, and their "
            "arguments of the Trainer, yourself"
        )
    several = cfg.get("custom_hooks") or []
    several = several if isinstance(several, (list, tuple)) else [several]
    several = [with_own_average(hook, f"custom_hooks[{i}]") for i, hook in enumerate(several)]
    return {
        "custom_hooks_config": [
            hook if hook is None or isinstance(hook, tuple) else (hook, None)  # None: its own
            for hook in [*hooks, *several]
        ],
        **({"runner": {"type": kind, **length}} if length else {}),
    }


def _loop_of_mmengine(cfg: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return MMEngine's ``train_cfg``, with the run's length; mmcv's projects have another."""
    loop = cfg.get("train_cfg")
    if isinstance(loop, Mapping) and loop.keys() & {"max_epochs", "max_iters"}:
        return loop
    return {}


def from_file(path: str, **arguments: Any) -> ConfiguredHooks:
    """Return the adapter of a whole config file, as ``hooks_from_config(path)`` does.

    Args:
        path: A ``.py``, YAML or JSON file.
        arguments: Further arguments of :func:`hooks_from_config`.
    """
    return hooks_from_config(path, **arguments)


def _import(custom_imports: Any) -> None:
    """Import the modules of ``dict(imports=[...], allow_failed_imports=False)``."""
    if custom_imports is None:
        return
    if not isinstance(custom_imports, Mapping):
        raise TypeError(f"custom_imports must be a dict, got {shown(custom_imports)}")
    names = custom_imports.get("imports") or []
    optional = (ImportError,) if custom_imports.get("allow_failed_imports") else ()
    for name in [names] if isinstance(names, str) else names:
        with contextlib.suppress(*optional):
            importlib.import_module(name)


def _warn_of_misspelt_keys(cfg: Mapping[Any, Any]) -> None:
    for key in map(str, cfg):
        for meant in difflib.get_close_matches(key, KEYS, n=1, cutoff=0.85):
            if meant not in cfg:
                rank_zero_warn(f"the config's {key!r} stands for no hook; did you mean {meant!r}?")
