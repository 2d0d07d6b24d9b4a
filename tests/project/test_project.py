"""Properties of the whole project: version, license, and imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lightning_hooks
from lightning_hooks.loggers.trackers.table import TRACKERS
from support.paths import ROOT

sys.path.insert(0, str(ROOT / "docs"))
import departures

PACKAGE = Path(lightning_hooks.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

OPTIONAL = {
    *{name for name, tracker in TRACKERS.items() if tracker.requirement},
    *("aim", "huggingface_hub", "jsonargparse", "matplotlib", "mmcv", "mmengine", "rich"),
    *("safetensors", "sklearn", "yaml"),
}


def imported_at_module_level(path: Path) -> Iterator[str]:
    """Yield the imports of a module outside function bodies and type checking blocks."""
    pending: list[ast.AST] = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending.extend(node.orelse)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            pending.extend(ast.iter_child_nodes(node))


def test_the_version_is_that_of_the_newest_changelog_entry() -> None:
    headings = re.findall(r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert lightning_hooks.__version__ in headings[:2]
    assert headings[0] in ("Unreleased", lightning_hooks.__version__)
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None
    assert cited[1] == lightning_hooks.__version__


def test_the_files_that_contributors_are_sent_to_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"(?:tests|docs|lightning_hooks|hooks|dialects|engine)/[\w/.*]*[\w*]", text)
    assert len(paths) > 20
    homes = ROOT, PACKAGE, PACKAGE.parent
    missing = [path for path in paths if not any([*home.glob(path)] for home in homes)]
    assert missing == []


def test_the_changelog_keeps_its_format() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    releases = re.findall(r"^## (.*)$", text, re.MULTILINE)
    form = r"\[Unreleased\]|\[\d+\.\d+\.\d+\] - (unreleased|\d{4}-\d\d-\d\d)"
    assert all(re.fullmatch(form, release) for release in releases), releases
    kept = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= kept


def test_the_page_of_departures_names_each_class_that_departs_from_mmcv() -> None:
    page = departures.sections()
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and "Departure" in (ast.get_docstring(node) or ""):
                assert f"- `{node.name}`: " in page, node.name


def test_licence_and_type_marker_are_there() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()[:100]
    assert (PACKAGE / "py.typed").exists()


def test_constraints_have_torch_first_and_no_package_index() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins[0].startswith("torch==")
    assert all("==" in pin for pin in pins)
    for name in ("constraints.txt", "pyproject.toml", "Makefile", ".ci/run"):
        assert "index-url" not in (ROOT / name).read_text()


def test_the_supported_pythons_are_those_of_make_pythons() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    found = re.search(r"PYTHONS:-([\d. ]+)\}", (ROOT / ".ci/pythons").read_text())
    assert found
    pythons = found[1].split()
    assert re.findall(r"Programming Language :: Python :: (3\.\d+)", project) == pythons
    assert f'requires-python = ">={pythons[0]}"' in project


def test_no_optional_package_is_imported_at_module_level() -> None:
    for path in MODULES:
        found = {name.partition(".")[0] for name in imported_at_module_level(path)}
        assert not found & OPTIONAL, path


def test_every_module_has_a_docstring_and_lists_its_public_names() -> None:
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), path
        assigned = [t for n in tree.body if isinstance(n, ast.Assign) for t in n.targets]
        names = [t.id for t in assigned if isinstance(t, ast.Name)]
        assert path.name == "__init__.py" or "__all__" in names, path


LIGHTNING = {"trainer", "fit_loop", "epoch_loop", "strategy", "pl_module", "lightning_module"}


def private_names_of_lightning(tree: ast.Module) -> list[str]:
    """Return the private attributes and imports of Lightning in a module."""
    attributes = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and re.match(r"_(?!_)", node.attr)
        and isinstance(node.value, (ast.Name, ast.Attribute))
        and (node.value.attr if isinstance(node.value, ast.Attribute) else node.value.id)
        in LIGHTNING
    ]
    return attributes + [
        f"from {node.module} import {alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if (node.module or "").startswith("lightning.")
        and re.search(r"(^|\.)_(?!_)", f"{node.module}.{alias.name}")
    ]


def test_lightnings_private_names_are_in_lightning_api_only() -> None:
    for path in MODULES:
        if path.parent.name != "lightning_api":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            assert private_names_of_lightning(tree) == [], path


def test_no_file_has_the_marks_of_a_merge() -> None:
    marks = ("<" * 7 + " ", ">" * 7 + " ")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    for name in listed.stdout.split():
        if not name.endswith((".json", ".ipynb", ".png", ".pth")):
            text = (ROOT / name).read_text(encoding="utf-8")
            assert not any(line.startswith(marks) for line in text.splitlines()), name
