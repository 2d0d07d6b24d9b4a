"""Build runners and optimizers from configs."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from lightning_hooks.optim.rules import options_of
from lightning_hooks.standin.utils.registry import Registry
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.warn import warn

__all__ = [
    "OPTIMIZERS",
    "OPTIMIZER_BUILDERS",
    "RUNNERS",
    "RUNNER_BUILDERS",
    "TORCH_OPTIMIZERS",
    "DefaultOptimizerConstructor",
    "DefaultRunnerConstructor",
    "build_optimizer",
    "build_optimizer_constructor",
    "build_runner",
    "build_runner_constructor",
]

OPTIMIZERS = Registry("optimizer", scope="mmcv")
OPTIMIZERS.gives_way = lambda name, taken, new: taken.__module__.startswith("torch.")
OPTIMIZER_BUILDERS = Registry("optimizer builder", scope="mmcv")
TORCH_OPTIMIZERS = [
    name
    for name, cls in vars(torch.optim).items()
    if inspect.isclass(cls) and issubclass(cls, torch.optim.Optimizer)
]
for _name in TORCH_OPTIMIZERS:
    OPTIMIZERS.register_module(_name, module=getattr(torch.optim, _name))


build_optimizer_constructor = OPTIMIZER_BUILDERS.build
"""Build a constructor of optimizers."""


def build_optimizer(model: nn.Module, cfg: Mapping[str, Any]) -> Any:
    """Build the optimizer of a model.

    Args:
        model: The model, in a wrapper or not.
        cfg: ``dict(type="SGD", lr=..., paramwise_cfg=dict(...))``, optionally with ``constructor``.
    """
    arguments = copy.deepcopy(dict(cfg))
    constructor = {
        "type": arguments.pop("constructor", "DefaultOptimizerConstructor"),
        "paramwise_cfg": arguments.pop("paramwise_cfg", None),
        "optimizer_cfg": arguments,
    }
    return build_optimizer_constructor(constructor)(model)


@OPTIMIZER_BUILDERS.register_module()
class DefaultOptimizerConstructor:
    """Make an optimizer; with ``paramwise_cfg``, each parameter gets its own group.

    ====================  =========================================================
    key of paramwise_cfg  effect
    ====================  =========================================================
    custom_keys           ``{part of the name: dict(lr_mult=, decay_mult=)}``; the
                          longest match wins, and the rules below do not apply
    bias_lr_mult          learning rate of biases outside of norm layers
    bias_decay_mult       decay of biases outside of norm layers
    norm_decay_mult       decay of norm layers
    dwconv_decay_mult     decay of depth-wise convolutions
    dcn_offset_lr_mult    learning rate of the convolutions that compute offsets of
                          deformable convolutions; biases there have no other multiplier
    bypass_duplicate      whether duplicate parameters are skipped, with a warning
    ====================  =========================================================

    Args:
        optimizer_cfg: ``type``, ``lr`` and other arguments of the optimizer.
        paramwise_cfg: See the table.

    Raises:
        TypeError: for an argument that is not a dict.
        ValueError: for a decay multiplier without ``weight_decay``.
    """

    def __init__(
        self, optimizer_cfg: dict[str, Any], paramwise_cfg: dict[str, Any] | None = None
    ) -> None:
        if not isinstance(optimizer_cfg, dict):
            raise TypeError(f"optimizer_cfg must be a dict, got {shown(optimizer_cfg)}")
        self.optimizer_cfg = optimizer_cfg
        self.paramwise_cfg = {} if paramwise_cfg is None else paramwise_cfg
        self.base_lr = optimizer_cfg.get("lr")
        self.base_wd = optimizer_cfg.get("weight_decay")
        self._validate_cfg()

    def _validate_cfg(self) -> None:
        if not isinstance(self.paramwise_cfg, dict):
            raise TypeError(
                f"paramwise_cfg must be a dict or None, got {shown(self.paramwise_cfg)}"
            )
        custom = self.paramwise_cfg.get("custom_keys", {})
        if not isinstance(custom, dict):
            raise TypeError(f"custom_keys must be a dict, got {shown(custom)}")
        decaying = [k for k in self.paramwise_cfg if k.endswith("_decay_mult")]
        decaying += [k for k, rule in custom.items() if "decay_mult" in rule]
        if decaying and self.base_wd is None:
            raise ValueError(f"{decaying[0]} multiplies weight_decay, which optimizer_cfg lacks")

    def _is_in(self, param_group: dict[str, Any], param_group_list: list[dict[str, Any]]) -> bool:
        present = {id(p) for group in param_group_list for p in group["params"]}
        return any(id(p) in present for p in param_group["params"])

    def add_params(
        self,
        params: list[dict[str, Any]],
        module: nn.Module,
        prefix: str = "",
        is_dcn_module: bool | None = None,
    ) -> None:
        """Add a group for each parameter of a module and its submodules.

        Args:
            params: The list of groups, which is extended.
            module: The module.
            prefix: The module's name in the model.
            is_dcn_module: Whether the module is part of a deformable convolution.
        """
        for name, param in module.named_parameters(recurse=False):
            group: dict[str, Any] = {"params": [param]}
            if param.requires_grad:
                if self.paramwise_cfg.get("bypass_duplicate") and self._is_in(group, params):
                    warn(f"{prefix} is duplicate. It is skipped since bypass_duplicate=True")
                    continue
                full_name, in_deformable = f"{prefix}.{name}", bool(is_dcn_module)
                is_conv = in_deformable and isinstance(module, nn.Conv2d)
                group.update(
                    options_of(
                        *(module, name, full_name, self.base_lr, self.base_wd, self.paramwise_cfg),
                        is_offset=is_conv and "conv_offset" in full_name,
                        in_deformable=in_deformable,
                    )
                )
            params.append(group)
        deformable = isinstance(module, _deformable_convolutions())
        for name, child in module.named_children():
            child_prefix = f"{prefix}.{name}" if prefix else name
            self.add_params(params, child, child_prefix, is_dcn_module=deformable)

    def __call__(self, model: Any) -> Any:
        """Make the optimizer of a model."""
        model = getattr(model, "module", model)
        groups: Any = model.parameters()
        if self.paramwise_cfg:
            groups = []
            self.add_params(groups, model)
        return OPTIMIZERS.build({**self.optimizer_cfg, "params": groups})


def _deformable_convolutions() -> tuple[type, ...]:
    """Return mmcv's classes; none before ``mmcv.ops`` is imported."""
    ops = sys.modules.get("mmcv.ops")
    return (ops.DeformConv2d, ops.ModulatedDeformConv2d) if ops else ()


RUNNERS = Registry("runner", scope="mmcv")
# imported on demand: code without a training, which reads layers or checkpoints, needs no Lightning
RUNNERS.homes = {
    "EpochBasedRunner": "lightning_hooks.standin.runner.epoch_based_runner",
    "IterBasedRunner": "lightning_hooks.standin.runner.iter_based_runner",
    "Runner": "lightning_hooks.standin.runner.epoch_based_runner",
}
RUNNER_BUILDERS = Registry("runner builder", scope="mmcv")


@RUNNER_BUILDERS.register_module()
class DefaultRunnerConstructor:
    """Make a runner from its config.

    Args:
        runner_cfg: The config.
        default_args: Defaults for keys missing from the config.
    """

    def __init__(
        self, runner_cfg: dict[str, Any], default_args: dict[str, Any] | None = None
    ) -> None:
        if not isinstance(runner_cfg, dict):
            raise TypeError(f"runner_cfg must be a dict, got {shown(runner_cfg)}")
        self.runner_cfg = runner_cfg
        self.default_args = default_args

    def __call__(self) -> Any:
        """Return the runner."""
        return RUNNERS.build(self.runner_cfg, default_args=self.default_args)


build_runner_constructor = RUNNER_BUILDERS.build
"""Build a constructor of runners."""


def build_runner(cfg: Mapping[str, Any], default_args: Mapping[str, Any] | None = None) -> Any:
    """Build a runner.

    Args:
        cfg: ``dict(type="EpochBasedRunner", max_epochs=12)``, optionally with ``constructor``.
        default_args: ``dict(model=..., optimizer=..., work_dir=..., logger=..., meta=...)``.
    """
    runner_cfg = copy.deepcopy(dict(cfg))
    kind = runner_cfg.pop("constructor", "DefaultRunnerConstructor")
    constructor = {"type": kind, "runner_cfg": runner_cfg, "default_args": default_args}
    return build_runner_constructor(constructor)()
