"""The notebooks run, and their outputs are stored.

``make notebooks`` runs this file as a program and writes all outputs again; ``make notebooks
ARGS=notebooks/06_write_a_hook.ipynb`` writes the outputs of one notebook. ``make test`` runs the
first notebook, and ``make slow`` the others.
"""

from __future__ import annotations

import base64
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

PROMISES = {
    "01_quickstart": r"accuracy on the digits held out: 0\.9[5-9]",
    "02_old_hooks_unchanged": r"pointrix    epoch 2: \d",
    "03_schedules": r"540 rates, from 0\.0010 over 0\.0940 to 0\.0100",
    "04_writers": r"Neptune      (\d+) numbers, the largest difference 0e\+00",
    "05_from_a_config": r"the same hooks at the same priorities",
    "06_write_a_hook": r"3 passed",
    "07_averages": r"with precise BN +0\.9",
    "08_call_order": r"after_train_epoch",
    "09_from_mmcv": r"native   4 tensors, the largest difference 0e\+00",
}
"""Expected output of each notebook, in a run and as stored."""

QUICK = ("01_quickstart",)

DOCS = ROOT / "docs" / "pictures"

SHOWN = {"07_averages": "averages.png"}
"""Notebooks whose first picture is on a page."""

by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


DIGITS = (ROOT / "notebooks" / "digits.py").read_text(encoding="utf-8")
"""The data and the net, written to a file by notebooks to run without this repository."""


def execute(path: Path, folder: Path) -> Any:
    """Return the notebook with the outputs of a run, small pictures, and without metadata."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.source.startswith("%%writefile digits.py"):
            cell.source = f"%%writefile digits.py\n{DIGITS.rstrip()}"
    # pictures go into the notebook, whatever the tests do with theirs
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    nbclient.NotebookClient(
        notebook,
        timeout=180,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        coalesce_streams=True,
    ).execute(env=environment)
    notebook.metadata = {}
    for cell in notebook.cells:
        cell.metadata = {}
    for output in outputs(notebook):
        if "text" in output:  # where the run was is nobody's business
            output.text = re.sub(
                rf"{re.escape(tempfile.gettempdir())}/tmp\w+", "~/run", output.text
            )
    for data in pictures(notebook):
        data["image/png"] = smaller(data["image/png"])
    return notebook


def outputs(notebook: Any) -> list[Any]:
    """Return the outputs of the code cells."""
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def pictures(notebook: Any) -> Iterator[Any]:
    """Yield the data of picture outputs."""
    return (o.data for o in outputs(notebook) if "image/png" in o.get("data", {}))


def smaller(png: str) -> str:
    """Return a picture reduced to 64 colors, which suffice for curves."""
    from PIL import Image

    file = io.BytesIO()
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    picture.quantize(64).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def first_picture(notebook: Any) -> bytes:
    """Return the bytes of the first picture."""
    return base64.b64decode(next(pictures(notebook))["image/png"])


def printed(notebook: Any, name: str = "stdout") -> str:
    """Return the stream output of the code cells."""
    return "".join(output.text for output in outputs(notebook) if output.get("name") == name)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[] if path.stem in QUICK else pytest.mark.slow)
        for path in NOTEBOOKS
    ],
)
def test_it_runs_anywhere_and_shows_what_it_promises(path: Path, tmp_path: Path) -> None:
    notebook = execute(path, tmp_path)
    assert re.search(PROMISES[path.stem], printed(notebook))
    kept = nbformat.read(path, as_version=4)
    assert len(list(pictures(notebook))) == len(list(pictures(kept)))


@by_name
def test_it_is_kept_with_outputs_and_without_metadata(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert not notebook.metadata
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not any(cell.metadata for cell in notebook.cells)
    assert re.search(PROMISES[path.stem], printed(notebook))
    assert not printed(notebook, "stderr")
    assert not re.search(r"/home/|/root/|/work/|/tmp/", printed(notebook))
    assert path.stat().st_size < 300_000
    for cell in code:
        if cell.source.startswith("%%writefile digits.py"):
            assert cell.source.partition("\n")[2] == DIGITS.rstrip()
        assert "../" not in cell.source


@pytest.mark.parametrize("name", SHOWN)
def test_the_pages_show_the_picture_of_the_notebook(name: str) -> None:
    (path,) = [path for path in NOTEBOOKS if path.stem == name]
    assert (DOCS / SHOWN[name]).read_bytes() == first_picture(nbformat.read(path, as_version=4))


if __name__ == "__main__":
    for notebook_path in [Path(name) for name in sys.argv[1:]] or NOTEBOOKS:
        with tempfile.TemporaryDirectory() as empty:
            done = execute(notebook_path, Path(empty))
        nbformat.write(done, notebook_path)
        if notebook_path.stem in SHOWN:
            (DOCS / SHOWN[notebook_path.stem]).write_bytes(first_picture(done))
        print(notebook_path)
