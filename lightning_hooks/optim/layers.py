"""Number the layers of a model, from the embeddings to the head, for a decay of rates."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from lightning_hooks.utils.arguments import check_number, shown
from lightning_hooks.utils.dtensors import uncompiled_key
from lightning_hooks.utils.suggestions import suggest

__all__ = ["matches", "rate_factors"]


def matches(name: str, pattern: str) -> bool:
    """Whether a dotted name matches a pattern, part by part; ``torch.compile`` adds no part.

    >>> matches("backbone.layers.3", "backbone.layers.*"), matches("layers.3.norm", "layers.*")
    (True, False)
    """
    parts, wanted = uncompiled_key(name).split("."), uncompiled_key(pattern).split(".")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def rate_factors(
    module: nn.Module, decay: float | None, blocks: Any, embeddings: Sequence[str] | None
) -> dict[int, float]:
    """Return the rate's factor for the id of each parameter; an empty dict without a decay.

    Args:
        module: The model.
        decay: The factor from a layer to the layer before.
        blocks: A pattern for the names of blocks, or a function from a parameter's name to a layer.
        embeddings: Names of parts outside of the backbone for layer 0.

    Raises:
        TypeError: if the decay is no number.
        ValueError: for bad values and unknown names, see
            :func:`~lightning_hooks.optim.groups.param_groups`.
    """
    if decay is None:
        if blocks is not None:
            raise ValueError(f"blocks={shown(blocks)} needs a layer_decay, as layer_decay=0.75")
        return {}
    check_number("layer_decay", decay)
    if not 0 < decay <= 1:
        raise ValueError(f"layer_decay must be in (0, 1], got {shown(decay)}")
    names = {uncompiled_key(name): id(value) for name, value in module.named_parameters()}
    if callable(blocks):
        layers = {name: blocks(name) for name in names}
        for name, layer in layers.items():
            if not isinstance(layer, int):
                raise TypeError(
                    f"blocks({name!r}) must be the number of a layer, got {shown(layer)}"
                )
        last = max(layers.values(), default=0)
    else:
        layers, last = _layers_in_order(module, [*names], blocks, embeddings)
    return {names[name]: decay ** (last - layer) for name, layer in layers.items()}


def _layers_in_order(
    module: nn.Module, names: list[str], blocks: Any, embeddings: Sequence[str] | None
) -> tuple[dict[str, int], int]:
    """Return the layer of each parameter, and the number of the head, the last layer."""
    parts = [(uncompiled_key(name), part) for name, part in module.named_modules()]
    named = [name for name, _ in parts if blocks and matches(name, blocks)]
    # a block without own parameters (all shared with an earlier block) is no layer
    filled = [name for name in named if any(n.startswith(f"{name}.") for n in names)]
    if not filled:
        lists = [name for name, part in parts if isinstance(part, nn.ModuleList)]
        sequences = [name for name, part in parts if isinstance(part, nn.Sequential)]
        hint = [f'blocks="{name}.*"' for name in (lists or sequences) if name][:3]
        raise ValueError(
            f"layer_decay with blocks={shown(blocks)} finds no block; write "
            + (" or ".join(hint) or "the names of its blocks, or a function of a parameter's name")
        )
    own = [next((i for i, b in enumerate(filled, 1) if n.startswith(f"{b}.")), 0) for n in names]
    first, last = own.index(1), len(own) - own[::-1].index(len(filled))
    backbone = f"{filled[0].split('.')[0]}." if filled[0].count(".") > 1 else ""
    outside = {name for name in names if not name.startswith(backbone)}
    _check_embeddings([n for n in names[:first] if n in outside], names, embeddings)
    layers: dict[str, int] = {}
    layer, head = 0, len(filled) + 1
    for index, (name, number) in enumerate(zip(names, own, strict=True)):
        layer = number or layer
        top = head if index >= last or name in outside else layer
        layers[name] = 0 if _is_in(name, embeddings or ()) else top
    return layers, head


def _check_embeddings(before: list[str], names: list[str], given: Sequence[str] | None) -> None:
    if isinstance(given, str):
        raise TypeError(f"embeddings must be a list of str, got {shown(given)}; write [{given!r}]")
    if given is None and before:
        parts = [*dict.fromkeys(name.split(".")[0] for name in before)]
        raise ValueError(
            f"{', '.join(parts)} come before the backbone; write embeddings={parts} for the lowest "
            "rate, or embeddings=[] for the rate of the head"
        )
    for part in given or ():
        if not any(_is_in(name, [part]) for name in names):
            tops = {name.split(".")[0] for name in names}
            raise ValueError(f"embeddings: the model has no {part!r}; {suggest(part, tops)}")


def _is_in(name: str, parts: Sequence[str]) -> bool:
    return any(name == part or name.startswith(f"{part}.") for part in parts)
