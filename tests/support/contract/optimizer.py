"""Contract arguments of the optimizer hooks."""

from __future__ import annotations

from support.contract.case import Case

__all__ = ["CASES"]

CASES: dict[str, Case] = {
    "GradientCumulativeOptimizerHook": ({"cumulative_iters": 2}, {"cumulative_iters": 0}),
    "Fp16OptimizerHook": ({"loss_scale": 512}, {"loss_scale": "static"}),
    "GradientCumulativeFp16OptimizerHook": (
        {"cumulative_iters": 2, "loss_scale": {"growth_interval": 2}},
        {"loss_scale": 0},
    ),
    "OptimizerHook": ({"grad_clip": {"max_norm": 1.0}}, {"grad_clip": 3}),
}
