"""A library based on ``pytorch_lightning`` trains with the hooks after one call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.processes import run_python

LIBRARY = """
import pytorch_lightning as pl
import torch
from lightning_fabric.utilities.seed import seed_everything
from torch.utils.data import DataLoader

class Forecaster(pl.LightningModule):
    def __init__(self, lr=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Linear(1, 1)

    def training_step(self, batch, batch_idx):
        return self.net(batch).square().mean()

    def validation_step(self, batch, batch_idx):
        self.log("score", self.net(batch).square().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)

def train(callbacks, max_epochs=2, ckpt_path=None):
    from pytorch_lightning.loggers import CSVLogger  # not imported above

    seed_everything(0)
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=max_epochs, callbacks=callbacks, default_root_dir=".",
        logger=CSVLogger("."), enable_progress_bar=False, enable_model_summary=False,
    )
    loader = DataLoader(torch.ones(4, 1))
    trainer.fit(Forecaster(), loader, loader, ckpt_path=ckpt_path)
    return trainer
"""
USUAL = """
import lightning_hooks as lh

def hooks():
    return [
        lh.CosineAnnealingLrUpdaterHook(min_lr=0), lh.EMAHook(), lh.CheckpointHook(1),
        lh.BestCheckpointHook("score", rule="less"), lh.TextLoggerHook(interval=2),
    ]
"""
CALL = "import lightning_hooks\nlightning_hooks.use_with_pytorch_lightning()\n"


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Return a function that runs a script with the library ``forecaster`` importable."""
    (tmp_path / "forecaster").mkdir()
    (tmp_path / "forecaster" / "__init__.py").write_text("from forecaster.model import *")
    (tmp_path / "forecaster" / "model.py").write_text(LIBRARY)
    (tmp_path / "usual.py").write_text(USUAL)

    def run(script: str) -> Any:
        (tmp_path / "script.py").write_text(script)
        return json.loads(run_python("script.py", folder=tmp_path).splitlines()[-1])

    return run


def error_of(work: str) -> str:
    """Return code to print the error of a line of code."""
    report = "except Exception as e:\n    print(json.dumps(repr(e)))"
    return f"import json\ntry:\n    {work}\n{report}\n"


def test_a_library_trains_with_hooks_after_the_call(run: Any, tmp_path: Path) -> None:
    program = """
import json, usual, forecaster
trainer = forecaster.train(usual.hooks())
print(json.dumps([trainer.global_step, trainer.optimizers[0].param_groups[0]["lr"]]))
"""
    assert run(CALL + program) == [8, pytest.approx(0.05)]
    names = {path.name for path in tmp_path.glob("*.pth")}
    assert names == {"epoch_1.pth", "epoch_2.pth", "latest.pth", "best_score_epoch_2.pth"}
    (log,) = tmp_path.glob("*.log")
    assert "Epoch [2][4/4]" in log.read_text()


def test_both_names_have_the_same_classes_and_modules(run: Any) -> None:
    program = """
import importlib.util, json, pickle
import pytorch_lightning as pl, pytorch_lightning.callbacks.lambda_function as late
from pytorch_lightning.callbacks import EarlyStopping
import lightning as L, lightning_fabric
import lightning.pytorch.callbacks.lambda_function as original

lightning_hooks.use_with_pytorch_lightning()  # a second call
named = pickle.loads(b"cpytorch_lightning.callbacks\\nEarlyStopping\\n.")
print(json.dumps({
    "classes": pl.Trainer is L.Trainer and lightning_fabric.Fabric is L.Fabric,
    "modules": late is original,
    "isinstance": isinstance(EarlyStopping("loss"), L.Callback),
    "version": pl.__version__ == L.__version__,
    "pickle": named is EarlyStopping,
    "lightning's own": [original.__name__, original.__spec__.name],
    "missing": importlib.util.find_spec("pytorch_lightning.nothing"),
}))
"""
    name = "lightning.pytorch.callbacks.lambda_function"
    assert run(CALL + program) == {
        **dict.fromkeys(("classes", "modules", "isinstance", "version", "pickle"), True),
        "lightning's own": [name, name],
        "missing": None,
    }


def test_a_checkpoint_of_the_other_package_is_resumed(run: Any) -> None:
    pytest.importorskip("pytorch_lightning")
    run("import forecaster, json\nprint(json.dumps(forecaster.train([]).global_step))")
    program = """
import glob, json, usual, forecaster
(path,) = glob.glob("lightning_logs/*/checkpoints/*.ckpt")
steps = forecaster.train(usual.hooks(), 3, path).global_step
print(json.dumps([steps, forecaster.Forecaster.load_from_checkpoint(path).hparams.lr]))
"""
    assert run(CALL + program) == [12, 0.1]


def test_without_the_call_the_error_names_it(run: Any) -> None:
    pytest.importorskip("pytorch_lightning")
    error = run("import usual, forecaster\n" + error_of("forecaster.train(usual.hooks())"))
    assert "CosineAnnealingLrUpdaterHook needs lightning.Trainer, got that of pytorch_" in error
    assert "call lightning_hooks.use_with_pytorch_lightning() before the library is" in error


@pytest.mark.parametrize(
    ("imports", "importers"),
    [
        ("import forecaster", "by forecaster.model;"),
        ("from pytorch_lightning import Trainer\nimport forecaster", "__main__, forecaster.model;"),
    ],
)
def test_a_late_call_names_the_imports_before(imports: str, importers: str, run: Any) -> None:
    pytest.importorskip("pytorch_lightning")
    call = error_of("lightning_hooks.use_with_pytorch_lightning()")
    error = run(f"{imports}\nimport lightning_hooks\n{call}")
    assert "comes too late: pytorch_lightning is already imported, by " in error
    assert importers in error
