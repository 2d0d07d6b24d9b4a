"""The checkpoint sizes on docs/guides/several_gpus.md follow from the formulas on the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard

from lightning_hooks import CheckpointHook, EMAHook
from support.paths import ROOT
from support.training import make_trainer

WIDTH = 1024
PARAMETERS = 4 * WIDTH**2
"""Bytes of the parameters."""
ROWS = {
    "weights alone, `save_optimizer=False`": (0, False),
    "Adam": (0, True),
    "Adam and an average": (1, True),
    "Adam and two averages": (2, True),
}
"""The number of averages, and whether a file has the optimizer's state."""


class Wide(L.LightningModule):
    """A layer large beside all else in a checkpoint."""

    def __init__(self, is_sharded: bool) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.is_sharded = is_sharded

    def configure_model(self) -> None:
        if self.is_sharded and self.device_mesh is not None:
            fully_shard(self.layer, mesh=self.device_mesh["data_parallel"])
            self.is_sharded = False

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.layer(batch).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters())


def written(directory: Path, averages: int, optimizer: bool, is_sharded: bool) -> Path:
    """Train for a batch; return the checkpoint."""
    save = CheckpointHook(interval=1, save_optimizer=optimizer)
    hooks = [*(EMAHook(momentum=0.1 + 0.1 * i) for i in range(averages)), save]
    strategy = ModelParallelStrategy(1, 1) if is_sharded else "auto"
    trainer = make_trainer(
        directory, *hooks, strategy=strategy, max_epochs=1, enable_checkpointing=True
    )
    trainer.fit(Wide(is_sharded), torch.utils.data.DataLoader(torch.rand(2, WIDTH), 2))
    return Path(str(save.last_checkpoint))


def on_page(row: str) -> int:
    """Return the size of a row of the page's table, in sizes of the parameters."""
    page = (ROOT / "docs" / "guides" / "several_gpus.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {row} |")]
    (size,) = re.findall(r"(\d) P", line)
    return int(size)


@pytest.mark.parametrize("row", ROWS)
def test_a_file_has_the_size_on_the_page(row: str, tmp_path: Path) -> None:
    size = written(tmp_path, *ROWS[row], is_sharded=False).stat().st_size
    assert round(size / PARAMETERS, 1) == on_page(row)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
def test_a_directory_has_the_size_on_the_page_and_meta_pt_no_weights(
    row: str, tmp_path: Path
) -> None:
    path = written(tmp_path, *ROWS[row], is_sharded=True)
    parts = sum(part.stat().st_size for part in path.glob("*.distcp"))
    assert round(parts / PARAMETERS, 1) == on_page(row)
    assert (path / "meta.pt").stat().st_size < PARAMETERS / 100
