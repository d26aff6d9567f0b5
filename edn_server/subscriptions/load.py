"""Rebuild what is hosted from the database: in bulk, from the rectangles as they were bound."""

from __future__ import annotations

import sqlite3

import msgspec

from edn.webhooks import KeyRing
from edn_server.subscriptions.registry import NEVER, Hosting, NewVersion
from edn_server.subscriptions.store import unpack_rects


def load(db: sqlite3.Connection) -> Hosting:
    hosting = Hosting()
    (hosting.seq,) = db.execute("SELECT value FROM meta WHERE name = 'seq'").fetchone()
    for uid, tenant, name, columns, engine in db.execute(
        "SELECT uid, tenant, name, columns, engine FROM topics"
    ):
        pairs = msgspec.json.decode(columns, type=list[tuple[str, str]])
        hosting.add_topic(uid, tenant, name, pairs, engine)
    for name, incarnation, cursor, joined, retired in db.execute(
        "SELECT log, incarnation, cursor, joined, retired FROM logs"
    ):
        log = hosting.log(name, incarnation)
        log.cursor, log.joined, log.retired = cursor, joined, bool(retired)
    hosting.reserve({number for (number,) in db.execute("SELECT number FROM versions")})
    hosting.insert(_living(db))
    # Versions that are over are hosted no more, but rows that wait may name them.
    for number, id, recipient, topic in db.execute(
        "SELECT number, id, recipient, topic FROM versions WHERE over IS NOT NULL"
    ):
        hosting.name(number, id, recipient, topic)
    hosting.moved.update(number for (number,) in db.execute("SELECT number FROM versions WHERE moved"))
    db.execute("DELETE FROM rings WHERE id NOT IN (SELECT ring FROM versions)")
    for values in db.execute("SELECT id, current, previous, until, version FROM rings"):
        hosting.rings[values[0]] = KeyRing(*values)
    hosting.tally.load(db)
    for id, name, revision in db.execute("SELECT id, log, revision FROM pauses"):
        hosting.paused.setdefault(id, {})[name] = revision
    for number, name in db.execute("SELECT number, log FROM replays"):
        hosting.replaying.setdefault(number, set()).add(name)
    coming = [hosting.versions[number].id for number in hosting.replaying if number in hosting.versions]
    hosting.mark_held([*hosting.paused, *coming])
    for number, name, since, until, expires in db.execute(
        "SELECT number, log, since, until, expires FROM intervals"
    ):
        if hosting.living.size > number and hosting.living[number]:
            log = hosting.logs[name]
            log.since[number] = NEVER if since is None else since
            log.until[number] = NEVER if until is None else until
            if expires is not None:
                log.expires[number] = expires
    return hosting


def _living(db: sqlite3.Connection) -> list[NewVersion]:
    found: list[NewVersion] = []
    for (
        number,
        id,
        version,
        topic,
        filter,
        address,
        recipient,
        expires,
        log,
        incarnation,
        width,
        data,
    ) in db.execute(
        "SELECT number, id, version, topic, filter, address, recipient, expires, log, incarnation, width,"
        " rects FROM versions WHERE over IS NULL"
    ):
        rects = unpack_rects(data, width)
        found.append(
            NewVersion(
                number=number,
                id=id,
                version=version,
                topic=topic,
                filter=filter,
                address=address,
                recipient=recipient,
                expires=NEVER if expires is None else expires,
                log=log,
                incarnation=incarnation,
                width=width,
                lo=rects.lo,
                hi=rects.hi,
                exact=rects.exact,
            )
        )
    return found
