"""Find torchvision's compiled operators, which some operators call in place of plain torch."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch

__all__ = ["torchvision_ops"]


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
