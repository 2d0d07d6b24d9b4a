"""Name the hook, the point and the iteration in a hook's error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightning_hooks.engine.hosted import HostedHook, class_name

__all__ = ["add_hook_note", "calling", "listed", "stop_iteration_error"]


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
        error.__notes__ = notes


def stop_iteration_error(error: StopIteration, hook: Any, point: str, runner: Any) -> RuntimeError:
    """Return a RuntimeError for a StopIteration, as Lightning would silently end the epoch."""
    changed = RuntimeError(f"a hook raised StopIteration: {error}")
    add_hook_note(changed, hook, point, runner)
    return changed


class calling:  # noqa: N801  # a context manager, as contextlib.suppress
    """Name the hook and the point in whatever is raised inside; type and traceback stay.

    Only a StopIteration becomes a RuntimeError. A block that calls several hooks sets ``hook``
    before each.
    """

    def __init__(self, hook: Any, point: str, runner: Any) -> None:
        self.hook, self._point, self._runner = hook, point, runner

    def __enter__(self) -> calling:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            return
        where = self.hook, self._point, self._runner
        if isinstance(error, StopIteration):
            raise stop_iteration_error(error, *where) from error
        add_hook_note(error, *where)
