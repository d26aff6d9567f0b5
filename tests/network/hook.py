"""A sink inside the test: its answers can be changed as a test goes, and it remembers every request."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hook(ThreadingHTTPServer):
    """By path: `status` is what it answers, 200 unless set; `allowed` are headers of answers to OPTIONS."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status: dict[str, int] = {}
        self.allowed: dict[str, dict[str, str]] = {}
        self.posts: list[tuple[str, dict[str, str], bytes, int]] = []
        #: paths and headers of OPTIONS
        self.asked: list[tuple[str, dict[str, str]]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return status and content of the answer to a POST; others may answer by what is posted."""
        status = self.status.get(path, 200)
        return status, f"the hook says {status}".encode()

    def asked_at(self, path: str) -> list[dict[str, str]]:
        return [headers for where, headers in list(self.asked) if where == path]

    def at(self, path: str, status: int | None = None) -> list[tuple[dict[str, str], bytes]]:
        found = list(self.posts)
        return [(head, body) for where, head, body, said in found if where == path and status in (None, said)]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert isinstance(self.server, Hook)
        status, said = self.server.answer(self.path, body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.posts.append((self.path, headers, body, status))
        self.send_response(status)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def do_OPTIONS(self) -> None:
        assert isinstance(self.server, Hook)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.path, headers))
        self.send_response(self.server.status.get(self.path, 200))
        for name, value in self.server.allowed.get(self.path, {}).items():
            self.send_header(name, value)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass
