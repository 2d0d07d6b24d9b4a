"""``TrackerHook``: a logger that sends numbers to an experiment tracker and never ends a run."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from lightning_hooks.hooks.logger import LoggerHook

__all__ = ["Package", "TrackerHook", "Writer", "environment", "require"]


class Writer(Protocol):
    """One run in a backend; making one connects to it."""

    def log(self, metrics: Mapping[str, float], step: int, seconds: float) -> None:
        """Store numbers by name.

        Args:
            metrics: The numbers.
            step: The iteration; it never goes back within a run.
            seconds: When they were logged, since the epoch: the same when sent again.
        """

    def close(self, failed: bool = False) -> None:
        """End the run in the backend."""


class TrackerHook(LoggerHook):
    """The base of loggers with a :class:`Writer`: give ``package`` and ``open_writer``.

    Everything that the backend does is run through ``_guarded``: what it raises costs one
    warning, and the backend is left alone for the rest of the run. Only rank 0 writes. An error
    that ends the training closes the run as a failed one.

    Note:
        Departure from mmcv: only numbers are sent (mmcv sends lists too, which most trackers
        refuse).
    """

    package: str
    """The backend's package, and the extra that installs it."""

    _writer: Writer | None = None
    _broken = False

    def open_writer(self, runner: Any) -> Writer:
        """Connect to the backend."""
        raise NotImplementedError(f"{type(self).__name__} must define open_writer(runner)")

    def begin(self, runner: Any, writer: Any) -> None:
        """Send what comes before the first numbers (tags, parameters)."""

    def finish(self, runner: Any, writer: Any) -> None:
        """Send what comes after the last numbers (files, the model)."""

    def before_run(self, runner: Any) -> None:
        """Open the writer."""
        super().before_run(runner)
        self._writer, self._broken = None, False
        if runner.rank == 0:
            self._guarded(runner, "started", self._open, runner)

    def _open(self, runner: Any) -> None:
        with _tolerant():
            self._writer = self.open_writer(runner)
            self.begin(runner, self._writer)

    def log(self, runner: Any) -> None:
        """Send the numbers among the tags."""
        if self._writer is None:
            return
        tags = self.get_loggable_tags(runner)
        numbers = {k: float(v) for k, v in tags.items() if self.is_scalar(v)}
        step = self.get_iter(runner)
        self._guarded(runner, "written to", self._writer.log, numbers, step, time.time())

    def after_run(self, runner: Any) -> None:
        """Send the rest and close the writer."""
        if self._writer is not None:
            self._guarded(runner, "sent its files", self._finish, runner)
        self._close(runner)

    def _finish(self, runner: Any) -> None:
        with _tolerant():
            self.finish(runner, self._writer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Close the writer of a run that fails."""
        self._close(None, failed=True)

    def _close(self, runner: Any, failed: bool = False) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with _tolerant():
                self._guarded(runner, "closed", writer.close, failed)

    def _guarded(self, runner: Any, what: str, call: Callable[..., None], *args: Any) -> None:
        """Run a call into the backend; the first error is told, and is the last."""
        if self._broken and what != "closed":
            return
        try:
            call(*args)
        except Exception as error:
            if not self._broken and runner is not None:
                runner.logger.warning(
                    "%s: %s cannot be %s (%s: %s); training goes on without it",
                    *(type(self).__name__, self.package, what, type(error).__name__, error),
                )
            self._broken = True

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in super().__getstate__().items() if k != "_writer"}


class Package:
    """A class attribute that is a package, imported when it is first read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if self._name in sys.modules:
            return sys.modules[self._name]
        with _tolerant():
            return importlib.import_module(self._name)


def require(package: str, user: str) -> None:
    """Complain if a package is not installed; it is not imported.

    Raises:
        ImportError: if it is missing; the message says what to install.
    """
    if importlib.util.find_spec(package) is None:
        raise ImportError(
            f'{user} needs {package}: pip install "lightning_hooks[{package}]"', name=package
        )


@contextlib.contextmanager
def environment(**defaults: str) -> Iterator[None]:
    """Set environment variables that the user has not, for a while."""
    missing = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _tolerant() -> Iterator[None]:
    """Silence what clients warn of each other: with ``-W error`` it would be an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
