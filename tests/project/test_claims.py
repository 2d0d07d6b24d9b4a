"""No sentence about another library is without a test.

What a page or a public docstring states of a library by itself is the docstring of a test beside
that library, in ``test_peers*.py`` or, where it is not installed here, in ``tests/peers``.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import lightning_hooks
from support.paths import ROOT, TESTS

LIBRARIES = (
    "ClearML|Composer|DVCLive|Hydra|Ignite|Lightning|LightningCLI|MLflow|MMEngine|Neptune|Optuna|"
    "Pet|TensorBoard|Visdom|W&B|cvpods|detectron2|fvcore|glibc|mmcls|mmcv|mmdet|mmdetection|"
    "mmengine|mmpose|numpy|pointrix|timm|torch"
)
SUBJECT = re.compile(rf"(In )?({LIBRARIES})('s)?\b")

STATES = re.compile(
    rf"({LIBRARIES})('s `[^`]+`)? (itself )?(has|does|is|cannot|\w+[a-z]s)\b"
    rf"|({LIBRARIES})('s|') (has|is|are|calls)\b"
)
"""Of docstrings, cells and clauses, which begin with libraries too where they state nothing."""

CLAUSE = re.compile(rf"([;,:(]|because|since|than|where|which|while) ?(?={STATES.pattern})")
"""What stands before a clause that states something, within a sentence."""

LIKE = re.compile(
    rf"\b[Aa]s ((in|by) ({LIBRARIES})\b|({LIBRARIES})('s( own)?( `\w+`)?)? do(es)?\b)"
)
"""A likeness, in any place of a sentence."""

PEERS = "project/test_peers.py::"
BESIDE = "peers/test_peers_hooks.py::"
NAMES = f"{BESIDE}test_names_arguments_and_defaults"
PET = "dialects/test_pet_printed.py::test_the_five_hooks_do_the_same"
FACTORY = "config/test_callbacks_factory.py::test_every_trainer_has_the_hooks_of_the_file"
CALLS = "standin/test_standin_runner.py::test_the_calls_are_mmcvs_for_every_workflow"
SHOWN = "project/test_notebooks.py::test_it_runs_and_shows_what_it_promises"
FSDP = "hooks/test_fsdp.py::test_what_cannot_work_is_refused_before_training"
HELD_ELSEWHERE = {
    "Hydra gives each run a directory": (
        "config/test_hydra.py::test_the_script_of_the_page_trains_with_its_config"
    ),
    "Lightning does so for every loader that it iterates": f"{PEERS}test_seeded_samplers",
    "Lightning refuses `Trainer(enable_checkpointing=False)` beside it": (
        f"{PEERS}test_errors_before_any_hook"
    ),
    "Lightning writes the config as it was understood": (
        "config/test_lightning_cli.py::test_where_the_config_is_saved_and_what_a_second_run_needs"
    ),
    "Lightning's `accumulate_grad_batches` steps at the end of every epoch": (
        f"{PEERS}test_remainder_of_an_epoch"
    ),
    "W&B's `watch` counts in a hook of each gradient": f"{PEERS}test_watched_gradients",
    "mmcv has no such": f"{PEERS}test_hooks_of_our_own",
    "`state_dict` is the average, as in mmcv": f"{BESIDE}test_average_in_the_file",
    "cvpods' is 0 before every iteration": (
        "dialects/test_cvpods_generations.py::test_its_hook_never_steps_over_several_iterations"
    ),
    "Pet's hooks get the optimizer": PET,
    "Pet's printed `PeriodicWriter`": PET,
    "In Pet's loop and here these are the same": PET,
    "`TestHook` in `Trainer(callbacks=[TestHook(...)])`": (
        "dialects/test_pet_printed.py::test_the_timers_of_a_test_run"
    ),
    "pointrix's `load_model` loads": (
        "dialects/test_pointrix_printed.py::test_what_save_model_writes_is_loaded_by_pointrix"
    ),
    "A hook that swaps as mmcv's own `EMAHook` does is refused": (
        "hooks/averaging/test_average_conflicts.py::test_a_hook_that_swaps_as_mmcv_is_refused"
    ),
    "An evaluation of a loader of its own": (
        "hooks/evaluation/test_eval.py::test_evaluates_when_mmcv_does"
    ),
    "less where it ends in `loss`": (
        "hooks/evaluation/test_eval.py::test_rules_are_inferred_as_by_mmcv"
    ),
    "For a `TrainStepModule`, or with `owns_backward=True`": (
        "hooks/optimizer/test_optimizer.py::test_equal_to_mmcv"
    ),
    "The common arguments of a client": NAMES,
    "As in mmcv, the first argument of the text log": NAMES,
    "Lightning gets there first": f"{PEERS}test_errors_before_any_hook",
    "An old logger that an adapter hosts averages the last values": (
        "engine/runner/test_log_buffer.py::test_averages_are_mmcvs"
    ),
    "With several loaders the names end as Lightning's do": (
        "loggers/test_lightning_logger.py::"
        "test_several_val_loaders_have_lightnings_names_and_nothing_is_doubled"
    ),
    "Lightning asks this package for callbacks": FACTORY,
    "`IterTimerHook` is there as in mmcv": FACTORY,
    "`EpochBasedRunner` and `IterBasedRunner` loop as mmcv's do": CALLS,
    "The policy is spelled as in mmcv": (
        "config/test_training_hooks.py::test_departure_policies_in_any_case"
    ),
    "The loop, by epoch": CALLS,
    "after the run the model holds the raw weights": f"{BESIDE}test_average_in_the_file",
    "integer buffers are not averaged (mmcv fails on them)": f"{BESIDE}test_counter_of_batches",
    "on a CPU, where Lightning trains in bfloat16": (
        "hooks/optimizer/test_fp16.py::test_on_a_cpu_it_is_bfloat16_and_a_warning"
    ),
    "the hook's own, on any device, as in mmcv": (
        "golden_check/test_fp16.py::test_fp16_equal_to_mmcv_at_every_call"
    ),
    "For a `TrainStepModule` (or with": "hooks/optimizer/test_optimizer.py::test_equal_to_mmcv",
    "`json_trace_path` beside a schedule": (
        "hooks/profiling/test_profiler.py::"
        "test_departure_the_json_trace_beside_a_schedule_is_the_last_piece_recorded"
    ),
    "they get what they do not have": (
        "loggers/test_lightning_logger.py::test_the_trainers_logger_gets_what_it_has_not"
    ),
    "With `with_step` a step is committed by the next one": (
        "project/test_peers_trackers.py::test_rows_of_earlier_steps"
    ),
    "As in mmcv, `model.train()` is called": (
        "engine/runner/test_runner.py::test_train_step_module_is_put_in_train_mode_as_in_mmcv"
    ),
    "mmcv closes the epoch first": CALLS,
    "TensorBoard reads its event files itself": SHOWN,
    "W&B has a command that prints an offline run": SHOWN,
    "MLflow's client asks the database": SHOWN,
    "TensorBoard has numbers of 32 bits": SHOWN,
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
"""How statements about a library begin that are held by another test."""

DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    # those of results are measured, and SECURITY.md is held by test_security.py
    *sorted(page for page in DOCS.rglob("*.md") if page.parent.name != "results"),
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
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


def held(statement: str) -> bool:
    """Return whether a test has a statement in its docstring, or is named above with it."""
    text = statement.rstrip(".:;").lower()
    found = any(text in claim.lower() for claim in claims())
    return found or any(map(statement.startswith, HELD_ELSEWHERE))


def written(page: Path) -> str:
    """Return the Markdown of a page or notebook."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    found = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
    return "\n\n".join("".join(cell["source"]) for cell in found)


def paragraphs(page: Path) -> list[str]:
    """Return what is no code, nor a paragraph of claims alone; an item of a list is one."""
    text = re.sub(r"^```.*?^```$", "", written(page), flags=re.M | re.S)
    found = re.split(r"\n\s*\n|\n- ", text)
    return [each for each in found if not each.lstrip().startswith("**Beside the peers.**")]


def cells(page: Path) -> Iterator[str]:
    """Yield the cells of a page's tables."""
    for table in paragraphs(page):
        if table.lstrip().startswith("|"):
            yield from (cell.strip() for row in table.splitlines() for cell in row.split("|"))


def sentences(page: Path) -> Iterator[str]:
    """Yield the sentences of a page, without those of its tables."""
    for paragraph in paragraphs(page):
        if not paragraph.lstrip().startswith("|"):
            text = re.sub(r"^(- )?(\*\*[^*]+\*\* )?", "", one_line(paragraph))
            yield from re.split(r"(?<=[.:])\s+", text)


def statements(page: Path) -> Iterator[str]:
    """Yield what a page states of libraries: sentences, cells and clauses."""
    yield from filter(SUBJECT.match, sentences(page))
    yield from filter(STATES.match, cells(page))
    for text in (*sentences(page), *cells(page)):
        for joint in CLAUSE.finditer(text):
            yield re.split(r"[.;:)]( |$)", text[joint.end() :])[0]
        if LIKE.search(text):
            yield text


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
def test_each_statement_of_a_page_is_held(page: Path) -> None:
    assert [statement for statement in statements(page) if not held(statement)] == []


def test_each_departure_from_a_sister_library_is_held() -> None:
    page = (DOCS / "dialects" / "mmengine.md").read_text(encoding="utf-8")
    rows = page.partition("| mmengine | `HookAdapter` |")[2].partition("\n\n")[0].splitlines()
    stated = [row.split("|")[1].strip() for row in rows[2:]]
    prose = [cell for cell in stated if not re.fullmatch("`[^`]+`", cell)]
    assert len(prose) > 6
    assert [cell for cell in prose if not held(cell)] == []


def docstrings() -> dict[str, str]:
    """Return those of the public classes and functions, with the literals of Markdown."""
    public = {name: getattr(lightning_hooks, name) for name in lightning_hooks.__all__}
    texts = {name: inspect.getdoc(each) or "" for name, each in public.items() if callable(each)}
    return {name: text.replace("``", "`") for name, text in texts.items()}


@pytest.mark.parametrize(("name", "text"), docstrings().items())
def test_each_statement_of_a_docstring_is_held(name: str, text: str) -> None:
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in re.split(r"(?<=[.:;])\s+", one_line(paragraph)):
            states = STATES.match(sentence) or CLAUSE.search(sentence) or LIKE.search(sentence)
            assert not states or held(sentence)


def test_what_is_held_elsewhere_is_there() -> None:
    text = one_line(" ".join([*map(written, PAGES), *docstrings().values()]))
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
