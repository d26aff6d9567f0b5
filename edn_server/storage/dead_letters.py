"""Tables of dead letters, indexed by the subscriptions that they name.

`names` maps the key of a subscription to a small number, `dead_names` orders letters by (name, time of
death). So a page is one range of an index, however many letters there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from edn_server.storage import usage
from edn_server.storage.interface import Connection

#: letters that one transaction deletes or requeues
STEP = 500


@dataclass(frozen=True, slots=True)
class Letter:
    id: int
    address: str
    #: microseconds: when delivery gave up, and when the row was written
    died: int
    created: int
    attempts: int
    status: int | None
    reason: str
    events: int


_FIELDS = ("id", "address", "died", "created", "attempts", "status", "reason", "events")
_LETTER = ", ".join(_FIELDS)


def insert(db: Connection, letter: Letter, body: bytes, subscriptions: Iterable[str]) -> None:
    """Inserts a letter that names these subscriptions."""
    named = [_name(db, subscription) for subscription in dict.fromkeys(subscriptions)]
    values = [getattr(letter, field) for field in _FIELDS]
    blob = np.array(named, dtype="<i8").tobytes()
    db.execute("INSERT INTO dead_letters VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*values, blob, body))
    db.executemany(
        "INSERT INTO dead_names VALUES (?, ?, ?)", [(name, letter.died, letter.id) for name in named]
    )


def _name(db: Connection, subscription: str) -> int:
    known = name_of(db, subscription)
    if known is not None:
        return known
    row = db.execute("INSERT INTO names (subscription) VALUES (?) RETURNING name", (subscription,)).fetchone()
    return int(row[0])


def name_of(db: Connection, subscription: str) -> int | None:
    """Returns the number of a subscription in `names`."""
    row = db.execute("SELECT name FROM names WHERE subscription = ?", (subscription,)).fetchone()
    return None if row is None else int(row[0])


def page(db: Connection, subscription: str | None, after: tuple[int, int], limit: int) -> list[Letter]:
    """Returns letters after `after`, in the order of (died, id); of one subscription or of all."""
    if subscription is None:
        found = db.execute(
            f"SELECT {_LETTER} FROM dead_letters WHERE (died, id) > (?, ?) ORDER BY died, id LIMIT ?",
            (*after, limit),
        )
    else:
        found = db.execute(
            f"SELECT {', '.join('l.' + field for field in _FIELDS)} FROM dead_names n"
            " CROSS JOIN dead_letters l WHERE l.id = n.letter"
            " AND n.name = ? AND (n.died, n.letter) > (?, ?) ORDER BY n.died, n.letter LIMIT ?",
            (name_of(db, subscription), *after, limit),
        )
    return [Letter(*values) for values in found]


def subscriptions_of(db: Connection, ids: Sequence[int]) -> dict[int, list[str]]:
    """Returns the keys of the subscriptions that letters name."""
    found = {}
    for id in ids:
        row = db.execute("SELECT named FROM dead_letters WHERE id = ?", (id,)).fetchone()
        names = [] if row is None else _named(row[0])
        rows = [
            db.execute("SELECT subscription FROM names WHERE name = ?", (name,)).fetchone() for name in names
        ]
        found[id] = [row[0] for row in rows if row is not None]
    return found


def find(db: Connection, id: int) -> tuple[Letter, bytes] | None:
    """Returns a letter and its body."""
    row = db.execute(f"SELECT {_LETTER}, body FROM dead_letters WHERE id = ?", (id,)).fetchone()
    return None if row is None else (Letter(*row[:-1]), row[-1])


def count(db: Connection, subscription: str) -> int:
    """Counts the letters that name a subscription, up to 1,000."""
    row = db.execute(
        "SELECT count(*) FROM (SELECT 1 FROM dead_names WHERE name = ? LIMIT 1000) AS found",
        (name_of(db, subscription),),
    ).fetchone()
    return int(row[0])


def since(db: Connection, subscription: str, time: int, limit: int) -> list[int]:
    """Returns the oldest letters of a subscription that died at or after a time."""
    found = db.execute(
        "SELECT letter FROM dead_names WHERE name = ? AND died >= ? ORDER BY died, letter LIMIT ?",
        (name_of(db, subscription), time, limit),
    )
    return [letter for (letter,) in found]


def remove(db: Connection, ids: Sequence[int]) -> None:
    """Deletes letters."""
    for id in ids:
        row = db.execute("DELETE FROM dead_letters WHERE id = ? RETURNING died, named", (id,)).fetchone()
        if row is not None:
            died, named = row
            keys = [(name, died, id) for name in _named(named)]
            db.executemany("DELETE FROM dead_names WHERE name = ? AND died = ? AND letter = ?", keys)


def drop_excess(db: Connection, tenant: str, limit: int) -> int:
    """Deletes the oldest letters of a tenant beyond its byte limit (0: no limit); returns how many.

    Counts each drop for the subscriptions that the letter names.
    """
    dropped = 0
    while limit and (excess := usage.used(db, usage.DEAD, tenant) - limit) > 0:
        found = db.execute(
            "SELECT id, length(body), named, events FROM dead_letters"
            " WHERE substr(address, 1, instr(address, '/')) = ? ORDER BY died, id LIMIT ?",
            (tenant + "/", STEP),
        ).fetchall()
        if not found:
            break
        for id, size, named, events in found:
            for name in _named(named):
                row = db.execute("SELECT subscription FROM names WHERE name = ?", (name,)).fetchone()
                if row is not None:
                    usage.count(db, row[0], usage.DEAD, events)
            remove(db, [id])
            dropped += 1
            excess -= size
            if excess <= 0:
                break
    return dropped


def purge(db: Connection, oldest: int, ended: Callable[[str], bool]) -> int:
    """Deletes up to `STEP` letters that are too old or name no living subscription; returns how many."""
    old = db.execute("SELECT id FROM dead_letters WHERE died < ? LIMIT ?", (oldest, STEP)).fetchall()
    remove(db, [id for (id,) in old])
    gone = len(old)
    for name, subscription in db.execute("SELECT name, subscription FROM names").fetchall():
        if gone >= STEP:
            break
        if not ended(subscription):
            continue
        keys = db.execute(
            "SELECT died, letter FROM dead_names WHERE name = ? LIMIT ?", (name, STEP - gone)
        ).fetchall()
        gone += len(keys)
        db.executemany(
            "DELETE FROM dead_names WHERE name = ? AND died = ? AND letter = ?",
            [(name, died, letter) for died, letter in keys],
        )
        for _, letter in keys:
            _remove_unnamed(db, letter)
        if not db.execute("SELECT 1 FROM dead_names WHERE name = ? LIMIT 1", (name,)).fetchone():
            db.execute("DELETE FROM names WHERE name = ?", (name,))
    return gone


def _remove_unnamed(db: Connection, letter: int) -> None:
    row = db.execute("SELECT died, named FROM dead_letters WHERE id = ?", (letter,)).fetchone()
    if row is None:
        return
    died, named = row
    for name in _named(named):
        key = (name, died, letter)
        if db.execute("SELECT 1 FROM dead_names WHERE name = ? AND died = ? AND letter = ?", key).fetchone():
            return
    db.execute("DELETE FROM dead_letters WHERE id = ?", (letter,))


def _named(blob: bytes) -> list[int]:
    names: list[int] = np.frombuffer(blob, "<i8").tolist()
    return names
