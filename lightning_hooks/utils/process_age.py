"""The time since this process was started."""

from __future__ import annotations

import os
import time

__all__ = ["process_age"]

_IMPORTED = time.monotonic()


def process_age() -> float:
    """Return the seconds since the process was started; elsewhere than in Linux, since this import.

    >>> 0 < process_age() < 3600 * 24 * 365
    True
    """
    try:
        with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
            started = int(stat.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
            return float(uptime.read().split()[0]) - started
    except (OSError, ValueError, IndexError):
        return time.monotonic() - _IMPORTED
