"""What is found for a subscription and not sent yet: while it is paused, and while its past is still coming.

Rows that are held lie in the outbox under addresses that are nobody's, in the order in which they were
found: those of its past, which pages of a replay bring, and the live ones. Letting them go writes them anew
at the end of the outbox, the past first, to the address and in the name of the version that the subscription
has by then. They were never tried, so no receiver knows their ids.

    pause      what matches after its offset is held
    resume     what is held goes out, before what matches after it
    end        of a paused subscription: what is held goes, and so does the rest of its past
    replay     from the activation on what matches is held, until the last page is there
    arrival    of a subscription that comes from another server: what matches is held until that one has
               delivered its own, whatever else happens to it meanwhile (see `arriving`)

Each log has pauses of its own: an event is held if it lies behind one in its own log. A resumption lets
everything go, whatever log it was found in, unless another log tells of a newer pause: then it was read late.

Nothing here changes what is hosted before the transaction is through: a frame collects what its records do
(`FrameHolds`), decides by it where each match goes, and `settle` makes it the new state.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal

import numpy as np

from edn import clock
from edn_server import outbox
from edn_server.hosting import NEVER, Hosting
from edn_server.topic import Flags, Int32s, Int64s

Step = Literal["pause", "resume", "end"]


def past(subscription: str) -> str:
    """Where the past of a paused subscription is held."""
    return outbox.held(subscription) + outbox.PAST


class FrameHolds:
    """The pauses, resumptions, ends and replays that one frame brings."""

    def __init__(self, hosting: Hosting, log: str) -> None:
        self._hosting = hosting
        self._log = log
        #: what happens to each subscription, in order
        self._steps: dict[str, list[tuple[int, Step]]] = {}
        #: the newest revision that the steps name, by subscription
        self._revisions: dict[str, int] = {}
        #: numbers whose past will come
        self.begun: list[int] = []
        #: numbers whose past is no longer wanted
        self.cancelled: list[int] = []
        #: who has something to hear now, and how many notifications nobody will
        self.released: list[str] = []
        self.purged = 0

    def add(self, subscription: str, offset: int, step: Step, revision: int = 0) -> None:
        self._steps.setdefault(subscription, []).append((offset, step))
        self._revisions[subscription] = max(revision, self._revisions.get(subscription, 0))

    def _paused(self, subscription: str) -> bool:
        """Before this frame, as its log has it."""
        return self._log in self._hosting.paused.get(subscription, ())

    def begin_replay(self, number: int) -> None:
        self.begun.append(number)

    # -- where matches go -------------------------------------------------------------------------------

    def sort(self, numbers: Int32s, offsets: Int64s) -> tuple[Int32s, Flags, list[str]]:
        """Of each match the number of its address, whether it is wanted at all, and names for the numbers
        beyond those of the hosting.
        """
        hosting = self._hosting
        addresses = hosting.address[numbers].copy()
        wanted = np.ones(len(numbers), dtype=np.bool_)
        names: list[str] = []
        touched = self._touched()
        candidates = hosting.held[numbers]
        if len(touched):
            candidates = candidates | np.isin(numbers, touched)
        for number in np.unique(numbers[candidates]).tolist():
            subscription = hosting.versions[number].id
            rows = np.flatnonzero(numbers == number)
            fates = [self._fate(subscription, offset) for offset in offsets[rows].tolist()]
            kept = rows[[fate == "held" for fate in fates]]
            if len(kept):
                addresses[kept] = len(hosting.addresses) + len(names)
                names.append(outbox.held(subscription))
            wanted[rows[[fate == "dropped" for fate in fates]]] = False
        return addresses, wanted, names

    def _touched(self) -> Int64s:
        numbers = [n for name in self._steps for n in self._hosting.numbers.get(name, ())]
        return np.array(numbers + self.begun, dtype=np.int64)

    def _fate(self, subscription: str, offset: int) -> Literal["sent", "held", "dropped"]:
        """What becomes of a match at that offset by the end of the frame."""
        steps = self._steps.get(subscription, [])
        at = bisect_right([where for where, _ in steps], offset - 1)
        before = steps[at - 1][1] if at else None
        paused = self._paused(subscription) if before is None else before == "pause"
        if paused:
            for _, step in steps[at:]:
                if step == "end":
                    return "dropped"
                if step == "resume":
                    paused = False
                    break
        replaying = any(n in self._hosting.replaying or n in self.begun for n in self._numbers(subscription))
        return "held" if paused or replaying else "sent"

    def _numbers(self, subscription: str) -> list[int]:
        return self._hosting.numbers.get(subscription, [])

    # -- in the transaction -----------------------------------------------------------------------------

    def write(self, db: sqlite3.Connection) -> None:
        """Before the frame's own rows: let go, or drop, what was held; note the new state."""
        log = self._log
        db.executemany(
            "INSERT OR IGNORE INTO replays VALUES (?, ?, 0)", [(number, log) for number in self.begun]
        )
        for subscription, steps in self._steps.items():
            paused, revision = self._paused(subscription), self._revisions[subscription]
            elsewhere = self._hosting.paused.get(subscription, {})
            late = any(other != log and newer > revision for other, newer in elsewhere.items())
            for _, step in steps:
                if step == "pause":
                    paused = True
                elif step == "resume":
                    paused = False
                    if late:
                        continue
                    address = release(db, self._hosting, subscription, begun=self.begun)
                    if address is not None:
                        self.released.append(address)
                elif paused:
                    paused = False
                    self.purged += purge(db, subscription)
                    self._cancel(db, subscription)
            if paused:
                db.execute("INSERT OR REPLACE INTO pauses VALUES (?, ?, ?)", (subscription, log, revision))
            else:
                db.execute("DELETE FROM pauses WHERE id = ? AND log = ?", (subscription, log))

    def _cancel(self, db: sqlite3.Connection, subscription: str) -> None:
        self.cancel(
            db, [n for n in self._numbers(subscription) if n in self._hosting.replaying or n in self.begun]
        )

    def cancel(self, db: sqlite3.Connection, numbers: Sequence[int]) -> None:
        """The past of these is not awaited any more."""
        db.executemany("DELETE FROM replays WHERE number = ?", [(number,) for number in numbers])
        self.cancelled += numbers

    # -- after the commit -------------------------------------------------------------------------------

    def settle(self) -> None:
        """Make it the state that is hosted."""
        hosting, log = self._hosting, self._log
        for number in self.begun:
            hosting.replaying.setdefault(number, set()).add(log)
        for number in self.cancelled:
            hosting.replaying.pop(number, None)
        for subscription, steps in self._steps.items():
            final = next((step for _, step in reversed(steps)), None)
            if final == "pause":
                hosting.paused.setdefault(subscription, {})[log] = self._revisions[subscription]
            elif subscription in hosting.paused:
                hosting.paused[subscription].pop(log, None)
                if not hosting.paused[subscription]:
                    del hosting.paused[subscription]
        hosting.mark_held(self._steps)
        hosting.mark_held(
            {hosting.versions[number].id for number in self.begun if number in hosting.versions}
        )


def release(
    db: sqlite3.Connection,
    hosting: Hosting,
    subscription: str,
    *,
    begun: Sequence[int] = (),
    finished: Sequence[int] = (),
) -> str | None:
    """Let go what is held for a subscription: its past and, if no more of that is to come, the live ones.

    `begun` and `finished` are replays of this transaction. The address that it went to, if anything was.
    """
    numbers = hosting.numbers.get(subscription, [])
    if not numbers or any(hosting.arriving(n) and n not in finished for n in numbers):
        return None
    target = speaker(hosting, subscription)
    address = hosting.addresses[hosting.address[target]]
    places = [past(subscription)]
    if not any(n in begun or (n in hosting.replaying and n not in finished) for n in numbers):
        places.append(outbox.held(subscription))
    moved = sum(_readdress(db, place, address, target) for place in places)
    return address if moved else None


def purge(db: sqlite3.Connection, subscription: str) -> int:
    """Drop what is held; how many notifications that was."""
    dropped = 0
    for place in (past(subscription), outbox.stream_of(subscription), outbox.held(subscription)):
        rows = db.execute("SELECT id, batch FROM outbox WHERE address = ?", (place,)).fetchall()
        dropped += outbox.Settle(rows).work(db)
    return dropped


def speaker(hosting: Hosting, subscription: str) -> int:
    """The version in whose name held rows go out: the newest that a log has activated."""
    numbers = hosting.numbers[subscription]
    active = [n for n in numbers if any(log.since[n] != NEVER for log in hosting.logs.values())]
    return max(active or numbers, key=lambda number: hosting.versions[number].version)


def _readdress(db: sqlite3.Connection, place: str, address: str, number: int) -> int:
    """Write the rows of a place anew, at the end of the outbox.

    Their age, by which a row is given up, counts from now: nobody could have taken them before.
    """
    now = int(clock.now() * 1e6)
    rows = db.execute(
        "SELECT id, batch, events, composition FROM outbox WHERE address = ? ORDER BY id", (place,)
    ).fetchall()
    db.executemany(
        "INSERT INTO outbox (address, batch, events, composition, created) VALUES (?, ?, ?, ?, ?)",
        [
            (address, batch, events, outbox.renamed(composition, number), now)
            for _, batch, events, composition in rows
        ],
    )
    db.executemany("DELETE FROM outbox WHERE id = ?", [(row[0],) for row in rows])
    return len(rows)
