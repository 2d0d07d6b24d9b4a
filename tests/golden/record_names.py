"""Record every name in real mmcv's modules: the kind, the arguments, and a class's members."""

import importlib
import importlib.abc
import importlib.machinery
import inspect
import pkgutil
import sys
import types
from typing import Any
from unittest import mock

from inspected import arguments, members

ABSENT = ("mmcv._ext", "onnx", "onnxruntime", "popart", "poptorch", "tensorrt")
"""Missing requirements of mmcv's modules: compiled operators, other devices' libraries."""


class _AnyType(type):
    """A type with every attribute, usable as a base class and as a value."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyType(name, (), {})


class _AnyModule(types.ModuleType):
    __version__ = "99"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyType(name, (), {})


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the absent libraries."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if any(fullname == name or fullname.startswith(f"{name}.") for name in ABSENT):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _AnyModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing."""


def modules() -> list[str]:
    """Import all modules of mmcv, modules with absent requirements last; return the names."""
    import mmcv
    import oracle  # noqa: F401

    found = {"mmcv", "mmcv.model_zoo", *_import_all(mmcv)}
    absent = _Absent()
    sys.meta_path.append(absent)
    try:
        found.update(_import_all(mmcv))
        with mock.patch("mmcv.utils.IS_IPU_AVAILABLE", True):  # defines more names
            importlib.reload(sys.modules["mmcv.device.ipu"])
        return sorted(found)
    finally:
        sys.meta_path.remove(absent)


def _import_all(mmcv: Any) -> list[str]:
    found = []
    for _, name, _ in pkgutil.walk_packages(mmcv.__path__, "mmcv.", lambda _: None):
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        found.append(name)
    return found


def describe(path: str, value: Any) -> Any:
    """Return the kind of a name, with arguments or members if the module defines the object."""
    if isinstance(value, types.ModuleType):
        return "module"
    owner = getattr(value, "__self__", None)
    home = getattr(owner if inspect.isclass(owner) else value, "__module__", path)
    if inspect.isclass(value):
        return {"class": members(value)} if home == path else "class"
    if inspect.isroutine(value):
        return {"function": arguments(value)} if home == path else "function"
    return "value"


def is_told(path: str, name: str, value: Any) -> bool:
    """Return whether a name is mmcv's, so neither private nor imported from elsewhere."""
    if name.startswith("_"):
        return name in ("__version__", "_load_checkpoint", "_load_checkpoint_with_prefix")
    if isinstance(value, types.ModuleType):
        return value.__name__.startswith(f"{path}.")
    owner = getattr(value, "__self__", None)
    of = owner if inspect.isclass(owner) else value  # carafe = CARAFEFunction.apply
    home = str(getattr(of, "__module__", "") or type(of).__module__)
    if home.startswith("mmcv"):
        return True
    return not (inspect.isclass(value) or inspect.isroutine(value) or home.startswith("typing"))


def record() -> dict[str, Any]:
    """Record all modules, even those that need compiled operators or other devices' libraries."""
    found = {}
    for path in modules():
        module = importlib.import_module(path)
        listed = set(getattr(module, "__all__", ()))
        found[path] = {
            name: describe(path, value)
            for name, value in sorted(vars(module).items())
            if name in listed or is_told(path, name, value)
        }
    return {"cases": found}
