"""Parse a file of old hooks, without running it."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from lightning_hooks.cli.check.source import HookClass, Import, Method, SourceFile, Use
from lightning_hooks.dialects.detect import MMCV

__all__ = ["read_source"]

RUNNERS = ("runner", "trainer", "trainner")
"""Names that hooks give the runner."""

_ACCESS: dict[tuple[str | int, ...], Literal["reads", "writes", "asks"]] = {
    ("getattr", 2): "reads",
    ("getattr", 3): "asks",
    ("hasattr", 2): "asks",
    ("setattr", 3): "writes",
}
"""Functions that access an attribute by name, with their number of arguments."""


def read_source(path: Path, text: str | bytes) -> SourceFile:
    """Parse one file; bytes are decoded as Python does, by the encoding that they name.

    >>> found = read_source(Path("a.py"), "class A(Hook): ...")
    >>> found.classes[0].name, found.classes[0].bases
    ('A', ('Hook',))
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer Pythons warn about old literals
            tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 0
        what = f"no valid Python: {getattr(error, 'msg', error)}"
        return SourceFile(path, error=what, error_line=line)
    except (RecursionError, MemoryError):
        return SourceFile(path, error="no valid Python: an expression is nested too deeply")
    imports = tuple(_imports(tree.body, needed=True))
    nodes = list(ast.walk(tree))
    return SourceFile(
        path,
        imports,
        classes=tuple(_class(path, node) for node in nodes if isinstance(node, ast.ClassDef)),
        chains=tuple(_chains(nodes, imports)),
        points=tuple(_points(nodes)),
        mmcv_limits=tuple(_mmcv_limits(tree)),
        makes=tuple(name for node, name in _assigned(tree) if isinstance(node.value, ast.Call)),
    )


def _imports(body: Sequence[ast.stmt], *, needed: bool) -> Iterator[Import]:
    """Find imports; those in a ``try``, a function or under an ``if`` are not needed."""
    for node in body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                yield Import(alias.name, "", bound, node.lineno, needed)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                yield Import(module, alias.name, alias.asname or alias.name, node.lineno, needed)
        else:
            same = needed and isinstance(node, (ast.ClassDef, ast.With))
            for inner in ("body", "orelse", "finalbody"):
                yield from _imports(getattr(node, inner, []), needed=same)
            for handler in getattr(node, "handlers", []):
                yield from _imports(handler.body, needed=False)


def _class(path: Path, node: ast.ClassDef) -> HookClass:
    methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
    uses = {use: None for method in methods for use in _uses(method)}
    registers, registry = _registration(node)
    calls = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)]
    called = [function for function in calls if isinstance(function, ast.Attribute)]
    return HookClass(
        path=path,
        name=node.name,
        line=node.lineno,
        bases=tuple(_dotted(base)[-1] for base in node.bases if _dotted(base)),
        methods={method.name: _method(method) for method in methods},
        uses=tuple(sorted(uses, key=lambda use: use.line)),
        registers=registers,
        registry=registry,
        calls_backward=_first_line(function for function in called if function.attr == "backward"),
        raises_stop=_first_line(part for part in ast.walk(node) if _is_stop(part)),
        reads_checkpoint=_first_line(part for part in ast.walk(node) if _is_out_dir(part)),
        calls=frozenset(function.attr for function in called),
    )


def _first_line(nodes: Iterable[Any]) -> int | None:
    return min((node.lineno for node in nodes), default=None)


def _method(node: ast.FunctionDef) -> Method:
    static = any(_dotted(one)[-1:] == ("staticmethod",) for one in node.decorator_list)
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    names = names if static else names[1:]
    return Method(
        name=node.name,
        line=node.lineno,
        arguments=tuple(names),
        required=max(0, len(names) - len(node.args.defaults)),
        takes_any=bool(node.args.vararg or node.args.kwarg),
    )


def _uses(method: ast.FunctionDef) -> Iterator[Use]:
    given = [argument.arg for argument in (*method.args.posonlyargs, *method.args.args)]
    names = {*given} & {*RUNNERS} or {*(given[1:2] if method.name in MMCV else ())}
    runners = {(name,) for name in names} | {("self", name) for name in RUNNERS}
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and _dotted(node.value) in runners:
            is_load = isinstance(node.ctx, ast.Load)
            yield Use(node.attr, node.lineno, "reads" if is_load else "writes")
        elif isinstance(node, ast.Call) and len(node.args) > 1 and _dotted(node.args[0]) in runners:
            kind = _ACCESS.get((*_dotted(node.func), len(node.args)))
            name = node.args[1]
            if kind is not None and isinstance(name, ast.Constant):
                yield Use(str(name.value), node.lineno, kind)


def _registration(node: ast.ClassDef) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names under which a class is registered as a hook, and the registry's name."""
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        dotted = _dotted(call.func if call else decorator)
        if dotted[-1:] not in (("register_module",), ("register",)):
            continue
        if not any("HOOK" in part.upper() for part in dotted[-2:-1]):
            continue
        keywords = {word.arg: word.value for word in call.keywords} if call else {}
        force = keywords.get("force")
        if isinstance(force, ast.Constant) and force.value:
            return (), dotted[:-1]
        given = keywords.get("name", call.args[0] if call and call.args else None)
        names = given.elts if isinstance(given, (ast.List, ast.Tuple)) else [given]
        found = [str(name.value) for name in names if isinstance(name, ast.Constant)]
        return tuple(found or [node.name]), dotted[:-1]
    return (), ()


def _is_out_dir(node: ast.AST) -> bool:
    dotted = _dotted(node)
    return dotted[-1:] == ("out_dir",) and bool(re.search("ckpt|checkpoint", ".".join(dotted[:-1])))


def _is_stop(node: ast.AST) -> bool:
    if not isinstance(node, ast.Raise) or node.exc is None:
        return False
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return _dotted(raised) == ("StopIteration",)


def _points(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, int]]:
    for node in nodes:
        if isinstance(node, ast.Call) and node.args and _dotted(node.func)[-1:] == ("call_hook",):
            point = node.args[0]
            if isinstance(point, ast.Constant) and isinstance(point.value, str):
                yield point.value, node.lineno


def _assigned(tree: ast.Module) -> Iterator[tuple[ast.Assign, str]]:
    """Yield the assignments of a module with the names assigned."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from ((node, one.id) for one in node.targets if isinstance(one, ast.Name))


def _mmcv_limits(tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    for node, name in _assigned(tree):
        if isinstance(node.value, ast.Constant) and re.match(r"mmcv_(min|max)", name.lower()):
            yield name, str(node.value.value), node.lineno


def _chains(
    nodes: Sequence[ast.AST], imports: Sequence[Import]
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Find the dotted names that begin with a module imported as a whole."""
    modules = {  # ``import a.b`` binds a, ``import a.b as c`` binds a.b
        one.bound: (one.root if one.bound == one.root else one.module).split(".")
        for one in imports
        if not one.name
    }
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            dotted = _dotted(node)
            if dotted and dotted[0] in modules:
                yield (*modules[dotted[0]], *dotted[1:]), node.lineno


def _dotted(node: ast.AST) -> tuple[str, ...]:
    """Return ``("a", "b", "c")`` of ``a.b.c``, and ``()`` for anything else."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        left = _dotted(node.value)
        return (*left, node.attr) if left else ()
    return ()
