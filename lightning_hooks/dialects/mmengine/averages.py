"""MMEngine's ``EMAHook`` in a config as an averaging hook of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_hooks.utils.arguments import check_int
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = ["with_own_average"]

HOOKS_BY_TYPE = {
    "ExponentialMovingAverage": "EMAHook",
    "ExpMomentumEMA": "ExpMomentumEMAHook",
    "MomentumAnnealingEMA": "MomentumAnnealingEMAHook",
    "StochasticWeightAverage": "StochasticWeightAverageHook",
}
"""The hook of this package for each ``ema_type``; ``ExpMomentumEMA`` is mmdet's and mmpose's."""

OF_MMENGINE = {
    *("type", "priority", "ema_type", "strict_load", "begin_iter", "begin_epoch"),
    *("momentum", "gamma", "interval", "device", "update_buffers"),
}
"""The keys of MMEngine's ``EMAHook``; a config with another key is for this package's hook."""


def with_own_average(config: Any, where: str) -> Any:
    """Return the config of this package's hook with the average of MMEngine's ``EMAHook``.

    MMEngine counts ``begin_iter`` and ``begin_epoch`` from 1, and its first update copies the
    model. An ``ExpMomentumEMA`` with an ``interval`` is updated some steps earlier than mmdet's.
    ``strict_load`` has no counterpart.

    Args:
        config: A hook's config; returned unchanged unless for MMEngine's ``EMAHook``.
        where: The config's key, for messages.

    Raises:
        UnknownNameError: for an ``ema_type`` without a counterpart, with the closest name.
        TypeError, ValueError: for a count of another type, or out of range.

    >>> with_own_average(dict(type="EMAHook", momentum=0.001), "custom_hooks[0]")
    {'type': 'EMAHook', 'momentum': 0.001, 'warm_up': 0, 'begin_iter': 1}
    >>> swa = dict(type="EMAHook", ema_type="StochasticWeightAverage", begin_epoch=9)
    >>> with_own_average(swa, "custom_hooks[0]")
    {'type': 'StochasticWeightAverageHook', 'begin_epoch': 8}
    """
    is_config = isinstance(config, Mapping) and config.get("type") == "EMAHook"
    if not is_config or config.keys() - OF_MMENGINE:
        return config
    arguments = {key: value for key, value in config.items() if key not in ("type", "strict_load")}
    kind = arguments.pop("ema_type", "ExponentialMovingAverage")
    name = str(getattr(kind, "__name__", kind)).rpartition(".")[2]  # a class, or "mmdet.Name"
    if name not in HOOKS_BY_TYPE:
        hint = suggest(name, HOOKS_BY_TYPE)
        raise UnknownNameError(f"{where}: no hook follows ema_type={name!r}; {hint}")
    for name_of_count, least in (("begin_iter", 0), ("begin_epoch", 0), ("interval", 1)):
        check_int(name_of_count, config.get(name_of_count, least), least)
    averages_buffers = arguments.pop("update_buffers", False)
    begins = {unit: arguments.pop(f"begin_{unit}", 0) for unit in ("iter", "epoch")}
    begins = {f"begin_{unit}": count - 1 for unit, count in begins.items() if count > 1}
    if name == "ExpMomentumEMA":
        arguments["skip_buffers"] = not averages_buffers
        if "gamma" in arguments:
            arguments["total_iter"] = arguments.pop("gamma")
    elif averages_buffers:
        arguments["buffers"] = "average"
    if name == "ExponentialMovingAverage":
        if arguments.get("interval", 1) > 1 or "begin_epoch" in begins:
            name, arguments["gamma"] = "MomentumAnnealingEMA", 1e-9  # a copy, then the momentum
        else:  # the weights after the first iteration, as the copy of the first update
            arguments |= {"warm_up": 0, "begin_iter": begins.pop("begin_iter", 0) + 1}
    return {"type": HOOKS_BY_TYPE[name], **arguments, **begins}
