"""Serve Visdom without the page's scripts, which its command would fetch from the internet."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support import forks
from support.paths import ROOT
from support.processes import environment, free_port

__all__ = ["Server", "serve"]

PROGRAM = """
import sys
from visdom.server.run_server import start_server

port, folder = sys.argv[1:]
start_server(
    port=int(port), hostname="127.0.0.1", env_path=folder, bind_local=True, base_url=""
)
"""


class Server:
    """A server that keeps its data in a folder, and can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self._process: Any = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = ["-c", PROGRAM, str(self.port), str(self.folder)]
        self._process = forks.start(command, environment(), Path(os.devnull), ROOT)
        for _ in range(300):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", self.port)) == 0:
                    break
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill it: what it has not saved is lost."""
        self._process.kill()
        self._process.join()


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[Server]:
    """Run a server that keeps its data in a folder."""
    server = Server(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
