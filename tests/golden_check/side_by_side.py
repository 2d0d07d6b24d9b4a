"""Record the values seen by a hook of real mmcv, and compare two records."""

from __future__ import annotations

from typing import Any

import torch
from oracle import Hook


class Calls(Hook):
    """Records the runner's values at every call of a hook of real mmcv."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def note(self, runner: Any, point: str) -> None:
        """Record counters, rates, log keys and all weights."""
        self.calls.append(
            {
                "at": (point, runner.epoch, runner.iter, runner.inner_iter, runner.mode),
                "max": (runner.max_epochs, runner.max_iters),
                "lr": runner.current_lr(),
                "momentum": runner.current_momentum(),
                "log_keys": list(runner.log_buffer.val_history),
                "losses": list(runner.log_buffer.val_history.get("loss", [])),
                "grad_norms": list(runner.log_buffer.val_history.get("grad_norm", [])),
                "weights": {k: v.clone() for k, v in runner.model.state_dict().items()},
            }
        )


for _stage in Hook.stages:
    setattr(Calls, _stage, lambda self, runner, stage=_stage: self.note(runner, stage))


def assert_equal(ours: list[Any], theirs: list[Any]) -> None:
    """Compare call by call, weights bit for bit; ``module.`` is in front of both."""
    assert [c["at"] for c in ours] == [c["at"] for c in theirs]
    for our, their in zip(ours, theirs, strict=True):
        where = our["at"]
        for key in ("max", "lr", "momentum", "log_keys"):
            assert our[key] == their[key], (where, key)
        for key in ("losses", "grad_norms"):
            assert [float(x) for x in our[key]] == [float(x) for x in their[key]], (where, key)
        # real mmcv does not wrap a bare model
        theirs_named = {f"module.{k}": v for k, v in their["weights"].items()}
        assert our["weights"].keys() == theirs_named.keys(), where
        for name, value in our["weights"].items():
            assert torch.equal(value, theirs_named[name]), (where, name)
