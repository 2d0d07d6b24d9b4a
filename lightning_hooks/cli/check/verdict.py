"""Judge whether old hooks can run here."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from lightning_hooks.cli.check.classes import PLAIN, Classes, ResolvedClass
from lightning_hooks.cli.check.hook_findings import HookFindings, points_of
from lightning_hooks.cli.check.imports import Imports
from lightning_hooks.cli.check.project import Project, packages_of
from lightning_hooks.cli.check.report import TORCH, FileReport, Finding, HookReport, short
from lightning_hooks.cli.check.source import Use
from lightning_hooks.engine.points import GENERIC, STAGES

__all__ = ["judge"]

ORDER = {name: index for index, name in enumerate([*STAGES, *GENERIC.values()])}


def judge(project: Project) -> list[FileReport]:
    """Return a report for each file that has hooks, or cannot be read or imported.

    The latter are also the ``__init__.py`` that keep hooks beside them from being imported.
    """
    imports = Imports(project)
    classes = Classes(project)
    findings = HookFindings(project, classes)
    reports: dict[str, FileReport] = {}
    failing: dict[Path, Finding | None] = {}
    for file in project.files:
        path = short(file.path)
        resolved = [classes.resolve(cls) for cls in file.classes]
        hooks = tuple(_report(cls, findings) for cls in resolved if cls.is_hook)
        if hooks or file.error is not None:
            reports[path] = FileReport(path, hooks, tuple(imports.findings(file.path)))
        for init in packages_of(file.path) if hooks else ():
            if init not in failing:
                failing[init] = _first_failure(imports, init)
            if failing[init] is not None:
                break  # the packages below are not reached
    stopped = {short(init): found for init, found in failing.items() if found is not None}
    return [
        *(FileReport(path, (), (one,)) for path, one in stopped.items() if path not in reports),
        *reports.values(),
    ]


def _first_failure(imports: Imports, path: Path) -> Finding | None:
    for found in imports.findings(path):
        if found.cannot_run:
            alone = "a copy of the hook's file in your project, imported from there"
            return dataclasses.replace(found, write=f"{alone}; or {found.write}")
    return None


def _report(cls: ResolvedClass, findings: HookFindings) -> HookReport:
    own = cls.own
    if not cls.is_of_runner:
        return HookReport(own.name, own.line, TORCH, (), (), (), (_module_hook(cls),))
    known = points_of(cls.dialect)
    lineage = [one for one in cls.lineage if one is own or one.name not in PLAIN]
    points = {name for one in lineage for name in one.methods if name in known}
    uses = [use for one in lineage for use in one.uses]
    return HookReport(
        name=own.name,
        line=own.line,
        dialect=cls.dialect,
        points=tuple(sorted(points, key=lambda name: (ORDER.get(name, len(ORDER)), name))),
        reads=_attributes(uses, "reads", "asks"),
        writes=_attributes(uses, "writes"),
        findings=tuple(sorted(findings.of(cls), key=lambda found: found.line)),
        inherits=bool(cls.outside - PLAIN),
    )


def _attributes(uses: list[Use], *kinds: str) -> tuple[str, ...]:
    """Return the attributes of the runner that are used so, each once."""
    return tuple(dict.fromkeys(use.attribute for kind in kinds for use in uses if use.kind == kind))


def _module_hook(cls: ResolvedClass) -> Finding:
    """Return how to give a torch module its hook."""
    name = cls.own.name
    function = "hook_func()" if "hook_func" in cls.methods else "hook"
    write = f"module.register_forward_pre_hook({name}(...).{function}), or the method of its kind"
    if "register" in cls.methods:
        write = f"{name}(...).register(module), where the module is made"
    what = "is a hook of torch's modules, which no runner calls"
    return Finding(cls.own.line, what, write, cannot_run=False)
