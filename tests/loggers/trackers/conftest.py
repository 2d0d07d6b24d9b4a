"""A server for what a tracker sends."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def visdom_server(tmp_path: Path) -> Iterator[int]:
    """A Visdom server; started by its command it would look for scripts on the internet."""
    pytest.importorskip("visdom")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = (
        "from visdom.server.run_server import start_server; start_server("
        f"port={port}, hostname='127.0.0.1', env_path={str(tmp_path)!r}, bind_local=True, "
        "base_url='')"
    )
    server = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield port
    finally:
        server.kill()
        server.wait()
