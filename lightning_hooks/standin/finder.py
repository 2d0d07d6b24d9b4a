"""A finder for ``sys.meta_path``: imports mmcv's modules, and loads names on access."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from typing import Any, ClassVar

from lightning_hooks.standin.installed_mmcv import Installed, find_installed, is_mmcv_2
from lightning_hooks.standin.lite import LiteLoader, is_in_a_file, spec_of_file
from lightning_hooks.standin.name_table import MODULES, Source, kind_of, names_of
from lightning_hooks.standin.placeholders import hint_for, load
from lightning_hooks.standin.utils.version import parse_version_info
from lightning_hooks.standin.version_window import version_for

VERSIONED = ("mmcv", "mmcv.version")
__all__ = ["Finder", "StandinModule", "has_lost_names"]


class _Loader(importlib.abc.Loader):
    """Load a module of mmcv 1.7.2; raise an error with advice for any other module."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Make an empty module, or the module of operators."""
        if spec.name == "mmcv._ext":
            extension: Any = importlib.import_module("lightning_hooks.standin.ops.extension")
            return extension.Extension(spec.name)  # type: ignore[no-any-return]
        if spec.name not in MODULES:
            parent, _, last = spec.name.rpartition(".")
            # without name=, or `from mmcv.runner import X` would replace the message
            raise ModuleNotFoundError(hint_for(parent, last))
        return StandinModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Load the names of submodules, like ``mmcv.ops.nms``."""
        package = module.__name__
        for name, source in names_of(package).items():
            if f"{package}.{name}" in MODULES:
                importlib.import_module(f"{package}.{name}")  # a later import would set the name
                setattr(module, name, load(source))


class _FileLoader(LiteLoader):
    """Load a module from a wheel's file, once in a process, for a reinstalled stand-in too."""

    loaded: ClassVar[dict[str, types.ModuleType]] = {}

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Make an empty module, or return the loaded module."""
        return self.loaded.get(spec.name) or StandinModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Run the file, then replace the names offered by the stand-in."""
        name = module.__name__
        if name in self.loaded:  # with a package its submodules come back, too
            below = {n: m for n, m in self.loaded.items() if n.startswith(f"{name}.")}
            sys.modules.update(below)
            return
        super().exec_module(module)
        self.loaded[name] = module
        if name not in MODULES:  # operators of mmcv 2.x
            return
        offered = {n: source for n, source in names_of(name).items() if not source.missing}
        ours = {n: source for n, source in offered.items() if not is_in_a_file(source.module)}
        for replaced in ours.keys() & vars(module).keys():
            setattr(module, replaced, ours[replaced].load())
        public = {n for n, source in ours.items() if source.is_public}
        starred = {n for n in vars(module)["__all__"] if n in names_of(name)}
        vars(module)["__all__"] = sorted(public | starred)

    @classmethod
    def is_loading(cls, module: types.ModuleType) -> bool:
        """Return whether a module's file is running."""
        loader = getattr(module.__spec__, "loader", None)
        return isinstance(loader, cls) and module.__name__ not in cls.loaded


class Finder(importlib.abc.MetaPathFinder):
    """Find ``mmcv`` and its submodules.

    Args:
        beside_mmcv_2: Leave ``mmcv`` to an installed mmcv 2.x, and find only the modules missing
            in 2.x.
    """

    def __init__(self, beside_mmcv_2: bool = False) -> None:
        self.beside_mmcv_2 = beside_mmcv_2

    def installed(self) -> Installed | None:
        """Return the mmcv package of the other finders."""
        return find_installed(finder for finder in sys.meta_path if finder is not self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for a module of mmcv; loading an unknown module raises an error."""
        if fullname.partition(".")[0] != "mmcv":
            return None
        if fullname == "mmcv":
            installed = self.installed()
            if installed is not None and (self.beside_mmcv_2 or not installed.is_2):
                return None
        elif not isinstance(sys.modules.get("mmcv"), StandinModule) and not (
            self.beside_mmcv_2 and fullname in MODULES
        ):
            return None
        elif is_in_a_file(fullname):
            spec = spec_of_file(fullname, self.installed())
            if spec:
                if isinstance(spec.loader, SourceFileLoader):
                    spec.loader = _FileLoader(fullname, spec.loader.path)
                return spec
        return importlib.machinery.ModuleSpec(
            fullname, _Loader(), origin="lightning_hooks", is_package=True
        )


class StandinModule(types.ModuleType):
    """A module of mmcv; loads a name on first access, by the name table.

    Args:
        name: The module's name: ``mmcv.runner``.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, f"{name} of mmcv 1.7.2, as lightning_hooks has it.")
        self.__all__ = sorted(n for n, source in names_of(name).items() if source.is_public)

    def __getattr__(self, attribute: str) -> Any:
        if attribute in ("__version__", "version_info") and self.__name__ in VERSIONED:
            version = version_for(sys._getframe(1).f_globals)  # a project's window decides
            return version if attribute == "__version__" else parse_version_info(version)[:3]
        source = names_of(self.__name__).get(attribute)
        if source is not None and source.module == self.__name__:
            if _FileLoader.is_loading(self):
                raise AttributeError(f"{self.__name__} has no {attribute!r} yet")
            source = Source(source.module, source.name, missing=kind_of(self.__name__, attribute))
        if source is not None:
            try:
                value = load(source)
            except AttributeError as error:  # import would report it as a missing name
                raise ImportError(f"{self.__name__}.{attribute}: {error}") from error
            setattr(self, attribute, value)
            return value
        if attribute.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {attribute!r}")
        if f"{self.__name__}.{attribute}" in MODULES:
            # packages of real mmcv import their modules
            return importlib.import_module(f"{self.__name__}.{attribute}")
        raise AttributeError(hint_for(self.__name__, attribute))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *names_of(self.__name__)})

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)


def has_lost_names(real: types.ModuleType | None) -> bool:
    """Return whether a module is a real mmcv 2.x, without runners."""
    if real is None or isinstance(real, StandinModule):
        return False
    return is_mmcv_2(str(getattr(real, "__version__", "1")))
