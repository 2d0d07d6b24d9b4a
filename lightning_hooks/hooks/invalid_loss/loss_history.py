"""Losses of the last steps, kept on the device and read together; the file of a bad batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from lightning.fabric.utilities import move_data_to_device
from torch._C import DisableTorchFunctionSubclass

from lightning_hooks.engine.lightning_api import logged_values
from lightning_hooks.engine.runner.backward import OrphanLoss
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.invalid_loss.spikes import Spikes
from lightning_hooks.storage import files, torch_files
from lightning_hooks.utils.nonfinite import scalar

__all__ = [
    "LossHistory",
    "Reading",
    "Step",
    "components",
    "describe",
    "dump_batch",
    "load_batch",
    "read",
]


class Step(NamedTuple):
    """A training step: loss (if any), other values, position, and batch (if kept)."""

    loss: torch.Tensor | None
    terms: Mapping[str, Any]
    iter: int
    epoch: int
    inner_iter: int
    batch: Any = None
    rng_state: dict[str, Any] | None = None
    judged: torch.Tensor | None = None
    """Infinity if the loss is a spike, else the loss; None where spikes are not looked for."""


class LossHistory:
    """The steps since the last reading; all numbers stay on their device.

    Args:
        keep_batches: Whether to keep the batches, too.
        by_name: Whether to judge a step without a returned loss by logged values with ``loss`` in
            the name: a module that steps its optimizers itself need not return a loss.
        spikes: Judges the losses; None to look for NaN and infinite losses alone.
    """

    def __init__(
        self, keep_batches: bool = False, by_name: bool = False, spikes: Spikes | None = None
    ) -> None:
        self.keep_batches, self.by_name, self._spikes = keep_batches, by_name, spikes
        self.batch: Any = None
        """The batch of the running step."""
        self.rng_state: dict[str, Any] | None = None
        """The random state before the running step."""
        self.iters = 0
        """Iterations since the last reading, with a loss or without."""
        self.has_losses = False
        """Whether a step had a loss."""
        self._last_iter = -1
        self._steps: list[Step] = []
        self._logged: dict[str, torch.Tensor] = {}  # Lightning keeps old values

    def record(self, runner: Runner, iteration: int) -> None:
        """Keep the outputs of a step, once per step."""
        if iteration == self._last_iter:
            return
        self._last_iter = iteration
        self.iters += 1
        outputs = runner.outputs
        loss = outputs.get("loss")
        if not isinstance(loss, torch.Tensor):
            if not self.by_name:
                return
            loss = None
        elif not isinstance(loss, OrphanLoss):
            # the driver's losses are detached already; another detach costs more than the rest
            loss = loss.detach()
        terms = _terms(outputs, runner, self._logged)
        if loss is None and not any(map(_is_component, terms)):
            return
        kept: dict[str, Any] = {}
        if self.keep_batches:
            # a hook registered during the run missed the start of the batch
            kept["batch"] = runner.data_batch if self.batch is None else self.batch
            kept["rng_state"] = self.rng_state
        if self._spikes is not None and loss is not None:
            kept["judged"] = self._spikes.judged(loss)
        self.has_losses = True
        self._steps.append(Step(loss, terms, iteration, runner.epoch, runner.inner_iter, **kept))

    def take(self) -> list[Step]:
        """Return the steps and start anew."""
        steps, self._steps, self.iters = self._steps, [], 0
        return steps


def _terms(
    outputs: Mapping[str, Any], runner: Runner, logged: dict[str, torch.Tensor]
) -> dict[str, Any]:
    """Return the 0-d values that a step has returned or logged, by name, on their device."""
    named = outputs.get("log_vars")
    if named is None:
        named = logged_values.step_metrics(runner.trainer, logged)
        if len(outputs) > ("loss" in outputs):
            named = {**outputs, **named}
    if not named:
        return {}
    return {
        name: value.detach() if isinstance(value, torch.Tensor) else value
        for name, value in named.items()
        if name != "loss"
        and (isinstance(value, float) or (isinstance(value, torch.Tensor) and value.numel() == 1))
    }


def components(
    outputs: Mapping[str, Any], runner: Runner, logged: dict[str, torch.Tensor]
) -> list[torch.Tensor]:
    """Return the components of the running step's loss, as 0-d tensors.

    Args:
        outputs: The step's outputs, as far as known.
        runner: The runner.
        logged: Values logged in earlier steps; updated.
    """
    return [*_loss_values(None, _terms(outputs, runner, logged))]


class Reading(NamedTuple):
    """The losses, weights and flags since the last reading, read from the device together."""

    steps: list[Step]
    """The steps of this rank."""

    bad: list[Step]
    """The steps with a non-finite loss or component, in order."""

    first: tuple[int, int] | None
    """Iteration and rank of the first bad loss of all ranks."""

    has_nonfinite_weights: bool
    """Whether a rank has non-finite weights."""

    flags: list[bool]
    """The values of the flags."""

    @property
    def all_good(self) -> bool:
        """Whether losses and weights of all ranks are finite."""
        return self.first is None and not self.has_nonfinite_weights


def read(
    steps: list[Step],
    bad_weights: torch.Tensor,
    flags: Sequence[torch.Tensor] = (),
    *,
    rank: int = 0,
    ranks: int = 1,
) -> Reading:
    """Copy losses, their components and flags to the host: one read, one reduction of ranks.

    Args:
        steps: The steps since the last reading, for the same iterations on all ranks.
        bad_weights: 1.0 for non-finite weights, else 0.0.
        flags: 0-d tensors, equal on all ranks.
        rank: The number of this process.
        ranks: The number of processes; all ranks must call this function together.

    >>> steps = [Step(torch.tensor(loss), {}, i, 0, i) for i, loss in enumerate([1.0, torch.inf])]
    >>> reading = read(steps, torch.zeros(()))
    >>> reading.first, reading.has_nonfinite_weights, reading.all_good
    ((1, 0), False, False)
    """
    device = bad_weights.device
    # float64 holds all other types, and iteration numbers, exactly
    wide = torch.float32 if device.type == "mps" else torch.float64
    with DisableTorchFunctionSubclass():  # StrategyLoss would slow each call down
        losses = [step.loss if step.judged is None else step.judged for step in steps]
        judged = [
            (step.iter, value)
            for step, loss in zip(steps, losses, strict=True)
            for value in _loss_values(loss, step.terms)
        ]
        values = [value for _, value in judged]
        values += [*(flag.reshape(()) for flag in flags), bad_weights]
        try:
            numbers = torch.stack(values).to(wide)
        except RuntimeError:  # on several devices
            numbers = torch.stack([value.to(device, wide) for value in values])
    if ranks > 1:
        places = [iteration * ranks + rank for iteration, _ in judged]
        numbers = torch.cat([numbers, _verdict_of_ranks(places, numbers)])
    read_back = numbers.tolist()
    bad_iters = {
        iteration
        for (iteration, _), number in zip(judged, read_back, strict=False)
        if not math.isfinite(number)
    }
    bad = [step for step in steps if step.iter in bad_iters]
    if ranks > 1:
        place, weights_are_bad = read_back[-2], read_back[-1] < 0
        first = divmod(int(place), ranks) if math.isfinite(place) else None
    else:
        first, weights_are_bad = (bad[0].iter, rank) if bad else None, read_back[-1] > 0
    verdicts = [number > 0 for number in read_back[len(judged) : len(judged) + len(flags)]]
    return Reading(steps, bad, first, weights_are_bad, verdicts)


def _verdict_of_ranks(places: Sequence[int], numbers: torch.Tensor) -> torch.Tensor:
    """Return the place of the first bad loss of all ranks, and -1.0 if a rank has bad weights.

    Args:
        places: For each loss its iteration times the number of ranks, plus this rank.
        numbers: The losses, other numbers, and 1.0 for bad weights of this rank, else 0.0.
    """
    least = torch.tensor([*places, math.inf], dtype=numbers.dtype, device=numbers.device)
    least[:-1].masked_fill_(numbers[: len(places)].isfinite(), math.inf)
    verdict = torch.stack([least.min(), -numbers[-1]])
    torch.distributed.all_reduce(verdict, op=torch.distributed.ReduceOp.MIN)
    return verdict


def _is_component(name: str) -> bool:
    """Whether a value is part of the loss: mmcv's models sum the values with such a name."""
    return "loss" in name


def _loss_values(loss: torch.Tensor | None, terms: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """Yield a step's loss and its components, as 0-d tensors."""
    if loss is not None and loss.ndim:
        loss = loss.mean()
    for name, value in terms.items():
        if not _is_component(name):
            continue
        if isinstance(value, torch.Tensor):
            if value.is_floating_point():
                yield value.reshape(())
        elif not math.isfinite(value):  # a number of the host: no read of a device
            loss = torch.full((), math.nan, device=None if loss is None else loss.device)
    if loss is not None:
        yield loss


def values_of(step: Step) -> dict[str, float]:
    """Read a step's loss and terms."""
    terms = {name: float(value) for name, value in step.terms.items()}
    return terms if step.loss is None else {"loss": float(scalar(step.loss)), **terms}


CAUSES = (
    "Common causes: too high a learning rate, no gradient clipping, the derivative of a root or a "
    "logarithm at 0"
)


def describe(reading: Reading, rank: int, has_losses: bool = True) -> str:
    """Describe the first bad step and its bad losses; reads the device.

    Args:
        reading: A bad reading.
        rank: The number of this process.
        has_losses: Whether a step of the fit had a loss.
    """
    if reading.first is None:
        return _describe_weights(reading.steps, has_losses)
    iteration, where = reading.first
    if where != rank:
        return f"the loss of rank {where} became invalid at iter {iteration}"
    step = reading.bad[0]
    values = values_of(step)
    bad = {name: value for name, value in values.items() if not math.isfinite(value)}
    good = {name: value for name, value in values.items() if math.isfinite(value)}
    if not bad:
        return (
            f"the loss rose to {values['loss']:.6g} at iter {step.iter} (epoch {step.epoch}, "
            f"inner_iter {step.inner_iter}; all counted from 0), far above the median of the last "
            f"losses: a spike\n{_listing(values)}"
        )
    first = "loss" if "loss" in bad else next(name for name in bad if _is_component(name))
    finite = f"finite: {_listing(good)}\n" if good else ""
    return (
        f"the loss became {bad[first]} at iter {step.iter} "
        f"(epoch {step.epoch}, inner_iter {step.inner_iter}; all counted from 0)\n"
        f"not finite: {_listing(bad)}\n{finite}"
        f"{len(reading.bad)} of the losses up to iter {reading.steps[-1].iter} are not finite. "
        "Common causes: too high a learning rate, no warm-up, no gradient clipping, an empty or "
        "broken batch, float16"
    )


def _describe_weights(steps: Sequence[Step], has_losses: bool) -> str:
    """Describe bad weights after steps with finite losses."""
    if steps:
        return (
            f"weights became NaN or infinite between iter {steps[0].iter} and {steps[-1].iter}, "
            f"where every loss was finite: gradients were not. {CAUSES}"
        )
    if has_losses:
        return (
            "weights became NaN or infinite after the last step whose loss was read, which was "
            f"finite: gradients were not. {CAUSES}"
        )
    return (
        "weights became NaN or infinite since the last check, and no step had a loss to look at: "
        "return it from training_step, or log it under a name with `loss` in it, "
        'self.log("g_loss", g_loss)'
    )


def _listing(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={value:.6g}" for name, value in values.items())


# -- the batch of a bad step in a file ---------------------------------------------------------


def dump_batch(step: Step, directory: str, runner: Runner) -> None:
    """Write a step's batch as ``invalid_iter_<iter>_rank_<rank>.pt``, and log the path.

    The file is written atomically; a full disk costs a warning. The file's dict:

    ==================  =======================================================================
    key                 value
    ==================  =======================================================================
    batch               the batch of the step, on the CPU
    terms               the numbers of the step by name, ``loss`` among them
    iter                earlier training iterations
    epoch, inner_iter   earlier epochs, earlier batches of the epoch
    rank                the process
    rng_state           the random state before the step, for ``random_state.set_rng_state``
    ==================  =======================================================================

    Args:
        step: The step.
        directory: The directory, created if missing.
        runner: The run.
    """
    path = files.join(directory, f"invalid_iter_{step.iter}_rank_{runner.rank}.pt")
    try:
        content = {
            "batch": move_data_to_device(step.batch, "cpu"),
            "terms": values_of(step),
            "iter": step.iter,
            "epoch": step.epoch,
            "inner_iter": step.inner_iter,
            "rank": runner.rank,
            "rng_state": step.rng_state,
        }
        torch_files.save_torch(content, path)
    except Exception as error:  # an error must not hide the invalid loss
        runner.logger.warning("the batch of iter %d could not be written: %r", step.iter, error)
    else:
        runner.logger.warning("the batch of iter %d is in %s", step.iter, path)


def load_batch(path: str, *, weights_only: bool = True) -> dict[str, Any]:
    """Load the file of a bad batch, written by ``CheckInvalidLossHook``.

    Args:
        path: The file, local or fsspec's.
        weights_only: Load tensors, numbers and strings in dicts and lists only. False loads any
            object and runs code from the file: only for trusted files.

    Raises:
        pickle.UnpicklingError: with ``weights_only`` for a batch with other objects.
    """
    batch: dict[str, Any] = torch_files.load_torch(path, weights_only=weights_only)
    return batch
