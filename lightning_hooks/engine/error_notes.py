"""Name the hook, the point and the iteration in a hook's error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from lightning_hooks.engine.hosted import HostedHook, foreign

__all__ = ["add_hook_note", "calling", "class_name", "listed", "stop_iteration_error"]


def class_name(hook: Any) -> str:
    """Return the name of a hook's class; for a hosted hook, of the foreign class."""
    return type(foreign(hook)).__name__


def listed(names: Sequence[str], shown: int = 5) -> str:
    """Join the first few names for a message, with the number of further names.

    >>> listed(["a", "b", "c"], shown=2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


RUNNER_ATTRIBUTES = {
    "batch_idx": "runner.inner_iter",
    "log": "runner.log_buffer.update({'name': value})",
    "log_dict": "runner.log_buffer.update({'name': value})",
    "loss": "runner.outputs['loss']",
    "lr": "runner.current_lr()",
    "pl_module": "runner.module",
}
"""Attributes a hook may expect on a runner, with the code to write."""


def _advice(name: str, runner: Any) -> str:
    """Return the code to write for a missing attribute of a runner."""
    if hasattr(runner.trainer, name):
        return f"it is the Trainer's: runner.trainer.{name}"
    if name in RUNNER_ATTRIBUTES:
        return f"write {RUNNER_ATTRIBUTES[name]}"
    return f"what it expects there: HookAdapter(..., attributes={{{name!r}: ...}})"


def add_hook_note(error: BaseException, hook: Any, point: str, runner: Any) -> None:
    """Add a note to an error, unless an inner hook has added a note already."""
    notes = [*getattr(error, "__notes__", [])]
    if not any(note.startswith("in hook ") for note in notes):
        where = f"epoch {runner.epoch}, iter {runner.iter}"
        notes.append(f"in hook {class_name(hook)}.{point} ({where})")
        seen_by_hooks = (runner, hook.facade if isinstance(hook, HostedHook) else runner)
        if isinstance(error, AttributeError) and any(error.obj is seen for seen in seen_by_hooks):
            notes.append(_advice(str(error.name), runner))
        # add_note() came with Python 3.11; the attribute works everywhere
        error.__notes__ = notes


def stop_iteration_error(error: StopIteration, hook: Any, point: str, runner: Any) -> RuntimeError:
    """Return a RuntimeError for a StopIteration, as Lightning would silently end the epoch."""
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
        raise stop_iteration_error(error, hook, point, runner) from error
    except BaseException as error:
        add_hook_note(error, hook, point, runner)
        raise
