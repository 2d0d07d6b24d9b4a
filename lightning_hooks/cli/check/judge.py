"""Judge a project that has been imported: its names, types, runners, hooks and habits."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from lightning_hooks.cli.check.absent import is_installed
from lightning_hooks.cli.check.hooks import Hooks
from lightning_hooks.cli.check.names import Names, resolve
from lightning_hooks.cli.check.report import Finding, HookReport, short, some
from lightning_hooks.cli.check.source import read
from lightning_hooks.engine import registry as native

__all__ = ["judge", "types_of"]


def judge(
    files: Collection[Path], modules: Mapping[Path, Any], used: Collection[str] | None
) -> Iterator[Finding | HookReport]:
    """Yield findings and hooks.

    Args:
        files: The files to judge.
        modules: All imported files of the project.
        used: The types that a config names, None if there is none.
    """
    import mmcv

    kinds = (native.Registry, mmcv.utils.Registry)
    registries: list[Any] = [one for one in gc.get_objects() if issubclass(type(one), kinds)]
    types = {name: cls for one in registries for name, cls in one.module_dict.items()}
    hooks = [one.module_dict.values() for one in registries if "hook" in one.name.lower()]
    yield from _imports(files)
    yield from _placeholders(Names(modules), types, used)
    yield from _runners(modules, mmcv.runner.BaseRunner)
    yield from Hooks(modules, {cls for values in hooks for cls in values}).judge(files)
    yield from _cuda(files)


def _imports(files: Collection[Path]) -> Iterator[Finding]:
    """Find names that mmcv never had, and packages that some files do without."""
    optional: dict[str, tuple[str, int]] = {}
    for path in files:
        for imported in read(path).imports:
            root = imported.module.partition(".")[0]
            if root == "mmcv":
                found = resolve(imported.module, imported.name)
                if isinstance(found, Exception):
                    level = "part" if imported.is_needed else "note"
                    yield Finding(short(path), imported.line, str(found), "", level)
            elif not (imported.is_needed or is_installed(root)):
                optional.setdefault(root, (short(path), imported.line))
    if optional:
        what = f"not installed, and imported in functions or a try: {', '.join(sorted(optional))}"
        yield Finding(*next(iter(optional.values())), what, "", "note", "packages")


def _placeholders(
    names: Names, types: Mapping[str, Any], used: Collection[str] | None
) -> Iterator[Finding]:
    """Find placeholders that types reach: those of a config, or all of the project."""
    users: dict[str, list[str]] = defaultdict(list)
    for name in sorted(types if used is None else used):
        for placeholder in names.reached_by(types.get(name.rpartition(".")[2])):
            users[placeholder].append(f"type={name!r}")
    for placeholder, (path, line) in sorted(names.placeholders.items()):
        subject = some(users.get(placeholder, []), 3)
        if subject or used is None:
            level = "start" if used is not None else "part" if subject else "note"
            what = f"{placeholder} is a placeholder, which raises an error when it is used"
            by = f" by {subject}" if subject else ""
            yield Finding(short(path), line, what + by, "", level, "placeholders", subject)


def types_of(config: Any) -> set[str]:
    """Return the types that a config names, at any depth."""
    if isinstance(config, Mapping):
        own = {config["type"]} if isinstance(config.get("type"), str) else set()
        return own.union(*map(types_of, config.values()))
    return set().union(*map(types_of, config if isinstance(config, (list, tuple)) else ()))


def _runners(modules: Mapping[Path, Any], base: type) -> Iterator[Finding]:
    """Find runners with a loop of their own."""
    for path, module in modules.items():
        for name, line in read(path).lines.items():
            cls = vars(module).get(name)
            own = {"run", "train", "val"} & {*getattr(cls, "__dict__", ())}
            if own and isinstance(cls, type) and issubclass(cls, base):
                what = f"{name} has its own {', '.join(sorted(own))}"
                yield Finding(short(path), line, what, "", "part", "runners", name)


def _cuda(files: Collection[Path]) -> Iterator[Finding]:
    """Find calls that need a GPU where there is none."""
    calls = [(path, one) for path in files for one in read(path).names if one.kind == "call"]
    places = [
        (short(path), name.line)
        for path, name in calls
        if name.parts[-1] == "cuda" and name.line not in read(path).asked
    ]
    if places and not torch.cuda.is_available():
        others = some([f"{path}:{line}" for path, line in places[1:]], 3)
        what = "calls .cuda(), which raises an error on this machine without a GPU"
        also = f"; so do {others}" if others else ""
        yield Finding(*places[0], what + also, "", "note", "GPU")
