"""What is done with a trace of ``ProfilerHook``: printed, or kept for TensorBoard."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch.autograd.profiler_util import EventList
from torch.profiler import tensorboard_trace_handler

__all__ = ["checked_handler", "trace_handler"]

_KINDS: dict[str, Callable[..., Any]] = {
    "log_trace": EventList.table,
    "tb_trace": tensorboard_trace_handler,
}


def checked_handler(handler: Any) -> Any:
    """Return mmcv's ``on_trace_ready``, a dict of it copied.

    Raises:
        TypeError: if it is neither a function, a dict nor None, or has an unknown argument.
        ValueError: if its type is unknown.
    """
    if handler is None or callable(handler):
        return handler
    if not isinstance(handler, Mapping):
        raise TypeError(f"on_trace_ready must be a function, a dict or None, got {handler!r}")
    arguments = dict(handler)
    kind = arguments.pop("type", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"on_trace_ready's type must be one of {list(_KINDS)}, got {kind!r}")
    try:
        inspect.signature(_KINDS[kind]).bind_partial(**arguments)
    except TypeError as error:
        raise TypeError(f"on_trace_ready=dict(type={kind!r}, ...): {error}") from None
    return dict(handler)


def trace_handler(handler: Any, runner: Any) -> Callable[[Any], Any] | None:
    """Return the function for a handler that :func:`checked_handler` has passed."""
    if not isinstance(handler, dict):
        return handler  # type: ignore[no-any-return]
    arguments = {key: value for key, value in handler.items() if key != "type"}
    if handler["type"] == "log_trace":
        return partial(_print_table, arguments)
    where = os.path.join(runner.work_dir, arguments.pop("dir_name", "tf_tracing_logs"))
    runner.logger.info("tracing files of ProfilerHook will be saved to %s.", where)
    write: Callable[[Any], Any] = tensorboard_trace_handler(where, **arguments)
    return write


def _print_table(arguments: Mapping[str, Any], running: Any) -> None:
    print(running.key_averages().table(**arguments))
