"""Clip gradients: a function for each kind, and ``grad_clip``, which chooses kind and arguments."""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import torch
from torch.nn.utils import clip_grad_norm_

from lightning_hooks.hooks.optimizer.norm_history import HISTORIES, NormHistory
from lightning_hooks.hooks.updaters.param_groups import describe_groups
from lightning_hooks.utils import foreach
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.dtensors import is_sharded, largest_of_ranks, local_part, rows_of
from lightning_hooks.utils.fsdp import is_flattened, slices_of
from lightning_hooks.utils.suggestions import suggest

__all__ = [
    "KINDS",
    "Clipped",
    "GradClip",
    "Recipe",
    "adaptively",
    "by_history",
    "by_norm",
    "by_value",
    "check_grad_clip",
    "check_optimizers",
    "clip",
    "clip_flattened",
    "combined",
    "is_mmcv_recipe",
    "is_recipe",
    "make_history",
    "recipes_for",
    "recipes_in",
]


class Clipped(NamedTuple):
    """The numbers of a clipping, left on the device."""

    norm: torch.Tensor
    """The norm of all gradients before clipping, of type ``norm_type``."""

    reached: torch.Tensor | None = None
    """The number compared with ``limit``."""

    limit: float = 1.0
    norm_type: float = 2.0

    def exceeded(self) -> torch.Tensor:
        """Return 1.0 if gradients were made smaller, else 0.0."""
        if self.reached is None:
            return torch.zeros_like(self.norm)
        return (self.reached > self.limit).to(self.norm)


def by_norm(
    parameters: Sequence[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Clipped:
    """Scale all gradients by ``min(1, max_norm / norm)``, with the norm of all gradients.

    Args:
        parameters: Parameters with gradients; the gradients are changed.
        max_norm: The largest allowed norm, above 0.
        norm_type: The ``p`` of the norm; ``inf`` for the largest magnitude.
        error_if_nonfinite: Raise for a NaN or infinite norm; the host waits for the norm.
        foreach: As in :func:`torch.nn.utils.clip_grad_norm_`.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> clipped = by_norm([weight], max_norm=0.5)
    >>> weight.grad, clipped.norm, clipped.exceeded()
    (tensor([0.3000, 0.4000]), tensor(5.), tensor(1.))
    """
    gradients = _gradients(parameters)
    if len(by_mesh(gradients)) > 1:  # torch accepts a single kind only
        norm = total_norm(gradients, norm_type)
        if error_if_nonfinite and not norm.isfinite():
            raise RuntimeError(f"the norm of the gradients is {norm}: they cannot be clipped")
        _scale(gradients, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    else:
        norm = clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
        norm = full_norm(norm)
    return Clipped(norm, norm, max_norm, norm_type)


def by_value(parameters: Sequence[torch.Tensor], clip_value: float) -> Clipped:
    """Bring each number of each gradient into ``[-clip_value, clip_value]``.

    Args:
        parameters: Parameters with gradients; the gradients are changed.
        clip_value: The largest magnitude, above 0.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.tensor([3.0, -4.0])
    >>> clipped = by_value([weight], clip_value=3.5)
    >>> weight.grad, clipped.norm, clipped.exceeded()
    (tensor([ 3.0000, -3.5000]), tensor(5.), tensor(1.))
    """
    gradients = _gradients(parameters)
    norm, reached = total_norm(gradients), largest_magnitude(gradients)
    _clip_values(gradients, clip_value)
    return Clipped(norm, reached, clip_value)


@torch.no_grad()
def adaptively(
    parameters: Sequence[torch.Tensor], clip_factor: float = 0.01, eps: float = 1e-3
) -> Clipped:
    """Scale the gradient of each unit by ``min(1, clip_factor * max(|weight|, eps) / |gradient|)``.

    A unit is a row, ``tensor[i]``: the weights of an output of a layer. The unit of biases and
    scales, which have a single dimension, is the whole tensor.

    Args:
        parameters: Parameters with gradients; the gradients are changed.
        clip_factor: The largest norm of a gradient relative to the norm of the weight; above 0.
        eps: The lower bound of a weight's norm, above 0.

    Source: "High-Performance Large-Scale Image Recognition Without Normalization" (Brock et al.,
    2021); defaults of timm.

    >>> weight = torch.nn.Parameter(torch.tensor([[3.0, 4.0], [0.0, 2.0]]))
    >>> weight.grad = torch.tensor([[5.0, 0.0], [0.0, 0.1]])
    >>> clipped = adaptively([weight], clip_factor=0.1)
    >>> weight.grad, clipped.exceeded()
    (tensor([[0.5000, 0.0000],
            [0.0000, 0.1000]]), tensor(1.))
    """
    gradients = _gradients(parameters)
    norm = total_norm(gradients)
    # the gradient's norm over the allowed norm
    excess = [
        unit_norms(gradient) / (unit_norms(parameter).clamp(min=eps) * clip_factor)
        for parameter, gradient in zip(parameters, gradients, strict=True)
    ]
    reached = largest_magnitude(excess)
    divisors = [local_part(ratio).clamp(min=1.0) for ratio in excess]
    foreach.div_([local_part(gradient) for gradient in gradients], divisors)
    return Clipped(norm, reached)


KINDS: Mapping[str, Callable[..., Clipped]] = {
    "norm": by_norm,
    "value": by_value,
    "adaptive": adaptively,
}
"""The allowed ``grad_clip["type"]``; the other keys are the function's arguments."""


@torch.no_grad()
def by_history(
    parameters: Sequence[torch.Tensor], history: NormHistory, model: Any = None
) -> Clipped:
    """Scale all gradients by ``min(1, limit / norm)``, with a limit from norms of earlier steps.

    Args:
        parameters: Parameters with gradients; the gradients are changed.
        history: The earlier norms, which take in the norm.
        model: The trained model, if FSDP has flattened it.

    >>> from lightning_hooks.hooks.optimizer.norm_history import Percentile
    >>> weight, history = torch.nn.Parameter(torch.zeros(2)), Percentile(percentile=50)
    >>> for size in (1.0, 3.0):
    ...     weight.grad = torch.tensor([size, 0.0])
    ...     clipped = by_history([weight], history)
    >>> weight.grad.norm(), clipped.norm, clipped.exceeded()
    (tensor(2.0000), tensor(3.), tensor(1.))
    """
    gradients = _gradients(parameters)
    norm = total_norm(gradients) if model is None else _norm_with_others(model, parameters, 2.0)
    limit = history.limit(norm).to(norm)
    factor = torch.where(limit.isfinite(), limit / (norm + 1e-6), 1.0).clamp(max=1.0)
    _scale(gradients, factor)
    return Clipped(norm, norm / limit)


def clip(
    parameters: Iterable[torch.Tensor],
    recipe: Recipe,
    model: Any = None,
    history: NormHistory | None = None,
) -> Clipped | None:
    """Clip gradients by a recipe; None without gradients.

    Args:
        parameters: Parameters; the gradients are changed.
        recipe: The arguments of a kind, with ``type`` for another kind than ``"norm"``.
        model: The trained model; a model flattened by FSDP is clipped as a whole.
        history: The earlier norms, for a recipe of :data:`~.norm_history.HISTORIES`.
    """
    trained = [p for p in parameters if p.requires_grad and p.grad is not None]
    if history is not None:
        is_whole = not is_flattened(model)
        if is_whole and not trained:
            return None
        return by_history(trained, history, None if is_whole else model)
    if is_flattened(model):
        return clip_flattened(model, trained, recipe)
    arguments = {key: value for key, value in recipe.items() if key != "type"}
    return KINDS[recipe.get("type", "norm")](trained, **arguments) if trained else None


def combined(parts: Sequence[Clipped]) -> Clipped:
    """Combine the results of clipping several parts for the same step.

    >>> parts = [Clipped(torch.tensor(3.0), torch.tensor(2.0)), Clipped(torch.tensor(4.0))]
    >>> combined(parts).norm, combined(parts).exceeded()
    (tensor(5.), tensor(1.))
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    norm = combine_norms([part.norm for part in parts], first.norm_type)
    exceeded = torch.stack([part.exceeded().to(norm) for part in parts])
    return Clipped(norm, exceeded.sum(), 0.5, first.norm_type)


# -- FSDP's flattened gradients ----------------------------------------------------------------


def clip_flattened(
    model: Any, parameters: Sequence[torch.Tensor], recipe: Mapping[str, Any]
) -> Clipped:
    """Clip the gradients of FSDP's root module; this rank has slices of the gradients.

    Args:
        model: The root.
        parameters: The root's parameters with gradients on this rank.
        recipe: A ``grad_clip`` by norm or by value.

    >>> class Root:
    ...     def clip_grad_norm_(self, max_norm, norm_type=2.0): return torch.tensor(50.0)
    >>> clip_flattened(Root(), [], {"max_norm": 35, "error_if_nonfinite": True}).exceeded()
    tensor(1.)
    """
    if recipe.get("type") == "value":
        norm, reached = (_norm_with_others(model, parameters, p) for p in (2.0, math.inf))
        _clip_values(_gradients(parameters), recipe["clip_value"])
        return Clipped(norm, reached, recipe["clip_value"])
    limit, norm_type = recipe["max_norm"], recipe.get("norm_type", 2.0)
    norm = model.clip_grad_norm_(limit, norm_type)
    return Clipped(norm, norm, limit, norm_type)


def _norm_with_others(
    model: Any, parameters: Sequence[torch.Tensor], norm_type: float
) -> torch.Tensor:
    """Return the norm of all gradients; ``clip_grad_norm_`` changes gradients of infinite norm."""
    groups = slices_of(model)
    together_with: dict[Any, list[torch.Tensor]] = {group: [] for group in groups.values()}
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.numel():
            group = groups.get(id(parameter))  # None: not sliced
            together_with.setdefault(group, []).append(parameter.grad)
    norms = []
    for group, gradients in together_with.items():
        norm = total_norm(gradients, norm_type).to(model.compute_device)
        norms.append(norm if group is None else over_group(norm, norm_type, group))
    return combine_norms(norms, norm_type)


# -- parts -------------------------------------------------------------------------------------


def _gradients(parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


@torch.no_grad()
def _scale(gradients: Sequence[torch.Tensor], factor: torch.Tensor) -> None:
    foreach.mul_([local_part(gradient) for gradient in gradients], factor)


@torch.no_grad()
def _clip_values(gradients: Sequence[torch.Tensor], limit: float) -> None:
    parts = [local_part(gradient) for gradient in gradients]
    foreach.clamp_min_(parts, -limit)
    foreach.clamp_max_(parts, limit)


# -- norms over all ranks ----------------------------------------------------------------------


def total_norm(gradients: Sequence[torch.Tensor], norm_type: float = 2.0) -> torch.Tensor:
    """Return the norm of all gradients together, all shards included.

    >>> total_norm([torch.tensor([3.0]), torch.tensor([[4.0]])])
    tensor(5.)
    """
    norms = []
    for some in by_mesh(gradients).values():
        here = [norm.to(some[0].device) for norm in foreach.norm(some, norm_type)]
        norms.append(full_norm(torch.linalg.vector_norm(torch.stack(here), norm_type)))
    return combine_norms(norms, norm_type)


def largest_magnitude(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the largest magnitude of all numbers, all shards included.

    >>> largest_magnitude([torch.tensor([3.0]), torch.tensor([[-4.0]])])
    tensor(4.)
    """
    largest = []
    for mesh, some in by_mesh(tensors).items():
        parts = [part for part in map(local_part, some) if part.numel()]  # a rank may have none
        numbers = foreach.norm(parts, math.inf) if parts else [local_part(some[0]).new_zeros(())]
        most = torch.stack([number.to(numbers[0]) for number in numbers]).abs().amax()
        largest.append(most if mesh is None else largest_of_ranks(most, mesh))
    return combine_norms(largest, math.inf)


def unit_norms(tensor: torch.Tensor) -> torch.Tensor:
    """Return the norm of each row (of a shard: of the shard's rows), or of a vector."""
    dims = tuple(range(1, tensor.ndim)) or None
    norms = torch.linalg.vector_norm(tensor.detach(), dim=dims, keepdim=tensor.ndim > 1)
    return rows_of(norms, tensor)


def by_mesh(gradients: Sequence[torch.Tensor]) -> dict[Any, list[torch.Tensor]]:
    """Group gradients for common reductions: plain gradients, and gradients by device mesh."""
    groups: dict[Any, list[torch.Tensor]] = defaultdict(list)
    for gradient in gradients:
        groups[getattr(gradient, "device_mesh", None)].append(gradient)
    return groups


def full_norm(norm: torch.Tensor) -> torch.Tensor:
    """Return the norm over all ranks from a DTensor of partial norms; collective."""
    return norm.full_tensor() if is_sharded(norm) else norm  # type: ignore[attr-defined]


def over_group(norm: torch.Tensor, norm_type: float, group: Any) -> torch.Tensor:
    """Return the norm of a tensor in parts on the ranks of a group; collective."""
    is_max = norm_type == math.inf
    total = norm if is_max else norm**norm_type
    op = torch.distributed.ReduceOp.MAX if is_max else torch.distributed.ReduceOp.SUM
    torch.distributed.all_reduce(total, op=op, group=group)
    return total if is_max else total ** (1.0 / norm_type)


def combine_norms(norms: Sequence[torch.Tensor], norm_type: float) -> torch.Tensor:
    """Return the norm of all numbers from the norms of parts."""
    if not norms:
        return torch.zeros(())
    if len(norms) == 1:
        return norms[0]
    stacked = torch.stack([norm.to(norms[0]) for norm in norms])
    norm: torch.Tensor = torch.linalg.vector_norm(stacked, norm_type)
    return norm


# -- grad_clip: a recipe for all gradients, or for each parameter group ---------------------------

Recipe = Mapping[str, Any]
"""``type``, a key of :data:`KINDS`, and the arguments of the kind."""

GradClip = Recipe | Sequence[Recipe | None]
"""A recipe, a list of recipes (or None) by parameter group, or a dict of either by optimizer."""


def is_recipe(given: Any) -> TypeGuard[Recipe]:
    """Whether a ``grad_clip`` is a single recipe, for all gradients of a step together.

    >>> is_recipe({"max_norm": 1}), is_recipe([{"max_norm": 1}]), is_recipe({"sgd": {}})
    (True, False, False)
    """
    return isinstance(given, Mapping) and not _by_name(given)


def is_mmcv_recipe(given: Any) -> bool:
    """Whether a ``grad_clip`` is mmcv's: a recipe by norm without a ``type``."""
    return is_recipe(given) and "type" not in given


def recipes_in(grad_clip: Any) -> list[Recipe]:
    """Return all recipes in a ``grad_clip`` of any form.

    >>> recipes_in({"sgd": [{"max_norm": 1}, None], "adam": {"max_norm": 2}})
    [{'max_norm': 1}, {'max_norm': 2}]
    """
    if is_recipe(grad_clip):
        return [grad_clip]
    return [recipe for part in _parts(grad_clip) for recipe in recipes_in(part)]


def recipes_for(
    grad_clip: Any, name: str, optimizer: torch.optim.Optimizer
) -> Iterator[tuple[list[torch.Tensor], Recipe]]:
    """Yield each group of an optimizer's parameters to clip together, with the recipe.

    Args:
        grad_clip: Any form.
        name: The optimizer's name, where there are several.
        optimizer: The optimizer.

    Raises:
        ValueError: for an optimizer without an entry, or a list of another length than the
            optimizer's groups.
    """
    if not is_recipe(grad_clip) and isinstance(grad_clip, Mapping):
        if name not in grad_clip:
            raise ValueError(
                f"grad_clip has no entry for {describe_groups(name, optimizer)}, "
                f"only for {list(grad_clip)}; None leaves its gradients as they are"
            )
        grad_clip = grad_clip[name]
    groups = [group["params"] for group in optimizer.param_groups]
    if grad_clip is None:
        return
    if is_recipe(grad_clip):
        yield [parameter for group in groups for parameter in group], grad_clip
        return
    if len(grad_clip) != len(groups):
        raise ValueError(
            f"grad_clip has {len(grad_clip)} recipes, one (or None) is needed for each of "
            f"{describe_groups(name, optimizer)}"
        )
    for group, recipe in zip(groups, grad_clip, strict=True):
        if recipe is not None:
            yield group, recipe


def check_optimizers(grad_clip: Any, optimizers: Sequence[tuple[str, Any]]) -> None:
    """Check that a ``grad_clip`` has a recipe for each optimizer and group, and no other.

    Args:
        grad_clip: Any form.
        optimizers: The optimizers of the run by name.

    Raises:
        ValueError: for other optimizers, or another number of groups.
    """
    if isinstance(grad_clip, Mapping) and not is_recipe(grad_clip):
        names = [name for name, _ in optimizers]
        for given in grad_clip:
            if given not in names:
                raise ValueError(
                    f"grad_clip has a recipe for {given!r}, which is no optimizer of this "
                    f"run: {suggest(given, names)}"
                )
    for name, optimizer in optimizers:
        list(recipes_for(grad_clip, name, optimizer))  # raises for a bad entry


def check_grad_clip(grad_clip: Any) -> None:
    """Raise unless ``grad_clip`` has a known form.

    Raises:
        TypeError: for anything but a dict or a list of dicts.
        ValueError: for an unknown type or key, or a number out of range.
    """
    if _is_list(grad_clip) or (isinstance(grad_clip, Mapping) and _by_name(grad_clip)):
        parts = _parts(grad_clip)
        if not parts:
            raise ValueError(f"grad_clip={shown(grad_clip)} clips nothing: give None")
        for part in parts:
            check_grad_clip(part)
        of_history = [r["type"] for r in recipes_in(grad_clip) if r.get("type") in HISTORIES]
        if of_history:
            raise ValueError(
                f"grad_clip type {shown(of_history[0])} clips all gradients of an optimizer's step "
                f"together: give one dict(type={shown(of_history[0])}, ...)"
            )
        types = {float(recipe.get("norm_type", 2.0)) for recipe in recipes_in(grad_clip)}
        if len(types) > 1:
            raise ValueError(
                f"grad_clip must have one norm_type for all, got {shown(sorted(types))}"
            )
    elif isinstance(grad_clip, Mapping):
        _check_recipe(grad_clip)
    else:
        hint = (
            f"; write dict(max_norm={shown(grad_clip)})"
            if isinstance(grad_clip, (int, float))
            else ""
        )
        raise TypeError(
            "grad_clip must be a dict, a list of dicts (one for each parameter group) or None, "
            f"got {shown(grad_clip)}{hint}"
        )


def _check_recipe(recipe: Recipe) -> None:
    kind = recipe.get("type", "norm")
    kinds = {**KINDS, **HISTORIES}
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"grad_clip has the unknown type {shown(kind)}: {suggest(kind, kinds)}")
    known = list(inspect.signature(kinds[kind]).parameters.values())[kind in KINDS :]
    names = [parameter.name for parameter in known]
    unknown = [key for key in recipe if key not in (*names, "type")]
    if unknown:
        raise ValueError(f"grad_clip has unknown keys {unknown}; known: {names}")
    if kind in HISTORIES:
        make_history(recipe)  # checks the values
        return
    for parameter in known:
        name, needed = parameter.name, parameter.default is parameter.empty
        number = needed or isinstance(parameter.default, float)
        if number and (needed or name in recipe) and not _is_positive(recipe.get(name)):
            raise ValueError(f"grad_clip needs a positive {name}, got {shown(dict(recipe))}")


def make_history(recipe: Recipe) -> NormHistory | None:
    """Return an empty history for a recipe that has one, else None."""
    make = HISTORIES.get(recipe.get("type", "norm"))
    if make is None:
        return None
    return make(**{key: value for key, value in recipe.items() if key != "type"})


def _is_positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def _parts(given: Any) -> list[Any]:
    """Return the entries of a list, or of a dict by name, without None."""
    values = given.values() if isinstance(given, Mapping) else given
    return [value for value in values if value is not None]


def _by_name(given: Mapping[str, Any]) -> bool:
    values = _parts(given)
    return bool(values) and all(isinstance(value, Mapping) or _is_list(value) for value in values)


def _is_list(given: Any) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str)
