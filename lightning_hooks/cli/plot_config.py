"""``lightning-hooks plot CONFIG``: draw the learning rate and momentum schedules of a config."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lightning_hooks.cli.terminal import panel
from lightning_hooks.config.full_config import hooks_from_config
from lightning_hooks.engine.priority import is_family
from lightning_hooks.schedules import sample
from lightning_hooks.schedules.drawing import TITLES
from lightning_hooks.schedules.preview import quantity_of
from lightning_hooks.utils.config_files import read_config

__all__ = ["curves_of", "in_terminal"]

LENGTH = ("runner", "total_epochs", "total_iters", "train_cfg")
DRAWN = ("custom_imports", "lr_config", "momentum_config", "param_scheduler", *LENGTH)
"""The config keys for the curves."""
SCHEDULES = ("LrUpdaterHook", "MomentumUpdaterHook", "FieldUpdaterHook")
LONGEST = 10_000_000
"""The maximum number of iterations; drawing so many takes about a minute."""


def curves_of(
    path: str | Path, epochs: int | None = None, iters_per_epoch: int | None = None
) -> tuple[list[Any], dict[str, Any]]:
    """Return the schedule hooks of a config file, and the run for ``schedules.sample``.

    Args:
        path: The config file.
        epochs: Epochs of the run; the config's number by default.
        iters_per_epoch: Iterations of an epoch; not needed if the config counts in iterations. If
            given then, the run is drawn to the end of its last epoch.

    Raises:
        ValueError: if the config has no schedule, or the length of the run is unknown or too large.
    """
    config = read_config(path)
    drawn = {key: config[key] for key in DRAWN if key in config}
    drawn["custom_hooks"] = _schedules(config.get("custom_hooks"))
    adapter = hooks_from_config(drawn, timer_config=None)
    hooks = [hook for hook in adapter.hooks if is_family(hook, *SCHEDULES)]
    if not hooks:
        raise ValueError(
            f"{path} has no lr_config, momentum_config or param_scheduler, nor a schedule in "
            "custom_hooks: nothing to draw"
        )
    iters = adapter.trainer_kwargs.get("max_steps")
    if iters is not None and epochs is None:
        iters_per_epoch = min(iters_per_epoch or iters, iters)
        epochs = -(-iters // iters_per_epoch)
    epochs = epochs or adapter.trainer_kwargs.get("max_epochs")
    if epochs is None:
        raise ValueError(f"{path} has no number of epochs: give --epochs")
    if iters_per_epoch is None:
        raise ValueError("a config has no number of batches: give --iters-per-epoch")
    if epochs * iters_per_epoch > LONGEST:
        run = f"{epochs} epochs of {iters_per_epoch} iterations"
        raise ValueError(f"plot draws at most {LONGEST:,} iterations, got {run}: give less")
    optimizer = config.get("optimizer") or (config.get("optim_wrapper") or {}).get("optimizer")
    optimizer = optimizer if isinstance(optimizer, Mapping) else {}
    betas = list(optimizer.get("betas", [0.9, 0.999]))
    values = {**optimizer, **{f"betas.{i}": beta for i, beta in enumerate(betas)}}
    fields = {hook.name: values.get(hook.name, 0.0) for hook in hooks if hasattr(hook, "name")}
    return hooks, {
        "max_epochs": epochs,
        "iters_per_epoch": iters_per_epoch,
        "base_lr": optimizer.get("lr", 0.1),
        "base_momentum": optimizer.get("momentum", betas[0]),
        **({"fields": fields} if fields else {}),
    }


def _schedules(custom_hooks: Any) -> list[Any]:
    """Return the configs of schedules."""
    several = custom_hooks if isinstance(custom_hooks, (list, tuple)) else [custom_hooks]
    return [
        config
        for config in several
        if isinstance(config, Mapping) and str(config.get("type")).endswith(SCHEDULES)
    ]


def in_terminal(hooks: Iterable[Any], run: Mapping[str, Any], width: int) -> str:
    """Return the curves drawn with characters, a panel for each hook."""
    panels = []
    for hook in hooks:
        values = sample(hook, **run)
        epochs = [index / run["iters_per_epoch"] for index in range(len(values))]
        step = max(1, len(values) // (4 * width))
        name = TITLES.get(quantity_of(hook), quantity_of(hook))
        title = f"{name}: {type(hook).__name__}"
        line = epochs[::step], values[::step], "braille", None
        panels.append(panel(title, "epoch", width, 15, [line]))
    return "\n".join(panels)
