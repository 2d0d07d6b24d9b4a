"""Import files under the module name of a library that is not installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import support

__all__ = ["load_as"]

FILES = Path(support.__file__).parent / "dialect_hooks"


def load_as(monkeypatch: Any, name: str, file: str) -> ModuleType:
    """Import a file of ``dialect_hooks`` under a library's module name for one test.

    Args:
        monkeypatch: pytest's fixture.
        name: Full name of the module; missing parent packages are created.
        file: Name of the file without extension.
    """
    parts = name.split(".")
    for end in range(1, len(parts)):
        package = ".".join(parts[:end])
        if package not in sys.modules:
            made = ModuleType(package)
            made.__path__ = []
            monkeypatch.setitem(sys.modules, package, made)
    spec = importlib.util.spec_from_file_location(name, FILES / f"{file}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module
