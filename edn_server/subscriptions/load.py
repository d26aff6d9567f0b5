"""Rebuilds the registry from the database: in bulk, from the rectangles as they were bound."""

from __future__ import annotations

from edn_server.storage import logs, replays, versions
from edn_server.storage.interface import Connection
from edn_server.subscriptions.registry import SubscriptionRegistry


def load(db: Connection) -> SubscriptionRegistry:
    """Return the registry as it was committed last."""
    registry = SubscriptionRegistry()
    registry.seq = versions.stores(db)
    for topic in versions.topics(db):
        registry.add_topic(*topic)
    for row in logs.logs(db):
        log = registry.log(row.log, row.incarnation)
        log.cursor, log.joined, log.retired = row.cursor, row.joined, row.retired
    registry.reserve(versions.numbers(db))
    registry.insert(versions.living(db))
    # Versions that are over are hosted no more, but rows that wait may name them.
    for number, id, recipient, topic_uid in versions.ended(db):
        registry.name(number, id, recipient, topic_uid)
    registry.moved.update(versions.moved(db))
    for ring in versions.rings(db):
        registry.rings[ring.id] = ring
    registry.tally.load(db)
    for id, name, revision in replays.pauses(db):
        registry.paused.setdefault(id, {})[name] = revision
    for number, source in replays.replays(db):
        registry.replaying.setdefault(number, set()).add(source)
    coming = [registry.versions[number].id for number in registry.replaying if number in registry.versions]
    registry.mark_held([*registry.paused, *coming])
    for number, name, since, until, expires in versions.intervals(db):
        if registry.living.size > number and registry.living[number]:
            log = registry.logs[name]
            log.since[number], log.until[number], log.expires[number] = since, until, expires
    return registry
