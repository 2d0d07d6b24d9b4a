"""The layout of tests/, the independence of test files, and forks in place of new interpreters."""

from __future__ import annotations

import ast
import multiprocessing
from pathlib import Path

import lightning_hooks
from support.paths import TESTS
from support.processes import run_program

OTHERS = {"first_day", "golden", "golden_check", "old_code", "old_project", "peers", "project"}
OTHERS |= {"sister_code", "support"}
FILES = [path for path in sorted(TESTS.rglob("test_*.py")) if "golden_check" not in path.parts]


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path in FILES]
    assert sorted(set(names)) == sorted(names)  # pytest imports test files by name


def test_test_files_stand_in_folders_of_the_package() -> None:
    package = Path(lightning_hooks.__file__).parent
    folders = {path.parent.relative_to(TESTS) for path in FILES}
    ours = {folder for folder in folders if not OTHERS.intersection(folder.parts[:1])}
    assert not {folder for folder in ours if not (package / folder).is_dir()}


def imported_by(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_no_test_file_imports_another() -> None:
    stems = {path.stem for path in FILES}
    assert not {path.name: found for path in FILES if (found := imported_by(path) & stems)}


def test_a_fork_starts_processes_as_a_new_interpreter_does() -> None:
    program = "import multiprocessing; print(multiprocessing.get_start_method())"
    # otherwise each loader with workers starts a fork server, whose workers survive a kill
    assert run_program(program).split() == [multiprocessing.get_start_method()]
