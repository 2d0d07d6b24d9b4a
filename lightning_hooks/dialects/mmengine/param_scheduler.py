"""MMEngine's ``param_scheduler`` lists as schedule hooks.

A scheduler of MMEngine acts from ``begin`` to ``end``, and starts from the values that the earlier
schedulers have left. The scheduler becomes a phase of a hook's schedule. A warm-up beside another
scheduler becomes the hook's ``warmup``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = ["hooks_of_param_scheduler"]

POLICIES = {
    "Constant": "fixed",
    "CosineAnnealing": "CosineAnnealing",
    "CosineRestart": "CosineRestart",
    "Exponential": "exp",
    "Linear": "LinearAnnealing",
    "MultiStep": "step",
    "OneCycle": "OneCycle",
    "Poly": "poly",
    "Step": "step",
}
"""The policy of this package for each kind of scheduler."""

ENDINGS = {"ParamScheduler": "", "Momentum": "momentum", "LR": "lr"}
"""The entry of the parameter groups for the ending of a scheduler's name."""

OF_ONE_CYCLE = ("pct_start", "anneal_strategy", "div_factor", "final_div_factor", "three_phase")


class Window(NamedTuple):
    """A scheduler of a list: the kind, the first and last steps, and further arguments."""

    kind: str
    begin: int
    end: int | None
    by_epoch: bool
    converts: bool
    arguments: dict[str, Any]


def hooks_of_param_scheduler(
    param_scheduler: Any,
    *,
    max_epochs: int | None = None,
    max_iters: int | None = None,
    epoch_length: int | None = None,
) -> list[dict[str, Any]]:
    """Return the configs of hooks with the effect of MMEngine's ``param_scheduler``.

    Schedulers with ``convert_to_iter_based`` become phases whose lengths are shares of the run. A
    phase after an annealing then begins at the annealing's end value, where MMEngine keeps the
    value of the last step; with ``epoch_length`` all values are MMEngine's. A warm-up beside an
    annealing also scales the annealing's minimum, and the restarts of a ``CosineRestartLR``, which
    in MMEngine end the warm-up at the full rate.

    Args:
        param_scheduler: A dict, or a list of dicts.
        max_epochs: The epochs of the run.
        max_iters: The iterations of the run, for an ``IterBasedTrainLoop``.
        epoch_length: The batches of an epoch.

    Returns:
        A config for each of rate, momentum and other entries that the list sets.

    Raises:
        UnknownNameError: for a scheduler without a counterpart, with the closest name.
        ValueError: for schedulers without a counterpart, such as two at once without a warm-up.

    >>> warm_up = dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=501)
    >>> steps = dict(type="MultiStepLR", begin=0, end=12, by_epoch=True, milestones=[8, 11])
    >>> hooks_of_param_scheduler([warm_up, steps], max_epochs=12)  # doctest: +NORMALIZE_WHITESPACE
    [{'type': 'StepLrUpdaterHook', 'by_epoch': True, 'step': [8, 11], 'gamma': 0.1,
      'warmup': 'linear', 'warmup_iters': 500, 'warmup_ratio': 0.001}]
    """
    several = param_scheduler if isinstance(param_scheduler, (list, tuple)) else [param_scheduler]
    by_field: dict[str, list[Window]] = {}
    for i, config in enumerate(several):
        field, window = _window(config, f"param_scheduler[{i}]")
        by_field.setdefault(field, []).append(window)
    total = {True: max_epochs, False: max_iters}
    if epoch_length is not None and max_epochs is not None:
        total[False] = max_epochs * epoch_length
    return [_hook(field, windows, total, epoch_length) for field, windows in by_field.items()]


def _window(config: Any, where: str) -> tuple[str, Window]:
    """Return the field that a scheduler sets, and the scheduler's window."""
    if not isinstance(config, Mapping) or "type" not in config:
        raise ValueError(f'{where} must be a dict with a "type", got {shown(config)}')
    arguments = dict(config)
    kind_of = arguments.pop("type")  # a class in a config with imports
    name = str(getattr(kind_of, "__name__", kind_of)).rpartition(".")[2]
    ending = next((end for end in ENDINGS if name.endswith(end)), "")
    kind = name.removesuffix(ending)
    if not ending or kind not in POLICIES:
        known = [f"{policy}{end}" for policy in POLICIES for end in ENDINGS]
        raise UnknownNameError(f"{where}: no hook follows {name!r}; {suggest(name, known)}")
    field = ENDINGS[ending] or arguments.pop("param_name", None)
    if not isinstance(field, str):
        raise ValueError(f"{where}: a {name} needs param_name")
    end = arguments.pop("end", None)
    for ignored in ("last_step", "verbose"):
        arguments.pop(ignored, None)
    return field, Window(
        kind,
        int(arguments.pop("begin", 0)),
        None if end is None or end >= 10**9 else int(end),
        bool(arguments.pop("by_epoch", True)),
        bool(arguments.pop("convert_to_iter_based", False)),
        arguments,
    )


def _hook(
    field: str, windows: list[Window], total: Mapping[bool, int | None], epoch_length: int | None
) -> dict[str, Any]:
    """Return the config of the hook for the schedulers of a field."""
    windows = [
        window._replace(end=total[window.by_epoch]) if window.end is None else window
        for window in sorted(windows, key=lambda window: window.begin)
    ]
    if any(window.kind == "OneCycle" for window in windows):
        if len(windows) > 1 or field != "lr":
            raise ValueError("a OneCycleLR of param_scheduler stands alone")
        return {"type": "OneCycleLrUpdaterHook", **_one_cycle(windows[0], total, epoch_length)}
    if epoch_length is not None:
        windows = [
            _by_iteration(window, epoch_length) if window.converts else window for window in windows
        ]
    warm_up, rest = _split(windows)
    if warm_up is not None and field == "momentum":
        raise ValueError(
            "a warm-up of momentum in param_scheduler has no counterpart: a warm-up here divides "
            "the momentum, where MMEngine's multiplies"
        )
    of_warm_up = {} if warm_up is None else _warm_up(warm_up)
    is_share = bool(rest) and rest[0].converts  # lengths in epochs, counted in iterations
    by_epoch = not rest or (rest[0].by_epoch and not is_share)
    if is_share and total[True] is None:
        raise ValueError("convert_to_iter_based needs the epochs of the run: max_epochs=...")
    phases = _phases(rest, field, total[by_epoch or is_share], is_share=is_share)
    if len(phases) == 1:
        policy = {key: value for key, value in phases[0].items() if key != "length"}
    else:
        policy = {"policy": "Phases", "phases": phases} if phases else {"policy": "fixed"}
    name = policy.pop("policy")
    kind = {"lr": "LrUpdaterHook", "momentum": "MomentumUpdaterHook"}.get(field)
    if kind is None:
        hook = {"type": "FieldUpdaterHook", "name": field, "policy": name}
    else:
        hook = {"type": f"{name[0].upper()}{name[1:]}{kind}"}
    return {**hook, "by_epoch": by_epoch, **policy, **of_warm_up}


def _by_iteration(window: Window, epoch_length: int) -> Window:
    """Return a window by epoch as one by iteration, as MMEngine's ``build_iter_from_epoch``."""
    scaled = {}
    for name, value in window.arguments.items():
        if name in ("T_max", "step_size", "total_steps"):
            value = value * epoch_length
        elif name in ("milestones", "periods"):
            value = [number * epoch_length for number in value]
        scaled[name] = value
    end = None if window.end is None else window.end * epoch_length
    return window._replace(
        begin=window.begin * epoch_length,
        end=end,
        by_epoch=False,
        converts=False,
        arguments=scaled,
    )


def _split(windows: list[Window]) -> tuple[Window | None, list[Window]]:
    """Return the scheduler that is a warm-up, or None, and the other schedulers."""
    for window in windows:
        start = window.arguments.get("start_factor", 1 / 3), window.arguments.get("end_factor", 1)
        rises = window.kind == "Linear" and start[0] != 1 and start[1] == 1
        is_low = window.kind == "Constant" and window.arguments.get("factor", 1 / 3) != 1
        if window.begin == 0 and window.end is not None and (rises or is_low):
            return window, [other for other in windows if other is not window]
    return None, windows


def _warm_up(window: Window) -> dict[str, Any]:
    """Return the arguments of a warm-up; MMEngine's warm-up is over a step before ``end``."""
    if window.by_epoch and not window.converts:
        raise ValueError(
            "a warm-up of param_scheduler by epoch, in stairs, has no counterpart: set "
            "convert_to_iter_based=True in the scheduler"
        )
    assert window.end is not None
    if window.end == 1 and not window.converts:
        raise ValueError(
            f"a {window.kind}LR of param_scheduler with end=1 warms nothing up: in MMEngine the "
            "rate of the first step stays; set end to at least 2"
        )
    linear = window.kind == "Linear"
    ratio = window.arguments.get("start_factor" if linear else "factor", 1 / 3)
    length = {"warmup_iters": window.end - 1}
    if window.converts:
        length = {"warmup_iters": window.end, "warmup_by_epoch": True}
    return {"warmup": "linear" if linear else "constant", **length, "warmup_ratio": ratio}


class Place(NamedTuple):
    """Where a window stands in the schedule of a field."""

    field: str
    length: int | None
    """The window's steps; None for an open end."""
    acts: int | None
    """The window's steps before the run's end; None if the run has no known length."""
    is_share: bool
    """Whether the phase's length is to be a share of the run."""
    is_first: bool
    """Whether the value was constant before the window."""


def _phases(
    windows: Sequence[Window], field: str, total: int | None, *, is_share: bool
) -> list[dict[str, Any]]:
    """Return the phases of consecutive schedulers; between two schedulers the value stays."""
    phases: list[dict[str, Any]] = []
    at = 0
    for window in windows:
        is_last = window is windows[-1]
        _check_order(window, windows[0], at, field, is_last=is_last)
        if window.begin > at:
            phases.append({"policy": "fixed", "length": window.begin - at})
        length = None if window.end is None else window.end - window.begin
        acts = length if total is None else min(total, window.end or total) - window.begin
        is_first = all(phase["policy"] == "fixed" for phase in phases)
        policy = _policy(window, Place(field, length, acts, is_share, is_first))
        if window.end is None or (is_last and total is not None and window.end >= total):
            phases.append(policy)
            break
        phases += _ended(window, policy, window.end - window.begin, is_share=is_share)
        if is_last:
            phases.append({"policy": "fixed"})
        at = window.end
    if is_share:
        assert total is not None
        for phase in phases:
            if "length" in phase:
                phase["length"] = phase["length"] / total
    return _joined(phases)


def _check_order(window: Window, first: Window, at: int, field: str, *, is_last: bool) -> None:
    """Check that a window follows the windows before, which end at a step.

    Raises:
        ValueError: for windows at once, or in other units.
    """
    if window.by_epoch != first.by_epoch or window.converts != first.converts:
        raise ValueError(
            f"the schedulers of {field} in param_scheduler count in epochs and in iterations: "
            "one after the other, they must count in the same unit"
        )
    if window.begin < at:
        raise ValueError(
            f"two schedulers of {field} in param_scheduler act at {window.begin}: only a "
            "LinearLR up to 1 or a ConstantLR may be beside another, as a warm-up"
        )
    if window.end is None and not is_last:
        raise ValueError(f"a scheduler of {field} in param_scheduler begins before another ends")


def _ended(
    window: Window, policy: dict[str, Any], length: int, *, is_share: bool
) -> list[dict[str, Any]]:
    """Return the phases of a window that ends within the run.

    The value of the window's last step stays, not the end value of the policy.
    """
    if is_share or policy["policy"] == "fixed":
        return [{**policy, "length": length}]
    if window.kind == "CosineRestart" and length == 1:
        raise ValueError(
            "a CosineRestartLR of param_scheduler over a single step has no counterpart"
        )
    if window.kind == "CosineAnnealing":
        policy = {"total": length, **policy}
    last = {"policy": "fixed", "length": 1}
    return [{**policy, "length": length - 1}, last] if length > 1 else [last]


def _joined(phases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the phases, with consecutive constant phases joined into one phase."""
    joined: list[dict[str, Any]] = []
    for phase in phases:
        if joined and phase["policy"] == joined[-1]["policy"] == "fixed":
            before = joined.pop()
            phase = {"policy": "fixed"} | (
                {"length": before["length"] + phase["length"]} if "length" in phase else {}
            )
        joined.append(phase)
    return joined


def _policy(window: Window, place: Place) -> dict[str, Any]:
    """Return the policy for a scheduler, with arguments for the scheduler's window."""
    kind, arguments = window.kind, _ARGUMENTS[window.kind](window, place)
    if place.is_share and kind in ("Step", "MultiStep", "Exponential", "CosineRestart"):
        raise ValueError(
            f"a {kind}LR of param_scheduler with convert_to_iter_based needs epoch_length=..., the "
            "batches of an epoch"
        )
    total = arguments.get("total")
    if total is not None and total == place.acts:  # the policy's window
        del arguments["total"]
    elif total is not None and place.is_share:
        raise ValueError(
            f"a {kind}LR of param_scheduler over {total} epochs, not to its end in the "
            "run, with convert_to_iter_based needs epoch_length=..., the batches of an epoch"
        )
    return {"policy": POLICIES[kind], **arguments}


def _constant(window: Window, place: Place) -> dict[str, Any]:
    if window.arguments.get("factor", 1 / 3) != 1:
        raise ValueError("a ConstantLR of param_scheduler with a factor must begin at 0")
    return {}


def _linear(window: Window, place: Place) -> dict[str, Any]:
    if window.arguments.get("start_factor", 1 / 3) != 1:
        raise ValueError("a LinearLR of param_scheduler must begin at 0 or with start_factor=1")
    end_factor = window.arguments.get("end_factor", 1.0)
    return {_end_name(place, is_ratio=True): end_factor, "total": _steps(window, place)}


def _poly(window: Window, place: Place) -> dict[str, Any]:
    power, end = window.arguments.get("power", 1), window.arguments.get("eta_min", 0)
    return {"power": power, _end_name(place): end, "total": _steps(window, place)}


def _cosine(window: Window, place: Place) -> dict[str, Any]:
    if window.arguments.get("eta_min_ratio") and not place.is_first:
        raise ValueError(
            "an eta_min_ratio of param_scheduler after another scheduler is a share of the "
            "first value; a phase's is a share of the value at begin: set eta_min"
        )
    total = window.arguments.get("T_max", place.length)
    if total is None:
        raise ValueError("a CosineAnnealingLR of param_scheduler needs T_max or end")
    if place.acts is not None and total < place.acts:
        raise ValueError(
            f"a CosineAnnealingLR of param_scheduler with T_max={total} rises again before "
            f"its end after {place.acts} steps: no policy here does"
        )
    return {**_least(window, place), "total": total}


def _cosine_restart(window: Window, place: Place) -> dict[str, Any]:
    if place.field == "momentum":
        raise ValueError("a CosineRestartMomentum of param_scheduler has no counterpart")
    periods = list(window.arguments["periods"])
    weights = list(window.arguments.get("restart_weights", [1] * len(periods)))
    least = _least(window, place)
    if set(weights) != {1} and any(least.values()):
        raise ValueError(
            "a CosineRestartLR of param_scheduler with restart_weights and a minimum above "
            "0 has no counterpart: our weights scale the distance to the minimum"
        )
    again = {"restart": True} if window.begin else {}
    return {**least, "periods": periods, **again, "restart_weights": weights}


def _exponential(window: Window, place: Place) -> dict[str, Any]:
    return {"gamma": window.arguments["gamma"]}


def _step(window: Window, place: Place) -> dict[str, Any]:
    given = window.arguments
    step = given["step_size"] if window.kind == "Step" else list(given["milestones"])
    return {"step": step, "gamma": given.get("gamma", 0.1)}


_ARGUMENTS: dict[str, Callable[[Window, Place], dict[str, Any]]] = {
    "Constant": _constant,
    "CosineAnnealing": _cosine,
    "CosineRestart": _cosine_restart,
    "Exponential": _exponential,
    "Linear": _linear,
    "MultiStep": _step,
    "Poly": _poly,
    "Step": _step,
}
"""The arguments of the policy for each kind of scheduler."""


def _end_name(place: Place, *, is_ratio: bool = False) -> str:
    """Return the name of the policy's argument for the end value, or the end value's ratio."""
    ending = "_ratio" if is_ratio else ""
    return f"min_{place.field}{ending}" if place.field in ("lr", "momentum") else f"end{ending}"


def _least(window: Window, place: Place) -> dict[str, Any]:
    """Return the policy's argument for the least value of a cosine."""
    ratio = window.arguments.get("eta_min_ratio")
    if ratio is not None:
        return {_end_name(place, is_ratio=True): ratio}
    return {_end_name(place): window.arguments.get("eta_min", 0)}


def _steps(window: Window, place: Place) -> int:
    """Return the steps up to MMEngine's last value: one less than the steps of the window."""
    if place.length is None:
        raise ValueError(f"a {window.kind}LR of param_scheduler needs an end")
    return place.length if place.is_share else max(place.length - 1, 1)


def _one_cycle(
    window: Window, total: Mapping[bool, int | None], epoch_length: int | None
) -> dict[str, Any]:
    """Return the arguments of the hook for a OneCycleLR, which acts on the whole run."""
    given = window.arguments
    if window.begin or (window.by_epoch and not window.converts):
        raise ValueError(
            "a OneCycleLR of param_scheduler that begins later or counts in epochs has no "
            "counterpart: set begin=0 and convert_to_iter_based=True"
        )
    steps = given.get("total_steps") or window.end
    arguments = {"max_lr": given["eta_max"]}
    if steps is not None and steps != total[window.by_epoch]:
        if window.converts and epoch_length is None:
            raise ValueError(
                f"a OneCycleLR of param_scheduler with total_steps={steps} and "
                "convert_to_iter_based needs epoch_length=..., the batches of an epoch"
            )
        arguments["total_steps"] = steps * (epoch_length or 1) if window.converts else steps
    return arguments | {name: given[name] for name in OF_ONE_CYCLE if name in given}
