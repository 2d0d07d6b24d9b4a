"""A fixture with a Visdom server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import visdom_server as visdom


@pytest.fixture
def visdom_server(tmp_path: Path) -> Iterator[int]:
    """The port of a Visdom server."""
    pytest.importorskip("visdom")
    with visdom.serve(tmp_path) as server:
        yield server.port
