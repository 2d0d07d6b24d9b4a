"""Record every name of real mmcv's modules: what it is, its arguments, and a class's members."""

import importlib
import inspect
import pkgutil
import types
from typing import Any

from inspected import arguments, members

COMPILED = ("mmcv.ops", "mmcv.tensorrt", "mmcv.onnx")


def modules() -> list[str]:
    """Return the names of mmcv's modules that do not need its compiled operators."""
    import mmcv
    import oracle  # noqa: F401

    found = [name for _, name, _ in pkgutil.walk_packages(mmcv.__path__, "mmcv.", lambda _: None)]
    return ["mmcv", *(name for name in found if not name.startswith(COMPILED))]


def describe(path: str, value: Any) -> Any:
    """Return what a name is; of functions and classes of other modules only that."""
    if isinstance(value, types.ModuleType):
        return "module"
    home = getattr(value, "__module__", path)
    if inspect.isclass(value):
        return {"class": members(value)} if home == path else "class"
    if inspect.isroutine(value):
        return {"function": arguments(value)} if home == path else "function"
    return "value"


def is_told(path: str, name: str, value: Any) -> bool:
    """Whether a name is mmcv's: what it imports from elsewhere is not told, nor is the private."""
    if name.startswith("_"):
        return name in ("__version__", "_load_checkpoint", "_load_checkpoint_with_prefix")
    if isinstance(value, types.ModuleType):
        return value.__name__.startswith(f"{path}.")
    home = str(getattr(value, "__module__", "") or type(value).__module__)
    if home.startswith("mmcv"):
        return True
    return not (inspect.isclass(value) or inspect.isroutine(value) or home.startswith("typing"))


def record() -> dict[str, Any]:
    """Record all modules that can be imported without special hardware's libraries."""
    found = {}
    for path in modules():
        try:
            module = importlib.import_module(path)
        except ImportError:
            continue
        listed = set(getattr(module, "__all__", ()))
        found[path] = {
            name: describe(path, value)
            for name, value in sorted(vars(module).items())
            if name in listed or is_told(path, name, value)
        }
    return {"cases": found}
