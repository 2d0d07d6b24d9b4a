"""Serve Visdom without the web page's scripts, which Visdom's command would download."""

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
    """A Visdom server with data in a folder, which can be killed and restarted."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self._process: Any = None

    def start(self) -> None:
        """Start the server and wait for an answer."""
        command = ["-c", PROGRAM, str(self.port), str(self.folder)]
        self._process = forks.start(command, environment(), Path(os.devnull), ROOT)
        for _ in range(300):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", self.port)) == 0:
                    break
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill the server, which loses unsaved data."""
        self._process.kill()
        self._process.join()


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[Server]:
    """Run a server with data in a folder."""
    server = Server(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
