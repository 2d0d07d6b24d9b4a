"""The documentation builds without warnings, has every public name, and its code runs."""

from __future__ import annotations

import importlib
import json
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import pytest
from lightning.pytorch.loggers.logger import DummyLogger

import lightning_hooks
from lightning_hooks import HOOKS, TextLoggerHook
from support.paths import ROOT
from support.processes import run_python
from support.shown import shown_on, without_numbers
from support.training import TinyModule, make_loader

DOCS = ROOT / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if page.parent.name != "hooks"]


@pytest.mark.slow
def test_it_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    command = ["-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    # all pages with pictures: three minutes on a slow machine
    run_python(*command, "-d", tmp_path / "doctrees", DOCS, tmp_path / "html", timeout=1200)
    assert list((tmp_path / "html" / "_images").glob("learning_rate*.png"))
    built = {
        page.relative_to(tmp_path / "html").as_posix(): page.read_text(encoding="utf-8")
        for page in (tmp_path / "html").rglob("*.html")
    }
    pages = {page.relative_to(DOCS).with_suffix(".html").as_posix() for page in PAGES}
    parts = {f"results/{part}.html" for part in ("goals", "tables", "torture")}  # of other pages
    assert pages - parts < {*built}
    assert sum(text.count("<math") for text in built.values()) > 9
    for page, text in built.items():
        if not page.startswith("_modules/"):
            assert raw_markup(text) == [], page
        for place in links(page, text):
            assert place in built or place.startswith("_images/"), page
    assert "_modules/lightning_hooks/hooks/averaging/ema.html" in built["hooks/EMAHook.html"]
    index = (tmp_path / "html" / "searchindex.js").read_text(encoding="utf-8")
    check_search(json.loads(index[index.index("{") : index.rindex("}") + 1]))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text = built[f"notebooks/{path.stem}.html"]
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        outputs = [output for cell in cells for output in cell.get("outputs", [])]
        drawn = sum("image/png" in output.get("data", {}) for output in outputs)
        assert text.count('src="data:image/png;base64') == drawn
        assert text.count('class="printed ') == len(outputs) - drawn


SOUGHT = {
    "early stopping": "which_hook",
    "patience": "which_hook",
    "unfreeze": "hooks/FreezeHook",
    "async checkpoint": "hooks/CheckpointHook",
    "loss spike": "hooks/CheckInvalidLossHook",
    "learning rate finder": "which_hook",
    "throughput": "hooks/ThroughputHook",
    "resume": "guides/resuming",
    "ema": "hooks/EMAHook",
    "best checkpoint": "hooks/BestCheckpointHook",
    "learning rate warmup": "families/learning_rate",
    "wsd": "hooks/WSDLrUpdaterHook",
    "nan": "hooks/CheckInvalidLossHook",
    "spike": "hooks/CheckInvalidLossHook",
    "gradient norm": "hooks/WatchHook",
    "wandb offline": "hooks/WandbLoggerHook",
    "mlflow": "hooks/MlflowLoggerHook",
    "freeze": "hooks/FreezeHook",
    "slurm": "guides/clusters",
    "fsdp": "guides/several_gpus",
    "mmcv": "coming/mmcv",
}
"""Searched words, and the page with the answer."""


def check_search(index: dict[str, Any]) -> None:
    """Check that searched words are main index entries of the expected pages."""
    for words, page in SOUGHT.items():
        main = [index["docnames"][entry[0]] for entry in index["indexentries"][words] if entry[2]]
        assert page in main[:2], words
    absent = {index["docnames"].index(page) for page in ("changelog", "architecture")}
    for found in index["terms"].values():
        assert not absent & set([found] if isinstance(found, int) else found)


def raw_markup(page: str) -> list[str]:
    """Return unrendered formulas and Markdown on a page."""
    shown = re.sub(r"<(pre|script|style|svg)\b.*?</\1>", "", page, flags=re.DOTALL)
    words = re.sub(r"<[^>]+>", "", re.sub(r"<code.*?</code>", "", shown, flags=re.DOTALL))
    found = re.findall(r"\$\$|:\w+:`|\\t|\\frac|\\mathrm", shown)
    return found + re.findall(r"\]\(|`|~~~|\{\w+\}", words)


def links(page: str, text: str) -> Iterator[str]:
    """Yield the linked files of a built page, relative to the documentation's root."""
    for link in re.findall(r'<a [^>]*href="([^"]*)"', text):
        if not re.match(r"https?:|#|.*_sources/", link):
            place = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
            yield place.partition("#")[0]


def test_every_public_class_and_function_has_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(DOCS)
    hooks = importlib.import_module("hook_pages").HOOKS
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    told = set(re.findall(r"^\.\. auto(?:class|function):: lightning_hooks\.(\w+)$", text, re.M))
    told |= {*hooks}
    public = {name for name in lightning_hooks.__all__ if callable(getattr(lightning_hooks, name))}
    gone = {"PaviLoggerHook", "SegmindLoggerHook"}  # the errors of both name the replacement
    assert public - told == gone


def test_the_first_steps_train_and_write_the_files_of_their_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lightning_hooks")
    for package in ("matplotlib", "mlflow", "sklearn"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mmcv", raising=False)
    quiet = {"logger": False, "enable_model_summary": False, "accelerator": "cpu"}
    quiet |= {"enable_progress_bar": False, "default_root_dir": tmp_path}
    for name, value in quiet.items():
        monkeypatch.setenv(f"PL_TRAINER_{name.upper()}", str(value))
    page = (DOCS / "first_steps.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S):
        exec(compile(block, "first_steps.md", "exec"), names)
    trainer = names["trainer"]
    assert trainer.callback_metrics["accuracy"] > 0.96
    shown = page.partition("```text\n")[2].partition("```")[0].splitlines()
    assert [line.partition(", loss")[0] for line in shown if "lr:" in line] == [
        "Epoch [1][20/45]\tlr: 4.779e-02"
    ]
    assert any(m.startswith("Epoch [1][20/45]\tlr: 4.779e-02") for m in caplog.messages)
    here = "\n".join(caplog.messages).replace(str(tmp_path), "/home/me/digits")
    assert shown_on(DOCS / "first_steps.md") - without_numbers(here) == set()
    starts = [m for m in caplog.messages if m.startswith("7 hooks, called in this order: Cosine")]
    assert len(starts) == 1
    assert starts[0].endswith(f"; files in {tmp_path}")
    table = page.partition("| file |")[2].partition("\n\n")[0]
    kinds = {re.sub(r"\d+", "*", name) for name in re.findall(r"`([\w.]+\.\w+)`", table)}
    assert kinds >= {"epoch_*.pth", "best_accuracy_epoch_*.pth", "*_*.log.json"}
    for kind in kinds:
        assert list(tmp_path.glob(kind)), kind
    assert len(list(tmp_path.glob("epoch_*.pth"))) == 3
    again = L.Trainer(max_epochs=11, callbacks=[lightning_hooks.EMAHook(momentum=0.01)])
    again.fit(
        names["Digits"](), names["train_loader"], names["val_loader"], ckpt_path="epoch_10.pth"
    )
    assert again.current_epoch == 11


def test_the_table_of_wishes_has_hooks_that_can_be_made() -> None:
    page = (DOCS / "which_hook.md").read_text(encoding="utf-8")
    ours = [name for name in HOOKS.module_dict if name in lightning_hooks.__all__]
    names: dict[str, Any] = {name: getattr(lightning_hooks, name) for name in ours}
    made = 0
    # plus arguments that the table leaves to the reader
    names |= {"EvalHook": lightning_hooks.EvalHook, "fn": print, "dataloader": make_loader(1)}
    names |= {"logger": DummyLogger()}
    for code in re.findall(r"`(\w+Hook(?:\(.*?\))?)`", page):
        found = eval(code, dict(names))
        made += not isinstance(found, type)
    assert made > 15
    families = {re.sub(r".*UpdaterHook$|.*OptimizerHook$|.*EMAHook$|.*LoggerHook$", "", name)
                for name in ours}  # fmt: skip
    shown = set(re.findall(r"\b(\w+Hook)\b", page))
    assert families - shown <= {"", "DistEvalHook"}


RUN = ["extending.md"] + [
    f"dialects/{library}.md" for library in ("detectron2", "cvpods", "pet", "pointrix", "mmengine")
]


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
@pytest.mark.parametrize("page", RUN)
def test_its_code_runs_and_gives_what_it_shows(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level("INFO", "lightning_hooks")
    monkeypatch.chdir(tmp_path)
    quiet = {"logger": False, "enable_model_summary": False, "accelerator": "cpu"}
    quiet |= {"enable_progress_bar": False, "default_root_dir": tmp_path}
    for name, value in quiet.items():
        monkeypatch.setenv(f"PL_TRAINER_{name.upper()}", str(value))
    names: dict[str, Any] = {"L": __import__("lightning")}
    names |= {name: getattr(lightning_hooks, name) for name in dir(lightning_hooks)}
    code = re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.M | re.S)
    try:
        for block in code:
            exec(compile(block, page, "exec"), names)
        trainer = names.get("trainer")
        if "GradSizeHook" in names:
            hooks = [names["GradSizeHook"](interval=2), TextLoggerHook(interval=2)]
            trainer = trainer or names["L"].Trainer(callbacks=hooks, max_epochs=1)
        if trainer is not None:  # else the page's code has trained
            trainer.fit_loop.max_epochs = 1
            trainer.fit(TinyModule(), make_loader(2), make_loader(1))
    finally:
        HOOKS.module_dict.pop("GradSizeHook", None)
    files = [path.read_text() for path in tmp_path.glob("metrics.json")]
    printed = "\n".join([*caplog.messages, capsys.readouterr().out, *files])
    given = without_numbers(printed.replace(str(tmp_path), "/home/me/run"))
    assert shown_on(DOCS / page) - given == set()


def test_code_fits_into_a_page() -> None:
    for page in (ROOT / "README.md", *PAGES):
        text = page.read_text(encoding="utf-8")
        code = re.findall(r"^```(?!none|text|\{)\w+\n(.*?)^```$", text, re.M | re.S)
        assert [line for line in "".join(code).splitlines() if len(line) > 100] == [], page
