"""An HTTP/2 connection of the lean client: many requests at a time, by the library `h2`.

`HttpClient` uses it for https hosts that offer HTTP/2. The library does the protocol: frames, compression of
headers, flow control, limits. This module assigns its events to requests.

A request that fails alone (reset, timeout, an answer beyond the limits) ends its stream. An error of the
protocol ends the connection and all of its requests. Requests without a byte of an answer may be repeated, as
in `client`.
"""

from __future__ import annotations

import asyncio
from typing import cast

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from edn.http.exchange import (
    HEAD_BYTES,
    IDLE_SECONDS,
    ExchangeFailed,
    HttpAnswer,
    Limits,
    OnEnd,
    Request,
    into,
)

#: bytes of frames that belong to no answer, before the connection is closed
UNUSED_BYTES = 1 << 20
#: place of a frame's type, and the type of the first frame
_FRAME_TYPE, _SETTINGS = 3, 4


class _Stream:
    """One request and its answer."""

    __slots__ = ("began", "head", "headers", "left", "on_end", "parts", "read", "status", "timer")

    def __init__(self, on_end: OnEnd, left: memoryview, began: float) -> None:
        self.on_end = on_end
        #: bytes of the body that the flow control has not admitted yet
        self.left = left
        self.began = began
        self.timer: asyncio.TimerHandle | None = None
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.head = self.read = 0
        self.parts: list[bytes] = []


class Http2Connection(asyncio.Protocol):
    """Performs many exchanges at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._streams: dict[int, _Stream] = {}
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding=None)
        )
        self._received = self._loop.time()
        #: bytes since the last event of a stream, against floods of frames
        self._unused = 0
        self._is_ending = False
        #: whether the other side has begun as HTTP/2 must
        self._is_confirmed = False
        self._idle: asyncio.TimerHandle | None = None
        #: whether the other side violated the protocol, or never spoke it
        self.is_broken = False

    @property
    def is_usable(self) -> bool:
        """Whether another request can follow now."""
        return (
            not self._is_ending
            and self._transport is not None
            and not self._transport.is_closing()
            and len(self._streams) < self._h2.remote_settings.max_concurrent_streams
        )

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_idle(self) -> bool:
        return not self._streams

    def begin(self, request: Request, deadline: float, on_end: OnEnd) -> int:
        """Sends a request, returns its stream; raises `ExchangeFailed` if the connection cannot."""
        if not self.is_usable:
            raise ExchangeFailed("the connection was closed", is_unanswered=True)
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        fields = [
            (b":method", request.method.encode()),
            (b":scheme", b"https"),
            (b":authority", request.host.encode()),
            (b":path", request.path.encode()),
            (b"content-length", b"%d" % len(request.body)),
        ]
        for line in request.headers.encode("ascii").splitlines():
            name, _, value = line.partition(b":")
            fields.append((name.strip().lower(), value.strip()))
        try:
            number = self._h2.get_next_available_stream_id()
            self._h2.send_headers(number, fields, end_stream=not request.body)
        except h2.exceptions.H2Error as error:
            self._is_ending = True
            raise ExchangeFailed(str(error), is_unanswered=True) from error
        stream = self._streams[number] = _Stream(on_end, memoryview(request.body), self._loop.time())
        stream.timer = self._loop.call_at(deadline, self._time_out, number)
        self._send_body(number, stream)
        self._flush()
        return number

    async def exchange(self, request: Request, deadline: float) -> HttpAnswer:
        """Sends a request, returns the answer; raises `ExchangeFailed`, or `TimeoutError` at `deadline`."""
        answer: asyncio.Future[HttpAnswer] = self._loop.create_future()
        number = self.begin(request, deadline, into(answer))
        try:
            return await answer
        except asyncio.CancelledError:
            self._reset(number)
            self._end(number, ExchangeFailed("cancelled"))
            raise

    def close(self) -> None:
        self._is_ending = True
        if self._idle is not None:
            self._idle.cancel()
        if self._transport is not None:
            self._transport.abort()

    # -- called by the event loop -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._h2.initiate_connection()
        self._h2.update_settings(
            {
                h2.settings.SettingCodes.ENABLE_PUSH: 0,
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: HEAD_BYTES,
            }
        )
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._received = self._loop.time()
        self._unused += len(data)
        if not self._is_confirmed and len(data) > _FRAME_TYPE:
            self._is_confirmed = True
            if data[_FRAME_TYPE] != _SETTINGS:
                self._break("the answer is not HTTP/2: it does not begin with settings")
                return
        try:
            events = self._h2.receive_data(data)
        except (h2.exceptions.H2Error, ValueError, IndexError) as error:
            self._break(f"the answer is not HTTP/2: {error or type(error).__name__}")
            return
        for event in events:
            self._handle(event)
        self._flush()
        if self._unused > self._limits.read + UNUSED_BYTES:
            self._break("the answer is not HTTP/2: frames without an answer")

    def connection_lost(self, error: Exception | None) -> None:
        self._is_ending = True
        self.is_broken |= not self._is_confirmed
        self._fail_all(str(error) if error else "the connection was closed before the answer was complete")

    # -- events of the library --------------------------------------------------------------------------

    def _handle(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            self._is_ending = True
            # Streams after the last one were not processed.
            last = event.last_stream_id or 0
            for later in [each for each in self._streams if each > last]:
                self._end(later, ExchangeFailed("the host closes the connection", is_unanswered=True))
            if not self._streams:
                self.close()
            return
        number: int = getattr(event, "stream_id", None) or 0
        stream = self._streams.get(number)
        if isinstance(event, h2.events.DataReceived):
            # Also for streams that have ended: the window of the connection is shared.
            if event.flow_controlled_length:
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id or 0)
        elif isinstance(event, (h2.events.WindowUpdated, h2.events.RemoteSettingsChanged)):
            for waiting in [each for each, one in self._streams.items() if one.left]:
                self._send_body(waiting, self._streams[waiting])
        if stream is None:
            return
        self._unused = 0
        if isinstance(event, h2.events.ResponseReceived):
            self._read_head(number, stream, event)
        elif isinstance(event, h2.events.DataReceived):
            self._read_body(number, stream, event.data or b"")
        elif isinstance(event, h2.events.StreamEnded):
            self._complete(number, stream)
        elif isinstance(event, h2.events.StreamReset):
            # A host that answers before it has read the body may end the stream after the answer.
            refused = event.error_code == h2.errors.ErrorCodes.REFUSED_STREAM
            if stream.status >= 200 and event.error_code == h2.errors.ErrorCodes.NO_ERROR:
                self._complete(number, stream)
            else:
                reason = f"the host reset the stream: error {int(event.error_code or 0)}"
                self._end(number, ExchangeFailed(reason, is_unanswered=refused and not stream.status))

    def _read_head(self, number: int, stream: _Stream, event: h2.events.ResponseReceived) -> None:
        for name, value in event.headers or ():
            key, content = bytes(name), bytes(value)
            stream.head += len(key) + len(content)
            if key == b":status":
                stream.status = int(content) if content.isdigit() else 0
            else:
                stream.headers[key] = content
        if stream.head > HEAD_BYTES or not 200 <= stream.status <= 599:
            self._reset(number)
            self._end(number, ExchangeFailed("the head of the answer is too long or has no valid status"))

    def _read_body(self, number: int, stream: _Stream, data: bytes) -> None:
        if stream.read < self._limits.returned:
            stream.parts.append(data[: self._limits.returned - stream.read])
        stream.read += len(data)
        if stream.read > self._limits.read:
            self._reset(number)
            self._complete(number, stream)

    def _complete(self, number: int, stream: _Stream) -> None:
        if stream.left:  # the host needs no more of the body
            self._reset(number)
        self._end(number, HttpAnswer(stream.status, stream.headers, b"".join(stream.parts)))

    # -- sending and ending -----------------------------------------------------------------------------

    def _send_body(self, number: int, stream: _Stream) -> None:
        try:
            while stream.left:
                size = min(self._h2.local_flow_control_window(number), self._h2.max_outbound_frame_size)
                if size <= 0:
                    return
                part, stream.left = stream.left[:size], stream.left[size:]
                self._h2.send_data(number, part.tobytes(), end_stream=not stream.left)
        except h2.exceptions.H2Error as error:
            self._end(number, ExchangeFailed(str(error)))

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and self.is_open:
            assert self._transport is not None
            self._transport.write(data)

    def _reset(self, number: int) -> None:
        try:
            self._h2.reset_stream(number, h2.errors.ErrorCodes.CANCEL)
        except h2.exceptions.H2Error:
            return  # it has ended
        self._flush()

    def _time_out(self, number: int) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return
        self._reset(number)
        if self._received < stream.began:  # nothing at all arrives any more: no further request
            self._is_ending = True
            self.is_broken |= not self._is_confirmed
        self._end(number, TimeoutError())

    def _break(self, reason: str) -> None:
        self.is_broken = True
        self.close()
        self._fail_all(reason, unanswered=False)

    def _fail_all(self, reason: str, *, unanswered: bool = True) -> None:
        for number, stream in list(self._streams.items()):
            self._end(number, ExchangeFailed(reason, is_unanswered=unanswered and not stream.status))

    def _end(self, number: int, result: HttpAnswer | Exception) -> None:
        stream = self._streams.pop(number, None)
        if stream is None:
            return
        if stream.timer is not None:
            stream.timer.cancel()
        if not self._streams:
            if self._is_ending:
                self.close()
            else:
                self._idle = self._loop.call_later(IDLE_SECONDS, self.close)
        stream.on_end(result)
