"""Focal losses, against their formulas in plain Python."""

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


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize(("gamma", "alpha"), [(2.0, 0.25), (1.0, 0.6), (0.0, 0.5)])
def test_softmax_focal_loss(
    ops: Any, gamma: float, alpha: float, weight: torch.Tensor | None
) -> None:
    factors = torch.ones(3) if weight is None else weight
    expected = []
    for row, target in zip(SCORES.tolist(), TARGETS.tolist(), strict=True):
        p = math.exp(row[target]) / sum(map(math.exp, row))
        expected.append(-alpha * (1 - p) ** gamma * math.log(p) * float(factors[target]))
    losses = ops.softmax_focal_loss(SCORES, TARGETS, gamma, alpha, weight, "none")
    torch.testing.assert_close(losses, torch.tensor(expected, dtype=torch.float64))
    for reduction, reduced in (("sum", sum(expected)), ("mean", sum(expected) / 3)):
        layer = ops.SoftmaxFocalLoss(gamma, alpha, weight, reduction)
        assert float(layer(SCORES, TARGETS)) == pytest.approx(reduced)
        scores = SCORES.clone().requires_grad_()
        assert gradcheck(lambda given, layer=layer: layer(given, TARGETS), (scores,))


def test_rows_of_the_background_count_in_one_loss_and_not_in_the_other(ops: Any) -> None:
    background, ignored = torch.tensor([3, 3, 3]), torch.tensor([-1, -1, -1])
    losses = ops.sigmoid_focal_loss(SCORES, background, 2.0, 0.25, None, "none")
    assert float(losses[0, 0]) == pytest.approx(sigmoid_loss(0.5, False, 2.0, 0.25))
    scores = SCORES.clone().requires_grad_()
    loss = ops.softmax_focal_loss(scores, ignored, 2.0, 0.25, None, "sum")
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(torch.as_tensor(scores.grad), torch.zeros_like(SCORES))


def test_the_gradient_does_not_vanish_where_a_probability_underflows(ops: Any) -> None:
    scores = torch.tensor([[-110.0, 110.0]], requires_grad=True)
    loss = ops.sigmoid_focal_loss(scores, torch.tensor([0]), 2.0, 0.25, None, "sum")
    loss.backward()
    assert torch.as_tensor(scores.grad).tolist() == [[-0.25, pytest.approx(0.75)]]
    assert math.isfinite(loss.item())
    sure = torch.tensor([[200.0, -200.0]], requires_grad=True)
    ops.softmax_focal_loss(sure, torch.tensor([0]), 0.5, 0.25, None, "sum").backward()
    assert torch.as_tensor(sure.grad).tolist() == [[0.0, 0.0]]
