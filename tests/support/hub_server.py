"""A local Hugging Face Hub with the part of the protocol needed to push a model."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Hub", "hub_server"]


class Hub:
    """The repositories of the server, and settings for its answers.

    ``repos`` maps each repository to its files, ``commits`` lists the messages, ``requests`` lists
    all requests. ``answer`` is the status of every request unless None. Uploads wait until ``gate``
    is set.
    """

    def __init__(self) -> None:
        self.url = ""
        self.repos: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.commits: list[str] = []
        self.requests: list[tuple[str, str, str]] = []
        self.large: dict[str, bytes] = {}
        self.answer: int | None = None
        self.gate = threading.Event()
        self.gate.set()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *args: Any) -> None:
        """Print nothing."""

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _reply(self, status: int, body: Any = b"", **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _is_refused(self) -> bool:
        path = self.path.partition("?")[0]
        self.hub.requests.append((self.command, path, self.headers.get("Authorization", "")))
        if self.hub.answer is not None:
            self._reply(self.hub.answer, {"error": "not now"})
        return self.hub.answer is not None

    def do_HEAD(self) -> None:
        """Return whether a file exists."""
        self.do_GET()

    def do_GET(self) -> None:
        """Serve a file: ``/user/name/resolve/main/README.md``."""
        if self._is_refused():
            return
        repo, _, name = self.path.strip("/").partition("/resolve/main/")
        found = self.hub.repos.get(repo, {}).get(name)
        if found is None:
            self._reply(404, X_Error_Code="EntryNotFound")
        else:
            etag = f'"{hashlib.sha1(found).hexdigest()}"'
            self._reply(200, found, ETag=etag, X_Repo_Commit="0" * 40)

    def do_PUT(self) -> None:
        """Take a large file."""
        body = self._body()
        if not self._is_refused():
            self.hub.gate.wait(20)
            self.hub.large[self.path.rpartition("/")[2]] = body
            self._reply(200)

    def do_POST(self) -> None:
        """Answer the calls of the API."""
        body = self._body()
        if self._is_refused():
            return
        path = self.path.partition("?")[0].strip("/")
        if path == "api/repos/create":
            self._create(json.loads(body))
        elif path == "api/validate-yaml":
            self._reply(200, {"errors": [], "warnings": []})
        elif path.endswith(".git/info/lfs/objects/batch"):
            self._batch(json.loads(body)["objects"])
        elif "/preupload/" in path:
            modes = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".pth") else "regular",
                    "shouldIgnore": False,
                }
                for file in json.loads(body)["files"]
            ]
            self._reply(200, {"files": modes})
        elif "/commit/" in path:
            self._commit(path.removeprefix("api/models/").partition("/commit/")[0], body)
        else:
            self._reply(404)

    def _create(self, asked: Any) -> None:
        repo = f"{asked['organization']}/{asked['name']}"
        status = 409 if repo in self.hub.repos else 200
        self.hub.repos.setdefault(repo, {})
        is_private = asked.get("visibility") == "private" or asked.get("private", False)
        self.hub.private.setdefault(repo, is_private)
        self._reply(status, {"url": f"{self.hub.url}/{repo}"})

    def _batch(self, objects: Any) -> None:
        for one in objects:
            if one["oid"] not in self.hub.large:
                href = f"{self.hub.url}/large/{one['oid']}"
                one["actions"] = {"upload": {"href": href}}
        self._reply(200, {"transfer": "basic", "objects": objects})

    def _commit(self, repo: str, body: bytes) -> None:
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "header":
                self.hub.commits.append(value["summary"])
            elif line["key"] == "lfsFile":
                self.hub.repos[repo][value["path"]] = self.hub.large[value["oid"]]
            elif line["key"] == "file":
                self.hub.repos[repo][value["path"]] = base64.b64decode(value["content"])
        oid = f"{len(self.hub.commits):040x}"
        self._reply(200, {"commitUrl": f"{self.hub.url}/{repo}/commit/{oid}", "commitOid": oid})


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Run a Hub on a free port of the loopback interface."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.gate.set()
        server.shutdown()
        server.server_close()
