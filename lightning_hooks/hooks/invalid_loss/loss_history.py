"""The losses of the last steps, kept on their device and read together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from lightning_hooks.engine.lightning_api import logged_values
from lightning_hooks.engine.runner.backward import OrphanLoss
from lightning_hooks.utils.nonfinite import scalar

__all__ = ["LossRecord", "Reading", "Step", "message", "read", "values_of"]


class Step(NamedTuple):
    """One training step: its loss, where it was, and perhaps what it was made from."""

    loss: torch.Tensor
    terms: Mapping[str, Any]
    iter: int
    epoch: int
    inner_iter: int
    batch: Any = None
    rng_state: dict[str, Any] | None = None


class LossRecord:
    """The steps since the last reading, their numbers on their device.

    Args:
        keep_batches: Whether the batches are kept too.
    """

    def __init__(self, keep_batches: bool = False) -> None:
        self.keep_batches = keep_batches
        self.batch: Any = None
        """The batch of the step that is run, for what is kept of it."""
        self.rng_state: dict[str, Any] | None = None
        """The random state before that step."""
        self.last_iter = -1
        self.iters = 0
        """Iterations since the last reading, with a loss or without."""
        self._steps: list[tuple[Any, ...]] = []
        self._seen: dict[str, torch.Tensor] = {}  # what has been logged: it stays until the next

    def note(self, runner: Any, iteration: int) -> None:
        """Keep what a step has returned; a second time for the same step does nothing."""
        if iteration == self.last_iter:
            return
        self.last_iter = iteration
        self.iters += 1
        outputs = runner.outputs
        loss = outputs.get("loss")
        if not isinstance(loss, torch.Tensor):
            return
        # the driver's are detached already; asking them costs more than all the rest
        kept = loss if isinstance(loss, OrphanLoss) else loss.detach()
        step = kept, _terms(outputs, runner, self._seen), iteration, runner.epoch, runner.inner_iter
        if self.keep_batches:
            # a hook that another one registers in mid-run has no events, and was told of none
            batch = runner.data_batch if self.batch is None else self.batch
            step = *step, batch, self.rng_state  # type: ignore[assignment]
        self._steps.append(step)  # a Step when it is read: that is slower to make

    def take(self) -> list[Step]:
        """Return the steps, and forget them."""
        steps, self._steps, self.iters = self._steps, [], 0
        return [Step._make((*step, None, None)[:7]) for step in steps]


class Reading(NamedTuple):
    """What the host got to know in one look at the device."""

    steps: list[Step]
    """The steps of this rank."""

    bad: list[Step]
    """Those of them whose loss, or a component of it, is not finite; the first one first."""

    first: tuple[int, int] | None
    """Iteration and rank of the first bad loss of all ranks."""

    spoilt: bool
    """Whether there are weights, on any rank, that are not finite."""

    flags: list[bool]
    """The values of the flags that were read too."""

    @property
    def all_good(self) -> bool:
        """Whether losses and weights of all ranks are finite."""
        return self.first is None and not self.spoilt


def read(
    steps: list[Step],
    spoilt: torch.Tensor,
    flags: Sequence[torch.Tensor] = (),
    *,
    rank: int = 0,
    ranks: int = 1,
) -> Reading:
    """Copy losses, their components and flags to the host: one read, one reduction of ranks.

    Args:
        steps: The steps since the last reading; on other ranks those of the same iterations.
        spoilt: 1.0 if there are weights that are not finite, else 0.0.
        flags: 0-d tensors, the same ones on all ranks.
        rank: The number of this process.
        ranks: How many there are; all must call this together.

    >>> steps = [Step(torch.tensor(loss), {}, i, 0, i) for i, loss in enumerate([1.0, torch.inf])]
    >>> reading = read(steps, torch.zeros(()))
    >>> reading.first, reading.spoilt, reading.all_good
    ((1, 0), False, False)
    """
    # float64 holds all other types, and iteration numbers, exactly
    device, wide = spoilt.device, torch.float64
    if device.type == "mps":
        wide = torch.float32
    judged = [*steps, *(step for step in steps for _ in _components(step))]
    with torch._C.DisableTorchFunctionSubclass():  # else our own would slow each call down
        values = [_of_step(step) for step in steps]
        values += [value.reshape(()) for step in steps for value in _components(step)]
        values += [flag.reshape(()) for flag in flags]
        try:
            numbers = torch.stack([*values, spoilt]).to(wide)
        except RuntimeError:  # on several devices
            numbers = torch.stack([value.to(device, wide) for value in (*values, spoilt)])
    if ranks > 1:
        code = torch.full((), math.inf, dtype=wide, device=device)
        if judged:
            place = [step.iter * ranks + rank for step in judged]
            places = torch.tensor(place, dtype=wide, device=device)
            code = torch.where(numbers[: len(judged)].isfinite(), math.inf, places).min()
        verdict = torch.stack([code, -numbers[-1]])
        torch.distributed.all_reduce(verdict, op=torch.distributed.ReduceOp.MIN)
        numbers = torch.cat([numbers, verdict])
    found = numbers.tolist()
    spoilt_iters = {
        step.iter for step, loss in zip(judged, found, strict=False) if not math.isfinite(loss)
    }
    bad = [step for step in steps if step.iter in spoilt_iters]
    first = (bad[0].iter, rank) if bad else None
    any_spoilt = found[len(values)] > 0
    if ranks > 1:
        first = divmod(int(found[-2]), ranks) if math.isfinite(found[-2]) else None
        any_spoilt = found[-1] < 0
    verdicts = [number > 0 for number in found[len(judged) : len(values)]]
    return Reading(steps, bad, first, any_spoilt, verdicts)


def _is_component(name: str) -> bool:
    """Whether a value is part of the loss: mmcv's models sum those that are named so."""
    return "loss" in name


def _components(step: Step) -> list[torch.Tensor]:
    """Return the parts of a step's loss that are on a device."""
    return [
        value
        for name, value in step.terms.items()
        if _is_component(name) and isinstance(value, torch.Tensor) and value.is_floating_point()
    ]


def _of_step(step: Step) -> torch.Tensor:
    """Return a step's loss; NaN where a part of it that the host knows is not finite."""
    loss = step.loss if step.loss.ndim == 0 else step.loss.mean()
    numbers = [v for n, v in step.terms.items() if _is_component(n) and isinstance(v, float)]
    return loss if all(map(math.isfinite, numbers)) else torch.full_like(loss, math.nan)


def _terms(
    outputs: Mapping[str, Any], runner: Any, seen: dict[str, torch.Tensor]
) -> dict[str, Any]:
    """Return a step's numbers by name, on their device."""
    named = outputs.get("log_vars")
    if named is None:
        # asked of each step: most modules log nothing
        named = logged_values.step_metrics(runner.trainer, seen) if runner.step_results else {}
        if len(outputs) > 1:
            named = {**outputs, **named}
    if not named:
        return {}
    return {
        name: value.detach() if isinstance(value, torch.Tensor) else value
        for name, value in named.items()
        if name != "loss"
        and (isinstance(value, float) or (isinstance(value, torch.Tensor) and value.numel() == 1))
    }


def message(reading: Reading, rank: int) -> str:
    """Say which step went bad first, and which of its losses; it is there that the device is read.

    Args:
        reading: One that is not all good.
        rank: The number of this process.
    """
    if reading.first is None:
        since = (
            f"between iter {reading.steps[0].iter} and {reading.steps[-1].iter}"
            if (reading.steps)
            else "since the last look at them"
        )
        return (
            f"weights became NaN or infinite {since}, where every loss was finite: gradients were "
            "not. Common causes: too high a learning rate, no gradient clipping, the derivative "
            "of a root or a logarithm at 0"
        )
    iteration, where = reading.first
    if where != rank:
        return f"the loss of rank {where} became invalid at iter {iteration}"
    step, last = reading.bad[0], reading.steps[-1].iter
    values = values_of(step)
    bad = {name: value for name, value in values.items() if not math.isfinite(value)}
    good = {name: value for name, value in values.items() if math.isfinite(value)}
    first = "loss" if "loss" in bad else next(name for name in bad if _is_component(name))
    lines = [
        f"the loss became {bad[first]} at iter {step.iter} "
        f"(epoch {step.epoch}, inner_iter {step.inner_iter}; all counted from 0)",
        f"not finite: {_listing(bad)}",
    ]
    if good:
        lines.append(f"finite: {_listing(good)}")
    lines.append(
        f"{len(reading.bad)} of the losses up to iter {last} are not finite. Common causes: too "
        "high a learning rate, no warm-up, no gradient clipping, an empty or broken batch, float16"
    )
    return "\n".join(lines)


def values_of(step: Step) -> dict[str, float]:
    """Read a step's loss and terms."""
    terms = {name: float(value) for name, value in step.terms.items()}
    return {"loss": float(scalar(step.loss)), **terms}


def _listing(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={value:.6g}" for name, value in values.items())
