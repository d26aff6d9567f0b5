"""A request must be there within a time, or its connection ends: clients that trickle hold nothing for long.

uvicorn waits for ever for the rest of a request. This is its protocol with one timer a connection, which runs
from a connection's first moment, and from the first byte of each request, to the request's last byte. A
request that comes in one piece, as almost all do, never starts one.

An answer may take as long as it likes, and between requests uvicorn's own keep-alive time counts.
"""

from __future__ import annotations

import asyncio

from edn.http.request_head import BoundedProtocol

#: seconds for a whole request, from its first byte
REQUEST_SECONDS = 30.0


class PunctualProtocol(BoundedProtocol):
    _deadline: asyncio.TimerHandle | None = None
    #: a request has begun, and is not complete
    _amid = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn's
        super().connection_made(transport)
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self._too_late)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._amid:
            if self._deadline is None:
                self._deadline = self.loop.call_later(REQUEST_SECONDS, self._too_late)
        elif self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def on_message_begin(self) -> None:
        self._amid = True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._amid = False
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        self._stop()
        super().handle_websocket_upgrade()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _stop(self) -> None:
        self._amid = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.abort()
