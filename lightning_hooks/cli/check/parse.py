"""What a file of old hooks says of itself, read without running it."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from lightning_hooks.cli.check.source import HookClass, Import, Method, SourceFile, Use
from lightning_hooks.dialects.detect import MMCV

__all__ = ["read_source"]

HOLDERS = ("runner", "trainer", "trainner")
"""What hooks call the object that they are given."""


def read_source(path: str, text: str | bytes) -> SourceFile:
    """Read one file; bytes are decoded as Python does, by the encoding that they name.

    >>> found = read_source("a.py", "class A(Hook): ...")
    >>> found.classes[0].name, found.classes[0].bases
    ('A', ('Hook',))
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what newer Pythons say of old literals
            tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 0
        what = f"no valid Python: {getattr(error, 'msg', error)}"
        return SourceFile(path, error=what, error_line=line)
    except (RecursionError, MemoryError):
        return SourceFile(path, error="no valid Python: an expression is nested too deeply")
    imports = tuple(_imports(tree.body, needed=True))
    classes = tuple(_class(node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return SourceFile(
        path,
        imports,
        classes,
        chains=tuple(_chains(tree, imports)),
        points=tuple(_points(tree)),
        mmcv_limits=tuple(_mmcv_limits(tree)),
        makes=tuple(_made(tree)),
    )


def _made(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _imports(body: Sequence[ast.stmt], *, needed: bool) -> Iterator[Import]:
    """Find imports; what stands in a ``try``, a function or under an ``if`` may fail."""
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


def _class(node: ast.ClassDef) -> HookClass:
    methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
    uses = {use: None for method in methods for use in _uses(method)}
    registers, registry = _registration(node)
    return HookClass(
        name=node.name,
        line=node.lineno,
        bases=tuple(_dotted(base)[-1] for base in node.bases if _dotted(base)),
        methods={method.name: _method(method) for method in methods},
        uses=tuple(sorted(uses, key=lambda use: use.line)),
        registers=registers,
        registry=registry,
        calls_backward=_first(node, _is_backward),
        raises_stop=_first(node, _is_stop),
        reads_checkpoint=_first(node, _is_out_dir),
        calls=frozenset(
            part.func.attr
            for part in ast.walk(node)
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute)
        ),
    )


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
    holders = {*given} & {*HOLDERS} or {*(given[1:2] if method.name in MMCV else ())}

    def is_holder(node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in holders
        of_self = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        return of_self and node.value.id == "self" and node.attr in HOLDERS  # type: ignore[attr-defined]

    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and is_holder(node.value):
            yield Use(node.attr, node.lineno, "reads" if _is_load(node) else "writes")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            gets = node.func.id == "getattr"
            asks = node.func.id == "hasattr" or (gets and len(node.args) == 3)
            name = node.args[1] if len(node.args) > 1 else None
            if not (is_holder(node.args[0]) and isinstance(name, ast.Constant)):
                continue
            if node.func.id == "setattr":
                yield Use(str(name.value), node.lineno, "writes")
            elif gets or asks:
                yield Use(str(name.value), node.lineno, "asks" if asks else "reads")


def _is_load(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Load)


def _registration(node: ast.ClassDef) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names that a registry for hooks is given, and the registry's own."""
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


def _first(node: ast.AST, is_it: object) -> int | None:
    lines = [part.lineno for part in ast.walk(node) if is_it(part)]  # type: ignore[attr-defined, operator]
    return min(lines, default=None)


def _is_backward(node: ast.AST) -> bool:
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return is_method and node.func.attr == "backward"  # type: ignore[attr-defined]


def _is_out_dir(node: ast.AST) -> bool:
    dotted = _dotted(node)
    return dotted[-1:] == ("out_dir",) and bool(re.search("ckpt|checkpoint", ".".join(dotted[:-1])))


def _is_stop(node: ast.AST) -> bool:
    if not isinstance(node, ast.Raise) or node.exc is None:
        return False
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return _dotted(raised) == ("StopIteration",)


def _points(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _dotted(node.func)[-1:] == ("call_hook",):
            yield from ((str(one.value), node.lineno) for one in node.args[:1] if _is_text(one))


def _is_text(node: ast.expr) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _mmcv_limits(tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    for node in tree.body:
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name) and re.match(r"mmcv_(min|max)", target.id.lower()):
                yield target.id, str(node.value.value), node.lineno


def _chains(tree: ast.Module, imports: Sequence[Import]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Find the dotted names that begin with a module imported as a whole."""
    whole = {
        one.bound: tuple((one.module if one.bound != _root(one.module) else one.bound).split("."))
        for one in imports
        if not one.name
    }
    inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            dotted = _dotted(node)
            if dotted and dotted[0] in whole:
                yield (*whole[dotted[0]], *dotted[1:]), node.lineno


def _root(module: str) -> str:
    return module.partition(".")[0]


def _dotted(node: ast.AST) -> tuple[str, ...]:
    """Return ``("a", "b", "c")`` of ``a.b.c``; nothing of what is not a dotted name."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        left = _dotted(node.value)
        return (*left, node.attr) if left else ()
    return ()
