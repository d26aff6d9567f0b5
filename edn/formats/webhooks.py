"""Webhook signatures as in Standard Webhooks: secrets, key rings, and the value of the header.

A secret is `whsec_` and the base64 of 24 to 64 random bytes. A notification is signed with HMAC-SHA256 over
`id.timestamp.body`. The header contains one signature per active secret, separated by spaces; any of them
suffices for verification. After a rotation the previous secret stays active for a while.
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
    """The secrets of one address. A rotation keeps the id, and so the address."""

    id: str
    current: str
    previous: str | None = None
    #: end of the previous secret, in microseconds
    until: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] = 0
    #: number of rotations, to recognize an outdated copy
    version: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] = 1

    def __repr__(self) -> str:
        # Logs and failed assertions must not print secrets.
        return f"KeyRing({self.id!r}, …)"

    def active_secrets(self, now: int) -> list[str]:
        """Returns the secrets that sign at this time, newest first."""
        previous = [self.previous] if self.previous is not None and now < self.until else []
        return [self.current, *previous]

    def without_secrets(self) -> KeyRing:
        """Returns a ring that only names this one."""
        return KeyRing(self.id, "", None, self.until, self.version)

    def rotated(self, secret: str, until: int) -> KeyRing:
        return KeyRing(self.id, secret, self.current, until, self.version + 1)


def keep_newest(known: dict[str, KeyRing], rings: Iterable[KeyRing]) -> None:
    """Adds rings to `known`, unless it contains a newer copy."""
    for ring in rings:
        if ring.id not in known or known[ring.id].version <= ring.version:
            known[ring.id] = ring


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def check_secret(secret: str) -> None:
    """Raises `InvalidSink` unless it is a valid secret; the message never contains it."""
    if not LEAST_BYTES <= len(_bytes(secret) or b"") <= MOST_BYTES:
        raise InvalidSink(
            f"the sink's secret must be {PREFIX} and the base64 of {LEAST_BYTES} to {MOST_BYTES} bytes; "
            "omit it to have one generated"
        )


def fingerprint(secret: str) -> str:
    """Returns a digest to compare secrets with."""
    return hashlib.sha256(b"edn fingerprint " + secret.encode()).hexdigest()[:32]


def signatures(active: Sequence[str], timestamp: int, id: str, body: bytes) -> str:
    """Return the value of `webhook-signature`: one signature per secret."""
    signed = b"%b.%d.%b" % (id.encode(), timestamp, body)
    return " ".join([_signature(_bytes(secret) or b"", signed) for secret in active])


def _signature(secret: bytes, signed: bytes) -> str:
    return "v1," + binascii.b2a_base64(hmac.digest(secret, signed, "sha256"), newline=False).decode()


@lru_cache(maxsize=1 << 16)
def _bytes(secret: str) -> bytes | None:
    if not secret.startswith(PREFIX):
        return None
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
