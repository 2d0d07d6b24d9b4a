"""An error inside a hook says which hook it was, and where the run stood."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["add_hook_note", "calling", "class_name", "stopped"]


def class_name(hook: Any) -> str:
    """The name of a hook's class; where it is hosted for another dialect, of the one inside."""
    return type(getattr(hook, "foreign_hook", hook)).__name__


def add_hook_note(error: BaseException, hook: Any, point: str, runner: Any) -> None:
    """Add a note to an error, once: the innermost hook is the one that failed."""
    notes = [*getattr(error, "__notes__", [])]
    if not any(note.startswith("in hook ") for note in notes):
        where = f"epoch {runner.epoch}, iter {runner.iter}"
        notes.append(f"in hook {class_name(hook)}.{point} ({where})")
        seen_by_hooks = (runner, getattr(hook, "facade", runner))
        if isinstance(error, AttributeError) and any(error.obj is seen for seen in seen_by_hooks):
            notes.append(
                f"what it expects there: HookAdapter(..., attributes={{{error.name!r}: ...}})"
            )
        # add_note() came with Python 3.11; the attribute works everywhere
        error.__notes__ = notes


def stopped(error: StopIteration, hook: Any, point: str, runner: Any) -> RuntimeError:
    """Return what to raise for a StopIteration: it would end the epoch, as if data were out."""
    changed = RuntimeError(f"a hook raised StopIteration: {error}")
    add_hook_note(changed, hook, point, runner)
    return changed


@contextlib.contextmanager
def calling(hook: Any, point: str, runner: Any) -> Iterator[None]:
    """Name the hook and the point in whatever is raised inside; type and traceback stay.

    Only a StopIteration becomes a RuntimeError.
    """
    try:
        yield
    except StopIteration as error:
        raise stopped(error, hook, point, runner) from error
    except BaseException as error:
        add_hook_note(error, hook, point, runner)
        raise
