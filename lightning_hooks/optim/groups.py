"""``param_groups``: separate learning rates and weight decays for parts of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from lightning_hooks.optim.layers import rate_factors
from lightning_hooks.optim.rules import options_of
from lightning_hooks.utils.arguments import check_bool, check_dict, check_number, shown
from lightning_hooks.utils.dtensors import uncompiled_key
from lightning_hooks.utils.suggestions import suggest

__all__ = ["param_groups"]

CUSTOM = ("lr_mult", "decay_mult")


def param_groups(
    module: nn.Module,
    lr: float,
    weight_decay: float = 0.0,
    *,
    layer_decay: float | None = None,
    blocks: str | Callable[[str], int] | None = None,
    embeddings: Sequence[str] | None = None,
    custom_keys: Mapping[str, Mapping[str, float]] | None = None,
    bias_lr_mult: float = 1.0,
    bias_decay_mult: float | None = None,
    norm_decay_mult: float | None = None,
    dwconv_decay_mult: float | None = None,
    flat_decay_mult: float = 1.0,
    bypass_duplicate: bool = True,
) -> list[dict[str, Any]]:
    """Sort a model's parameters into groups for an optimizer, each with its rate and decay.

    The arguments from ``custom_keys`` on are the keys of mmcv's ``paramwise_cfg``. Parameters of
    the same rate and decay share a group; frozen parameters are left out, shared parameters appear
    once. Schedules of this package and of torch multiply the rate of each group.

    With ``layer_decay`` the rate falls from the last layer to the first, as for the fine-tuning of
    BEiT, MAE and Swin: ``lr * layer_decay ** (n + 1 - layer)``. The ``n`` blocks are layers 1 to
    ``n``. The backbone is the part of the model named by the first word of ``blocks``: parameters
    before the first block are layer 0, parameters after the last block layer ``n + 1``, and
    parameters between two blocks belong to the earlier block. All other parameters of the model are
    layer ``n + 1``.

    Args:
        module: The model, or the LightningModule.
        lr: The learning rate of parameters without a rule.
        weight_decay: The weight decay of parameters without a rule.
        layer_decay: The factor from a layer to the layer before, in (0, 1].
        blocks: The names of the blocks, as ``"backbone.layers.*"`` or
            ``"backbone.stages.*.blocks.*"``; or, for any other count, a function from the name of a
            parameter to the number of the layer. The highest layer has the full rate.
        embeddings: Modules and parameters outside of the backbone for layer 0; required (perhaps
            as ``[]``) if the model registers parameters before the backbone.
        custom_keys: ``{part of a name: {"lr_mult": 0.1, "decay_mult": 0.0}}``. The longest key
            found in a parameter's name counts, and no other rule but ``layer_decay``.
        bias_lr_mult: Factor of the rate of biases, except of norm layers.
        bias_decay_mult: Factor of the decay of biases, except of norm layers.
        norm_decay_mult: Factor of the decay of the weights and biases of norm layers.
        dwconv_decay_mult: Factor of the decay of depth-wise convolutions.
        flat_decay_mult: Factor of the decay of all other parameters with a single dimension.
        bypass_duplicate: Accepted for old configs; shared parameters always appear once.

    Returns:
        Groups for any optimizer of torch.

    Raises:
        TypeError: for arguments of another type.
        ValueError: for a ``layer_decay`` without ``blocks``, or out of range, for names missing in
            the model, and for missing ``embeddings``.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.Linear(2, 1))
    >>> groups = param_groups(model, lr=0.1, weight_decay=0.05, norm_decay_mult=0.0)
    >>> [(group["lr"], group["weight_decay"], len(group["params"])) for group in groups]
    [(0.1, 0.05, 4), (0.1, 0.0, 2)]
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be an nn.Module, got {shown(module)}")
    check_number("lr", lr)
    check_number("weight_decay", weight_decay)
    check_bool(bypass_duplicate=bypass_duplicate)
    given = {
        "bias_lr_mult": bias_lr_mult,
        "bias_decay_mult": bias_decay_mult,
        "norm_decay_mult": norm_decay_mult,
        "dwconv_decay_mult": dwconv_decay_mult,
    }
    rules: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    for key, value in {**rules, "flat_decay_mult": flat_decay_mult}.items():
        check_number(key, value)
    rules["custom_keys"] = _checked(custom_keys or {})
    scales = rate_factors(module, layer_decay, blocks, embeddings)
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for owner, name, full_name, parameter in _trained(module):
        flat = flat_decay_mult if parameter.ndim == 1 else 1.0
        options = options_of(owner, name, full_name, lr, weight_decay, rules, flat)
        rate = options.get("lr", lr) * scales.get(id(parameter), 1.0)
        decay = options.get("weight_decay", weight_decay)
        new = {"params": [], "lr": rate, "weight_decay": decay}
        group = groups.setdefault((rate, decay), new)
        group["params"].append(parameter)
    return [*groups.values()]


def _trained(module: nn.Module) -> Iterator[tuple[nn.Module, str, str, nn.Parameter]]:
    seen: set[int] = set()
    for prefix, owner in module.named_modules():
        for name, parameter in owner.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                yield owner, name, uncompiled_key(f"{prefix}.{name}"), parameter


def _checked(custom_keys: Any) -> Any:
    check_dict("custom_keys", custom_keys)
    for part, rule in custom_keys.items():
        check_dict(f"custom_keys[{part!r}]", rule)
        for key, value in rule.items():
            if key not in CUSTOM:
                raise ValueError(f"custom_keys[{part!r}]: no {key!r}; {suggest(key, CUSTOM)}")
            check_number(f"custom_keys[{part!r}][{key!r}]", value)
    return {uncompiled_key(part): rule for part, rule in custom_keys.items()}
