"""The version of mmcv that a project reads: its own window of versions decides, or the user.

Packages of mmcv's time assert, in their ``__init__``, that ``mmcv.__version__`` lies between a
``mmcv_minimum_version`` and a ``mmcv_maximum_version``. The stand-in does what 1.7.2 did, whatever
number such a file reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from lightning_hooks.standin.utils import version
from lightning_hooks.standin.utils.notice import notice
from lightning_hooks.standin.utils.version import digit_version

__all__ = ["ENVIRONMENT", "choose", "version_for", "version_within"]

ENVIRONMENT = "LIGHTNING_HOOKS_MMCV_VERSION"
"""The environment variable with the version to report."""

_LAST = "1.7.2 1.6.2 1.5.3 1.4.8 1.3.18 1.2.7 1.1.6 1.0.5 0.6.2 0.5.9 0.4.4 0.3.2 0.2.16"
"""The last release of each minor version."""

_BOUND = re.compile(r"mmcv_?(?P<side>min|max)", re.IGNORECASE)


def choose(wanted: str | None) -> None:
    """Report this version everywhere, or without one that of the environment, or 1.7.2.

    Args:
        wanted: The version; ``""`` stands for none.

    Raises:
        ValueError: if it is not a version of mmcv before 2.
    """
    chosen = wanted or os.environ.get(ENVIRONMENT) or ""
    if chosen and not re.fullmatch(r"[01](\.\d+){1,2}\w*", chosen):
        raise ValueError(f"version={chosen!r} is no version of mmcv 1.x: give one as '1.4.0'")
    version.report(chosen)


def version_for(reader: Mapping[str, Any]) -> str:
    """Return ``mmcv.__version__`` for a file: within the window that its ``__init__`` has.

    Args:
        reader: The file's global names.
    """
    own = version.mmcv_version()
    file = str(reader.get("__file__", ""))
    if version.is_chosen() or os.path.basename(file) != "__init__.py":
        return own
    bounds = {"min": "0", "max": own}
    for name, value in reader.items():
        found = _BOUND.match(name)
        if found and isinstance(value, str) and value[:1].isdigit():
            bounds[found["side"].lower()] = value
    if digit_version(own) < digit_version(bounds["min"]):  # of mmcv 2.x: its own error is right
        return own
    if digit_version(own) <= digit_version(bounds["max"]):
        return own
    answer = version_within(bounds["min"], bounds["max"])
    notice(
        f"{reader.get('__name__', file)} is for mmcv {bounds['min']} to {bounds['max']}: the "
        f"version that it reads is {answer}, and the stand-in does what {own} did "
        f"({ENVIRONMENT} sets a version for all)"
    )
    return answer


def version_within(minimum: str, maximum: str) -> str:
    """Return the newest release of mmcv 1.x between two versions.

    Some projects exclude their maximum, so it is taken only if there is nothing below.

    >>> version_within("1.3.8", "1.4.0"), version_within("1.5.3", "1.6.1")
    ('1.3.18', '1.6.0')
    >>> version_within("1.4.0", "1.4.0")
    '1.4.0'
    """
    below = digit_version(maximum)
    for last in _LAST.split():
        minor, _, patches = last.rpartition(".")
        for patch in range(int(patches), -1, -1):
            release = f"{minor}.{patch}"
            if digit_version(release) < below:
                return release if digit_version(release) >= digit_version(minimum) else maximum
    return maximum
