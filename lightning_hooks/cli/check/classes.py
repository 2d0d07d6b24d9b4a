"""What the classes in old files are, by their bases and methods, across the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from lightning_hooks.cli.check.imports import Imports
from lightning_hooks.cli.check.source import HookClass, Import, Method, SourceFile
from lightning_hooks.dialects import DIALECTS
from lightning_hooks.dialects.detect import MMCV, PACKAGES
from lightning_hooks.engine.points import STAGES

__all__ = ["EVERY_POINT", "PLAIN", "Classes"]

HOOK = ("Hook", "HookBase")
PLAIN = {"Hook", "HookBase"}
"""Bases with points that do nothing."""
ROOTS = {"object", "ABC", "Protocol", "Generic"}
MODULE_HOOKS = {"Module", "PytorchModuleHook"}
"""Bases of what is called by torch."""
HOOKED = {"hook", "hook_type", "hook_func"}
"""Methods of what is called by torch, as mmpose and mmaction have them."""
EVERY_POINT = MMCV.union(*(dialect.methods for dialect in DIALECTS.values()))
MMENGINE_ARGUMENTS = {"batch_idx", "data_batch", "outputs", "metrics", "checkpoint"}


class Classes:
    """The classes of files that belong together.

    Args:
        files: The files.
        read: Reads a further file, of those that these import.
        imports: Knows which those are.
    """

    def __init__(
        self,
        files: Mapping[Path, SourceFile],
        read: Callable[[Path], SourceFile],
        imports: Imports,
    ) -> None:
        self._read = read
        self._imports = imports
        self._paths = {id(cls): path for path, file in files.items() for cls in file.classes}
        self._classes = {cls.name: cls for file in files.values() for cls in file.classes}

    def _bases(self, cls: HookClass) -> Iterator[tuple[str, HookClass | None]]:
        """Yield the names of a class's bases, as they are where they come from, and the classes."""
        path = self._paths[id(cls)]
        file = self._read(path)
        imported = {one.bound: one for one in file.imports if one.name}
        own = {one.name: one for one in file.classes}
        for base in cls.bases:
            if base in imported:
                yield imported[base].name, self._imported(path, imported[base])
            else:
                found = own.get(base, self._classes.get(base))
                yield base, None if found is cls else found

    def _imported(self, path: Path, imported: Import) -> HookClass | None:
        """Return a class that a file imports from one of the project's own."""
        files = self._imports.own(path, imported)
        for inner in reversed(files):
            classes = self._read(inner).classes
            self._paths.update((id(cls), inner) for cls in classes)
            found = next((cls for cls in classes if cls.name == imported.name), None)
            if found is not None:
                return found
        return self._classes.get(imported.name) if files else None  # passed on by an __init__

    def lineage(self, cls: HookClass) -> list[HookClass]:
        """Return a class and those that it is derived from, as far as they are in the files."""
        found, wanted = [], [cls]
        while wanted:
            one = wanted.pop(0)
            if one not in found:
                found.append(one)
                wanted += [base for _, base in self._bases(one) if base is not None]
        return found

    def bases(self, cls: HookClass, *, outside: bool = False) -> set[str]:
        """Return the names of all that a class is derived from, or only of what is outside."""
        found = [base for one in self.lineage(cls) for base in self._bases(one)]
        return {name for name, inside in found if not (outside and inside)} - ROOTS

    def is_hook(self, cls: HookClass) -> bool:
        """Whether a class is a hook: by its registry, its base, or its points."""
        if cls.is_registered or any(one.endswith(HOOK) for one in self.bases(cls)):
            return True
        points = [m for name, m in cls.methods.items() if name in MMCV]
        return not self.bases(cls) and any(m.arguments for m in points)

    def is_of_runner(self, cls: HookClass) -> bool:
        """Whether a runner calls it, and not a torch module."""
        outside = self.bases(cls, outside=True) - MODULE_HOOKS
        if any(base.endswith(HOOK) for base in outside) or EVERY_POINT & self.methods(cls).keys():
            return True
        return not (self.bases(cls) & MODULE_HOOKS or HOOKED & self.methods(cls).keys())

    def has_own_registry(self, cls: HookClass) -> bool | None:
        """Whether a class's registry is made in the project; None where that cannot be seen."""
        path, name = self._paths[id(cls)], cls.registry[0]
        seen: list[Path] = []
        while path not in seen:
            seen.append(path)
            file = self._read(path)
            if name in file.makes:
                return True
            source = next((one for one in file.imports if one.bound == name), None)
            if source is None or source.module.partition(".")[0] == "mmcv":
                return False
            files = self._imports.own(path, source)
            if not files:
                return None
            path, name = files[-1], source.name
        return None

    def methods(self, cls: HookClass) -> dict[str, Method]:
        """Return a class's methods by name, its own and those of its bases in the files."""
        lineage = reversed(self.lineage(cls))
        return {name: method for one in lineage for name, method in one.methods.items()}

    def dialect(self, cls: HookClass) -> str:
        """Tell the dialect by the package of the base, else by the points and what they take."""
        lineage = self.lineage(cls)
        for one in lineage:
            for imported in self._read(self._paths[id(one)]).imports:
                if imported.bound in one.bases:
                    ours = imported.module.removeprefix("lightning_hooks.dialects.")
                    known = PACKAGES.get(ours.partition(".")[0])
                    if known is not None:
                        return known
        methods = self.methods(cls)
        if any("trainner" in method.arguments for method in methods.values()):
            return "pointrix"  # its own spelling
        if {"before_step", "after_step"} & methods.keys():
            step = methods.get("after_step", methods.get("before_step"))
            assert step is not None
            return "pet" if step.takes_any or step.arguments else "detectron2"
        if any({*m.arguments} & MMENGINE_ARGUMENTS for n, m in methods.items() if n in STAGES):
            return "mmengine"
        return "mmcv"
