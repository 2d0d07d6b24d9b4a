"""The output on the pages of the families equals the output of a run, ignoring numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import (
    BestCheckpointHook,
    CheckInvalidLossHook,
    CheckpointHook,
    CosineAnnealingLrUpdaterHook,
    EMAHook,
    InvalidLossError,
    IterTimerHook,
    OptimizerHook,
    StepTimeHook,
    TextLoggerHook,
)
from lightning_hooks.cli import main
from support.paths import ROOT
from support.shown import shown_on, without_numbers
from support.training import TinyModule, fit

DOCS = ROOT / "docs"


class Scores(TinyModule):
    """A module that logs an accuracy, with a NaN loss in the third epoch."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        return loss * torch.nan if self.global_step == 27 else loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))
        self.log("acc", self.current_epoch / 10)


def test_lines_and_tables(tmp_path: Path, caplog: Any, capsys: Any) -> None:
    pytest.importorskip("rich")
    caplog.set_level("INFO", "lightning_hooks")
    logger = TextLoggerHook(interval=10)
    clipped = [OptimizerHook(grad_clip={"max_norm": 35}), logger]
    saved = [CheckpointHook(interval=1, max_keep_ckpts=2), BestCheckpointHook("acc"), logger]
    timed = [EMAHook(), CosineAnnealingLrUpdaterHook(min_lr=0), logger, StepTimeHook()]
    for hooks in (clipped, timed, [IterTimerHook(), logger]):
        fit(tmp_path, *hooks, module=Scores, batches=20, val=4, max_epochs=1)
    fit(tmp_path, *saved, module=Scores, batches=10, val=4, max_epochs=2)
    phases = (DOCS / "families" / "learning_rate.md").read_text(encoding="utf-8")
    exec(phases.partition("## Phases")[2].partition("```python\n")[2].partition("```")[0], {})
    with pytest.raises(InvalidLossError) as error:
        fit(tmp_path, CheckInvalidLossHook(), module=Scores, batches=20, val=1, max_epochs=2)
    notebook = json.loads((ROOT / "notebooks" / "07_averages.ipynb").read_text(encoding="utf-8"))
    kept = [o.get("text", "") for c in notebook["cells"] for o in c.get("outputs", [])]
    texts = [*caplog.messages, str(error.value), capsys.readouterr().out, *map("".join, kept)]
    given = without_numbers("\n".join(texts))
    for page in (DOCS / "families").glob("*.md"):
        assert shown_on(page) - given == set(), page


@pytest.mark.slow
def test_verdict(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main(["check", str(ROOT / "examples" / "old_mmcv_hooks.py")])
    printed = capsys.readouterr().out
    assert shown_on(DOCS / "check.md") - without_numbers(printed) == set()


def test_the_list_of_hooks(capsys: Any) -> None:
    pytest.importorskip("rich")
    with pytest.raises(SystemExit):
        main(["hooks"])
    listed = capsys.readouterr().out.splitlines()
    assert [line.split("\t") for line in listed if "Checkpoint" in line] == [
        ["BestCheckpointHook", "beyond mmcv",
         "Keep the checkpoints with the best values logged in the Trainer's validation."],
        ["CheckpointHook", "mmcv",
         "Write Lightning checkpoints by epochs, iterations or minutes, and keep the last ones."],
        ["HubCheckpointHook", "beyond mmcv",
         "Upload the best or the last checkpoint to the Hugging Face Hub, with a model card."],
    ]  # fmt: skip
