"""Provide single files of peers that cannot be installed next to the others, from PyPI archives."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import oracle  # noqa: F401 - lets mmcv be imported
import pytest
from packages import Stubs

from support.paths import ROOT

PLAIN = ("sal-detectron2==0.7.2", "mmdet==2.28.2", "mosaicml==0.32.1")
"""detectron2's main branch of 2024, the last mmdetection of mmcv 1.x, and Composer."""

_FOR_ANY = (
    *("--python-version", "3.10", "--implementation", "cp", "--abi", "none"),
    *("--platform", "any", "--only-binary", ":all:"),
)


@pytest.fixture(autouse=True, scope="session")
def importable_files() -> None:
    """Download missing archives, and make files importable without the parent package."""
    folder = ROOT / ".bench" / "plain"
    if not (folder / "done").is_file() or (folder / "done").read_text() != " ".join(PLAIN):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
        subprocess.run([*command, *_FOR_ANY, *PLAIN], check=True, timeout=400)
        for archive in folder.glob("*.whl"):
            with zipfile.ZipFile(archive) as opened:
                opened.extractall(folder)
        (folder / "done").write_text(" ".join(PLAIN))
    fvcore = importlib.util.find_spec("fvcore")
    assert fvcore is not None
    assert fvcore.origin is not None
    sys.meta_path[:0] = [
        Stubs(folder, ("detectron2", "mmdet", "composer")),
        # installed without the imports of the other files
        Stubs(Path(fvcore.origin).parents[1], ("fvcore", "mmcls", "timm")),
    ]
