"""Send the values of a hook's writer to TensorBoard or Visdom, from a separate thread."""

from __future__ import annotations

import functools
import os
import uuid
from typing import Any

from lightning_hooks.loggers.delivery.notices import Notices
from lightning_hooks.loggers.delivery.session import Session
from lightning_hooks.loggers.delivery.spool import shared_folder
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.trackers.table import options_of
from lightning_hooks.storage.files import is_local
from lightning_hooks.utils.default_logger import default_logger
from lightning_hooks.utils.packages import require
from lightning_hooks.utils.samples import as_image
from lightning_hooks.utils.secrets import without_secrets

__all__ = ["BackgroundWriter"]


class BackgroundWriter:
    """Sends values to an experiment tracker in order, from a separate thread.

    Values are appended to a file first. If the tracker is slow, hangs or cannot be reached, a
    warning is logged; undelivered values stay in the file, for ``lightning-hooks replay``.

    Args:
        writer_class: Class of the tracker's writer.
        who: Name of the sender in messages.
        work_dir: Directory of the run, for ``spool`` with the file. Without a local directory the
            file is in a directory shared by the user's programs.
        arguments: Arguments of ``writer_class.connect``; the first ``send`` connects.

    Raises:
        ImportError: if the tracker's package is not installed.
    """

    timeout = 10.0
    """Seconds that ``close`` waits for the tracker."""

    def __init__(
        self, writer_class: type[Writer], who: str, work_dir: str = "", **arguments: Any
    ) -> None:
        require(writer_class.name, who)
        self._writer_class, self._who = writer_class, who
        has_folder = work_dir and is_local(work_dir)
        self._folder = os.path.join(work_dir, "spool") if has_folder else shared_folder()
        self._arguments = arguments
        self._session: Session | None = None

    def send(self, step: int, **values: Any) -> None:
        """Send the ``scalars``, ``images`` or ``params`` of a step."""
        if self._session is None:
            self._session = self._open()
        self._session.append(step, **values)

    def send_image(self, step: int, name: str, image: Any) -> None:
        """Send an image (channels, height, width) of a step."""
        self.send(step, images={name: as_image(image)})

    def _open(self) -> Session:
        name, arguments = self._writer_class.name, self._arguments
        __import__(name)  # not in the thread: simultaneous imports may deadlock
        return Session(
            self._writer_class,
            functools.partial(self._writer_class.connect, **arguments),
            os.path.join(self._folder, f"{uuid.uuid4().hex[:8]}-{name}.jsonl"),
            without_secrets(options_of(self._writer_class, arguments.get("run"), arguments)),
            Notices(default_logger(0), self._who, name),
        )

    def close(self) -> None:
        """Wait until all values are sent; a later ``send`` connects again."""
        session, self._session = self._session, None
        if session is not None:
            session.close(self.timeout, failed=False)
            session.wait()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None}
