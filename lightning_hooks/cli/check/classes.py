"""Classes of old files with their inherited members, also from other files of the project."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path

from lightning_hooks import dialects
from lightning_hooks.cli.check.project import Project
from lightning_hooks.cli.check.source import HookClass, Import, Method
from lightning_hooks.dialects.detect import MMCV, PACKAGES
from lightning_hooks.engine.points import STAGES

__all__ = ["EVERY_POINT", "PLAIN", "Classes", "ResolvedClass"]

HOOK = ("Hook", "HookBase")
PLAIN = {*HOOK}
"""Bases with points that do nothing."""
ROOTS = {"object", "ABC", "Protocol", "Generic"}
MODULE_HOOKS = {"Module", "PytorchModuleHook"}
"""Bases of hooks that torch calls."""
MODULE_HOOK_METHODS = {"hook", "hook_type", "hook_func"}
"""Methods of hooks that torch calls, in mmpose and mmaction."""
EVERY_POINT = MMCV.union(*(dialect.methods for dialect in dialects.DIALECTS.values()))
MMENGINE_ARGUMENTS = {"batch_idx", "data_batch", "outputs", "metrics", "checkpoint"}


@dataclasses.dataclass(frozen=True)
class ResolvedClass:
    """A class with the members that it inherits from classes in the files."""

    lineage: list[HookClass]
    """The class, then its bases in the files."""
    bases: set[str]
    """The names of all its bases."""
    outside: set[str]
    """Those that are not in the files."""
    base_modules: list[str]
    """The modules that bases are imported from, the nearest first."""

    @property
    def own(self) -> HookClass:
        """The class itself."""
        return self.lineage[0]

    @functools.cached_property
    def methods(self) -> dict[str, Method]:
        """The methods by name, inherited ones too."""
        return {
            name: method for one in reversed(self.lineage) for name, method in one.methods.items()
        }

    @property
    def is_hook(self) -> bool:
        """Whether it is a hook, by its registry, its bases, or its points."""
        if self.own.registry or any(base.endswith(HOOK) for base in self.bases):
            return True
        points = [method for name, method in self.own.methods.items() if name in MMCV]
        return not self.bases and any(method.arguments for method in points)

    @property
    def is_of_runner(self) -> bool:
        """Whether a runner calls it, and not a torch module."""
        has_hook_base = any(base.endswith(HOOK) for base in self.outside - MODULE_HOOKS)
        if has_hook_base or EVERY_POINT & self.methods.keys():
            return True
        return not (self.bases & MODULE_HOOKS or MODULE_HOOK_METHODS & self.methods.keys())

    @property
    def dialect(self) -> str:
        """The dialect, by the package of a base, else by the points and their arguments."""
        for module in self.base_modules:
            package = module.removeprefix(f"{dialects.__name__}.").partition(".")[0]
            if package in PACKAGES:
                return PACKAGES[package]
        if any("trainner" in method.arguments for method in self.methods.values()):
            return "pointrix"  # its own spelling
        step = self.methods.get("after_step") or self.methods.get("before_step")
        if step is not None:
            return "pet" if step.takes_any or step.arguments else "detectron2"
        points = [method for name, method in self.methods.items() if name in STAGES]
        if any(MMENGINE_ARGUMENTS.intersection(method.arguments) for method in points):
            return "mmengine"
        return "mmcv"


class Classes:
    """Finds classes across the files of a project.

    Args:
        project: The files.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self._by_name = {cls.name: cls for file in project.files for cls in file.classes}

    def resolve(self, cls: HookClass) -> ResolvedClass:
        """Return a class with its bases as far as they are in the files."""
        lineage, waiting = [], [cls]
        bases: set[str] = set()
        outside: set[str] = set()
        modules: list[str] = []
        while waiting:
            one = waiting.pop(0)
            if one in lineage:
                continue
            lineage.append(one)
            imports = self._project.read(one.path).imports
            modules += [imported.module for imported in imports if imported.bound in one.bases]
            for name, base in self._bases(one):
                bases.add(name)
                if base is None:
                    outside.add(name)
                else:
                    waiting.append(base)
        return ResolvedClass(lineage, bases - ROOTS, outside - ROOTS, modules)

    def _bases(self, cls: HookClass) -> Iterator[tuple[str, HookClass | None]]:
        """Yield the names of a class's bases, as where they come from, and the classes."""
        file = self._project.read(cls.path)
        imported = {one.bound: one for one in file.imports if one.name}
        own = {one.name: one for one in file.classes}
        for base in cls.bases:
            if base in imported:
                yield imported[base].name, self._imported(cls.path, imported[base])
            else:
                found = own.get(base, self._by_name.get(base))
                yield base, None if found is cls else found

    def _imported(self, path: Path, imported: Import) -> HookClass | None:
        """Return a class that a file imports from one of the project's own."""
        files = self._project.files_of(path, imported)
        for inner in reversed(files):
            for cls in self._project.read(inner).classes:
                if cls.name == imported.name:
                    return cls
        return self._by_name.get(imported.name) if files else None  # passed on by an __init__

    def has_own_registry(self, cls: HookClass) -> bool | None:
        """Whether a class's registry is made in the project; None if that cannot be decided."""
        path, name = cls.path, cls.registry[0]
        visited: list[Path] = []
        while path not in visited:
            visited.append(path)
            file = self._project.read(path)
            if name in file.makes:
                return True
            source = next((one for one in file.imports if one.bound == name), None)
            if source is None or source.root == "mmcv":
                return False
            files = self._project.files_of(path, source)
            if not files:
                return None
            path, name = files[-1], source.name
        return None
