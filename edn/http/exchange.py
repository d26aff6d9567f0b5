"""The terms of an HTTP exchange that both versions of the protocol share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

#: limit of an answer's head, in bytes
HEAD_BYTES = 64 << 10
#: seconds after which an idle connection is closed; servers close it later
IDLE_SECONDS = 30.0


class ExchangeFailed(Exception):
    """The request may or may not have arrived; the message contains the reason."""

    def __init__(self, reason: str, *, is_unanswered: bool = False) -> None:
        """`is_unanswered`: the connection ended before the first byte of an answer."""
        super().__init__(reason)
        self.is_unanswered = is_unanswered


class HttpAnswer(NamedTuple):
    status: int
    #: names in lower case; the last value of repeated headers
    headers: dict[bytes, bytes]
    #: the first `Limits.returned` bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an answer's body, in bytes."""

    #: bytes that are read
    read: int
    #: bytes that are returned
    returned: int
    #: refuse an answer without a length, or longer than `read`, instead of truncating it
    is_strict: bool = False


class Request(NamedTuple):
    method: str
    #: value of the Host header
    host: str
    #: path and query
    path: str
    #: lines (`client.header_lines`)
    headers: str
    body: bytes


#: called once, with the answer or with `ExchangeFailed` or `TimeoutError`
OnEnd = Callable[[HttpAnswer | Exception], None]


def into(answer: asyncio.Future[HttpAnswer]) -> OnEnd:
    """Return a callback that sets the result of a future, unless it is cancelled."""

    def end(result: HttpAnswer | Exception) -> None:
        if answer.done():
            return
        if isinstance(result, Exception):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    return end
