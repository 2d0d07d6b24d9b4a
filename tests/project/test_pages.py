"""The code on each page of the documentation runs and prints the text shown below the code."""

from __future__ import annotations

import ast
import csv
import doctest
import inspect
import re
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader
from torchmetrics import MeanSquaredError

from lightning_hooks import CheckpointHook, ClosureHook, EvalHook, TextLoggerHook, newest_valid
from lightning_hooks.hooks.averaging.base import AveragingHook
from lightning_hooks.loggers.trackers.base import TrackerHook
from support.paths import ROOT
from support.processes import Forks, environment, free_port, run_python
from support.training import NoValidation, TinyModule, make_loader

DOCS = ROOT / "docs"
TESTED_ELSEWHERE = {"first_steps", "extending", "gallery", "lightning", "several_gpus", "clusters"}
TESTED_ELSEWHERE |= {"recipe", "inside_libraries"} | {  # by make peers
    page.stem for folder in ("dialects", "hooks") for page in (DOCS / folder).glob("*.md")
}
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if page.stem not in TESTED_ELSEWHERE]
FILES = {"hooks_in_yaml": ("hooks.yaml", "lr_config: {policy: step, step: [1]}")}
"""The reader's files by page."""
QUIET = {"accelerator": "cpu", "logger": False, "enable_model_summary": False}


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the kind and text of each block on the page."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```([\w{}-]*)[^\n]*\n(.*?)^```$", text, re.M | re.S)


def run_page(page: Path, capsys: Any, **names: Any) -> dict[str, Any]:
    """Run a page's code from top to bottom; compare the output with the text below the code.

    The test provides the page's ``Net``, ``module``, ``train_loader`` and ``val_loader``.
    """
    names = {"L": L, "Net": TinyModule, "module": TinyModule(), **names}
    names |= {"train_loader": make_loader(4), "val_loader": make_loader(1)}
    found = blocks(page)
    for (kind, code), (below, text) in zip(found, [*found[1:], ("", "")], strict=True):
        if kind != "python":
            continue
        capsys.readouterr()
        if code.startswith(">>>"):
            doctest.run_docstring_examples(code, names, name=page.name)
        else:
            exec(compile(code, page.name, "exec"), names)
        printed = capsys.readouterr().out
        if code.startswith(">>>") or below == "text":
            assert printed == ("" if code.startswith(">>>") else text)
    return names


@pytest.fixture(autouse=True)
def _quiet_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the tests' default arguments for every Trainer on a page."""
    monkeypatch.chdir(tmp_path)
    for name, value in {**QUIET, "enable_progress_bar": False}.items():
        monkeypatch.setenv(f"PL_TRAINER_{name.upper()}", str(value))
    monkeypatch.setenv("PL_TRAINER_DEFAULT_ROOT_DIR", str(tmp_path))


NEEDED = {
    "hub.md": ["huggingface_hub"],
    "hydra.md": ["hydra"],
    "optuna.md": ["optuna", "optuna_integration"],
}
"""Optional packages required by a page's code."""


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")],
    ids=lambda page: page.stem,
)
def test_its_code_runs_and_prints_the_text_below_it(page: Path, capsys: Any) -> None:
    if page.stem in FILES:
        name, content = FILES[page.stem]
        Path(name).write_text(content)
    for package in NEEDED.get(page.name, []):
        pytest.importorskip(package)
    run_page(page, capsys)


def test_the_trainers_logger_has_the_values_of_single_steps(tmp_path: Path, capsys: Any) -> None:
    """The table of docs/guides/logging.md beside Lightning's own loggers."""
    names = run_page(DOCS / "guides" / "logging.md", capsys)
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    loaders = [DataLoader(torch.ones(n, 1)) for n in (5, 2)]
    hooks = [names["Count"](), names["Print"](interval=2)]
    trainer = L.Trainer(max_epochs=1, callbacks=hooks, logger=logger, log_every_n_steps=2)
    trainer.fit(names["Net"](), *loaders)
    assert "   4  train/a         2.5" in capsys.readouterr().out
    with open(Path(logger.log_dir) / "metrics.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["step"], float(row["a"])) for row in rows if row["a"]] == [("1", 1.0), ("3", 3.0)]
    assert {"a", "b", "c_step", "c_epoch", "accuracy"} <= rows[0].keys()
    assert not {"d", "learning_rate"} & rows[0].keys()
    assert {"d", "lr", "accuracy"} <= trainer.callback_metrics.keys()


def test_a_run_without_files_begins_anew_with_the_word_last(capsys: Any, tmp_path: Path) -> None:
    hook = CheckpointHook(interval=1)
    trainer = L.Trainer(max_epochs=1, callbacks=[hook])
    with pytest.warns(UserWarning, match="there is no last checkpoint"):
        trainer.fit(NoValidation(), make_loader(2), ckpt_path="last")
    assert trainer.global_step == 2
    assert newest_valid(tmp_path) == str(tmp_path / "epoch_1.pth") == hook.best_model_path


def test_each_format_is_read_as_the_table_has_it(tmp_path: Path) -> None:
    """The table of docs/guides/resuming.md."""
    keep = CheckpointHook(interval=1)
    foreign = ClosureHook(
        "after_train_epoch", lambda r: r.save_checkpoint("mmcv", "a.pth", create_symlink=False)
    )
    L.Trainer(max_epochs=1, callbacks=[keep, foreign]).fit(NoValidation(), make_loader(2))
    keep.export("weights.pth")
    lightning, mmcv, weights = Path("epoch_1.pth"), Path("mmcv/a.pth"), Path("weights.pth")
    keys = [set(torch.load(path, weights_only=True)) for path in (lightning, mmcv, weights)]
    assert keys[0] >= {"state_dict", "optimizer_states", "loops", "meta"}
    assert keys[1:] == [{"meta", "state_dict", "optimizer"}, {"net.weight", "net.bias"}]

    def fit(path: Path | None, *hooks: L.Callback) -> int:
        trainer = L.Trainer(max_epochs=2, callbacks=[CheckpointHook(), *hooks])
        trainer.fit(NoValidation(), make_loader(2), ckpt_path=path)
        return trainer.global_step

    assert fit(lightning) == 4
    for path in (mmcv, weights):
        with pytest.raises(Exception, match=r"(?i)leave out ckpt_path"):
            fit(path)
        with pytest.raises(KeyError):
            TinyModule.load_from_checkpoint(path)
    TinyModule.load_from_checkpoint(lightning)
    for path in (lightning, mmcv):
        TinyModule().load_state_dict(torch.load(path)["state_dict"])
        resumes = ClosureHook("before_run", lambda r, path=path: r.resume(str(path)))
        assert fit(None, resumes) == 2  # one of the two epochs is done
    TinyModule().load_state_dict(torch.load(weights))
    with pytest.raises(ValueError, match="load_checkpoint"):
        fit(None, ClosureHook("before_run", lambda r: r.resume("weights.pth")))
    for path in (lightning, mmcv, weights):
        fit(None, ClosureHook("before_run", lambda r, path=path: r.load_checkpoint(str(path))))


def test_a_trial_is_pruned_by_the_score_of_an_evaluation_hook(capsys: Any) -> None:
    optuna = pytest.importorskip("optuna")
    pytest.importorskip("optuna_integration")
    prune = run_page(DOCS / "guides" / "optuna.md", capsys)["PruneHook"]

    class Evaluated(NoValidation):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

    def objective(trial: Any) -> None:
        score = EvalHook(make_loader(1), metric=MeanSquaredError())
        hooks = [prune(trial, "MeanSquaredError"), score, TextLoggerHook()]
        L.Trainer(max_epochs=3, callbacks=hooks).fit(Evaluated(lr=3.0), make_loader(2))

    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=2.0))
    study.optimize(objective, n_trials=1)
    (trial,) = study.trials
    assert (trial.state.name, len(trial.intermediate_values)) == ("PRUNED", 1)


NET_AND_DATA = """
import lightning as L
from support.training import TinyModule as Net, make_loader


class Data(L.LightningDataModule):
    def train_dataloader(self):
        return make_loader(2)

    def val_dataloader(self):
        return make_loader(1)


"""


@pytest.mark.parametrize(
    ("which", "file", "rate"),
    [(0, "epoch_12.pth", 0.001), pytest.param(1, "checkpoints/*", 0.01, marks=pytest.mark.slow)],
)
def test_the_configs_of_the_page_train_with_lightning_cli(
    which: int, file: str, rate: float, tmp_path: Path
) -> None:
    pytest.importorskip("jsonargparse")
    found = blocks(DOCS / "guides" / "lightning_cli.md")
    (script,) = [code for kind, code in found if kind == "python"]
    config = [code for kind, code in found if kind == "yaml"][which]
    (tmp_path / "given.yaml").write_text(config.replace("warmup_iters: 500", "warmup_iters: 5"))
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "mmcv.py").write_text("lr_config = dict(policy='step', step=[1])")
    (tmp_path / "train.py").write_text(NET_AND_DATA + script)
    more = [
        "--trainer.callbacks+=lightning_hooks.CheckInvalidLossHook",
        "--trainer.callbacks.action=skip",
    ]
    more += [f"--trainer.{name}=false" for name in ("logger", "enable_progress_bar")]
    run_python("train.py", "fit", "--config=given.yaml", *more, "--trainer.max_epochs=12",
               "--seed_everything=0", folder=tmp_path)  # fmt: skip
    (path,) = tmp_path.glob(file)
    (state,) = torch.load(path, weights_only=False)["optimizer_states"]
    assert state["param_groups"][0]["lr"] == pytest.approx(rate)
    assert "CheckInvalidLossHook" in (tmp_path / "config.yaml").read_text()
    assert len(list(tmp_path.glob("epoch_*.pth"))) == [3, 0][which]


@pytest.mark.slow
def test_the_script_of_the_page_trains_on_two_ranks(tmp_path: Path) -> None:
    found = blocks(DOCS / "guides" / "several_gpus.md")
    (script,) = [code for kind, code in found if kind == "python"]
    (text,) = [code for kind, code in found if kind == "text"]
    before = "from support.training import *\nmodule = TinyModule()\n"
    loaders = "train_loader, val_loader = make_loader(4), make_loader(1)\n"
    path = tmp_path / "train.py"
    path.write_text(before + loaders + script)
    quiet = {f"PL_TRAINER_{name.upper()}": str(value) for name, value in QUIET.items()}
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [environment(**quiet, **common) | {"LOCAL_RANK": str(rank)} for rank in (0, 1)]
    assert text in Forks([str(path)], ranks, tmp_path).wait()
    assert len(list(tmp_path.glob("epoch_1.pth"))) == 1


@pytest.mark.parametrize(
    ("page", "base", "common"),
    [
        ("averages", AveragingHook, set()),
        ("writers", TrackerHook, {"interval", "ignore_last", "reset_flag", "by_epoch", "sync"}),
    ],
)
def test_the_table_of_options_has_each_with_its_default(
    page: str, base: type, common: set[str]
) -> None:
    text = (DOCS / "families" / f"{page}.md").read_text(encoding="utf-8")
    rows = [row for row in text.splitlines() if row.startswith("| `")]
    cells = " ".join(row.split("|")[1] for row in rows)
    shown = dict(re.findall(r"`(\w+)=([^`]+)`", cells))
    parameters = inspect.signature(base).parameters.values()
    options = {p.name: p.default for p in parameters if p.name not in common}
    assert {name: ast.literal_eval(value) for name, value in shown.items()} == options
