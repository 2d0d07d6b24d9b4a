"""Make file names from texts, and check file names from untrusted sources."""

from __future__ import annotations

import os
import re

from lightning_hooks.utils.printable import CONTROL

__all__ = ["as_name", "inner_path", "is_inside"]


def is_inside(name: str) -> bool:
    """Return whether a relative path stays inside a directory.

    >>> is_inside("val/acc"), is_inside("a/../../b"), is_inside("/etc/passwd")
    (True, False, False)
    """
    parts = name.replace("\\", "/").split("/")
    absolute = parts[0] == "" or os.path.isabs(name) or os.path.splitdrive(name)[0] != ""
    return not absolute and ".." not in parts and "\0" not in name


def as_name(text: str) -> str:
    """Return a text as part of a file name, at most 160 bytes: ``_`` for separators and controls.

    >>> as_name("coco/mAP"), as_name("../x"), len(as_name("é" * 999).encode())
    ('coco_mAP', '.._x', 160)
    """
    name = re.sub(rf"[/\\]|{CONTROL.pattern}", "_", text)
    return name.encode(errors="replace")[:160].decode(errors="ignore")


def inner_path(text: str) -> str:
    """Return a text as a relative path inside a directory; slashes make folders.

    >>> inner_path("val/acc"), inner_path("../../x"), inner_path("/etc//x")
    ('val/acc', '_/_/x', '_/etc/_/x')
    """
    return "/".join("_" if part in ("", ".", "..") else as_name(part) for part in text.split("/"))
