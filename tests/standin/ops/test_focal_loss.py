"""Focal losses compared with the formulas in plain Python."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck

from support.standin import needs_lite

pytestmark = needs_lite

SCORES = torch.tensor([[0.5, -1.0, 2.0], [0.1, 0.2, -0.3], [3.0, -2.0, 0.0]], dtype=torch.float64)
TARGETS = torch.tensor([2, 0, 1])
WEIGHT = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)


def sigmoid_loss(score: float, right: bool, gamma: float, alpha: float) -> float:
    p = 1 / (1 + math.exp(-score))
    if right:
        return -alpha * (1 - p) ** gamma * math.log(p)
    return -(1 - alpha) * p**gamma * math.log(1 - p)


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize(("gamma", "alpha"), [(2.0, 0.25), (1.5, 0.6), (0.0, 0.5)])
def test_sigmoid_focal_loss(
    ops: Any, gamma: float, alpha: float, weight: torch.Tensor | None
) -> None:
    factors = torch.ones(3) if weight is None else weight
    expected = [
        [
            sigmoid_loss(float(score), target == column, gamma, alpha) * float(factors[target])
            for column, score in enumerate(row)
        ]
        for row, target in zip(SCORES, TARGETS.tolist(), strict=True)
    ]
    total = sum(map(sum, expected))
    losses = ops.sigmoid_focal_loss(SCORES, TARGETS, gamma, alpha, weight, "none")
    torch.testing.assert_close(losses, torch.tensor(expected, dtype=torch.float64))
    for reduction, reduced in (("sum", total), ("mean", total / 3)):
        layer = ops.SigmoidFocalLoss(gamma, alpha, weight, reduction)
        assert float(layer(SCORES, TARGETS)) == pytest.approx(reduced)
        scores = SCORES.clone().requires_grad_()
        assert gradcheck(lambda given, layer=layer: layer(given, TARGETS), (scores,))


def test_the_background_is_right_nowhere(ops: Any) -> None:
    losses = ops.sigmoid_focal_loss(SCORES, torch.tensor([3, 3, 3]), 2.0, 0.25, None, "none")
    assert float(losses[0, 0]) == pytest.approx(sigmoid_loss(0.5, False, 2.0, 0.25))


def test_the_gradient_does_not_vanish_where_a_probability_underflows(ops: Any) -> None:
    scores = torch.tensor([[-110.0, 110.0]], requires_grad=True)
    loss = ops.sigmoid_focal_loss(scores, torch.tensor([0]), 2.0, 0.25, None, "sum")
    loss.backward()
    assert torch.as_tensor(scores.grad).tolist() == [[-0.25, pytest.approx(0.75)]]
    assert math.isfinite(loss.item())
