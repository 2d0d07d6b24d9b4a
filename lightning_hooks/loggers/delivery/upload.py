"""``Upload``: a checkpoint to send, kept beside the spool, and the fields in a record."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lightning_hooks.utils.arguments import shown

__all__ = ["Upload", "as_label", "check_label"]

PREFIX = "upload_"
"""Prefix of the names of checkpoints' folders beside the spool."""


def as_label(text: str) -> str:
    """Return a text as a name or an alias valid in every backend.

    >>> as_label("epoch_3.pth"), as_label("best_coco/mAP"), as_label("../x")
    ('epoch_3.pth', 'best_coco_mAP', '_._x')
    """
    label = re.sub(r"[^\w.=+-]|^[^\w]", "_", text)[:120]
    return label or "_"


def check_label(label: Any) -> str:
    """Return the name of a checkpoint.

    Raises:
        ValueError: for another value than a result of :func:`as_label`.
    """
    if not isinstance(label, str) or label != as_label(label):
        raise ValueError(f"no name of a checkpoint: {shown(label)}")
    return label


@dataclass(frozen=True)
class Upload:
    """A checkpoint to send.

    Args:
        path: The file, in a separate folder beside the spool, with the name for the backend.
        aliases: Names that move to the newest such checkpoint: ``"best"``, ``"last"``.
    """

    path: str
    aliases: Sequence[str] = ()

    @classmethod
    def staged(cls, path: str, folder: str, name: str, aliases: Sequence[str]) -> Upload:
        """Keep a checkpoint beside the spool, independently of the original file.

        A hard link costs no time, whatever the size. The file is copied to another disk, or to a
        disk without links.

        Args:
            path: The checkpoint.
            folder: The folder of the spool.
            name: Name in the backend.
            aliases: Aliases in the backend.

        Raises:
            OSError: if neither a link nor a copy is possible.
        """
        target = os.path.join(tempfile.mkdtemp(prefix=PREFIX, dir=folder), name)
        upload = cls(target, tuple(aliases))
        try:
            try:
                os.link(path, target)
            except OSError:
                shutil.copyfile(path, target)
        except BaseException:
            upload.discard()
            raise
        return upload

    @classmethod
    def from_fields(cls, name: str, fields: Mapping[str, Any], folder: str) -> Upload:
        """Return the checkpoint of a line of a spool; the line may be a stranger's.

        Args:
            name: Name in the backend.
            fields: Result of :meth:`fields`.
            folder: The folder of the spool.

        Raises:
            ValueError: for other fields.
        """
        inner = fields["folder"]
        if not (isinstance(inner, str) and re.fullmatch(PREFIX + "[a-z0-9_]{8}", inner)):
            raise ValueError(f"no folder of an upload: {shown(inner)}")
        aliases = tuple(check_label(alias) for alias in fields["aliases"])
        return cls(os.path.join(folder, inner, check_label(name)), aliases)

    def fields(self) -> dict[str, Any]:
        """Return the fields for a line of a spool, without a path."""
        inner = os.path.basename(os.path.dirname(self.path))
        return {"folder": inner, "aliases": [*self.aliases]}

    @property
    def size(self) -> int:
        """Size in bytes; 0 after the file was sent."""
        return os.path.getsize(self.path) if os.path.isfile(self.path) else 0

    def checked(self) -> str:
        """Return the path of the file.

        Raises:
            ValueError: if the file is gone or a link.
        """
        folder, name = os.path.split(self.path)
        above = os.path.realpath(os.path.dirname(folder))
        expected = os.path.join(above, os.path.basename(folder), name)
        if not os.path.isfile(expected) or os.path.realpath(expected) != expected:
            raise ValueError(f"the checkpoint {self.path} is gone, or is a link")
        return expected

    def discard(self) -> None:
        """Delete the file beside the spool, with its folder; the original checkpoint stays."""
        with contextlib.suppress(OSError, ValueError):
            os.unlink(self.checked())
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(self.path))
