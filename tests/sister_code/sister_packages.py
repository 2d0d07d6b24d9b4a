"""The sister libraries from PyPI: importable packages, and files of packages that do not import."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from importlib import import_module
from pathlib import Path

from packages import Stubs

INSTALLED = (
    "mmengine==0.10.7",
    "addict==2.4.0",
    "termcolor==3.3.0",
    "yapf==0.43.0",
    "rich==15.0.0",
    "markdown-it-py==4.0.0",
    "mdurl==0.1.2",
    "pygments==2.19.2",
    "yacs==0.1.8",
    "tabulate==0.10.0",
    "portalocker==3.2.0",
    "opencv-python-headless==5.0.0.93",
)
"""MMEngine and the imports of MMEngine and fvcore that do not come with torch."""

UNPACKED = (
    "mmdet==3.3.0",
    "mmpretrain==1.2.0",
    "mmyolo==0.6.0",
    "mmpose==1.3.2",
    "mmselfsup==1.0.0",
    "mmrazor==1.0.0",
    "mmagic==1.2.0",
    "mmdet3d==1.4.0",
    "mmcv-lite==2.1.0",
    "fvcore==0.1.5.post20221221",
    "iopath==0.1.10",
)
"""Packages imported as plain files without an installation."""

DETECTRON2 = "sal-detectron2==0.7.2"
"""detectron2's main branch of 2024. The wheel is for one Python, its plain files for all."""

_FOR_ANY = (
    *("--python-version", "3.10", "--implementation", "cp", "--abi", "none"),
    *("--platform", "any", "--only-binary", ":all:"),
)

STUBS = (
    *("mmdet", "mmpretrain", "mmyolo", "mmpose", "mmselfsup", "mmrazor", "mmagic", "mmdet3d"),
    "detectron2",
)
"""Packages with only single files imported."""

_GIVEN = (
    "mmpretrain.utils.misc:get_ori_model",
    "mmrazor.registry.registry:HOOKS",
    "mmselfsup.utils.misc:get_model",
)

_PLAIN = ("fvcore/", "iopath/")


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", *arguments]
    subprocess.run(command, check=True, timeout=400, capture_output=True)


def fetch(directory: Path) -> None:
    """Download missing packages to ``directory``: ``lib`` is importable, ``src`` is unpacked."""
    library, source = directory / "lib", directory / "src"
    done = directory / "sisters"
    wanted = " ".join((*INSTALLED, *UNPACKED, DETECTRON2))
    if done.is_file() and done.read_text() == wanted:
        return
    source.mkdir(parents=True, exist_ok=True)
    _pip("install", "-q", "--no-deps", "--upgrade", "--target", str(library), *INSTALLED)
    options = ["--no-deps", "-q", "-d", str(directory)]
    _pip("download", *options, "--no-build-isolation", *UNPACKED)
    _pip("download", *options, *_FOR_ANY, DETECTRON2)
    for archive in directory.iterdir():
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as opened:
                opened.extractall(source)
        elif archive.name.endswith(".tar.gz"):
            with tarfile.open(archive) as opened:
                for member in opened.getmembers():
                    member.name = member.name.partition("/")[2]  # without the name of the archive
                    if member.name.startswith(_PLAIN) and member.name.endswith(".py"):
                        opened.extract(member, source, filter="data")
    done.write_text(wanted)


def make_importable(directory: Path) -> None:
    """Let the libraries be imported; of mmdet and detectron2 only single files are."""
    sys.path[:0] = [str(directory / "lib"), str(directory / "src")]
    sys.meta_path.insert(0, Stubs(directory / "src", STUBS))
    for name in _GIVEN:  # names that a package's __init__ imports from its files
        module, _, function = name.partition(":")
        package = import_module(module.rpartition(".")[0])
        setattr(package, function, getattr(import_module(module), function))
