"""The scripts of docs/guides/inside_libraries.md train the libraries' models as the page says."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT

PYTHON = ROOT / ".bench" / "libraries" / "bin" / "python"
PAGE = (ROOT / "docs" / "guides" / "inside_libraries.md").read_text(encoding="utf-8")
HERE = Path(__file__).parent / "inside"
LIBRARIES: dict[str, tuple[str, float | None]] = {
    "anomalib": ("anomalib", 1e-3),
    "chemprop": ("chemprop", 1e-4),
    "darts": ("darts", 1e-3),
    "deeptab": ("deeptab", 1e-4),
    "gluonts": ("gluonts", 1e-3),
    "lightly": ("lightly", 0.06),
    "Lightning's demos": ("lightning", 0.1),
    "neuralforecast": ("neuralforecast", 1e-3),
    "pytorch-forecasting": ("pytorch_forecasting", 1e-2),
    "pytorch-tabular": ("pytorch_tabular", 1e-3),
    "Ray Train": ("ray", 0.1),
    "scvi-tools": ("scvi", 1e-3),
    "segmentation-models-pytorch": ("segmentation_models_pytorch", 1e-3),
    "timm with Optuna": ("timm", None),
    "torch-geometric": ("torch_geometric", 1e-2),
}
"""The package, and the first rate of the model's optimizer, by the headings of the page."""
FLOAT32 = 3e-6
"""The largest difference between averages in float32 and in float64, for weights near 1."""


@pytest.fixture(scope="session", autouse=True)
def _libraries() -> None:
    """Install the installable libraries once."""
    subprocess.run([ROOT / "benchmarks" / "peers.sh", "libraries"], check=False, timeout=3600)


def run(folder: Path, *arguments: Any, check: bool = True) -> str:
    """Run a program in the libraries' environment; return the output."""
    paths = os.pathsep.join(map(str, (HERE, ROOT)))
    done = subprocess.run(
        [PYTHON, "-W", "ignore", *map(str, arguments)],
        **{"cwd": folder, "env": {**os.environ, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": ""}},
        **{"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "timeout": 600},
    )
    assert done.returncode == 0 or not check, done.stdout[-4000:]
    return done.stdout


def skip_without(package: str, folder: Path) -> None:
    """Skip a test where the package is not installed."""
    program = f"from importlib import util; print(util.find_spec('{package}'))"
    if not PYTHON.exists() or run(folder, "-c", program).strip().endswith("None"):
        pytest.skip(f"{package} is not installed")


def first_sentence(paragraph: str) -> str:
    """Return the first sentence, with the names of libraries, of a paragraph on the page."""
    found = re.search(rf"^\*\*{paragraph}[^*]*\*\*([^.]*\.)", PAGE, re.M)
    assert found
    return found[1]


def test_every_section_has_a_test() -> None:
    headings = [line[3:] for line in PAGE.splitlines() if line.startswith("## ")]
    assert headings == ["What to know", *LIBRARIES]


@pytest.mark.parametrize("heading", LIBRARIES)
def test_a_librarys_model_trains_with_the_usual_hooks(heading: str, tmp_path: Path) -> None:
    package, rate = LIBRARIES[heading]
    skip_without(package, tmp_path)
    printed = run(tmp_path, HERE / "run_script.py", heading, "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    begins = re.search(r"begins with\n\n```none\n(.*?)```", PAGE, re.DOTALL)
    assert begins
    assert " ".join(begins[1].split()) in printed
    first = found["rates"][0][1]
    assert rate in (None, first)
    for batch, value in found["rates"]:
        assert abs(value - found["cosine"][batch]) <= 1e-15 * first
    assert max(found["errors of averages"]) < FLOAT32
    assert found["best"] == found["best by hand"]
    assert found["last"] == found["steps"]
    records = [json.loads(line) for line in found["log"].splitlines()]
    rates = [one["lr"] for one in records if one.get("mode") == "train" and "lr" in one]
    assert rates[-1] == pytest.approx(found["rates"][-1][1], abs=1e-5)
    if heading != "Ray Train":  # the model is of Lightning's demos
        assert found["has a scheduler"] is (heading in first_sentence("A scheduler"))
        assert found["saves classes"] is (heading in first_sentence("Checkpoints with classes"))
    if "errors after the fit" in found:
        left = "best" if heading in first_sentence("Which weights") else "last"
        assert found["errors after the fit"][left] < FLOAT32


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "enable_checkpointing=False"),
        ({"enable_checkpointing": "True"}, ""),
        ({"callbacks": "[lh.HookAdapter(hooks)]"}, ""),
    ],
)
def test_scvi_tools_switches_checkpoints_off(
    given: dict[str, str], message: str, tmp_path: Path
) -> None:
    skip_without("scvi", tmp_path)
    arguments = ", ".join(f"{k}={v}" for k, v in {"callbacks": "hooks", **given}.items())
    program = f"""
import anndata, numpy as np, lightning_hooks as lh
from scvi.model import SCVI
cells = anndata.AnnData(np.random.default_rng(0).poisson(2.0, (40, 9)).astype("float32"))
SCVI.setup_anndata(cells)
hooks = [lh.CheckpointHook(1)]
SCVI(cells).train(max_epochs=1, default_root_dir="run", {arguments})
"""
    printed = run(tmp_path, "-c", program, check=not message)
    assert message in printed.replace("`", "")
    assert (tmp_path / "run" / "epoch_1.pth").exists() is not bool(message)


def test_finetuning_scheduler_allows_one_model_checkpoint(tmp_path: Path) -> None:
    skip_without("finetuning_scheduler", tmp_path)
    program = """
import sys, lightning as L, torch, lightning_hooks as lh
from finetuning_scheduler import FinetuningScheduler
from lightning.pytorch.demos.boring_classes import BoringModel

class Model(BoringModel):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.Linear(16, 2))
    def validation_step(self, batch, batch_idx):
        self.log("val_loss", super().validation_step(batch, batch_idx)["x"])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

hooks = [lh.EMAHook(0.1), lh.CheckpointHook(1), lh.BestCheckpointHook("val_loss", "less")]
given = hooks if sys.argv[1] == "list" else [lh.HookAdapter(hooks)]
quiet = {"accelerator": "cpu", "logger": False, "limit_train_batches": 4, "limit_val_batches": 2}
trainer = L.Trainer(max_epochs=2, callbacks=[FinetuningScheduler(max_depth=1), *given], **quiet)
trainer.fit(model := Model())
print("fitted")
L.Trainer(callbacks=[lh.HookAdapter(hooks)], **quiet).validate(model)
print("validated")
trainer.validate(model)
"""
    printed = run(tmp_path, "-c", program, "list", check=False)
    assert "multiple ModelCheckpoint" in printed
    assert "fitted" not in printed
    printed = run(tmp_path, "-c", program, "adapter", check=False)
    assert "validated" in printed
    assert "multiple ModelCheckpoint" in printed.partition("validated")[2]
    assert (tmp_path / "epoch_2.pth").exists()


def test_gluonts_loader_without_a_length(tmp_path: Path) -> None:
    """A schedule by iteration asks for a length, a schedule by epoch needs none."""
    skip_without("gluonts", tmp_path)
    program = """
import sys, numpy as np, pandas as pd, lightning_hooks as lh
from gluonts.dataset.pandas import PandasDataset
from gluonts.torch import SimpleFeedForwardEstimator

dates = pd.date_range("2020-01-01", periods=200, freq="D")
series = PandasDataset(pd.DataFrame({"target": np.arange(200, dtype="float32")}, index=dates))
hook = lh.CosineAnnealingLrUpdaterHook(min_lr=0, by_epoch=sys.argv[1] == "epoch")
given = {"max_epochs": 2, "callbacks": [hook, lh.TextLoggerHook(interval=50)], "logger": False}
SimpleFeedForwardEstimator(12, num_batches_per_epoch=50, trainer_kwargs=given).train(series)
"""
    printed = run(tmp_path, "-c", program, "iteration", check=False)
    assert "max_epochs and a loader with a length, or max_steps" in printed
    assert "limit_train_batches=... gives a loader a length, by_epoch=True needs max" in printed
    for log in tmp_path.glob("*.log.json"):
        log.unlink()
    run(tmp_path, "-c", program, "epoch")
    (log,) = tmp_path.glob("*.log.json")
    records = [json.loads(line) for line in log.read_text().splitlines()]
    rates = [(one["epoch"], one["lr"]) for one in records if "lr" in one]
    assert rates == [(1, 1e-3), (2, 5e-4)]


def test_classes_among_the_hyper_parameters(tmp_path: Path) -> None:
    """neuralforecast's files are read with `weights_only=False`; it predicts with the average."""
    skip_without("neuralforecast", tmp_path)
    program = """
import lightning_hooks as lh
lh.use_with_pytorch_lightning()
import pickle, torch
from neuralforecast import NeuralForecast
from neuralforecast.models import NHITS
from neuralforecast.utils import AirPassengersDF

given = {"callbacks": [lh.EMAHook(momentum=0.1), lh.BestCheckpointHook("valid_loss", "less")]}
given |= {"max_steps": 4, "val_check_steps": 2, "enable_checkpointing": True}
model = NHITS(h=12, input_size=24, accelerator="cpu", **given)
forecast = NeuralForecast([model], freq="ME")
forecast.fit(AirPassengersDF, val_size=12)
average, best, *_ = (trained := forecast.models[0]).trainer_kwargs["callbacks"]
try:
    torch.load(best.best_model_path)
except pickle.UnpicklingError:
    print("classes")
weights = torch.load(best.best_model_path, weights_only=False)["state_dict"]
predicted = forecast.predict()["NHITS"]
average.apply_to(trained)
assert all(torch.equal(weights[name], value) for name, value in trained.state_dict().items())
trained.trainer_kwargs["callbacks"] = []
assert (forecast.predict()["NHITS"] == predicted).all()
print("predicts with the average")
"""
    printed = run(tmp_path, "-c", program).splitlines()
    assert "classes" in printed
    assert "predicts with the average" in printed


def test_darts_predicts_with_the_average(tmp_path: Path) -> None:
    """The Trainer that predicts has the same callbacks."""
    skip_without("darts", tmp_path)
    program = """
import lightning_hooks as lh
lh.use_with_pytorch_lightning()
import torch
from darts.models import NBEATSModel
from darts.utils.timeseries_generation import sine_timeseries

series = sine_timeseries(length=200, dtype="float32")
average = lh.EMAHook(momentum=0.1)
model = NBEATSModel(24, 12, n_epochs=3, layer_widths=16, pl_trainer_kwargs={"callbacks": [average]})
model.fit(series[:150])
predicted = model.predict(12)
state = model.model.state_dict()
assert all(torch.equal(state[name], value) for name, value in average.ema_state_dict().items())
model.trainer_params["callbacks"] = []
assert model.predict(12) == predicted
model.save("saved.pt")
assert NBEATSModel.load("saved.pt", trusted=True).predict(12) == predicted
print("predicts with the average")
"""
    assert "predicts with the average" in run(tmp_path, "-c", program)


def test_neuralforecast_saves_the_average(tmp_path: Path) -> None:
    skip_without("neuralforecast", tmp_path)
    program = """
import lightning_hooks as lh
lh.use_with_pytorch_lightning()
import torch
from neuralforecast import NeuralForecast
from neuralforecast.models import NHITS
from neuralforecast.utils import AirPassengersDF

average = lh.EMAHook(momentum=0.1)
model = NHITS(h=12, input_size=24, max_steps=20, callbacks=[average], accelerator="cpu")
forecasts = NeuralForecast([model], freq="ME")
forecasts.fit(AirPassengersDF, val_size=12)
predicted = forecasts.predict()
(trained,) = forecasts.models
(kept,) = (c for c in trained.trainer_kwargs["callbacks"] if isinstance(c, lh.EMAHook))
state, values = trained.state_dict(), kept.ema_state_dict()
assert all(torch.equal(state[name], value) for name, value in values.items())
forecasts.save("saved", overwrite=True)
assert NeuralForecast.load("saved").predict().equals(predicted)
print("saves the average")
"""
    assert "saves the average" in run(tmp_path, "-c", program)
