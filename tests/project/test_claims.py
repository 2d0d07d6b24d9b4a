"""No sentence about another library is without a test.

What a page or a public docstring states of a library by itself is the docstring of a test beside
that library, in ``test_peers*.py`` or, where it is not installed here, in ``tests/peers``.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import lightning_hooks
from support.paths import ROOT, TESTS

LIBRARIES = (
    "ClearML|Composer|DVCLive|Hydra|Ignite|Lightning|LightningCLI|MLflow|MMEngine|Neptune|Optuna|"
    "TensorBoard|Visdom|W&B|detectron2|fvcore|mmcls|mmcv|mmdet|mmengine|timm|torch"
)
SUBJECT = re.compile(rf"(In )?({LIBRARIES})('s)?\b")

STATES = re.compile(rf"({LIBRARIES})('s `\w+`)? (has|does|\w+[a-z]s)\b")
"""Of docstrings, whose lines of sources and of arguments begin with libraries too."""

PEERS = "project/test_peers.py::"
FSDP = "hooks/test_fsdp.py::test_what_cannot_work_is_refused_before_training"
HELD_ELSEWHERE = {
    "mmcv's names, arguments, defaults": (
        "hooks/test_small_hooks.py::test_arguments_and_defaults_are_mmcvs"
    ),
    "Hydra gives each run a directory": (
        "config/test_hydra.py::test_the_script_of_the_page_trains_with_its_config"
    ),
    "Lightning does so for every loader that it iterates": f"{PEERS}test_seeded_samplers",
    "Lightning refuses `Trainer(enable_checkpointing=False)` beside it": (
        f"{PEERS}test_errors_before_any_hook"
    ),
    "Lightning's `accumulate_grad_batches` steps at the end of every epoch": (
        f"{PEERS}test_remainder_of_an_epoch"
    ),
    "W&B's `watch` counts in a hook of each gradient": f"{PEERS}test_watched_gradients",
    "mmcv has no such": f"{PEERS}test_hooks_of_our_own",
    "torch writes these directories itself": FSDP,
    "torch cannot assign the optimizer state of a file": FSDP,
    "mmdet and mmsegmentation also go on with": (
        "old_code/test_old_trainers.py::test_a_project_trains_resumes_and_tests_as_under_mmcv"
    ),
    "MLflow and TensorBoard have each step exactly once": (
        "loggers/trackers/test_killed_runs.py::"
        "test_each_backend_has_each_step_once_and_the_text_log_is_that_of_a_whole_run"
    ),
}
"""How sentences begin that have a library for their subject and are held by another test."""

DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(
        page
        for page in DOCS.rglob("*.md")
        # tests/sister_code runs beside those libraries; a bench measures
        if page.parent.name not in ("dialects", "results") and page.stem != "benchmarks"
    ),
]


def one_line(text: str) -> str:
    return " ".join(text.split())


@functools.cache
def claims() -> frozenset[str]:
    """Return the docstrings of the tests about peers, each as one line."""
    files = [*Path(__file__).parent.glob("test_peers*.py"), *(TESTS / "peers").glob("test_*.py")]
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    functions = [n for t in trees for n in t.body if isinstance(n, ast.FunctionDef)]
    return frozenset(one_line(ast.get_docstring(f) or "") for f in functions)


def sentences(page: Path) -> Iterator[str]:
    """Yield what is neither code nor a table, nor a paragraph of claims alone."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for paragraph in re.split(r"\n\s*\n", text):
        if not paragraph.lstrip().startswith(("|", "**Beside the peers.**")):
            text = re.sub(r"^\*\*[^*]+\*\* ", "", one_line(paragraph))
            yield from re.split(r"(?<=[.:])\s+", text)


def test_each_sentence_beside_the_peers_is_a_test() -> None:
    found = 0
    for page in (DOCS / "families").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for paragraph in re.findall(r"^\*\*Beside the peers\.\*\*(.*?)\n\n", text, re.M | re.S):
            for sentence in re.split(r"(?<=\.)\s+", one_line(paragraph)):
                assert sentence in claims() or sentence.startswith("Here ")
                found += 1
    assert found > 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_sentence_with_a_library_for_its_subject_is_held(page: Path) -> None:
    for sentence in filter(SUBJECT.match, sentences(page)):
        held = any(sentence.rstrip(".:") in claim for claim in claims())
        assert held or any(map(sentence.startswith, HELD_ELSEWHERE))


def docstrings() -> dict[str, str]:
    """Return those of the public classes and functions, with the literals of Markdown."""
    public = {name: getattr(lightning_hooks, name) for name in lightning_hooks.__all__}
    texts = {name: inspect.getdoc(each) or "" for name, each in public.items() if callable(each)}
    return {name: text.replace("``", "`") for name, text in texts.items()}


@pytest.mark.parametrize(("name", "text"), docstrings().items())
def test_each_statement_of_a_docstring_is_held(name: str, text: str) -> None:
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in re.split(r"(?<=[.:;])\s+", one_line(paragraph)):
            if STATES.match(sentence):
                held = any(sentence.rstrip(".:;") in claim for claim in claims())
                assert held or any(map(sentence.startswith, HELD_ELSEWHERE)), sentence


def test_what_is_held_elsewhere_is_there() -> None:
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    text = one_line(" ".join([*pages, *docstrings().values()]))
    for sentence, test in HELD_ELSEWHERE.items():
        file, _, name = test.partition("::")
        assert sentence in text
        assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8")


def test_each_callback_of_lightnings_in_the_table_is_beside_ours() -> None:
    table = (DOCS / "coming" / "lightning.md").read_text(encoding="utf-8")
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    names = {name for row in rows for name in re.findall(r"`(?:Trainer\()?(\w+)", row)}
    assert len(names) > 8
    assert {name for name in names if not any(name in claim for claim in claims())} == set()
