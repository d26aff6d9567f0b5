"""Everything that can be wrong, in one tree; each error knows the HTTP status that it means.

    EdnError
    ├── InvalidInput (422)             what a client sent cannot be taken
    │   ├── MalformedJson (400)        not JSON, or JSON that readers disagree about (NaN, repeated keys)
    │   ├── MalformedXml (400)         not XML, or XML of a kind that is never taken (a DTD)
    │   ├── TooLarge (413)             a body, a batch, a filter or a nesting beyond its limit
    │   ├── InvalidSchema
    │   ├── InvalidEvent               names the index of the event in its batch
    │   ├── InvalidFilter              names the place: a JSON pointer, or a column of the text
    │   └── InvalidSink                an address that is no address, or one that the policy forbids
    ├── NotFound (404)
    ├── Conflict (409)
    ├── Gone (410)
    ├── Unauthorized (401)             no key, or one that is not known
    ├── Forbidden (403)                a key that may do other things, but not this
    ├── Unsupported (415)              a media type that this call does not take
    ├── Overloaded (429)               try again after `retry_after` seconds
    ├── Unavailable (503)              try again after `retry_after` seconds
    └── CorruptMessage (400)           bytes of an internal message that fail their check

A message says what was wrong, where, and what would be right. `problem()` is the one translation to
RFC 9457; the services and the SOAP door translate nothing by hand.
"""

from __future__ import annotations

from typing import Any, ClassVar


class EdnError(Exception):
    """Something went wrong."""

    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"

    #: where in the request: a JSON pointer such as "/filter/price/gt", or None
    pointer: str | None
    #: what a client should wait before it tries again, in seconds, or None
    retry_after: float | None

    def __init__(self, detail: str, *, pointer: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.pointer = pointer
        self.retry_after = retry_after

    def problem(self) -> dict[str, Any]:
        """The RFC 9457 body of this error; `errors` names the place when it is known."""
        body: dict[str, Any] = {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        if self.pointer is not None:
            body["errors"] = [{"detail": self.detail, "pointer": self.pointer}]
        return body


class InvalidInput(EdnError):
    """The input is refused."""

    status = 422
    title = "Invalid input"


class MalformedJson(InvalidInput):
    """Not JSON, or JSON that two readers would read differently."""

    status = 400
    title = "Malformed JSON"


class MalformedXml(InvalidInput):
    """Not XML, or XML with a document type: entities are never taken."""

    status = 400
    title = "Malformed XML"


class TooLarge(InvalidInput):
    """More than the limit allows."""

    status = 413
    title = "Too large"


class InvalidSchema(InvalidInput):
    title = "Invalid schema"


class InvalidEvent(InvalidInput):
    """`index` is the event's place in its batch."""

    title = "Invalid event"

    def __init__(self, detail: str, *, index: int, pointer: str | None = None) -> None:
        super().__init__(detail, pointer=pointer)
        self.index = index

    def problem(self) -> dict[str, Any]:
        return {**super().problem(), "index": self.index}


class InvalidFilter(InvalidInput):
    """`column` is the place in a filter given as text, counted from 1; `pointer` that in JSON."""

    title = "Invalid filter"

    def __init__(self, detail: str, *, pointer: str | None = None, column: int | None = None) -> None:
        super().__init__(detail, pointer=pointer)
        self.column = column

    def problem(self) -> dict[str, Any]:
        body = super().problem()
        if self.column is not None:
            body["column"] = self.column
        return body


class InvalidSink(InvalidInput):
    title = "Invalid sink"


class NotFound(EdnError):
    status = 404
    title = "Not found"


class Conflict(EdnError):
    status = 409
    title = "Conflict"


class Gone(EdnError):
    status = 410
    title = "Gone"


class Unauthorized(EdnError):
    status = 401
    title = "Unauthorized"


class Forbidden(EdnError):
    status = 403
    title = "Forbidden"


class Unsupported(EdnError):
    status = 415
    title = "Unsupported media type"


class Overloaded(EdnError):
    status = 429
    title = "Too many requests"


class Unavailable(EdnError):
    status = 503
    title = "Unavailable"


class CorruptMessage(EdnError):
    status = 400
    title = "Corrupt message"
