"""Errors that a client's call can raise.

ClientError
├── ProblemError             the network refused: an RFC 9457 problem, or any other status that is no success
├── UnreachableError         no answer: nobody listens there, the connection broke, or the time ran out
└── UnexpectedAnswerError    an answer of success whose body is not what the interface describes
"""

from __future__ import annotations

import re

import msgspec


class ClientError(Exception):
    """A call did not come to its result."""


class UnreachableError(ClientError):
    """No answer came; `url` is what was asked."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"cannot reach {url}: {reason}")
        self.url = url
        self.reason = reason


class UnexpectedAnswerError(ClientError):
    """Something answered, but not an event distribution network of a version that this client knows."""


class ProblemError(ClientError):
    """The network understood the request and refused it."""

    def __init__(
        self,
        *,
        status: int,
        title: str,
        detail: str,
        pointer: str | None = None,
        index: int | None = None,
        column: int | None = None,
        retry_after: float | None = None,
        accepted: tuple[str, ...] = (),
    ) -> None:
        super().__init__(status, title, detail)
        self.status = status
        self.title = title
        #: what was wrong, where, and what would be right
        self.detail = detail
        #: where in the request's body: a JSON pointer such as "/filter/price/gt"
        self.pointer = pointer
        #: which element of what was passed to the call, counted from 0
        self.index = index
        #: where in a filter given as text, counted from 1
        self.column = column
        #: seconds after which it is worth another try
        self.retry_after = retry_after
        #: ids of the elements that earlier requests of the same call had already brought in
        self.accepted = accepted

    def __str__(self) -> str:
        places = [
            f"{name} {value}"
            for name, value in (("index", self.index), ("at", self.pointer), ("column", self.column))
            if value is not None
        ]
        where = f" ({', '.join(places)})" if places else ""
        return f"{self.status} {self.title}: {self.detail}{where}"

    def moved(self, by: int, accepted: tuple[str, ...]) -> ProblemError:
        """The same problem of a chunk, its place counted in the whole of what the caller passed."""
        pointer, index = self.pointer, self.index
        place = re.match(r"/(\d+)(?=/|$)", pointer or "")
        if pointer is not None and place is not None:
            if index is None:
                index = int(place[1])
            pointer = f"/{int(place[1]) + by}{pointer[place.end() :]}"
        return ProblemError(
            status=self.status,
            title=self.title,
            detail=self.detail,
            pointer=pointer,
            index=None if index is None else index + by,
            column=self.column,
            retry_after=self.retry_after,
            accepted=accepted,
        )


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
    """The problem in an answer; whatever stands between client and network may answer without one."""
    try:
        body = msgspec.json.decode(content, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = content[:200].decode("utf-8", "replace").strip()
        body = _Body(detail=text or f"no explanation came with status {status}")
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
