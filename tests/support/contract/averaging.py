"""Arguments of the averages of weights, for the contract."""

from __future__ import annotations

from support.contract.case import Case

__all__ = ["CASES"]

CASES: dict[str, Case] = {
    "EMAHook": ({"momentum": 0.1}, {"momentum": 2.0}),
    "ExpMomentumEMAHook": ({"momentum": 0.1, "total_iter": 8}, {"total_iter": 0}),
    "LinearMomentumEMAHook": ({"momentum": 0.3, "interval": 2, "warm_up": 9}, {"warm_up": -1}),
    "MomentumAnnealingEMAHook": ({"momentum": 0.1, "buffers": "copy"}, {"gamma": 0}),
    "StochasticWeightAverageHook": ({"interval": 2, "begin_iter": 3}, {"begin_iter": -1}),
}
