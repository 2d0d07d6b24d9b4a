"""Real packages of the mmcv 1.x era, from PyPI: fetched, unpacked, loaded file by file."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import subprocess
import sys
import tarfile
import types
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

PACKAGES = (
    "mmdet==2.28.2",
    "mmcls==0.25.0",
    "mmsegmentation==0.30.0",
    "mmselfsup==0.10.1",
    "mmpose==0.29.0",
    "mmaction2==0.24.1",
    "mmedit==0.16.1",
    "mmtrack==0.14.0",
    "mmrazor==0.3.1",
    "mmflow==0.5.2",
    "mmfewshot==0.1.0",
    "mmgen==0.7.3",
    "mmhuman3d==0.11.0",
    "openmixup==0.2.9",
    "pai-easycv==0.11.7",
)
ROOTS = ("mm", "openmixup", "easycv")
"""The prefixes of the packages' module names."""


def fetch(directory: Path, only: Collection[str] = ()) -> None:
    """Download all or some packages if missing, and unpack them into ``"src"`` in the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        name, _, version = package.partition("==")
        if only and name not in only:
            continue
        if not [*directory.glob(f"{name.replace('-', '_')}-{version}*")]:
            options = ["--no-deps", "--no-build-isolation", "-q", "-d", str(directory)]
            command = [sys.executable, "-m", "pip", "download", *options, package]
            subprocess.run(command, check=True, timeout=300)
    target = directory / "src"
    for archive in sorted(directory.glob("*-*")):
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as opened:
                opened.extractall(target)
        elif archive.name.endswith(".tar.gz"):
            with tarfile.open(archive) as opened:
                inside = archive.name.removesuffix(".tar.gz")
                for member in opened.getmembers():
                    member.name = member.name.removeprefix(f"{inside}/")
                    if member.name.startswith(inside.partition("-")[0]) and member.isfile():
                        opened.extract(member, target, filter="data")


class Stub(types.ModuleType):
    """A stub of a package without its ``__init__``; any attribute is a new class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = type(name, (), {"__module__": self.__name__})
        setattr(self, name, found)
        return found


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the packages of a directory as stubs, whose files are importable unchanged.

    Args:
        source: The directory.
        names: The packages; by default all packages with a prefix in ``ROOTS``, except mmcv.
    """

    def __init__(self, source: Path, names: tuple[str, ...] = ()) -> None:
        self.source, self.names = source, names

    def _is_one(self, package: str) -> bool:
        if self.names:
            return package in self.names
        return package.startswith(ROOTS) and not package.startswith("mmcv")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find a package; Python then finds the package's files by path."""
        where = self.source.joinpath(*name.split("."))
        if not (self._is_one(name.partition(".")[0]) and (where / "__init__.py").is_file()):
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        spec.submodule_search_locations = [str(where)]
        return spec

    def create_module(self, spec: Any) -> types.ModuleType:
        """Make a stub."""
        return Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do not run the package's code."""


def stub(source: Path) -> None:
    """Have the unpacked packages as stubs."""
    if not any(isinstance(finder, Stubs) for finder in sys.meta_path):
        sys.meta_path.insert(0, Stubs(source))


def load(source: Path, file: str) -> types.ModuleType:
    """Import a file of an unpacked package, with stubs of the parent packages."""
    stub(source)
    return importlib.import_module(file.removesuffix(".py").replace("/", "."))
