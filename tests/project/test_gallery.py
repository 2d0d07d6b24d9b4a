"""The gallery has a picture for each kind of schedule, and its lines draw them.

``make gallery`` runs this file as a program: it draws the pictures of the page anew. ``make slow``
runs all lines of the page, ``make test`` the first.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks.cli import main
from support.paths import ROOT

PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```$", PAGE, re.M | re.S)
PICTURES = ROOT / "docs" / "pictures" / "gallery"


def draw(blocks: list[tuple[str, str]]) -> list[Path]:
    """Run lines of the page in the current directory; return the pictures that they drew."""
    names: dict[str, Any] = {}
    for kind, code in blocks:
        if kind == "python":
            exec(compile(code, "gallery.md", "exec"), names)
        else:
            with pytest.raises(SystemExit) as end:
                main(shlex.split(code)[1:])
            assert not end.value.code
    return sorted(Path().glob("*.png"))


def size(picture: Path) -> tuple[int, int]:
    """Return the width and the height of a picture."""
    from PIL import Image

    with Image.open(picture) as opened:
        return opened.size


def test_each_picture_is_kept_and_small() -> None:
    shown = re.findall(r"^!\[.+\]\(pictures/gallery/(\w+\.png)\)$", PAGE, re.M)
    drawn = re.findall(r"(\w+\.png)\b(?!\))", PAGE)
    assert shown == drawn
    assert {*shown} == {path.name for path in PICTURES.iterdir()}
    assert all(path.stat().st_size < 60_000 for path in PICTURES.iterdir())


def test_pictures_are_narrow_enough_for_a_phone_to_keep_their_letters_legible() -> None:
    pytest.importorskip("PIL")
    results = ROOT / "docs" / "results" / "goals.png"
    for picture in [results, PICTURES.parent / "first_run.png", *PICTURES.iterdir()]:
        assert size(picture)[0] <= 870, picture
    for page in sorted((ROOT / "docs").rglob("*.md")):
        drawn = re.findall(r"figsize=\((\d+)", page.read_text(encoding="utf-8"))
        assert all(int(inches) <= 7 for inches in drawn), page


def test_the_first_lines_draw_the_first_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    (found,) = draw(BLOCKS[:1])
    assert size(found) == size(PICTURES / found.name)


@pytest.mark.slow
def test_all_lines_draw_the_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    quiet = {"logger": False, "enable_model_summary": False, "accelerator": "cpu"}
    for name, value in (quiet | {"enable_progress_bar": False}).items():
        monkeypatch.setenv(f"PL_TRAINER_{name.upper()}", str(value))
    found = draw(BLOCKS)
    assert [path.name for path in found] == sorted(path.name for path in PICTURES.iterdir())
    assert [size(path) for path in found] == [size(PICTURES / path.name) for path in found]


if __name__ == "__main__":
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for picture in draw(BLOCKS):
            small = Image.open(picture).convert("RGB").quantize(64)
            small.save(PICTURES / picture.name, optimize=True)
            print(PICTURES / picture.name)
