"""Install the stand-in as mmcv for every test in this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lightning_hooks import standin


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    with standin.installed():
        yield
