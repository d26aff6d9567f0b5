"""Replay of retained events to one new subscription. See `edn.protocol`."""

from __future__ import annotations

import msgspec

from edn.protocol.codec import Int64
from edn.protocol.stream import Segment


class ReplayPage(msgspec.Struct, frozen=True):
    """Events of before a subscription's activation that were still available then; for it alone.

    Pages are outside the stream and its cursor. A page continues at the position that the server has
    committed for (subscription, version, log), or it is a repeat and dropped.
    """

    log: str
    subscription: str
    version: Int64
    #: it holds what there is in the offsets (after, upto]
    after: Int64
    upto: Int64
    segment: Segment | None
    final: bool


class ReplayAck(msgspec.Struct, frozen=True):
    #: where the next page begins
    position: Int64
    done: bool
