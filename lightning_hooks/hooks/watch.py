"""``WatchHook``: histograms or norms of parameters and gradients."""

from __future__ import annotations

import contextlib
import math
import pickle
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import lightning as L
import torch

from lightning_hooks.engine.checkpoint_file import CheckpointFile
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.error_notes import listed
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.logged import warn_unless_logged
from lightning_hooks.storage import files
from lightning_hooks.utils.arguments import check_bool, check_choice, check_int, check_needed
from lightning_hooks.utils.dtensors import is_sharded, local_part, uncompiled_key
from lightning_hooks.utils.fsdp import slices_of
from lightning_hooks.utils.samples import Histogram

__all__ = ["WatchHook", "histograms_of", "norms_of"]

CELLS = 64
"""The cells of a histogram."""

EXACT = 2**24
"""Values counted at once: above this number float32 cannot count."""


@HOOKS.register_module()
class WatchHook(Hook):
    """Logs histograms, or norms, of the parameters and gradients every ``interval`` iterations.

    The histograms are ``parameters/<name>`` and ``gradients/<name>`` in W&B, TensorBoard and
    ClearML, with 64 cells from the least to the greatest finite value. Gradients are taken for the
    optimizer's step, parameters just before; the first histograms show the first step and so a
    wrong initialisation. Parameters come with the step of their optimizer; with accumulated
    gradients, with the next step. The values are counted on the device and copied once. Infinite
    values, NaN and values beyond half of the type's maximum are left out and counted apart.

    The histograms show gradients before clipping by the Trainer, and before clipping by an
    ``OptimizerHook`` listed after this hook. Rank 0 counts, of a sharded model its own part.

    With ``log="norms"`` numbers take the place of the histograms, in the line of every logger, text
    and JSON too. A module is the first ``depth`` parts of the parameters' names:

    ==============================  ============================================================
    key                             value
    ==============================  ============================================================
    ``grad_norm/<module>``          ``|g|``, the L2 norm of the gradients of the module
    ``weight_norm/<module>``        ``|w|`` before the step
    ``update_ratio/<module>``       ``|w_after - w| / |w|``; 0 where the step was skipped
    ``exp_avg_norm/<module>``       with ``moments``, the norm of Adam's first moments
    ``exp_avg_sq_norm/<module>``    with ``moments``, the norm of Adam's second moments
    ==============================  ============================================================

    The norms are computed on the device, and copied with the line's other values. Norms of sharded
    tensors are those of the whole tensors: the ranks add their squares once an interval. During a
    step that is due, a second copy of the weights exists.

    Where torch is out of memory, a line names the modules with the largest weights, gradients and
    optimizer states. On a GPU ``out_of_memory_rank<n>.pickle`` in the work directory has torch's
    snapshot of the memory, to be drawn by https://pytorch.org/memory_viz.

    Args:
        interval: Iterations between two histograms, or two sets of norms.
        log: ``"gradients"``, ``"parameters"`` or ``"all"`` for histograms, or ``"norms"``.
        depth: The number of parts of a module's name for norms; 0 for one module, ``all``.
        moments: Whether to log the norms of the optimizer's moments too, with ``log="norms"``.

    Raises:
        TypeError: if ``interval`` or ``depth`` is no int, or ``moments`` no bool.
        ValueError: for an ``interval`` below 1, a negative ``depth``, another word for ``log``, or
            an argument of the norms without ``log="norms"``.

    Note:
        mmcv has no such hook; W&B's ``watch`` counts in a hook of each gradient, in every step.
    """

    _reads_step = False
    _transient = ("_last", "_begun", "_before", "_resumed")
    _last: dict[int, int]  # the interval of each optimizer's last values
    _resumed: Mapping[int, int] = MappingProxyType({})  # the same, of the file resumed from
    _begun: int  # the interval of the last iteration before the run
    _before: dict[str, torch.Tensor]  # the weights before a step that is due

    def __init__(
        self, interval: int = 1000, log: str = "all", depth: int = 2, moments: bool = False
    ) -> None:
        super().__init__()
        check_int("interval", interval, 1)
        check_choice("log", log, ("gradients", "parameters", "all", "norms"))
        check_int("depth", depth, 0)
        check_bool(moments=moments)
        if log != "norms":
            check_needed('log="norms"', depth=(depth, 2), moments=(moments, False))
        self.interval, self.which, self.depth, self.moments = interval, log, depth, moments

    def before_run(self, runner: Runner) -> None:
        """Begin with the first step of a new run, or with the next interval of a resumed one."""
        self._last = {**self._resumed}
        self._begun = -1 if self._last else (runner.iter - 1) // self.interval
        self._before = {}
        self._looks_for_moments = self.moments
        if self.which == "norms":
            warn_unless_logged(self, runner)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Log the histograms of the optimizer's parameters, or their norms, if due."""
        runner = Driver.of(trainer).runner
        block = runner.iter // self.interval
        place = next((i for i, own in enumerate(trainer.optimizers) if own is optimizer), -1)
        if self._last.get(place, self._begun) == block:
            return
        self._last[place] = block
        stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
        named = {name: p for name, p in pl_module.named_parameters() if id(p) in stepped}
        if self.which == "norms":
            self._log_norms(runner, named, optimizer)
        elif trainer.is_global_zero and runner.samples.holds("histograms"):
            self._log_histograms(runner, named)

    def _log_histograms(self, runner: Runner, named: Mapping[str, torch.nn.Parameter]) -> None:
        tensors: dict[str, torch.Tensor] = {}
        for name, parameter in named.items():
            if self.which != "gradients":
                tensors[f"parameters/{name}"] = parameter
            if self.which != "parameters" and parameter.grad is not None:
                tensors[f"gradients/{name}"] = parameter.grad
        with torch.no_grad():
            for name, histogram in histograms_of(tensors).items():
                runner.samples.log_as(name, histogram)

    def _log_norms(
        self,
        runner: Runner,
        named: Mapping[str, torch.nn.Parameter],
        optimizer: torch.optim.Optimizer,
    ) -> None:
        """Log the norms before the step, and keep the weights to compare."""
        kinds: dict[str, dict[str, Any]] = {
            "grad_norm": {name: p.grad for name, p in named.items() if p.grad is not None},
            "weight_norm": {**named},
        }
        for key in ("exp_avg", "exp_avg_sq") if self.moments else ():
            states = {name: optimizer.state.get(p, {}).get(key) for name, p in named.items()}
            kinds[f"{key}_norm"] = {n: value for n, value in states.items() if value is not None}
        with torch.no_grad():
            runner.log_buffer.update(self._norms(runner, named, kinds))
            self._before |= {name: local_part(p).detach().clone() for name, p in named.items()}

    def after_train_iter(self, runner: Runner) -> None:
        """Log how far the step has moved the weights, after a step that was due."""
        if not self._before:
            return
        before, self._before = self._before, {}
        if self._looks_for_moments:
            self._looks_for_moments = False
            states = [s for o in runner.trainer.optimizers for s in o.state.values()]
            if not any("exp_avg" in state for state in states):
                runner.logger.warning(
                    "WatchHook(moments=True) logs no moments: no optimizer has Adam's exp_avg"
                )
        named = {name: p for name, p in runner.module.named_parameters() if name in before}
        with torch.no_grad():
            moved = {name: local_part(p) - before[name] for name, p in named.items()}
            norms = self._norms(runner, named, {"moved": moved, "weight": before})
        modules = dict.fromkeys(name.partition("/")[2] for name in norms)
        runner.log_buffer.update(
            {
                f"update_ratio/{module}": norms[f"moved/{module}"] / norms[f"weight/{module}"]
                for module in modules
            }
        )

    def _add_to_file(self, file: CheckpointFile) -> None:
        """Add the interval of each optimizer's last values: an optimizer may step rarely."""
        last = vars(self).get("_last")
        if last:  # equal for all hooks with the interval
            file.own_part.setdefault("watch", {})[self.interval] = {**last}

    def _take_from_file(self, file: CheckpointFile) -> None:
        """Keep the intervals for the run that goes on."""
        if file.resumes:
            self._resumed = file.own_part.get("watch", {}).get(self.interval, {})
            Driver.of(file.trainer).fit.callback(vars(self).pop, "_resumed", None)

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Say what the memory holds, where there is not enough."""
        if isinstance(exception, torch.OutOfMemoryError):
            runner = Driver.of(trainer).runner_for(trainer, pl_module)
            with contextlib.suppress(Exception):  # a second error would hide the first
                states = [optimizer.state for optimizer in trainer.optimizers]
                sizes = sizes_of(pl_module, states, self.depth)
                path = ""
                if pl_module.device.type == "cuda" and runner.may_write:
                    name = f"out_of_memory_rank{trainer.global_rank}.pickle"
                    path = files.join(runner.work_dir, name)
                    snapshot = {
                        "segments": torch.cuda.memory_snapshot(),  # type: ignore[no-untyped-call]
                        "device_traces": [],
                    }
                    files.write_bytes(path, pickle.dumps(snapshot))
                runner.logger.error(
                    "out of memory in iteration %d; the largest modules: %s%s",
                    runner.iter + 1,
                    listed([f"{module} {size / 2**20:.1f} MiB" for module, size in sizes]),
                    f"; {path} has torch's snapshot of the memory" if path else "",
                )

    def _norms(
        self,
        runner: Runner,
        named: Mapping[str, torch.nn.Parameter],
        kinds: Mapping[str, Mapping[str, torch.Tensor]],
    ) -> dict[str, torch.Tensor]:
        """Return the norms of each kind of tensor by module."""
        groups = slices_of(runner.trainer.model or runner.module)
        shards = {name: shards_of(p, groups.get(id(p))) for name, p in named.items()}
        return norms_of(kinds, shards, self.depth, runner.world_size)


# -- memory --------------------------------------------------------------------------------------


def sizes_of(
    module: torch.nn.Module, states: Iterable[Mapping[Any, Any]], depth: int
) -> list[tuple[str, int]]:
    """Return the bytes of each module's weights, gradients and optimizer states, largest first.

    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Linear(2, 1))
    >>> sizes_of(net, [], depth=1)
    [('0', 40), ('1', 12)]
    """
    sizes: dict[str, int] = {}
    for name, parameter in module.named_parameters():
        held = [parameter, parameter.grad]
        for state in states:
            held += state.get(parameter, {}).values()
        tensors = [local_part(tensor) for tensor in held if isinstance(tensor, torch.Tensor)]
        part = module_of(name, depth)
        sizes[part] = sizes.get(part, 0) + sum(tensor.nbytes for tensor in tensors)
    return sorted(sizes.items(), key=lambda item: item[1], reverse=True)


# -- norms ---------------------------------------------------------------------------------------


def module_of(name: str, depth: int) -> str:
    """Return the first parts of the name of a parameter's module.

    >>> module_of("net.layers.0.weight", 2), module_of("scale", 2), module_of("net.weight", 0)
    ('net.layers', 'scale', 'all')
    """
    name = uncompiled_key(name).replace("_fsdp_wrapped_module.", "")
    return ".".join(name.split(".")[:-1][:depth]) or (name if depth else "all")


def shards_of(parameter: Any, group: Any) -> int:
    """Return in how many different parts the ranks hold a parameter.

    Args:
        parameter: A parameter, or a DTensor.
        group: The process group of a parameter that FSDP1 has sliced, else None.
    """
    if group is not None:
        return int(group.size())
    if not is_sharded(parameter):
        return 1
    sizes = zip(parameter.placements, parameter.device_mesh.shape, strict=True)
    return math.prod(size for placement, size in sizes if not placement.is_replicate())


def norms_of(
    kinds: Mapping[str, Mapping[str, torch.Tensor]],
    shards: Mapping[str, int],
    depth: int,
    world_size: int = 1,
) -> dict[str, torch.Tensor]:
    """Return the L2 norm of the tensors of each module, as ``<kind>/<module>``.

    Nothing is read from a device. With sharded tensors the function is collective: the squares are
    added over the ranks, once for all, and a tensor held by several ranks counts once.

    Args:
        kinds: The tensors of each kind by the names of the parameters.
        shards: The number of different parts of each parameter, see :func:`shards_of`.
        depth: The number of parts of a module's name.
        world_size: The number of ranks.

    >>> norms = norms_of({"grad": {"a.w": torch.tensor([3.0]), "a.b": torch.tensor([4.0])}}, {}, 1)
    >>> norms["grad/a"].item()
    5.0
    """
    squares: dict[str, list[torch.Tensor]] = {}
    is_spread = any(count > 1 for count in shards.values())
    for kind, tensors in kinds.items():
        norms = torch._foreach_norm([*map(_flat, tensors.values())]) if tensors else ()
        for name, norm in zip(tensors, norms, strict=True):
            share = shards.get(name, 1) / world_size if is_spread else 1.0
            module = squares.setdefault(f"{kind}/{module_of(name, depth)}", [])
            module.append(norm.square() * share)
    if not squares:
        return {}
    device = next(iter(squares.values()))[0].device
    of_modules = [torch.stack([each.to(device) for each in part]) for part in squares.values()]
    sums = torch.stack([part.sum() for part in of_modules])
    if is_spread:
        torch.distributed.all_reduce(sums)
    return dict(zip(squares, sums.sqrt().unbind(), strict=True))


# -- histograms ----------------------------------------------------------------------------------


def histograms_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, Histogram]:
    """Return the histogram of each tensor, from the least to the greatest finite value.

    Tensors without a finite value are left out. Of a sharded tensor only this rank's part counts.
    Values beyond half of the type's maximum (1.7e38 in float32, 9e307 in float64) count as
    infinite: the width of their range would be infinite.

    >>> counted = histograms_of({"w": torch.tensor([0.0, 1.0, 1.0, float("nan")])})["w"]
    >>> counted.low, counted.high, counted.counts[0], counted.counts[-1], counted.left_out
    (0.0, 1.0, 1, 2, 1)
    """
    rows = {
        name: _counted(values) for name, each in tensors.items() if (values := _flat(each)).numel()
    }
    histograms: dict[str, Histogram] = {}
    for device in {row.device for row in rows.values()}:
        names = [name for name, row in rows.items() if row.device == device]
        for name, row in zip(names, torch.stack([rows[n] for n in names]).tolist(), strict=True):
            low, high, total, *counts = row
            if low <= high:
                left_out = int(total) - int(sum(counts))
                if low == high:  # all values are equal, and in the first cell
                    margin = max(0.5, CELLS * math.ulp(low))
                    low, high = low - margin, high + margin
                    counts = [*[0.0] * (CELLS // 2), sum(counts), *[0.0] * (CELLS // 2 - 1)]
                histograms[name] = Histogram(low, high, tuple(map(int, counts)), left_out)
    return {name: histograms[name] for name in rows if name in histograms}


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    values = local_part(tensor).detach()
    if values.is_sparse:
        values = values.coalesce().values()
    if values.is_complex():
        values = torch.view_as_real(values)
    return values.flatten() if values.dtype == torch.float64 else values.flatten().float()


def _counted(values: torch.Tensor) -> torch.Tensor:
    """Return least and greatest finite value, number of values and counts, in a tensor.

    Nothing is read from the device: ``torch.histc`` gets the fixed range 0 to 1.
    """
    finite = values.abs() <= torch.finfo(values.dtype).max / 2
    infinity = torch.full((), torch.inf, dtype=values.dtype, device=values.device)
    low = torch.where(finite, values, infinity).min()
    high = torch.where(finite, values, -infinity).max()
    width = torch.where(high > low, high - low, torch.ones_like(low))
    inside = torch.where(finite, (values - low) / width, -torch.ones_like(values))
    if values.device.type == "cuda":  # integers: with floats histc refuses to be deterministic
        cells = (inside * CELLS).floor().clamp(-1, CELLS - 1).int()
        parts = [torch.histc(cells, CELLS, 0, CELLS - 1)]
    else:
        parts = [torch.histc(part, CELLS, 0, 1) for part in torch.split(inside, EXACT)]
    wide = torch.float32 if values.device.type == "mps" else torch.float64
    counts = torch.stack(parts).to(wide).sum(0)
    total = torch.full((), values.numel(), device=values.device)
    return torch.cat([torch.stack([each.to(wide) for each in (low, high, total)]), counts])
