"""``HostedHook``: what the engine asks of a hook of another library."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["HostedHook", "class_name", "foreign", "is_one_of"]


class HostedHook:
    """The base of the object that calls a hook of another library at mmcv's points."""

    foreign_hook: Any
    """The hook of the other library."""

    dialect: Any
    """The library, as data."""

    _runs_user_code = True

    facade: Any
    """The run, as seen by the hook; None outside of a run."""

    @property
    def known_points(self) -> frozenset[str]:
        """The names of the library's points."""
        raise NotImplementedError

    @property
    def step_point(self) -> str:
        """The name of the point after a training step."""
        raise NotImplementedError

    @property
    def acts_after_backward(self) -> bool:
        """Whether the hook has a point between backward and step."""
        return False

    def call(self, name: str) -> None:
        """Call a point of the library, if the hook has the point."""
        raise NotImplementedError

    def fail(self) -> None:
        """Call the points that the library reaches also after an error."""

    def _owns_backward(self, module: Any) -> bool:
        """Return whether the hook calls ``backward`` and steps the optimizer."""
        raise NotImplementedError

    @property
    def cumulative_iters(self) -> int:
        """Iterations of a step that the hook makes."""
        return 1


def foreign(hook: Any) -> Any:
    """Return the hook inside a :class:`HostedHook`; any other object is returned unchanged."""
    return hook.foreign_hook if isinstance(hook, HostedHook) else hook


def class_name(hook: Any) -> str:
    """Return the name of a hook's class; for a hosted hook, of the foreign class."""
    return type(foreign(hook)).__name__


def is_one_of(hook: object, hooks: Iterable[object]) -> bool:
    """Whether a hook itself, not an equal hook, is among hooks."""
    return any(hook is each for each in hooks)
