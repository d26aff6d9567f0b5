"""The errors of the network, each with its HTTP status.

    EdnError
    ├── InvalidInput (422)             an invalid request
    │   ├── MalformedJson (400)        not JSON, or ambiguous JSON (NaN, repeated keys)
    │   ├── MalformedXml (400)         not XML, or XML with a document type
    │   ├── TooLarge (413)             a body, batch, filter or nesting above its limit
    │   ├── InvalidSchema
    │   ├── InvalidEvent               contains the index of the event in its batch
    │   │   └── Unadvertised           an event that its publisher has not advertised
    │   ├── InvalidAdvertisement       contains a JSON pointer
    │   ├── InvalidFilter              contains a JSON pointer, or a column of the text
    │   └── InvalidSink                a malformed URL, or one that the policy refuses
    ├── NotFound (404)
    ├── Conflict (409)
    ├── Gone (410)
    ├── PreconditionFailed (412)       an If-Match or If-None-Match that does not hold
    ├── Unauthorized (401)             no API key, or an unknown one
    ├── Forbidden (403)                an API key without the scope for this call
    ├── Unsupported (415)              an unsupported media type
    ├── Overloaded (429)               try again after `retry_after` seconds
    ├── Unavailable (503)              try again after `retry_after` seconds
    ├── CannotStart                    a process cannot start, with its exit code
    ├── UnreadableSecret (500)         a stored secret whose key is missing, or that was changed
    └── CorruptMessage (400)           an internal message that fails its check

A message has the form "<thing> must be <rule>, got <value>", or names the place and the remedy. `problem()`
is the only conversion to RFC 9457.
"""

from __future__ import annotations

from typing import Any, ClassVar


class EdnError(Exception):
    """The root of all errors."""

    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"

    #: place in the request: a JSON pointer such as "/filter/price/gt"
    pointer: str | None
    #: seconds after which a client should try again
    retry_after: float | None

    def __init__(self, detail: str, *, pointer: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.pointer = pointer
        self.retry_after = retry_after

    def problem(self) -> dict[str, Any]:
        """Returns the RFC 9457 body of this error; `errors` contains the place if it is known."""
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
    status = 422
    title = "Invalid input"


class MalformedJson(InvalidInput):
    status = 400
    title = "Malformed JSON"


class MalformedXml(InvalidInput):
    status = 400
    title = "Malformed XML"


class TooLarge(InvalidInput):
    status = 413
    title = "Too large"


class InvalidSchema(InvalidInput):
    title = "Invalid schema"


class InvalidEvent(InvalidInput):
    """`index` is the index of the event in its batch."""

    title = "Invalid event"

    def __init__(self, detail: str, *, index: int, pointer: str | None = None) -> None:
        super().__init__(detail, pointer=pointer)
        self.index = index

    def problem(self) -> dict[str, Any]:
        return {**super().problem(), "index": self.index}


class Unadvertised(InvalidEvent):
    """An event that no advertisement of its publisher covers."""

    title = "Unadvertised event"


class InvalidAdvertisement(InvalidInput):
    title = "Invalid advertisement"


class InvalidFilter(InvalidInput):
    """`column` is the place in a filter that is text, counted from 1; `pointer` the place in JSON."""

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


class PreconditionFailed(EdnError):
    status = 412
    title = "Precondition failed"


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


class CannotStart(EdnError):
    """The process cannot start; the message names the remedy."""

    exit_code: ClassVar[int] = 1


class UnreadableSecret(EdnError):
    title = "Unreadable secret"


class CorruptMessage(EdnError):
    status = 400
    title = "Corrupt message"
