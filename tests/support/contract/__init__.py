"""Create each hook for the contract tests, and list the refused arguments."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch.plugins import MixedPrecision

from lightning_hooks import HOOKS
from lightning_hooks.engine.priority import is_family
from support.contract import averaging, loggers, lr, momentum, optimizer, others
from support.contract.case import Case

CASES: dict[str, Case] = {
    **lr.CASES,
    **momentum.CASES,
    **optimizer.CASES,
    **averaging.CASES,
    **loggers.CASES,
    **others.CASES,
}
"""Every native hook, by name."""


TRACKERS = {name for name in CASES if name.endswith("LoggerHook") and name != "TextLoggerHook"}


def build(name: str) -> Any:
    """Create a hook with the arguments of the contract."""
    return HOOKS.build({"type": name, **CASES[name][0]})


def needs(*hooks: Any) -> dict[str, Any]:
    """Return the Trainer arguments required by hooks: a gradient scaler for half precision."""
    if not any(is_family(hook, "Fp16OptimizerHook") for hook in hooks):
        return {}
    scaler = torch.amp.GradScaler("cpu")  # on a GPU: "16-mixed"
    return {"plugins": [MixedPrecision("16-mixed", "cpu", scaler)]}
