"""A config with ``fp16`` trains on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from support.standin import make


@pytest.mark.parametrize("kind", ["EpochBasedRunner", "IterBasedRunner"])
@pytest.mark.parametrize("config", [{}, {"loss_scale": {"init_scale": 64.0}}])
def test_half_precision_trains_on_a_cpu(kind: str, config: dict[str, Any], tmp_path: Path) -> None:
    """mmcv's half precision fails on the CPU: its autocast is for GPUs, and Half meets Float."""
    from mmcv.runner import Fp16OptimizerHook, auto_fp16, wrap_fp16_model

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(2, 1)
            self.fp16_enabled = False
            self.types: set[torch.dtype] = set()

        @auto_fp16()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.net(x)
            self.types.add(result.dtype)
            return result

        def train_step(self, data: Any, optimizer: Any = None) -> dict[str, Any]:
            loss = (self(data).float() - 1).square().mean()
            return {"loss": loss, "log_vars": {"loss": loss.item()}, "num_samples": len(data)}

    torch.manual_seed(0)
    model = Model()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    wrap_fp16_model(model)
    runner = make(kind, 2, tmp_path, model, meta={})
    by_epoch = kind == "EpochBasedRunner"
    hook = Fp16OptimizerHook(**config)
    checkpoints = {"interval": 1, "by_epoch": by_epoch}
    runner.register_training_hooks({"policy": "fixed"}, hook, checkpoints, None)
    runner.run([DataLoader(torch.rand(4, 2), batch_size=2)], [("train", 1)])  # type: ignore[arg-type]
    assert model.types == {torch.float16}
    for old, new in zip(before, model.parameters(), strict=True):
        assert new.dtype == torch.float32
        assert not torch.equal(old, new)
    name = "epoch_2.pth" if by_epoch else "iter_2.pth"
    saved = torch.load(tmp_path / name, weights_only=True)["meta"]["fp16"]["loss_scaler"]
    assert saved["scale"] == (64.0 if config else 512.0)
