"""Signatures of notifications, as Standard Webhooks has them: secrets, key rings, and the header's value.

A secret is `whsec_` and the base64 of 24 to 64 random bytes. A notification is signed with HMAC-SHA256 over
`id.timestamp.body`; the header holds one signature for each secret that counts, separated by spaces, so that
whoever knows any one of them can verify. After a rotation the older secret counts for a while, too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Annotated

import msgspec

from edn.errors import InvalidSink

PREFIX = "whsec_"
LEAST_BYTES, MOST_BYTES = 24, 64


class KeyRing(msgspec.Struct, frozen=True, array_like=True):
    """The secrets of one address. Its id outlives them, so that a rotation changes no address."""

    id: str
    current: str
    previous: str | None = None
    #: microseconds: until when the previous one signs, too
    until: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] = 0
    #: counts rotations, so that an older copy that comes late is known as one
    version: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] = 1

    def __repr__(self) -> str:
        # Whatever prints one, a log or a failed assertion, shall not print what it keeps.
        return f"KeyRing({self.id!r}, …)"

    def counting(self, now: int) -> list[str]:
        """The secrets that sign at this time, the newest first."""
        older = [self.previous] if self.previous is not None and now < self.until else []
        return [self.current, *older]

    def rotated(self, secret: str, until: int) -> KeyRing:
        return KeyRing(self.id, secret, self.current, until, self.version + 1)


def newest(known: dict[str, KeyRing], rings: Iterable[KeyRing]) -> None:
    """Take rings over into those that are known, unless a newer copy is."""
    for ring in rings:
        if ring.id not in known or known[ring.id].version <= ring.version:
            known[ring.id] = ring


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def check_secret(secret: str) -> None:
    """Raise `InvalidSink` unless it is a secret; the message never repeats it."""
    if not LEAST_BYTES <= len(_bytes(secret) or b"") <= MOST_BYTES:
        raise InvalidSink(
            f"the sink's secret must be {PREFIX} and the base64 of {LEAST_BYTES} to {MOST_BYTES} bytes; "
            "leave it out to have one made"
        )


def fingerprint(secret: str) -> str:
    """Tells whether two secrets are the same, without being one."""
    return hashlib.sha256(b"edn fingerprint " + secret.encode()).hexdigest()[:32]


def signatures(counting: Sequence[str], timestamp: int, id: str, body: bytes) -> str:
    """Return the value of `webhook-signature`: one signature per secret."""
    signed = b"%b.%d.%b" % (id.encode(), timestamp, body)
    return " ".join([_signature(_bytes(secret) or b"", signed) for secret in counting])


def _signature(secret: bytes, signed: bytes) -> str:
    return "v1," + binascii.b2a_base64(hmac.digest(secret, signed, "sha256"), newline=False).decode()


@lru_cache(maxsize=4096)
def _bytes(secret: str) -> bytes | None:
    if not secret.startswith(PREFIX):
        return None
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
