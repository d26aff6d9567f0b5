"""A sink for SOAP notifications that remembers what came, and answers as tests want it to."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lxml import etree

from tests.soap.messages import namespaces


class Heard:
    """One message."""

    def __init__(self, path: str, headers: dict[str, str], body: bytes, status: int) -> None:
        self.path = path
        self.headers = headers
        self.status = status
        self.root = etree.fromstring(body)

    def all(self, path: str, eventing: str = "2011", addressing: str = "2005") -> list[Any]:
        found = self.root.xpath(path, namespaces=namespaces(eventing, addressing))
        assert isinstance(found, list)
        return found

    def text(self, path: str, eventing: str = "2011", addressing: str = "2005") -> str:
        found = self.all(path, eventing, addressing)
        assert len(found) == 1, (path, etree.tostring(self.root))
        return str(found[0].text)


class Sink(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        #: path → statuses of the answers to come; then 202
        self.answers: dict[str, list[int]] = {}
        self._heard: list[Heard] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def at(self, path: str, *, taken: bool = True) -> list[Heard]:
        """What was taken at a path, or all that came."""
        return [one for one in list(self._heard) if one.path == path and (one.status < 300 or not taken)]

    def hear(self, path: str, headers: dict[str, str], body: bytes) -> int:
        waiting = self.answers.get(path, [])
        status = waiting.pop(0) if waiting else 202
        self._heard.append(Heard(path, headers, body, status))
        return status

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        assert isinstance(self.server, Sink)
        self.send_response(self.server.hear(self.path, headers, body))
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass
