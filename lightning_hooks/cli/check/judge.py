"""Judge a project that has been imported: its names, types, runners, hooks and habits."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from lightning_hooks.cli.check.absent import correction, is_absent, is_installed
from lightning_hooks.cli.check.hooks import Hooks
from lightning_hooks.cli.check.names import Names, resolve
from lightning_hooks.cli.check.report import ABSENT, Finding, HookReport, short, some
from lightning_hooks.cli.check.source import read
from lightning_hooks.engine import registry as native
from lightning_hooks.standin.finder import StandinModule
from lightning_hooks.standin.version_window import version_for

__all__ = ["judge", "types_of"]


def judge(
    files: Collection[Path], modules: Mapping[Path, Any], used: Collection[str], config: Path | None
) -> Iterator[Finding | HookReport]:
    """Yield findings and hooks.

    Args:
        files: The files to judge.
        modules: All imported files of the project.
        used: The types that the config names.
        config: The config; without one all types of the project are used.
    """
    import mmcv

    kinds = (native.Registry, mmcv.utils.Registry)
    registries: list[Any] = [one for one in gc.get_objects() if issubclass(type(one), kinds)]
    types = {name: cls for one in registries for name, cls in one.module_dict.items()}
    hooks = [one.module_dict.values() for one in registries if "hook" in one.name.lower()]
    yield from _versions(modules, mmcv)
    yield from _imports(files)
    yield from _libraries(files)
    names = Names(modules)
    yield from _placeholders(names, types, used, config)
    for lost, (path, line) in names.lost.items():
        is_offered = not isinstance(resolve(*lost.rsplit(".", 1)), Exception)
        what = f"{lost} is gone" + ", but is there under -m lightning_hooks.standin" * is_offered
        level = "note" if is_offered else "part"
        yield Finding(short(path), line, what, "", level, "numpy and Python")
    yield from _runners({path: modules[path] for path in files if path in modules})
    yield from Hooks(modules, {cls for values in hooks for cls in values}).judge(files)
    yield from _cuda(files)


def _versions(modules: Mapping[Path, Any], mmcv: Any) -> Iterator[Finding]:
    """Find the versions of mmcv that the project asks for."""
    names = ("mmcv_minimum_version", "mmcv_maximum_version")
    for path, module in modules.items():
        written = [one for one in read(path).names if one.kind == "write"]
        lines = {one.parts[0]: one.line for one in written if one.parts[0] in names}
        asked = [f"{name} is {vars(module).get(name)}" for name in lines]
        if asked and isinstance(vars(module).get(asked[0].partition(" ")[0]), str):
            is_ours = isinstance(mmcv, StandinModule)
            version = version_for(vars(module)) if is_ours else mmcv.__version__
            what = f"{', '.join(asked)}, and mmcv's version reads as {version}"
            yield Finding(short(path), min(lines.values()), what, "", "note", "version")


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


def _libraries(files: Collection[Path]) -> Iterator[Finding]:
    """Find each line that imports from another library of hooks which is not installed."""
    for path in files:
        lines: dict[tuple[int, str], list[str]] = defaultdict(list)
        for one in read(path).imports:
            if one.is_needed and is_absent(one.module.partition(".")[0]):
                lines[one.line, one.module].append(one.name)
        for (line, module), names in lines.items():
            what = module.partition(".")[0] + ABSENT
            yield Finding(short(path), line, what, correction(module, names), "part", "packages")


def _placeholders(
    names: Names, types: Mapping[str, Any], used: Collection[str], config: Path | None
) -> Iterator[Finding]:
    """Find placeholders that types reach: those of a config, or all of the project."""
    users: dict[str, list[str]] = defaultdict(list)
    own = [name for name, value in types.items() if names.is_own(value)]
    for name in sorted({name.rpartition(".")[2] for name in used} if config else own):
        for placeholder in names.reached_by(types.get(name)):
            users[placeholder].append(name)
    for placeholder in sorted(users):
        path, line = names.placeholders.get(placeholder, (config or Path(), 0))
        subject = some([f"type={name!r}" for name in users[placeholder]], 3)
        is_direct = config and any(names.is_placeholder(types[name]) for name in users[placeholder])
        level = "start" if is_direct else "part"
        what = f"{placeholder} raises an error when {subject} uses it"
        yield Finding(short(path), line, what, "", level, "placeholders", subject)
    others = sorted({*names.placeholders} - {*users}) if config is None else []
    if others:
        path, line = names.placeholders[others[0]]
        what = f"raise an error when used, which no registered type does: {', '.join(others)}"
        yield Finding(short(path), line, what, "", "note", "placeholders")


def types_of(config: Any) -> set[str]:
    """Return the types that a config names, at any depth."""
    if isinstance(config, Mapping):
        own = {config["type"]} if isinstance(config.get("type"), str) else set()
        return own.union(*map(types_of, config.values()))
    return set().union(*map(types_of, config if isinstance(config, (list, tuple)) else ()))


def _runners(modules: Mapping[Path, Any]) -> Iterator[Finding]:
    """Find runners with a loop of their own."""
    from mmcv.runner import BaseRunner

    for path, module in modules.items():
        for name, line in read(path).lines.items():
            cls = vars(module).get(name)
            own = sorted({"run", "train", "val"} & {*getattr(cls, "__dict__", ())})
            if own and isinstance(cls, type) and issubclass(cls, BaseRunner):
                what = f"{name} has its own {', '.join(own)}, which runs as written"
                yield Finding(short(path), line, what, "", "note", "runners", name)


def _cuda(files: Collection[Path]) -> Iterator[Finding]:
    """Find calls that need a GPU where there is none."""
    what = "calls .cuda(), which raises an error on this machine without a GPU"
    for path in () if torch.cuda.is_available() else files:
        for name in read(path).names:
            is_call = name.kind == "call" and name.parts[1:] and name.parts[-1] == "cuda"
            if is_call and name.line not in read(path).asked:
                yield Finding(short(path), name.line, what, "", "note", "GPU")
