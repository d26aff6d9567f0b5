"""The sealed secrets of a server. See `edn.protocol`."""

from __future__ import annotations

import msgspec

from edn.protocol.codec import Int64


class Reseal(msgspec.Struct, frozen=True):
    #: seconds to seal secrets again; 0: count them only
    seconds: float


class SealedSecrets(msgspec.Struct, frozen=True):
    #: ids of the keys of this process; the first one seals
    keys: list[str]
    #: number of stored secrets by the id of their key
    counts: dict[str, Int64]
    #: number of secrets that this request sealed again
    resealed: Int64 = 0
