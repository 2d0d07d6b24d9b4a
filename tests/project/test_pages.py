"""The code of the documentation runs, page by page, and prints what stands below it."""

from __future__ import annotations

import csv
import doctest
import re
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader

from lightning_hooks import CheckpointHook, ClosureHook, newest_valid
from support.paths import ROOT
from support.training import NoValidation, TinyModule, make_loader

DOCS = ROOT / "docs"
GUIDES = sorted((DOCS / "guides").glob("*.md"))
PAGES = [*GUIDES, *sorted((DOCS / "families").glob("*.md"))]
QUIET = {"accelerator": "cpu", "logger": False, "enable_model_summary": False}


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the page's blocks: the kind of each, and its text."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)


def run_page(page: Path, capsys: Any, **names: Any) -> dict[str, Any]:
    """Run a page's code from top to bottom; compare what it prints with the text below it.

    A page's ``module``, ``train_loader`` and ``val_loader`` are its reader's.
    """
    names = {"L": L, "module": TinyModule(), **names}
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
    """Give every Trainer of a page the arguments that a test wants."""
    monkeypatch.chdir(tmp_path)
    for name, value in {**QUIET, "enable_progress_bar": False}.items():
        monkeypatch.setenv(f"PL_TRAINER_{name.upper()}", str(value))
    monkeypatch.setenv("PL_TRAINER_DEFAULT_ROOT_DIR", str(tmp_path))


WITH_TESTS_BELOW: set[str] = set()
"""Pages whose code needs more than a module and its data."""


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if "```python" in p.read_text("utf-8") and p.name not in WITH_TESTS_BELOW],
    ids=lambda page: page.stem,
)
def test_its_code_runs_and_prints_the_text_below_it(page: Path, capsys: Any) -> None:
    run_page(page, capsys)


def test_the_trainers_logger_has_the_values_of_single_steps(tmp_path: Path, capsys: Any) -> None:
    """The table of docs/guides/logging.md beside Lightning's own loggers."""
    names = run_page(DOCS / "guides" / "logging.md", capsys)
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    loaders = [DataLoader(torch.ones(n, 1)) for n in (5, 2)]
    hooks = [names["Count"](), names["Print"](interval=2)]
    trainer = L.Trainer(max_epochs=1, callbacks=hooks, logger=logger, log_every_n_steps=2)
    trainer.fit(names["Net"](), *loaders)
    assert "step 4 {'train/loss': 0.0, 'train/a': 2.5" in capsys.readouterr().out
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
        assert fit(None, resumes) == 2  # one epoch of the two is done
    TinyModule().load_state_dict(torch.load(weights))
    with pytest.raises(ValueError, match="load_checkpoint"):
        fit(None, ClosureHook("before_run", lambda r: r.resume("weights.pth")))
    for path in (lightning, mmcv, weights):
        fit(None, ClosureHook("before_run", lambda r, path=path: r.load_checkpoint(str(path))))
