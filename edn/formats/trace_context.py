"""W3C Trace Context, passed through: what a publisher sent with a request reaches the sinks of its events.

The network makes no spans of its own, so the context goes on unchanged, as the recommendation has it for
those that only forward. It is kept as one string: the `traceparent` and, after a space, the `tracestate` if
there is one. The empty string is "none", and costs nothing on the way.

A context that is not well-formed is ignored, as the recommendation wants it: tracing never refuses an event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

#: version, trace id, parent id, flags; a version above 00 may go on after them
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?=-|\Z)")
_STATE = re.compile(r"[\x20-\x7e]{1,512}")
_LENGTH = 55


def read(parent: bytes, state: bytes = b"") -> str:
    """The context of two header values; empty if there is none that counts."""
    found = _PARENT.match(parent.decode("latin-1").strip())
    if found is None:
        return ""
    given = found[0]
    # Of a later version only the first four fields are known, and passed on as the version that is.
    if given[:2] == "00" and len(parent.strip()) != _LENGTH:
        return ""
    known = "00" + given[2:]
    listed = state.decode("latin-1").strip()
    return f"{known} {listed}" if _STATE.fullmatch(listed) else known


def headers(context: str) -> Iterator[tuple[str, str]]:
    """The header fields that carry it on."""
    parent, _, state = context.partition(" ")
    if parent:
        yield "traceparent", parent
    if state:
        yield "tracestate", state
