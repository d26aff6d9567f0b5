"""The last attempts of each address: what was sent when, and what came back.

They are kept in memory and written with whatever is collected next, one record an address: so an attempt
costs no write of its own, and a crash forgets the last seconds of evidence, never a notification. An address
keeps its newest `MOST`, and none that is older than the setting says.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from edn.runtime import clock
from edn.runtime.ownership import owned
from edn_server.storage import sink_state
from edn_server.storage.interface import Connection
from edn_server.storage.writer import Job

#: attempts an address
MOST = 50
#: attempts in memory; beyond them they are written before their time
UNWRITTEN = 20_000


class Attempt(msgspec.Struct, frozen=True, array_like=True):
    #: microseconds: when it began
    time: int
    webhook_id: str
    #: None when there was no answer
    status: int | None
    #: what went wrong; None when it was taken
    reason: str | None
    seconds: float
    #: the beginning of the answer
    answer: str
    events: int
    #: "delivered", "again", "dead", "gone" or "example"
    outcome: str
    #: microseconds; None when there is none
    next_attempt: int | None = None


def oldest(kept: float) -> int:
    """Return the time, microseconds, of the oldest attempt that is kept for so many seconds."""
    return int((clock.now() - kept) * 1e6)


_decoder = msgspec.msgpack.Decoder(list[Attempt])
_encoder = msgspec.msgpack.Encoder()


@owned("loop")
class Attempts:
    """Lives on the event loop."""

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
        """The newest first."""
        found = [*stored, *self._unwritten.get(address, ())][-MOST:]
        return [attempt for attempt in reversed(found) if attempt.time >= oldest]

    def take(self) -> dict[str, list[Attempt]]:
        """Take the attempts that are not on disk yet; the caller writes them."""
        taken, self._unwritten, self._count = self._unwritten, {}, 0
        return taken


def stored(db: Connection, address: str) -> list[Attempt]:
    """Return the attempts of an address that are on disk."""
    found = sink_state.attempts(db, address)
    return [] if found is None else _decoder.decode(found)


class Write(Job[None]):
    """Attempts go to disk, and what is too old goes."""

    def __init__(self, taken: dict[str, list[Attempt]], oldest: int) -> None:
        self._taken = taken
        self._oldest = oldest

    def work(self, db: Connection) -> None:
        for address, fresh in self._taken.items():
            # Two writes may overlap a restart of the loop that makes them; the order of times holds.
            kept = [one for one in (*stored(db, address), *fresh)[-MOST:] if one.time >= self._oldest]
            if kept:
                sink_state.store_attempts(db, address, kept[-1].time, _encoder.encode(kept))
        sink_state.forget_attempts(db, self._oldest)
