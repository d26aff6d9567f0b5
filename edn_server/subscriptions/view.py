"""Reads the registry from other threads.

The writer's thread changes the registry without locks. Each method reads one dictionary, list or array entry
at a time, or copies a dictionary's values at once, so a reader gets the old or the new value, never a
mixture.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edn.formats.webhooks import KeyRing
from edn.model.namespace import subscription_of
from edn.runtime.ownership import owned
from edn_server.policies import UsageLimits
from edn_server.storage.versions import StoredSink
from edn_server.subscriptions.counters import VersionCounters
from edn_server.subscriptions.registry import LiveVersion, SubscriptionRegistry
from edn_server.subscriptions.sequences import LiveSequence
from edn_server.subscriptions.topic_index import Topic


@owned("any")
class RegistryView:
    """A read-only view of the registry for any thread."""

    def __init__(self, registry: SubscriptionRegistry) -> None:
        self._registry = registry

    @property
    def limits(self) -> UsageLimits:
        return self._registry.limits

    @property
    def counters(self) -> VersionCounters:
        """The counters of versions, which have their own lock."""
        return self._registry.counters

    @property
    def fragments(self) -> Sequence[bytes | None]:
        """The JSON of a match by version number; it stays while an outbox row names the number."""
        return self._registry.fragments

    def subscriptions(self) -> int:
        return len(self._registry.numbers)

    def paused_subscriptions(self) -> int:
        return len(self._registry.paused)

    def topics(self) -> list[Topic]:
        """Returns the topics that have versions, or recently had."""
        return list(self._registry.topics.values())

    def topic(self, uid: int) -> Topic | None:
        return self._registry.topics.get(uid)

    def cursors(self) -> dict[str, int]:
        """Returns the cursor of each log."""
        logs = list(self._registry.logs.values())
        return {log.name: log.cursor for log in logs if log.cursor is not None}

    def unjoined_logs(self) -> list[str]:
        """Returns the logs in use whose join record is not applied yet."""
        logs = list(self._registry.logs.values())
        return [log.name for log in logs if log.joined is None and not log.retired]

    def ring(self, id: str) -> KeyRing | None:
        return self._registry.rings.get(id)

    def sink(self, settings: str) -> StoredSink | None:
        """Returns the settings of a sink by their id."""
        return self._registry.sinks.get(settings)

    def version(self, number: int) -> LiveVersion | None:
        return self._registry.versions.get(number)

    def sequence(self, number: int) -> LiveSequence | None:
        """Returns the sequence of a version, if it is one."""
        return self._registry.sequences.get(number)

    def fragment(self, number: int) -> bytes:
        return self._registry.fragments[number] or b"{}"

    def members_of(self, subscription: str) -> list[str]:
        """Returns the members of a subtree subscription on this server, or a plain subscription itself."""
        return self._registry.members_of(subscription)

    def newest(self, subscription: str) -> int | None:
        """Returns the number of the newest version of a subscription or member."""
        numbers = self._registry.numbers.get(subscription, ())
        return numbers[-1] if numbers else None

    def address(self, number: int) -> str:
        return self._registry.addresses[int(self._registry.address[number])]

    def is_here(self, subscription: str) -> bool:
        return subscription in self._registry.numbers

    def has_migrated(self, subscription: str) -> bool:
        """Returns whether a subscription has migrated to another server since the start."""
        return subscription in self._registry.migrated

    def is_paused(self, subscription: str) -> bool:
        """Returns whether a subscription, or one of its members, is paused."""
        return any(member in self._registry.paused for member in self.members_of(subscription))

    def is_named(self, numbers: np.ndarray[tuple[int], np.dtype[np.int32]]) -> bool:
        """Returns whether any of these versions lives, on this server or, after a migration, on another."""
        registry = self._registry
        return bool(np.any(registry.living[numbers])) or not registry.moved.isdisjoint(numbers.tolist())

    def subscriptions_at(self, address: str) -> list[str]:
        """Returns the living subscriptions at an address."""
        registry = self._registry
        places = [place for place, known in enumerate(registry.addresses) if known == address]
        numbers = np.flatnonzero(registry.living & np.isin(registry.address, places)).tolist()
        found = (registry.versions.get(number) for number in numbers)
        return list(dict.fromkeys(subscription_of(version.id) for version in found if version is not None))

    def pop_ended_addresses(self) -> set[str]:
        """Removes and returns the addresses of versions that ended since the last call."""
        ended = self._registry.ended_addresses
        return {ended.popleft() for _ in range(len(ended))}
