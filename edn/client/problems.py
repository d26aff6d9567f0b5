"""Errors that calls of a client raise.

ClientError
├── ProblemError             the network refused the call: an RFC 9457 problem, or another error status
├── UnreachableError         no answer: connection refused, connection broken, or timeout
└── UnexpectedAnswerError    a success whose body does not fit the interface
"""

from __future__ import annotations

import dataclasses
import re

import msgspec


class ClientError(Exception):
    """A call failed."""


class UnreachableError(ClientError):
    """No answer arrived from `url`."""

    def __init__(self, url: str, reason: str, *, is_tls: bool = False) -> None:
        super().__init__(f"cannot reach {url}: {reason}")
        #: whether TLS refused the connection, on either side
        self.is_tls = is_tls
        self.url = url
        self.reason = reason


class UnexpectedAnswerError(ClientError):
    """The answer is not that of a network of a version that this client knows."""


@dataclasses.dataclass(kw_only=True, eq=False)
class ProblemError(ClientError):
    """The network refused the call."""

    status: int
    title: str
    detail: str
    #: place in the request's body: a JSON pointer such as "/filter/price/gt"
    pointer: str | None = None
    #: index of the refused element in the argument of the call
    index: int | None = None
    #: column in a filter that is text, counted from 1
    column: int | None = None
    #: seconds after which to try again
    retry_after: float | None = None
    #: ids of the elements that earlier requests of the same call have stored
    accepted: tuple[str, ...] = ()

    def __str__(self) -> str:
        places = [
            f"{name} {value}"
            for name, value in (("index", self.index), ("at", self.pointer), ("column", self.column))
            if value is not None
        ]
        where = f" ({', '.join(places)})" if places else ""
        return f"{self.status} {self.title}: {self.detail}{where}"

    def shifted(self, by: int, accepted: tuple[str, ...]) -> ProblemError:
        """Returns the problem of a chunk with its place counted in the whole argument of the call."""
        pointer, index = self.pointer, self.index
        place = re.match(r"/(\d+)(?=/|$)", pointer or "")
        if pointer is not None and place is not None:
            if index is None:
                index = int(place[1])
            pointer = f"/{int(place[1]) + by}{pointer[place.end() :]}"
        index = None if index is None else index + by
        return dataclasses.replace(self, pointer=pointer, index=index, accepted=accepted)


class _Place(msgspec.Struct):
    pointer: str | None = None


class _Body(msgspec.Struct):
    title: str | None = None
    detail: str | None = None
    index: int | None = None
    column: int | None = None
    pointer: str | None = None
    errors: list[_Place] = []


def read_problem(status: int, reason: str, content: bytes, retry_after: float | None) -> ProblemError:
    """Decodes a problem. Answers of proxies may contain anything else."""
    try:
        body = msgspec.json.decode(content, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = content[:200].decode("utf-8", "replace").strip()
        body = _Body(detail=text or f"status {status} without an explanation")
    pointer = body.pointer
    if pointer is None and body.errors:
        pointer = body.errors[0].pointer
    return ProblemError(
        status=status,
        title=body.title or reason or "Refused",
        detail=body.detail or body.title or f"status {status}",
        pointer=pointer,
        index=body.index,
        column=body.column,
        retry_after=retry_after,
    )
