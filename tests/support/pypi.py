"""Skip tests with downloaded packages if PyPI does not answer."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

__all__ = ["skipped_without_pypi"]


@contextlib.contextmanager
def skipped_without_pypi() -> Iterator[None]:
    """Skip the test if pip fails inside and PyPI does not answer; a failed build is an error."""
    try:
        yield
    except subprocess.CalledProcessError as error:
        if "pip" not in error.cmd or _pypi_answers():
            raise
        pytest.skip("PyPI cannot be reached")


def _pypi_answers() -> bool:
    with tempfile.TemporaryDirectory() as directory:
        options = ["-q", "--no-deps", "--no-cache-dir", "-d", directory]
        command = [sys.executable, "-m", "pip", "download", *options, "six==1.17.0"]
        return subprocess.run(command, timeout=300, check=False).returncode == 0
