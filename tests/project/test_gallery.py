"""The gallery has pictures of schedules and of a run, drawn by the code on the page.

``make gallery`` runs this file as a program and draws the pictures again. ``make slow`` runs all
code on the page, ``make test`` only the first block.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks.cli import main
from support.paths import ROOT

PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```$", PAGE, re.M | re.S)
PICTURES = ROOT / "docs" / "pictures" / "gallery"
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
"""The browser for rendering a report's page."""
QUIET = {"accelerator": "cpu", "logger": False, "enable_model_summary": False}
QUIET |= {"enable_progress_bar": False}


def draw(blocks: list[tuple[str, str]]) -> list[Path]:
    """Run code blocks of the page in the current directory; return the drawn pictures."""
    names: dict[str, Any] = {}
    for kind, code in blocks:
        if kind == "python":
            exec(compile(code, "gallery.md", "exec"), names)
        else:
            with pytest.raises(SystemExit) as end:
                main(shlex.split(code.replace("\\\n", " "))[1:])
            assert not end.value.code
    if BROWSER and Path("report.html").exists():
        page = Path("report.html").absolute().as_uri()
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=860,1200"]
        subprocess.run([BROWSER, *options, "--screenshot=report.png", page], check=True)
    return sorted(Path().glob("*.png"))


def size(picture: Path) -> tuple[int, int]:
    """Return the width and the height of a picture."""
    from PIL import Image

    with Image.open(picture) as opened:
        return opened.size


def test_each_picture_is_kept_and_small() -> None:
    shown = re.findall(r"^!\[.+\]\(pictures/gallery/(\w+\.png)\)$", PAGE, re.M)
    drawn = re.findall(r"(\w+\.png)\b(?!\))", PAGE)
    assert shown == [*drawn, "report.png"]
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
    for name, value in QUIET.items():
        monkeypatch.setenv(f"PL_TRAINER_{name.upper()}", str(value))
    found = draw(BLOCKS)
    drawn = {path.name for path in PICTURES.iterdir()} - ({"report.png"} if not BROWSER else set())
    assert {path.name for path in found} == drawn
    assert [size(path) for path in found] == [size(PICTURES / path.name) for path in found]


if __name__ == "__main__":
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ |= {f"PL_TRAINER_{name.upper()}": str(value) for name, value in QUIET.items()}
        for picture in draw(BLOCKS):
            small = Image.open(picture).convert("RGB").quantize(64)
            small.save(PICTURES / picture.name, optimize=True)
            print(PICTURES / picture.name)
