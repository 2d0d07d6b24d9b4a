"""The search for NaN and infinite values: few operations for any number of tensors."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_hooks.utils.nonfinite import finite_weights


class Operations(TorchDispatchMode):
    """Counts torch's operations."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def module_of(count: int) -> torch.nn.ParameterList:
    return torch.nn.ParameterList(torch.nn.Parameter(torch.ones(2)) for _ in range(count))


def test_finite_weights_are_searched_together() -> None:
    def operations(count: int) -> int:
        module = module_of(count)
        with Operations() as found:
            assert finite_weights(module) == tuple(module)
        return found.count

    assert operations(3) == operations(100)


def test_weights_that_are_infinite_on_purpose_are_left_out() -> None:
    module = module_of(4)
    with torch.no_grad():
        module[1][0] = -math.inf
    module[2].requires_grad = False
    found = finite_weights(module)
    assert [any(one is each for one in found) for each in module] == [True, False, False, True]
    assert finite_weights(module_of(0)) == ()
