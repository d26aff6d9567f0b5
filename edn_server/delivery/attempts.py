"""The last attempts at each address.

Attempts are collected in memory and written every few seconds, one record per address. So an attempt costs no
write of its own; a crash loses the last seconds of attempts, never a notification. An address has its newest
`MOST` attempts, and none older than the setting.

The bodies of the last requests stay in memory (`RecentBodies`): writing them would cost more than delivering.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from edn.runtime import clock
from edn.runtime.ownership import owned
from edn_server.storage import sink_state
from edn_server.storage.interface import Connection
from edn_server.storage.writer import Job

#: attempts per address
MOST = 50
#: attempts in memory
UNWRITTEN = 20_000
#: bytes of request bodies in memory
BODY_BYTES = 16 << 20


class Attempt(msgspec.Struct, frozen=True, array_like=True):
    #: microseconds: start of the attempt
    time: int
    webhook_id: str
    #: None without an answer
    status: int | None
    #: reason of a failure
    reason: str | None
    seconds: float
    #: beginning of the answer's body
    answer: str
    events: int
    #: "delivered", "again", "dead", "gone" or "example"
    outcome: str
    #: microseconds; None if none follows
    next_attempt: int | None = None


@owned("loop")
class RecentBodies:
    """The bodies of the last requests of all addresses, by webhook-id."""

    def __init__(self, limit: int = BODY_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._bodies: dict[str, bytes] = {}

    def add(self, webhook_id: str, body: bytes) -> None:
        former = self._bodies.pop(webhook_id, None)
        if former is not None:
            self._size -= len(former)
        self._bodies[webhook_id] = body
        self._size += len(body)
        while self._size > self._limit:
            self._size -= len(self._bodies.pop(next(iter(self._bodies))))

    def find(self, webhook_id: str) -> str | None:
        """Return a body as text; None if it is not in memory any more."""
        body = self._bodies.get(webhook_id)
        return None if body is None else body.decode(errors="replace")


def oldest(kept: float) -> int:
    """Return the time in microseconds before which attempts are deleted."""
    return int((clock.now() - kept) * 1e6)


_decoder = msgspec.msgpack.Decoder(list[Attempt])
_encoder = msgspec.msgpack.Encoder()


@owned("loop")
class Attempts:
    """Attempts that are not in the database yet."""

    def __init__(self) -> None:
        self._unwritten: dict[str, list[Attempt]] = {}
        self._count = 0

    @property
    def full(self) -> bool:
        return self._count > UNWRITTEN

    def add(self, address: str, attempt: Attempt) -> None:
        own = self._unwritten.setdefault(address, [])
        own.append(attempt)
        self._count += 1
        if len(own) > MOST:
            del own[0]
            self._count -= 1

    def latest(self, address: str, stored: Sequence[Attempt], oldest: int) -> list[Attempt]:
        """Return stored and unwritten attempts, newest first."""
        found = [*stored, *self._unwritten.get(address, ())][-MOST:]
        return [attempt for attempt in reversed(found) if attempt.time >= oldest]

    def take(self) -> dict[str, list[Attempt]]:
        """Remove and return all unwritten attempts; the caller writes them."""
        taken, self._unwritten, self._count = self._unwritten, {}, 0
        return taken


def stored(db: Connection, address: str) -> list[Attempt]:
    """Return the attempts of an address in the database."""
    found = sink_state.attempts(db, address)
    return [] if found is None else _decoder.decode(found)


class Write(Job[None]):
    """Writes attempts and deletes old ones."""

    def __init__(self, taken: dict[str, list[Attempt]], oldest: int) -> None:
        self._taken = taken
        self._oldest = oldest

    def work(self, db: Connection) -> None:
        for address, fresh in self._taken.items():
            kept = [one for one in (*stored(db, address), *fresh)[-MOST:] if one.time >= self._oldest]
            if kept:
                sink_state.store_attempts(db, address, kept[-1].time, _encoder.encode(kept))
        sink_state.forget_attempts(db, self._oldest)
