"""W3C Trace Context: forwarded from a publish request to the sinks of its events.

Without spans (`edn.runtime.tracing`) it is forwarded unchanged. A context is one string: the `traceparent`
and, after a space, the `tracestate` if there is one; empty means none. A malformed context is ignored, as the
recommendation requires: tracing never refuses an event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

#: version, trace id, parent id, flags; versions above 00 may have more fields
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?=-|\Z)")
_STATE = re.compile(r"[\x20-\x7e]{1,512}")
_LENGTH = 55


def read(parent: bytes, state: bytes = b"") -> str:
    """Reads the context from two header values; empty if there is no valid one."""
    found = _PARENT.match(parent.decode("latin-1").strip())
    if found is None:
        return ""
    given = found[0]
    # Of a later version only the first four fields are known; they are forwarded as version 00.
    if given[:2] == "00" and len(parent.strip()) != _LENGTH:
        return ""
    known = "00" + given[2:]
    listed = state.decode("latin-1").strip()
    return f"{known} {listed}" if _STATE.fullmatch(listed) else known


def headers(context: str) -> Iterator[tuple[str, str]]:
    """Yields the headers of a context."""
    parent, _, state = context.partition(" ")
    if parent:
        yield "traceparent", parent
    if state:
        yield "tracestate", state
