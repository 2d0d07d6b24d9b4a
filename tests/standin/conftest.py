"""Lets every test of the stand-in import mmcv from it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lightning_hooks import standin


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    with standin.installed():
        yield
