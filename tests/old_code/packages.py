"""Real packages of the mmcv 1.x era, from PyPI: fetched, unpacked, loaded file by file."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tarfile
import types
import zipfile
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
)


def fetch(directory: Path) -> None:
    """Download what is missing, and unpack it all into ``directory / "src"``."""
    directory.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        name, _, version = package.partition("==")
        if not [*directory.glob(f"{name}-{version}*")]:
            options = ["--no-deps", "--no-build-isolation", "-q", "-d", str(directory)]
            command = [sys.executable, "-m", "pip", "download", *options, package]
            subprocess.run(command, check=True, timeout=300)
    target = directory / "src"
    for archive in sorted(directory.glob("mm*-*")):
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
    """Stands for a package whose own ``__init__`` is not run: it has any class asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = type(name, (), {"__module__": self.__name__})
        setattr(self, name, found)
        return found


def load(source: Path, file: str) -> types.ModuleType:
    """Import a file of an unpacked package, with the packages above it stubbed."""
    *parents, last = file.removesuffix(".py").split("/")
    for index in range(len(parents)):
        name = ".".join(parents[: index + 1])
        if name not in sys.modules:
            sys.modules[name] = stub = Stub(name)
            stub.__path__ = [str(source.joinpath(*parents[: index + 1]))]
    name = ".".join([*parents, last])
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, source / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
