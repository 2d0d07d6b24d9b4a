"""Check for optional packages."""

from __future__ import annotations

import importlib.util

__all__ = ["require"]


def require(package: str, user: str) -> None:
    """Check that a package is installed, without an import.

    Args:
        package: The name of the package.
        user: What needs the package, for the message.

    Raises:
        ImportError: for a missing package; the message has the command to install it.
    """
    try:
        is_missing = importlib.util.find_spec(package) is None
    except ValueError:  # a module without a spec, made by the program
        is_missing = False
    if is_missing:
        raise ImportError(f"{user} needs {package}: pip install {package}", name=package)
