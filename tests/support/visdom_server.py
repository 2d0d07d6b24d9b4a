"""Serve Visdom without the page's scripts, which its command would fetch from the internet."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from support import forks
from support.paths import ROOT
from support.processes import environment, free_port

__all__ = ["serve"]

PROGRAM = """
import sys
from visdom.server.run_server import start_server

port, folder = sys.argv[1:]
start_server(
    port=int(port), hostname="127.0.0.1", env_path=folder, bind_local=True, base_url=""
)
"""


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[int]:
    """Run a server that keeps its data in a folder; yield its port."""
    port = free_port()
    command = ["-c", PROGRAM, str(port), str(folder)]
    server = forks.start(command, environment(), Path(os.devnull), ROOT)
    try:
        for _ in range(300):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield port
    finally:
        server.kill()
        server.join()
