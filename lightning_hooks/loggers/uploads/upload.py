"""``Upload``: a checkpoint that waits beside the spool, and its form in a record."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lightning_hooks.storage import staging

__all__ = ["Upload", "as_label"]

PREFIX = "upload_"
"""The beginning of the names of the folders, in that of the spool."""


def as_label(text: str) -> str:
    """Return a text as a name or an alias that every backend takes.

    >>> as_label("epoch_3.pth"), as_label("best_coco/mAP"), as_label("../x")
    ('epoch_3.pth', 'best_coco_mAP', '_._x')
    """
    label = re.sub(r"[^\w.=+-]|^[^\w]", "_", text)[:120]
    return label or "_"


def _checked(label: Any) -> str:
    if not isinstance(label, str) or label != as_label(label):
        raise ValueError(f"no name of a checkpoint: {label!r:.80}")
    return label


@dataclass(frozen=True)
class Upload:
    """A checkpoint that waits to be sent.

    Args:
        path: The file, in a folder of its own beside the spool; its name is that in the backend.
        aliases: Names that lead to it and to no earlier one: ``"best"``, ``"last"``.
    """

    path: str
    aliases: Sequence[str] = ()

    @classmethod
    def staged(cls, path: str, folder: str, name: str, aliases: Sequence[str]) -> Upload:
        """Have a checkpoint wait, where it stays when it is deleted.

        Args:
            path: The checkpoint.
            folder: The folder of the spool.
            name: Its name in the backend.
            aliases: Its aliases.

        Raises:
            OSError: if that is not possible.
        """
        return cls(staging.stage(path, folder, PREFIX, name), tuple(aliases))

    @classmethod
    def from_fields(cls, name: str, fields: Mapping[str, Any], folder: str) -> Upload:
        """Return what a line of a spool describes, which may be a stranger's.

        Args:
            name: Its name in the backend.
            fields: Its fields.
            folder: The folder of the spool.

        Raises:
            ValueError: for fields that :meth:`fields` does not return.
        """
        inner = fields["folder"]
        if not (isinstance(inner, str) and re.fullmatch(PREFIX + "[a-z0-9_]{8}", inner)):
            raise ValueError(f"no folder of an upload: {inner!r:.80}")
        aliases = tuple(_checked(alias) for alias in fields["aliases"])
        return cls(os.path.join(folder, inner, _checked(name)), aliases)

    def fields(self) -> dict[str, Any]:
        """Return its fields for a line of a spool: no path, for it lies beside the spool."""
        inner = os.path.basename(os.path.dirname(self.path))
        return {"folder": inner, "aliases": [*self.aliases]}

    @property
    def size(self) -> int:
        """The bytes that wait; none when it has been sent."""
        return os.path.getsize(self.path) if os.path.isfile(self.path) else 0

    def checked(self) -> str:
        """Return the path of the file.

        Raises:
            ValueError: if it is gone, or is reached by a link.
        """
        folder, name = os.path.split(self.path)
        above = os.path.realpath(os.path.dirname(folder))
        expected = os.path.join(above, os.path.basename(folder), name)
        if not os.path.isfile(expected) or os.path.realpath(expected) != expected:
            raise ValueError(f"the checkpoint {self.path} is gone, or is a link")
        return expected

    def discard(self) -> None:
        """Delete the file that has waited; the checkpoint itself stays."""
        staging.discard(self.path)
