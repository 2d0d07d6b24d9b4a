"""``lightning-hooks hooks``: list all hooks from the source, without an import."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from typing import Any

from lightning_hooks.engine.registry import HOOKS, MMCV_HOOKS

__all__ = ["COLUMNS", "all_hooks"]

COLUMNS = "hook", "of", "what it does"
EVALUATIONS = ("DistEvalHook", "EvalHook")
"""Hooks of mmcv that mmcv's registry lacks."""


def all_hooks() -> list[dict[str, str]]:
    """Return the name, the origin and the first sentence of the docstring of every hook.

    >>> {hook["name"]: hook["origin"] for hook in all_hooks()}["IterTimerHook"]
    'mmcv'
    """
    classes = {name: _classes(home)[name] for name, home in HOOKS.homes.items()}
    return [
        {
            "name": name,
            "origin": "mmcv" if name in MMCV_HOOKS or name in EVALUATIONS else "beyond mmcv",
            "what": _summary(ast.get_docstring(node) or ""),
        }
        for name, node in sorted(classes.items())
        if node.decorator_list or name in EVALUATIONS  # base classes are not registered
    ]


@functools.cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """Return the classes of a module's source, by name."""
    spec: Any = importlib.util.find_spec(module)
    body = ast.parse(spec.loader.get_source(module)).body
    return {node.name: node for node in body if isinstance(node, ast.ClassDef)}


def _summary(docstring: str) -> str:
    """Return the first sentence of a docstring without reStructuredText markup.

    >>> _summary("Decays the rate at milestones: :func:`~lightning_hooks.step`.")
    'Decays the rate at milestones.'
    """
    sentence = " ".join(docstring.partition("\n\n")[0].split())
    sentence = re.sub(r": :\w+:`[^`]*`\.$", ".", sentence)  # the name of a formula at the end
    return re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"\1", sentence).replace("`", "")
