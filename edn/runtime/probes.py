"""Answers health checks on a listening socket while a process waits before it can serve.

A supervisor that asks `/livez` must not restart a process that waits for a lease; one that asks `/readyz`
must not send it requests.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
from types import TracebackType
from typing import Self

#: seconds that a client has for its request
_SECONDS = 1.0
#: bytes of a request that are read
_MOST = 1 << 16


class WaitingProbes:
    """Serves `/livez` and `/readyz` from a thread, until the context ends; the socket stays open."""

    def __init__(self, listener: socket.socket, reason: str) -> None:
        """`reason`: why the process is not ready."""
        self._listener = listener
        self._reason = reason
        self._ended, self._end = os.pipe()
        self._thread = threading.Thread(target=self._run, name="probes", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.write(self._end, b".")
        self._thread.join()
        os.close(self._end)
        os.close(self._ended)

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self._listener.fileno(), self._ended], [], [])
            if self._ended in ready:
                return
            with contextlib.suppress(OSError):
                client, _ = self._listener.accept()
                with client:
                    client.settimeout(_SECONDS)
                    self._answer(client)

    def _answer(self, client: socket.socket) -> None:
        data = b""
        while b"\r\n\r\n" not in data and len(data) < _MOST:
            piece = client.recv(4096)
            if not piece:
                return
            data += piece
        is_alive = data.split(b" ", 2)[1:2] == [b"/livez"]
        status, kind = ("200 OK", "json") if is_alive else ("503 Service Unavailable", "problem+json")
        body: dict[str, object] = {"status": "alive"}
        if not is_alive:
            detail = f"not ready: {self._reason}"
            body = {"type": "about:blank", "title": "Unavailable", "status": 503, "detail": detail}
        content = json.dumps(body).encode()
        head = (
            f"HTTP/1.1 {status}\r\ncontent-type: application/{kind}\r\nretry-after: 1\r\n"
            f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        client.sendall(head.encode() + content)
        client.shutdown(socket.SHUT_WR)
        # A close with unread data would be a reset, and the client might not see the answer.
        left = _MOST
        while left > 0 and (piece := client.recv(4096)):
            left -= len(piece)
