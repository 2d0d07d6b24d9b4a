"""Policies one after the other, for learning rates and for momenta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning_hooks import schedules
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.hooks.updaters.lr import LrUpdaterHook
from lightning_hooks.hooks.updaters.momentum import MomentumUpdaterHook
from lightning_hooks.hooks.updaters.policies import policy_of, value_of
from lightning_hooks.hooks.updaters.updater import Updater
from lightning_hooks.utils.arguments import check_bool, shown
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = ["PhasesLrUpdaterHook", "PhasesMomentumUpdaterHook"]


def set_phases(hook: Any, phases: Any, family: type[Updater]) -> None:
    """Check the phases of a hook, and make their policies.

    Raises:
        TypeError: unless the phases are a list of dicts.
        ValueError: for a wrong phase, or lengths that cannot be those of a run.
    """
    if not isinstance(phases, (list, tuple)) or not all(isinstance(p, Mapping) for p in phases):
        raise TypeError(
            f"phases must be a list of dicts, got {shown(phases)}; "
            'write [dict(policy="fixed", length=0.5), ...]'
        )
    if not phases:
        raise ValueError("phases must have at least one phase, got []")
    hook.phases, hook.policies, windows = list(phases), [], []
    for i, phase in enumerate(phases):
        where, arguments = f"phases[{i}]", dict(phase)
        if "policy" not in arguments:
            raise ValueError(f'{where} needs the key "policy", got {shown(phase)}')
        length, restart = arguments.pop("length", None), arguments.pop("restart", False)
        check_bool(**{f"{where}['restart']": restart})
        if length is None and i + 1 < len(phases):
            raise ValueError(
                f'{where} needs the key "length", got {shown(phase)}: only the last phase may be '
                "without"
            )
        if length is not None:
            schedules.check_length(f"{where}['length']", length)
        policy = policy_of(arguments.pop("policy"), arguments, family, hook.by_epoch, where)
        hook.policies.append(policy)
        windows.append(schedules.Phase(value_of(policy), length, restart))
    hook.windows = windows
    _check_shares(windows)
    has_shares = any(isinstance(phase.length, float) for phase in windows)
    hook._needs_length = has_shares or (windows[-1].length is None and policy._needs_length)


def _check_shares(windows: Sequence[schedules.Phase]) -> None:
    """Raise ValueError for shares of more, or all of less, than the whole run."""
    shares = [phase.length for phase in windows if isinstance(phase.length, float)]
    whole = len(shares) == len(windows)
    total = sum(shares)
    if total > 1 + 1e-9 or (whole and total < 1 - 1e-9):
        hint = "; the last length may be left out" if whole else ""
        raise ValueError(
            f"the shares {shares} of phases add up to {total:g}, not to {'1' if whole else 'less'}"
            f"{hint}"
        )


def in_phases(self: Any, base: float, position: int, total: Any) -> float:
    """Return the value of :func:`~lightning_hooks.schedules.in_phases` for a hook's phases."""
    return schedules.in_phases(base, position, total, phases=self.windows)


def check_phases(self: Any, total: int) -> None:
    """Raise ValueError for phases that end before the run; warn of phases that the run cuts."""
    ends = schedules.ends_of_phases([phase.length for phase in self.windows], total)
    if ends[-1] < total:
        unit = "epochs" if self.by_epoch else f"{self._iteration_unit}s"
        raise ValueError(
            f"the phases end after {ends[-1]} of {total} {unit}: they must reach the end; the last "
            "length may be left out"
        )
    begin = 0
    for i, (phase, policy, end) in enumerate(zip(self.phases, self.policies, ends, strict=True)):
        if end <= begin or begin >= total:
            reason = "ends before" if begin >= total else "is too short for its share"
            rank_zero_warn(
                f"{type(self).__name__}: phases[{i}], {phase['policy']!r}, never comes: the run of "
                f"{total} {reason}"
            )
        else:
            try:
                policy._check(end - begin)
            except (ArithmeticError, ValueError) as error:
                raise ValueError(f"phases[{i}]: {error}") from None
        begin = end


@HOOKS.register_module()
class PhasesLrUpdaterHook(LrUpdaterHook):
    """Sets the rate by one policy after the other: :func:`~lightning_hooks.schedules.in_phases`.

    Each phase is a policy over a window of the run. A phase starts from the end value of the
    previous phase's policy; OneCycle starts from ``max_lr / div_factor``.

    Args:
        phases: A dict for each phase, with ``policy`` and the policy's arguments as in
            ``lr_config``, and with:

            - ``length``, a number of epochs or iterations as ``by_epoch`` says, or a float as a
              share of the run; the last phase may be without, and has the rest of the run;
            - ``restart=True`` to start from the base rate.

            A policy of your own needs a ``get_lr`` that reads the position and the
            length alone; ``end`` and ``end_ratio`` are short for ``min_lr`` and ``min_lr_ratio``.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`; a warm-up
            scales all phases.

    Raises:
        TypeError: unless the phases are a list of dicts.
        ValueError: for an unknown policy, a policy with a warm-up of its own (YOLOX: its warm-up,
            cosine and last epochs are phases) or with a base for each group, shares that do not
            add up to 1, and at the start of a run longer than the phases.

    >>> from lightning_hooks.schedules import sample
    >>> phases = [
    ...     dict(policy="fixed", length=0.5),
    ...     dict(policy="LinearAnnealing", min_lr_ratio=0.5, length=0.25),
    ...     dict(policy="step", step=1, gamma=0.5),
    ... ]
    >>> sample(PhasesLrUpdaterHook(phases), max_epochs=8, iters_per_epoch=1, base_lr=1.0)
    [1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]
    """

    _value, _check = in_phases, check_phases

    def __init__(self, phases: Sequence[Mapping[str, Any]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        set_phases(self, phases, LrUpdaterHook)


@HOOKS.register_module()
class PhasesMomentumUpdaterHook(MomentumUpdaterHook):
    """Sets the momentum by one policy after the other, as :class:`PhasesLrUpdaterHook` the rate.

    Args:
        phases: A dict for each phase; the policies are those of ``momentum_config``.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.momentum.MomentumUpdaterHook`.

    Raises:
        TypeError: unless the phases are a list of dicts.
        ValueError: for a wrong phase, shares that do not add up to 1, and at the start of a run
            longer than the phases.
    """

    _value, _check = in_phases, check_phases

    def __init__(self, phases: Sequence[Mapping[str, Any]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        set_phases(self, phases, MomentumUpdaterHook)
