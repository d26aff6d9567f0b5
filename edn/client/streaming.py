"""Reads the stream of a subscription without a sink; without I/O, shared by both clients.

Theory of operation
-------------------
A stream is one long answer of server-sent events. When the connection ends, for whatever reason, the client
connects again with the position of the last notification in `Last-Event-ID`, and the stream continues after
it. The first connection is tried as often as any call. Later ones are tried until the caller stops, because a
reader may outlive a restart of the network.

| outcome                                      | next step                                        |
|---|---|
| notification                                 | yield it, remember its position                  |
| `gap`: unread events were dropped            | report it, go on                                 |
| `end`: the subscription has ended            | return                                           |
| end of the answer, connection broken, 429, 503 | connect again after the back-off               |
| any other status                             | raise `ProblemError`                             |
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
from httpx_sse import ServerSentEvent, SSEError

from edn.client.conversation import Retries, problem_of, unreachable
from edn.client.encoding import subscription_path
from edn.client.notifications import Notification, StreamedNotification
from edn.client.problems import UnexpectedAnswerError

log = logging.getLogger(__name__)

#: seconds without a byte after which a connection is given up; an idle stream sends a comment every 15
IDLE_SECONDS = 45.0
_RETRIED = (429, 503)

_decoder = msgspec.json.Decoder(Notification)


class _Reason(msgspec.Struct):
    reason: str = ""


class StreamReader:
    """The state of one reader: its position, and whether the stream has ended."""

    def __init__(
        self, id: str, after: str | None, on_gap: Callable[[str], object] | None, retries: Retries, urls: str
    ) -> None:
        self._id = id
        self._on_gap = on_gap
        self._retries = retries
        self._urls = urls
        self._was_connected = False
        self._failures = 0
        self.position = after
        self.has_ended = False

    def request(self, url: str) -> dict[str, Any]:
        """Returns the options of the next request."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self.position is not None:
            headers["Last-Event-ID"] = self.position
        return {
            "method": "GET",
            "url": f"{url}{subscription_path(self._id)}/events",
            "headers": headers,
            "timeout": httpx.Timeout(IDLE_SECONDS, connect=5.0),
        }

    def connected(self) -> None:
        self._was_connected = True

    def read(self, event: ServerSentEvent) -> StreamedNotification | None:
        """Returns the notification of an event; None if it is another event."""
        self._failures = 0
        if event.event in ("gap", "end"):
            self._read_notice(event)
            return None
        if event.event != "message" or not event.data:
            return None  # a hint such as `retry`, or an event of a newer network
        try:
            found = _decoder.decode(event.data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnexpectedAnswerError(
                f"the stream of {self._id} has an invalid notification: {error}"
            ) from error
        self.position = event.id
        fields = {name: getattr(found, name) for name in found.__struct_fields__}
        return StreamedNotification(**fields, position=event.id)

    def _read_notice(self, event: ServerSentEvent) -> None:
        try:
            reason = msgspec.json.decode(event.data, type=_Reason).reason
        except msgspec.DecodeError:
            reason = event.data
        if event.event == "end":
            self.has_ended = True
        elif self._on_gap is not None:
            self._on_gap(reason)
        else:
            log.warning("the stream of %s has a gap: %s", self._id, reason)

    def wait_after(self, outcome: httpx.Response | httpx.TransportError | SSEError | None) -> float:
        """Returns the seconds until the next connection, or raises.

        The outcome is a refusal, an error, or None for a stream that has ended without an `end`.
        """
        self._failures += 1
        if isinstance(outcome, SSEError):
            raise UnexpectedAnswerError(f"the answer is not a stream: {outcome}") from outcome
        seconds = self._retries.seconds(min(self._failures, 30))
        is_last = not self._was_connected and self._failures > self._retries.count
        if isinstance(outcome, httpx.Response):
            problem = problem_of(outcome)
            if problem.status not in _RETRIED or is_last:
                raise problem
            return seconds if problem.retry_after is None else min(problem.retry_after, 60.0)
        if outcome is not None and is_last:
            raise unreachable(self._urls, outcome)
        return seconds
