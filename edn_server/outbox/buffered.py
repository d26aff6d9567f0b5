"""What is found for a subscription and not sent yet: while it is paused, and while its past is still coming.

Rows that are held lie in the outbox under addresses that are nobody's, in the order in which they were
found. There are four of those, because two things can hold a row, and end independently:

                    kept, because it is paused      due, and waiting for something before it
    of its past     `past`                          `first`
    live            `held`                          `waiting`

Letting rows go writes them anew at the end of the outbox, each to the address of the version that it names:
the one that found it or, of what was kept, the one that the subscription had when it was resumed. They were
never tried, so no receiver knows their ids.

    pause      what matches after its offset is kept
    resume     what is kept is due from now on, before what matches after it
    end        of a paused subscription: what is kept goes, and so does the rest of its past
    replay     from the activation on what matches waits, until the last page is there
    arrival    of a subscription that comes from another server: what matches waits until that one has
               delivered its own, whatever else happens to it meanwhile (see `arrivals`)

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
from edn_server.outbox import rows as outbox
from edn_server.storage.addresses import FIRST, PAST, WAITING, held, stream_of
from edn_server.subscriptions.registry import ARRIVAL, NEVER, Hosting
from edn_server.subscriptions.topic_index import Flags, Int32s, Int64s

Step = Literal["pause", "resume", "end"]
Fate = Literal["sent", "kept", "waiting", "dropped"]

#: of what another server kept for a paused subscription, as `replays.kept` has it: it is kept here, too; it
#: is due, because the subscription was resumed; nobody wants it any more
AS_BEFORE, DUE, UNWANTED = range(3)


def past(subscription: str) -> str:
    return held(subscription) + PAST


def first(subscription: str) -> str:
    return held(subscription) + FIRST


def waiting(subscription: str) -> str:
    return held(subscription) + WAITING


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
        #: numbers whose past is no longer wanted; those that wait for another server all the same
        self.cancelled: list[int] = []
        self._curtailed: list[int] = []
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
        for number in sorted(np.unique(numbers[candidates]).tolist(), key=self._version):
            subscription = hosting.versions[number].id
            rows = np.flatnonzero(numbers == number)
            fates = [self._fate(subscription, offset) for offset in offsets[rows].tolist()]
            for fate, name in (("kept", held(subscription)), ("waiting", waiting(subscription))):
                chosen = rows[[one == fate for one in fates]]
                if len(chosen):
                    # One for each number: a row that is held names one version.
                    addresses[chosen] = len(hosting.addresses) + len(names)
                    names.append(name)
            wanted[rows[[fate == "dropped" for fate in fates]]] = False
        return addresses, wanted, names

    def _touched(self) -> Int64s:
        numbers = [n for name in self._steps for n in self._hosting.numbers.get(name, ())]
        return np.array(numbers + self.begun, dtype=np.int64)

    def _version(self, number: int) -> int:
        return self._hosting.versions[number].version

    def _fate(self, subscription: str, offset: int) -> Fate:
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
        if paused:
            return "kept"
        replaying = any(n in self._hosting.replaying or n in self.begun for n in self._numbers(subscription))
        return "waiting" if replaying else "sent"

    def _numbers(self, subscription: str) -> list[int]:
        return self._hosting.numbers.get(subscription, [])

    # -- in the transaction -----------------------------------------------------------------------------

    def write(self, db: sqlite3.Connection) -> None:
        """Before the frame's own rows: let go, or drop, what was held; note the new state."""
        log = self._log
        db.executemany(
            "INSERT OR IGNORE INTO replays (number, log, position) VALUES (?, ?, 0)",
            [(number, log) for number in self.begun],
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
                    if not late:
                        self.released += resume(db, self._hosting, subscription, begun=self.begun)
                elif paused:
                    paused = False
                    self.purged += purge(db, subscription)
                    self._cancel(db, subscription)
                    self.released += release(db, self._hosting, subscription, finished=self.cancelled)
            if paused:
                db.execute("INSERT OR REPLACE INTO pauses VALUES (?, ?, ?)", (subscription, log, revision))
            else:
                db.execute("DELETE FROM pauses WHERE id = ? AND log = ?", (subscription, log))

    def _cancel(self, db: sqlite3.Connection, subscription: str) -> None:
        """Its past is not wanted; what is due still waits for what another server has to deliver."""
        coming = [n for n in self._numbers(subscription) if n in self._hosting.replaying or n in self.begun]
        arriving = [n for n in coming if self._hosting.arriving(n)]
        _answer(db, arriving, UNWANTED)
        db.executemany(
            "DELETE FROM replays WHERE number = ? AND log NOT LIKE ?", [(n, ARRIVAL + "%") for n in arriving]
        )
        self._curtailed += arriving
        self.cancel(db, [n for n in coming if n not in arriving])

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
        for number in self._curtailed:
            hosting.replaying[number] = {
                name for name in hosting.replaying[number] if name.startswith(ARRIVAL)
            }
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


def resume(
    db: sqlite3.Connection, hosting: Hosting, subscription: str, *, begun: Sequence[int] = ()
) -> list[str]:
    """What was kept is due, in the name of the version that there is now; the addresses that have more now.

    `begun` are replays that begin in this transaction.
    """
    numbers = hosting.numbers.get(subscription, [])
    if not numbers:
        return []
    target = speaker(hosting, subscription)
    _rename(db, past(subscription), first(subscription), target)
    _rename(db, held(subscription), waiting(subscription), target)
    arriving = [n for n in numbers if hosting.arriving(n)]
    _answer(db, arriving, DUE)
    if arriving:
        return []
    coming = any(n in begun or n in hosting.replaying for n in numbers)
    return _send(db, [first(subscription)] if coming else [first(subscription), waiting(subscription)])


def release(
    db: sqlite3.Connection, hosting: Hosting, subscription: str, *, finished: Sequence[int]
) -> list[str]:
    """Let go what is due, if nothing before it is still to come; the addresses that it went to.

    `finished` are those whose past, or whose other server, has nothing more to tell since this transaction.
    """
    left = [n for n in hosting.numbers.get(subscription, []) if n not in finished]
    if any(hosting.arriving(n) for n in left):
        return []
    coming = any(n in hosting.replaying for n in left) or _any(db, past(subscription))
    return _send(db, [first(subscription)] if coming else [first(subscription), waiting(subscription)])


def _any(db: sqlite3.Connection, place: str) -> bool:
    return db.execute("SELECT 1 FROM outbox WHERE address = ? LIMIT 1", (place,)).fetchone() is not None


def purge(db: sqlite3.Connection, subscription: str) -> int:
    """Drop what is kept; how many notifications that was."""
    dropped = 0
    for place in (past(subscription), stream_of(subscription), held(subscription)):
        rows = db.execute("SELECT id, batch FROM outbox WHERE address = ?", (place,)).fetchall()
        dropped += outbox.Settle(rows).work(db)
    return dropped


def speaker(hosting: Hosting, subscription: str) -> int:
    """The version in whose name kept rows go out: the newest that a log has activated."""
    numbers = hosting.numbers[subscription]
    active = [n for n in numbers if any(log.since[n] != NEVER for log in hosting.logs.values())]
    return max(active or numbers, key=lambda number: hosting.versions[number].version)


def _answer(db: sqlite3.Connection, numbers: Sequence[int], kept: int) -> None:
    """Say what is to become of what another server kept for these, when it comes: it is said once."""
    db.executemany(
        "UPDATE replays SET kept = ? WHERE number = ? AND log LIKE ? AND kept = ?",
        [(kept, number, ARRIVAL + "%", AS_BEFORE) for number in numbers],
    )


def _rename(db: sqlite3.Connection, place: str, target: str, number: int) -> None:
    """Bring the rows of one place to another, where they are found in the same order, in a version's name."""
    rows = db.execute(f"SELECT {outbox.ROW} FROM outbox WHERE address = ?", (place,)).fetchall()
    db.executemany(
        "UPDATE outbox SET address = ?, composition = ?, doubt = ? WHERE id = ?",
        [
            (target, outbox.renamed(row.composition, number), _asked(row), row.id)
            for row in (outbox.Row(*values) for values in rows)
        ],
    )


def _asked(row: outbox.Row) -> int:
    """The doubt of a row that gets another name: the version that it was found for is asked all the same."""
    return int(outbox.numbers_of(row)[0]) + 1 if row.doubt == outbox.OWN else row.doubt


def _send(db: sqlite3.Connection, places: Sequence[str]) -> list[str]:
    """Write the rows of places anew, at the end of the outbox, each to the address of the version it names.

    Their age, by which a row is given up, counts from now: nobody could have taken them before.
    """
    now = int(clock.steady() * 1e6)
    addresses: dict[int, str] = {}
    for place in places:
        rows = db.execute(
            f"SELECT {outbox.ROW} FROM outbox WHERE address = ? ORDER BY id", (place,)
        ).fetchall()
        for row in (outbox.Row(*values) for values in rows):
            number = int(outbox.numbers_of(row)[0])
            if number not in addresses:
                (addresses[number],) = db.execute(
                    "SELECT address FROM versions WHERE number = ?", (number,)
                ).fetchone()
            # A stream's rows go on being counted (see `usage`); a sink's are not.
            db.execute(
                "INSERT INTO outbox (address, batch, events, composition, created, doubt, bytes)"
                " SELECT ?1, batch, events, composition, ?2, doubt,"
                " iif(substr(?1, 1, 7) = 'stream:', bytes, 0) FROM outbox WHERE id = ?3",
                (addresses[number], now, row.id),
            )
            db.execute("DELETE FROM outbox WHERE id = ?", (row.id,))
    # One that is over already is named by newer rows now.
    db.executemany(
        "UPDATE versions SET over = ? WHERE number = ? AND over IS NOT NULL",
        [(outbox.last_row(db), number) for number in addresses],
    )
    return list(dict.fromkeys(addresses.values()))
