"""Shared by the operators: torchvision's compiled ones, and gradients by a second forward pass."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["gradients", "torchvision_ops"]


@functools.cache
def torchvision_ops() -> Any:
    """Import ``torchvision.ops`` at the first call; return None where it is missing or broken.

    A torchvision of another torch than the installed one fails in many ways, at import or when an
    operator is called: one is called here.
    """
    try:
        found = importlib.import_module("torchvision.ops")
        found.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except Exception:
        return None
    return found


def gradients(
    function: Callable[..., Tensor], inputs: tuple[Tensor, ...], grad: Tensor
) -> tuple[Tensor, ...]:
    """Return the gradients of a function's inputs, given that of its result."""
    with torch.enable_grad():
        leaves = [one.detach().requires_grad_() for one in inputs]
        return torch.autograd.grad(function(*leaves), leaves, grad)
