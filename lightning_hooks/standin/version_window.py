"""Choose the ``mmcv.__version__`` that a project reads.

Packages for mmcv 1.x assert in their ``__init__`` that ``mmcv.__version__`` lies between
``mmcv_minimum_version`` and ``mmcv_maximum_version``. An ``__init__.py`` reads a version within
the package's window; the stand-in behaves like 1.7.2 in any case.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from lightning_hooks.standin.utils.notice import notice
from lightning_hooks.standin.utils.version import LAST, digit_version

__all__ = ["ENVIRONMENT", "choose", "mmcv_version", "version_for"]

ENVIRONMENT = "LIGHTNING_HOOKS_MMCV_VERSION"
"""The environment variable with the version to report."""

_BOUND = re.compile(r"mmcv_?(?P<side>min|max)", re.IGNORECASE)

_chosen = ""


def choose(wanted: str | None) -> None:
    """Report a version everywhere: ``wanted``, else the environment's, else 1.7.2.

    Args:
        wanted: The version; None or ``""`` for the default.

    Raises:
        ValueError: unless the version is 0.x or 1.x.
    """
    global _chosen
    chosen = wanted or os.environ.get(ENVIRONMENT) or ""
    if chosen and not re.fullmatch(r"[01](\.\d+){1,2}\w*", chosen):
        raise ValueError(f"version={chosen!r} is no version of mmcv 1.x: give one as '1.4.0'")
    _chosen = chosen


def mmcv_version() -> str:
    """Return the version of mmcv reported by the stand-in."""
    return _chosen or LAST


def version_for(reader: Mapping[str, Any]) -> str:
    """Return ``mmcv.__version__`` for a file, for an ``__init__.py`` within the file's window.

    If the window excludes the reported version, the answer is the window's minimum, or the maximum
    of a window without minimum; the number is logged.

    Args:
        reader: The file's global names.
    """
    own = mmcv_version()
    file = str(reader.get("__file__", ""))
    if _chosen or os.path.basename(file) != "__init__.py":
        return own
    bounds = {}
    for name, value in reader.items():
        bound = _BOUND.match(name)
        if bound and isinstance(value, str) and value[:1].isdigit():
            bounds[bound["side"].lower()] = value
    maximum = bounds.get("max", own)
    minimum = bounds.get("min", maximum)
    if digit_version(own) <= digit_version(maximum):  # of a package for mmcv 2.x, the error fits
        return own
    notice(
        f"{reader.get('__name__', file)} is for mmcv {minimum} to {maximum}: the version that it "
        f"reads is {minimum}, and the stand-in does what {own} did ({ENVIRONMENT} sets a version "
        "for all)"
    )
    return minimum
