"""Each message in docs/faq.md is raised by its mistake."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
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
    Hook,
    HookAdapter,
    MlflowLoggerHook,
    StepLrUpdaterHook,
)
from support import training
from support.paths import ROOT
from support.training import TinyModule, make_loader, make_trainer

PAGE = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^### ([^\n]*)\n\n```none\n(.*?)\n```$", PAGE, re.M | re.DOTALL)
ENTRIES = {heading: " ".join(message.split()) for heading, message in BLOCKS}
"""The messages by heading, joined from the lines of the page."""


class MyHook:
    def after_train_epoch(self, runner: Any) -> None:
        """Do nothing."""


class Diverges(TinyModule):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return super().training_step(batch, batch_idx) * (float("nan") if batch_idx == 2 else 1)


def fit(*hooks: Any, module: Any = TinyModule, ckpt_path: str | None = None, **given: Any) -> None:
    options = {"max_epochs": 2, "num_sanity_val_steps": 0, "enable_checkpointing": True, "val": 1}
    training.fit(Path.cwd(), *hooks, module=module, ckpt_path=ckpt_path, **{**options, **given})


def cosine(**warmup: Any) -> Hook:
    return CosineAnnealingLrUpdaterHook(min_lr=0, by_epoch=False, **warmup)


def tracker_is_down() -> None:
    pytest.importorskip("mlflow")
    address = "http://127.0.0.1:9"
    hook = MlflowLoggerHook(tracking_uri=address, timeout=0.5, log_model=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        fit(hook, enable_checkpointing=False)


def damaged() -> None:
    fit(CheckpointHook(1))
    path = Path("epoch_2.pth")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    fit(CheckpointHook(1), ckpt_path=str(path))


class WithClass(TinyModule):
    def __init__(self, loss: type = torch.nn.MSELoss) -> None:
        super().__init__()
        self.save_hyperparameters()


def classes_in_a_checkpoint() -> None:
    best = BestCheckpointHook("val_loss", rule="less")
    trainer = make_trainer(Path.cwd(), best, enable_checkpointing=True, num_sanity_val_steps=0)
    trainer.fit(WithClass(), make_loader(4), make_loader(1))
    given: dict[str, Any] = {"ckpt_path": "best", "verbose": False}
    (values,) = trainer.validate(dataloaders=make_loader(1), weights_only=False, **given)
    assert values["val_loss"] == best.best_model_score
    assert WithClass.load_from_checkpoint(best.best_model_path, weights_only=False)
    trainer.validate(dataloaders=make_loader(1), **given)


def trainer_of_the_other_lightning() -> None:
    other = pytest.importorskip("pytorch_lightning")

    class Module(other.LightningModule):  # type: ignore[misc,name-defined]
        def training_step(self, batch: Any, batch_idx: int) -> None: ...
        def configure_optimizers(self) -> None: ...

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = other.Trainer(accelerator="cpu", max_epochs=1, callbacks=[EMAHook()], **quiet)
    trainer.fit(Module(), make_loader(1))


MISTAKES: dict[str, Callable[[], object]] = {
    "The Trainer is of pytorch_lightning": trainer_of_the_other_lightning,
    "Two things set the learning rate": lambda: fit(cosine(), StepLrUpdaterHook(step=[1])),
    "The score to keep the best by is not logged": lambda: fit(
        BestCheckpointHook("val_los", rule="less")
    ),
    "The loss is NaN": lambda: fit(CheckInvalidLossHook(), module=Diverges),
    "A tracker is not reached": tracker_is_down,
    "A checkpoint is damaged, or no checkpoint": damaged,
    "A checkpoint has classes in it": classes_in_a_checkpoint,
}


def test_every_entry_has_its_mistake() -> None:
    assert len(MISTAKES) == 7
    assert [*MISTAKES] == [*ENTRIES]


@pytest.mark.parametrize("heading", MISTAKES)
def test_the_mistake_brings_the_message(
    heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.WARNING, "lightning_hooks")
    said = []
    try:
        MISTAKES[heading]()
    except Exception as error:  # warnings are errors in tests
        said.append(str(error))
    parts = map(re.escape, ENTRIES[heading].split("..."))
    assert re.search(".*".join(parts), "\n".join([*said, *caplog.messages]), re.DOTALL)


def test_the_adapter_may_be_beside_switched_off_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fit(HookAdapter([CheckpointHook(1)]), enable_checkpointing=False)
    assert Path("epoch_2.pth").exists()
