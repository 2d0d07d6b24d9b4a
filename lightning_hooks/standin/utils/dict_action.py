"""Parse dicts on the command line: ``--cfg-options model.depth=50 lr=[0.1,0.2]``."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterable
from typing import Any

__all__ = ["DictAction"]


class DictAction(argparse.Action):
    """A command-line argument that is a dict: ``--cfg-options a.b=1 c=[1,2]``."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Add ``key=value`` items to the dict."""
        found = dict(getattr(namespace, self.dest) or {})
        for item in [values] if isinstance(values, str) else values:
            key, _, text = item.partition("=")
            found[key] = _parse(text)
        setattr(namespace, self.dest, found)


def _parse(text: str) -> Any:
    """Return the value of a text on the command line: a number, a list, or the text itself.

    >>> _parse("1"), _parse("true"), _parse("a,2"), _parse("[(a,b),3]"), _parse("x")
    (1, True, ['a', 2], [('a', 'b'), 3], 'x')
    """
    text = text.strip("'\" ")
    words = {"true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    parts = list(_split_at_commas(text[1:-1] if text[:1] in "[(" and text[-1:] in "])" else text))
    if text[:1] == "(" and text[-1:] == ")":
        return tuple(map(_parse, parts))
    if (text[:1] == "[" and text[-1:] == "]") or len(parts) > 1:
        return list(map(_parse, parts))
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _split_at_commas(text: str) -> Iterable[str]:
    """Yield the parts between commas that are outside of brackets.

    Raises:
        AssertionError: if brackets do not match.
    """
    if any(text.count(a) != text.count(b) for a, b in ("[]", "()")):
        raise AssertionError(f"brackets do not match in {text!r}")
    depth, start = 0, 0
    for place, character in enumerate(text):
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    if text[start:].strip():
        yield text[start:]
