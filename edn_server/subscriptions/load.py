"""Rebuilds the registry from the database, in bulk, from the stored rectangles."""

from __future__ import annotations

from dataclasses import replace

from edn_server.storage import logs, replays, versions
from edn_server.storage.interface import Connection
from edn_server.storage.sequences import rows as sequences
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
    steps = sequences.steps(db)
    registry.insert(
        [replace(one, steps=steps[one.number]) if one.number in steps else one for one in versions.living(db)]
    )
    _load_sequences(db, registry)
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


def _load_sequences(db: Connection, registry: SubscriptionRegistry) -> None:
    """Loads half matches, candidates and counts of living sequences."""
    found = registry.sequences
    for monitor in sequences.monitors(db):
        live = found.get(monitor.number)
        if live is not None:
            live.awaiting, live.position = monitor.awaiting, monitor.position
            live.late, live.dropped = monitor.late, monitor.dropped
            if monitor.awaiting:
                registry.delayed.add(monitor.number)
    for number, key, half in sequences.half_matches(db):
        registry.arrivals = max(registry.arrivals, *(one.payload.serial for one in half))
        if number in found:
            found[number].halves[key] = half
    for number, waiting in sequences.waiting(db):
        registry.arrivals = max(registry.arrivals, waiting.serial)
        if number in found:
            found[number].waiting[waiting.serial] = waiting
