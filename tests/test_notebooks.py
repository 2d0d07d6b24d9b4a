"""The notebooks run, and keep the outputs of a run.

``make notebooks`` runs this file as a program: it writes the outputs anew.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))

by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def execute(path: Path) -> Any:
    """Return the notebook with the outputs of a run, and without metadata."""
    notebook = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": str(path.parent)}}
    nbclient.NotebookClient(
        notebook, timeout=60, kernel_name="python3", resources=folder, coalesce_streams=True
    ).execute()
    notebook.metadata = {}
    for cell in notebook.cells:
        cell.metadata = {}
    return notebook


def printed(notebook: Any) -> str:
    """Return what the code cells wrote to the standard output."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.get("text", "") for output in outputs)


@by_name
def test_it_runs_and_shows_what_it_promises(path: Path) -> None:
    notebook = execute(path)
    accuracy = re.search(r"accuracy on the digits held out: (\S+)", printed(notebook))
    assert accuracy
    assert float(accuracy[1]) > 0.97
    assert "image/png" in notebook.cells[-1].outputs[0].data


@by_name
def test_it_is_kept_with_outputs_and_without_metadata(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert not notebook.metadata
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not any(cell.metadata for cell in notebook.cells)
    assert "accuracy on the digits held out" in printed(notebook)
    assert not re.search(r"/home/|/root/|/work/|/tmp/", printed(notebook))
    assert path.stat().st_size < 300_000


if __name__ == "__main__":
    for notebook_path in NOTEBOOKS:
        nbformat.write(execute(notebook_path), notebook_path)
        print(notebook_path)
