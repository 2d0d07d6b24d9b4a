"""``lightning-hooks convert --to script``: the printed script trains an mmcls project."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightning_hooks.cli import app
from support.processes import run_python

MODELS = """
import torch
from mmcv.utils import Registry
CLASSIFIERS = Registry("models")
@CLASSIFIERS.register_module()
class Line(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(width, 1)
    def init_weights(self):
        torch.nn.init.constant_(self.layer.weight, 0.5)
    def train_step(self, data, optimizer):
        loss = self.layer(data["x"]).square().mean()
        return dict(loss=loss, log_vars=dict(loss=loss.item()), num_samples=len(data["x"]))
    def forward(self, return_loss=True, x=None):
        return self.layer(x).tolist()
build_classifier = CLASSIFIERS.build
"""
DATASETS = """
import functools, torch
from mmcv.parallel import DataContainer, collate
class Rows(torch.utils.data.Dataset):
    CLASSES = ("a",)
    def __init__(self, count, test_mode=False):
        self.count, self.test_mode = count, test_mode
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        return dict(x=DataContainer(torch.full((3,), float(index + 1)), stack=True, pad_dims=None))
    def evaluate(self, results, logger=None, **kwargs):
        return dict(size=len(results))
def build_dataset(cfg, default_args=None):
    return Rows(cfg["count"], **(default_args or {}))
def build_dataloader(dataset, samples_per_gpu, workers_per_gpu, num_gpus, dist, seed,
                     shuffle=True, round_up=True, drop_last=True):
    collating = functools.partial(collate, samples_per_gpu=samples_per_gpu)
    return torch.utils.data.DataLoader(dataset, samples_per_gpu, shuffle, collate_fn=collating)
"""
CONFIG = """
model = dict(type="Line", width=3)
data = dict(samples_per_gpu=2, workers_per_gpu=0, train=dict(count=8), val=dict(count=4))
optimizer = dict(type="SGD", lr=0.01)
optimizer_config = dict(grad_clip=dict(max_norm=1.0))
lr_config = dict(policy="step", step=[1])
runner = dict(type="EpochBasedRunner", max_epochs=2)
checkpoint_config = dict(interval=1)
log_config = dict(interval=2, hooks=[dict(type="TextLoggerHook")])
evaluation = dict(interval=1)
workflow = [("train", 1), ("val", 1)]
cudnn_benchmark = True
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the folder of a project with the layout of mmcls's."""
    for name, code in (("models", MODELS), ("datasets", DATASETS)):
        (tmp_path / "mmcls" / name).mkdir(parents=True)
        (tmp_path / "mmcls" / name / "__init__.py").write_text(code)
    (tmp_path / "mmcls" / "__init__.py").touch()
    (tmp_path / "mmcls" / "core.py").write_text("from mmcv.runner import EvalHook")
    (tmp_path / "config.py").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "mmcls"]:
        del sys.modules[name]


def test_the_script_trains_saves_and_evaluates(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["convert", "config.py", "--to", "script"]) == 0
    script = capsys.readouterr().out
    assert "    # TODO workflow: the second step is not run" in script
    assert "    # TODO cudnn_benchmark: give the Trainer benchmark=True" in script
    (project / "train.py").write_text(script)
    run_python("train.py", folder=project)
    work_dir = project / "work_dirs" / "config"
    (log,) = work_dir.glob("*.log.json")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    rows = [row for row in rows if "mode" in row]
    assert [(row["mode"], row["epoch"], round(row["lr"], 6)) for row in rows] == [
        *[("train", 1, 0.01), ("train", 1, 0.01), ("val", 1, 0.01)],
        *[("train", 2, 0.001), ("train", 2, 0.001), ("val", 2, 0.001)],
    ]
    assert rows[-1]["size"] == 4
    assert rows[-2]["loss"] < rows[0]["loss"]
    assert {"epoch_1.pth", "epoch_2.pth"} <= {path.name for path in work_dir.iterdir()}


NAMES = [
    'a".json',
    "a\n'.json",
    'a"""\n__import__("os").mkdir("hit")\n".json',
    "a\\.json",
    "ä 學 \U0001f600 \u2028.json",
]


@pytest.mark.parametrize("name", NAMES)
def test_no_name_and_no_value_of_a_config_becomes_code(
    project: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    hit = '__import__("os").mkdir("hit")'
    keys = (f"a=1), {hit}, (b", f"a\n{hit}", "if", "\u2028\U0001f600", '"', "\\")
    config = {
        "model": {"type": "Line", "width": 3},
        "data": {"train": {"count": 8}, "val": {"count": 4}, **dict.fromkeys(keys, 1)},
        "optimizer": {"type": "SGD", "lr": 0.01},
        "total_epochs": 1,
        "work_dir": f'\U0001f600\\"\n{hit}',
        "seed": f"0\n{hit}",
        "custom_hooks": [{"type": f"Odd\r\n{hit}\nHook"}],
        "custom_imports": {"imports": [f"odd\n{hit}"]},
        "evaluation": dict.fromkeys(keys, f'"\n{hit}'),
    }
    (project / name).write_text(json.dumps(config))
    assert app.run(["convert", name, "--to", "script"]) == 0
    tree = ast.parse(capsys.readouterr().out)
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert "mkdir" not in [call.attr for call in calls if isinstance(call, ast.Attribute)]
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert {name, config["work_dir"], config["seed"], *keys} <= texts


def test_a_model_of_no_known_project_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "config.py").write_text(CONFIG.replace('"Line"', '"Curve"'))
    assert app.run(["convert", "config.py", "--to", "script"]) != 0
    error = capsys.readouterr().err
    assert "model.type='Curve' is a model of none of mmcls, mmdet, mmseg" in error


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("data", 3, "data must be a dict or None, got 3"),
        ("data", None, "the config has no data.train"),
        ("evaluation", [1], "evaluation must be a dict"),
        ("auto_scale_lr", 3, "auto_scale_lr must be a dict"),
        ("model", {"type": ["x"]}, "is a model of none of"),
    ],
)
def test_a_part_of_another_type_is_refused_by_its_key(
    project: Path, capsys: pytest.CaptureFixture[str], key: str, value: object, message: str
) -> None:
    (project / "config.py").write_text(f"{CONFIG}\n{key} = {value!r}")
    assert app.run(["convert", "config.py", "--to", "script"]) == 2
    assert message in capsys.readouterr().err
