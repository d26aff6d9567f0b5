"""Rebuilds the registry from the database: in bulk, from the rectangles as they were bound."""

from __future__ import annotations

from edn_server.storage import logs, replays, versions
from edn_server.storage.interface import Connection
from edn_server.subscriptions.registry import Hosting


def load(db: Connection) -> Hosting:
    """Return the registry as it was committed last."""
    hosting = Hosting()
    hosting.seq = versions.stores(db)
    for topic in versions.topics(db):
        hosting.add_topic(*topic)
    for row in logs.logs(db):
        log = hosting.log(row.log, row.incarnation)
        log.cursor, log.joined, log.retired = row.cursor, row.joined, row.retired
    hosting.reserve(versions.numbers(db))
    hosting.insert(versions.living(db))
    # Versions that are over are hosted no more, but rows that wait may name them.
    for number, id, recipient, topic_uid in versions.ended(db):
        hosting.name(number, id, recipient, topic_uid)
    hosting.moved.update(versions.moved(db))
    for ring in versions.rings(db):
        hosting.rings[ring.id] = ring
    hosting.tally.load(db)
    for id, name, revision in replays.pauses(db):
        hosting.paused.setdefault(id, {})[name] = revision
    for number, source in replays.replays(db):
        hosting.replaying.setdefault(number, set()).add(source)
    coming = [hosting.versions[number].id for number in hosting.replaying if number in hosting.versions]
    hosting.mark_held([*hosting.paused, *coming])
    for number, name, since, until, expires in versions.intervals(db):
        if hosting.living.size > number and hosting.living[number]:
            log = hosting.logs[name]
            log.since[number], log.until[number], log.expires[number] = since, until, expires
    return hosting
