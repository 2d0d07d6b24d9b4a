"""Import a training script's modules and define its classes without running the training."""

from __future__ import annotations

import ast
import operator
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["run_declarations"]


def run_declarations(path: Path, name: str = "") -> None:
    """Run a file's imports and definitions, and the assignments that imports and definitions read.

    Args:
        path: The file. During the run, the file's folder is on Python's path.
        name: The name of the new module; by default the name of the file.

    Raises:
        BaseException: any error of the file's code.
    """
    tree = ast.parse(path.read_bytes(), str(path))
    name = name or path.stem
    name = f"_{name}" if name in sys.modules else name
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__, module.__package__ = str(path), name.rpartition(".")[0]
    sys.path.insert(0, str(path.parent))
    try:
        body = ast.Module(_declarations(tree.body), [])
        exec(compile(body, str(path), "exec"), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))


def _declarations(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return a script's imports and definitions, and the assignments of the names read there."""
    is_kept = [_declares(node) for node in body]
    needed: set[str] = set()
    while True:
        read = {n for node, kept in zip(body, is_kept, strict=True) if kept for n in _reads(node)}
        if read == needed:
            return [node for node, kept in zip(body, is_kept, strict=True) if kept]
        needed = read
        is_kept = [
            kept or not (_is_guard(node) or needed.isdisjoint(_sets(node)))
            for node, kept in zip(body, is_kept, strict=True)
        ]


def _reads(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement reads when it runs: none in the body of a function."""
    if isinstance(node, ast.Name):
        yield node.id
    inner = ast.iter_child_nodes(node)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        inner = iter([*node.decorator_list, node.args])
    for part in inner:
        yield from _reads(part)


def _sets(node: ast.AST) -> set[str]:
    """Return the names that a statement sets."""
    names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def _is_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "'__main__'" in ast.dump(node.test)


def _declares(node: ast.AST) -> bool:
    """Return whether a statement of a script imports or defines, and does nothing else."""
    if isinstance(node, (ast.If, ast.Try, ast.For, ast.With)):
        inner = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.stmt)]
        declares = [*map(_declares, inner)]
        assigns = [isinstance(part, (ast.Assign, ast.AnnAssign)) for part in inner]
        return not _is_guard(node) and any(declares) and all(map(operator.or_, declares, assigns))
    called = [ast.unparse(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)]
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        return all(name.endswith("Registry") for name in called)
    if isinstance(node, ast.Expr):  # the script extends the path on which modules are found
        return any(name.startswith("sys.path") for name in called)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    return isinstance(node, (*kinds, ast.Pass))
