"""Rebuilds the registry from the database, in bulk, from the stored rectangles."""

from __future__ import annotations

from edn_server.storage import logs, replays, versions
from edn_server.storage.interface import Connection
from edn_server.subscriptions.registry import SubscriptionRegistry


def load(db: Connection) -> SubscriptionRegistry:
    """Returns the registry as of the last commit."""
    registry = SubscriptionRegistry()
    registry.seq = versions.stores(db)
    for topic in versions.topics(db):
        registry.add_topic(*topic)
    for row in logs.logs(db):
        if row.ended:
            registry.ended_logs.add(row.log)
            continue
        log = registry.log(row.log, row.incarnation)
        log.cursor, log.joined, log.retired = row.cursor, row.joined, row.retired
    registry.sinks.update((sink.settings.id, sink) for sink in versions.sinks(db))
    registry.reserve(versions.numbers(db))
    registry.insert(versions.living(db))
    # Outbox rows may still name ended versions.
    for ended in versions.ended(db):
        registry.set_fragment(*ended)
    registry.moved.update(versions.moved(db))
    registry.rings.update((ring.id, ring) for ring in versions.rings(db))
    registry.counters.load(db)
    for id, name, revision in replays.pauses(db):
        registry.paused.setdefault(id, {})[name] = revision
    for number, source in replays.replays(db):
        registry.replaying.setdefault(number, set()).add(source)
    replaying = [registry.versions[number].id for number in registry.replaying if number in registry.versions]
    registry.mark_held([*registry.paused, *replaying])
    for number, name, since, until, expires in versions.intervals(db):
        if name in registry.logs and registry.living.size > number and registry.living[number]:
            log = registry.logs[name]
            log.since[number], log.until[number], log.expires[number] = since, until, expires
    return registry
