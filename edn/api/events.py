"""Published events."""

from __future__ import annotations

import msgspec


class Published(msgspec.Struct, frozen=True):
    accepted: int
    #: ids in the order of the events
    ids: list[str]
