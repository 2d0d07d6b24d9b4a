"""pointrix's writers of scalars, images and configs, for this package's trackers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lightning_hooks.dialects.backend import Backend
from lightning_hooks.dialects.pointrix.hooks import HookRegistry, built, config_part
from lightning_hooks.loggers.trackers.inputs import flatten_params
from lightning_hooks.loggers.trackers.table import TRACKERS, writer_class
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = [
    "WRITER_REGISTRY",
    "BackendWriter",
    "NullWriter",
    "TensorboardWriter",
    "Writer",
    "parse_writer",
]

WRITER_REGISTRY = HookRegistry("writer")
"""Writers for ``parse_writer``: ``TensorboardWriter``, ``BackendWriter`` and users' writers."""


class Writer:
    """The base of writers of scalars, images and a config.

    Args:
        logfolder: Directory of the files.
    """

    def __init__(self, logfolder: str) -> None:
        self.logfolder = os.fspath(logfolder)

    def write_scalar(self, name: str, scalar: Any, step: int) -> None:
        """Write a number of a step."""
        raise NotImplementedError(f"{type(self).__name__} must define write_scalar()")

    def write_image(self, name: str, image: Any, step: int) -> None:
        """Write an image (channels, height, width) of a step."""
        raise NotImplementedError(f"{type(self).__name__} must define write_image()")

    def write_config(self, name: str, config_dict: Mapping[str, Any], step: int = 0) -> None:
        """Write a config."""
        raise NotImplementedError(f"{type(self).__name__} must define write_config()")

    def close(self) -> None:
        """Wait until all values are written."""


class NullWriter(Writer):
    """Writes nothing, on all ranks except rank 0."""

    def write_scalar(self, name: str, scalar: Any, step: int) -> None:
        """Do nothing."""

    def write_image(self, name: str, image: Any, step: int) -> None:
        """Do nothing."""

    def write_config(self, name: str, config_dict: Mapping[str, Any], step: int = 0) -> None:
        """Do nothing."""


@WRITER_REGISTRY.register()
class BackendWriter(Writer):
    """Writes to a tracker of this package, from a separate thread.

    If the backend fails, a warning is logged; undelivered values stay in ``{logfolder}/spool``.

    Args:
        logfolder: Directory of the files.
        backend: ``tensorboard``, ``wandb``, ``mlflow``, ``neptune``, ``dvclive``, ``visdom`` or
            ``clearml``.
        arguments: Arguments of the backend's writer: ``init=dict(project="digits",
            mode="offline")`` of ``wandb``, ``uri=`` of ``mlflow``, ``log_dir=`` of
            ``tensorboard``.

    Raises:
        UnknownNameError: for another backend.
        ImportError: if the backend's package is not installed.
    """

    def __init__(self, logfolder: str, backend: str, **arguments: Any) -> None:
        super().__init__(logfolder)
        if backend not in TRACKERS:
            raise UnknownNameError(f"unknown backend {backend!r}; {suggest(backend, TRACKERS)}")
        folder = os.path.join(self.logfolder, "spool")
        self._backend = Backend(writer_class(backend), type(self).__name__, folder, **arguments)

    def write_scalar(self, name: str, scalar: Any, step: int) -> None:
        """Send a number of a step."""
        self._backend.send(step, scalars={name: float(scalar)})

    def write_image(self, name: str, image: Any, step: int) -> None:
        """Send an image (channels, height, width) of a step."""
        self._backend.send(step, images={name: image})

    def write_config(self, name: str, config_dict: Mapping[str, Any], step: int = 0) -> None:
        """Send a config as the run's parameters, under the name."""
        self._backend.send(step, params=flatten_params({name: dict(config_dict)}))

    def close(self) -> None:
        """Wait until all values are sent."""
        self._backend.close()


@WRITER_REGISTRY.register()
class TensorboardWriter(BackendWriter):
    """Writes for TensorBoard.

    Args:
        logfolder: Directory of the event files.
    """

    def __init__(self, logfolder: str) -> None:
        super().__init__(logfolder, "tensorboard", log_dir=os.fspath(logfolder))


def parse_writer(
    cfg: Mapping[str, Any] | str | os.PathLike[str] | None, logfolder: str
) -> Writer | None:
    """Build the writer of a config; None without a config.

    Args:
        cfg: Dict with ``writer_type`` and optional arguments, as ``{"writer_type":
            "TensorboardWriter"}``, or a YAML file with such a dict under ``writer`` (also
            ``trainer: writer``).
        logfolder: Directory of the writer's files.

    Raises:
        UnknownNameError: for an unregistered name.
        TypeError: for another object than a config, or wrong arguments of the writer.
    """
    part = config_part(cfg, "writer")
    if not part:
        return None
    writer: Writer = built(WRITER_REGISTRY, "writer_type", part, "the writer", logfolder)
    return writer
