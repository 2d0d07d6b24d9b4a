"""Imports in the package go only down the layers listed here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import lightning_hooks
from support.paths import ROOT

PACKAGE = Path(lightning_hooks.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# From the ground up. A module belongs to the longest listed prefix of its name.
FLOORS = (
    ("utils",),
    ("_exports", "optim"),
    ("storage",),
    (
        *("engine.checkpoint_file", "engine.hosted", "engine.lightning_api.method_patch"),
        *("engine.points", "engine.priority", "engine.registry"),
    ),
    (
        *("engine.error_notes", "engine.hook_callback", "engine.lightning_api.callback_list"),
        "engine.usage_errors",
    ),
    ("engine.hook_order", "engine.hook_states", "engine.roster"),
    ("engine.hook_list",),
    ("engine.lightning_api",),
    ("engine.runner", "train_step"),
    ("engine.driver",),
    ("engine.hook", "engine"),
    ("schedules",),
    ("hooks", "loggers"),
    ("dialects",),
    ("adapter",),
    ("config",),
    ("callbacks_factory",),
    ("standin",),
    ("cli",),
)
RANKS = {room: rank for rank, rooms in enumerate(FLOORS) for room in rooms}


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE} | {
    module: PACKAGE / f"{module}.py"
    for module in ("_exports", "adapter", "callbacks_factory", "train_step")
}


def nodes(tree: ast.AST, *, with_types: bool) -> Iterator[ast.AST]:
    """Yield all nodes of a file, with or without ``if TYPE_CHECKING:`` blocks."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if with_types or not (
            isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
        ):
            yield from nodes(child, with_types=with_types)


def imports(path: Path, *, with_types: bool = True) -> Iterator[str]:
    """Yield each module of the package imported in a file, including deferred and type imports."""
    for node in nodes(ast.parse(path.read_text(encoding="utf-8")), with_types=with_types):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            package, _, module = str(node.module).partition(".")
            if package != "lightning_hooks":
                continue
            for alias in node.names:
                within = f"{module}.{alias.name}".lstrip(".")
                if within in MODULES or module in MODULES:
                    yield within if within in MODULES else module


def room_of(module: str) -> str:
    parts = module.split(".")
    names = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next(name for name in names if name in RANKS)


def test_imports_go_down_only() -> None:
    wrong = [
        f"{module} imports {name}"
        for module, path in MODULES.items()
        for name in imports(path)
        if room_of(name) != room_of(module) and RANKS[room_of(name)] >= RANKS[room_of(module)]
    ]
    assert not wrong


def test_no_circle_of_files() -> None:
    """A part may import the class of its owner for type checking only."""
    graph = {
        module: {*imports(path, with_types=False)} - {module} for module, path in MODULES.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"these import one another: {' -> '.join(error.args[1])}")


def test_the_page_on_the_architecture_names_every_folder() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = page.partition("```text\n")[2].partition("```")[0]
    folders = {path.parent.name for path in FILES} - {PACKAGE.name}
    assert set(re.findall(r"(?<= )(\w+)/", tree)) == folders


def test_only_the_stand_ins_hooks_ask_which_runner_it_is() -> None:
    """Native code does not know mmcv's runners, which override methods of the runner or driver."""
    asking = {path for path in FILES if ".loops_itself" in path.read_text(encoding="utf-8")}
    assert {path.relative_to(PACKAGE).parts[:2] for path in asking} == {("standin", "_hooks")}
