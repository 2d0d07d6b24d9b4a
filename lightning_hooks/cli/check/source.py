"""``Source``: the lines of a file that import and use names."""

from __future__ import annotations

import ast
import functools
import warnings
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Import", "Name", "Source", "dotted", "is_guard", "is_python", "read"]

_ACCESS = {"getattr2": "read", "getattr3": "ask", "hasattr2": "ask", "setattr3": "write"}
"""The functions that use an attribute by its name, with their number of arguments."""

_QUESTIONS = (("isinstance",), ("issubclass",))
"""The functions whose arguments are not used otherwise."""


class Import(NamedTuple):
    """One imported name."""

    module: str
    """With the leading dots of a relative import."""
    name: str
    """The name in the module; empty for the module itself."""
    line: int
    owner: str
    """The class or function of the file that it is in."""
    is_needed: bool
    """Whether the file cannot be imported without it: it is in no ``try``, function or ``if``."""


class Name(NamedTuple):
    """One use of a name, with its dots: ``("np", "float")``."""

    parts: tuple[str, ...]
    """The first is empty for an attribute of what is no name: ``f().cuda``."""
    line: int
    owner: str
    """The class or function of the file that uses it; empty for the file itself."""
    kind: str
    """``"read"``, ``"write"``, ``"call"``, ``"ask"`` (``hasattr``, ``getattr`` with a default), or
    ``"point"`` (the argument of ``call_hook``)."""


class Source:
    """A Python file, parsed.

    Args:
        path: The file.

    Raises:
        OSError: if it cannot be read.
        SyntaxError: if it is no valid Python.
    """

    def __init__(self, path: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer Pythons warn about old literals
            try:
                self.tree = ast.parse(path.read_bytes(), str(path))
            except (ValueError, RecursionError, MemoryError) as error:
                why = str(error) or "an expression is nested too deeply"
                raise SyntaxError(why) from error
        self.names: list[Name] = []
        self.imports: list[Import] = []
        self.asked: set[int] = set()
        """The lines below a question about CUDA."""
        for top in self.tree.body:
            self._read(top, getattr(top, "name", ""), is_needed=True)

    @property
    def lines(self) -> dict[str, int]:
        """The classes by name, with their lines."""
        return {one.name: one.lineno for one in self.tree.body if isinstance(one, ast.ClassDef)}

    def _read(self, node: Any, owner: str, *, is_needed: bool, kind: str = "read") -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = "." * getattr(node, "level", 0) + (getattr(node, "module", None) or "")
            for alias in node.names:
                names = (
                    (module, alias.name) if isinstance(node, ast.ImportFrom) else (alias.name, "")
                )
                self.imports.append(Import(*names, node.lineno, owner, is_needed))
            return
        is_needed = is_needed and isinstance(node, (ast.ClassDef, ast.With))
        if isinstance(node, ast.Call):
            access = _ACCESS.get(f"{getattr(node.func, 'id', '')}{len(node.args)}")
            if access and isinstance(node.args[1], ast.Constant):
                parts = (*dotted(node.args[0]), str(node.args[1].value))
                self.names.append(Name(parts, node.lineno, owner, access))
            is_point = dotted(node.func)[-1:] == ("call_hook",) and node.args
            if is_point and isinstance(node.args[0], ast.Constant):
                self.names.append(Name((str(node.args[0].value),), node.lineno, owner, "point"))
            self._read(node.func, owner, is_needed=False, kind="call")
        elif isinstance(node, (ast.If, ast.IfExp)) and "cuda" in ast.dump(node.test):
            self.asked.update(range(node.lineno, (node.end_lineno or 0) + 1))
        elif isinstance(node, (ast.Name, ast.Attribute)):
            kind = "write" if isinstance(node.ctx, ast.Store) else kind
            self.names.append(Name(dotted(node), node.lineno, owner, kind))
        is_chain = bool(dotted(node) and dotted(node)[0])
        is_question = isinstance(node, ast.Call) and dotted(node.func) in _QUESTIONS
        for child in () if is_chain else ast.iter_child_nodes(node):
            if not (isinstance(node, ast.Call) and (child is node.func or is_question)):
                self._read(child, owner, is_needed=is_needed)


read = functools.cache(Source)


def is_python(path: Path) -> bool:
    """Return whether a file can be read."""
    try:
        return bool(read(path))
    except (OSError, SyntaxError):
        return False


def dotted(node: ast.AST) -> tuple[str, ...]:
    """Return ``("a", "b", "c")`` of ``a.b.c``, and ``("", "c")`` of any other ``....c``."""
    if isinstance(node, ast.Attribute):
        return (*(dotted(node.value) or ("",)), node.attr)
    return (node.id,) if isinstance(node, ast.Name) else ()


def is_guard(node: ast.AST) -> bool:
    """Return whether a statement is ``if __name__ == "__main__"``."""
    return isinstance(node, ast.If) and "'__main__'" in ast.dump(node.test)
