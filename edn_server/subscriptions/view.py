"""The registry as other threads may read it.

The writer's thread changes the registry without locks. Each method here reads one dictionary, list or array
entry at a time, or copies a dictionary's values at once, so a reader gets an old or a new value and never
half of each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edn.formats.webhooks import KeyRing
from edn.model.namespace import subscription_of
from edn.runtime.ownership import owned
from edn_server.policies import UsageLimits
from edn_server.subscriptions.counters import VersionCounters
from edn_server.subscriptions.registry import LiveVersion, SubscriptionRegistry
from edn_server.subscriptions.topic_index import Topic


@owned("any")
class RegistryView:
    """Any thread may call it; it changes nothing."""

    def __init__(self, registry: SubscriptionRegistry) -> None:
        self._registry = registry

    @property
    def limits(self) -> UsageLimits:
        """The bytes that tenants may occupy."""
        return self._registry.limits

    @property
    def counters(self) -> VersionCounters:
        """The counters of versions, which have a lock of their own."""
        return self._registry.tally

    @property
    def fragments(self) -> Sequence[bytes | None]:
        """The JSON of a match by version number; it stays while a row of the outbox names the number."""
        return self._registry.fragments

    def subscriptions(self) -> int:
        """Return how many subscriptions there are."""
        return len(self._registry.numbers)

    def paused_subscriptions(self) -> int:
        """Return how many subscriptions are paused."""
        return len(self._registry.paused)

    def topics(self) -> list[Topic]:
        """Return the topics that have versions, or had lately."""
        return list(self._registry.topics.values())

    def topic(self, uid: int) -> Topic | None:
        """Return a topic."""
        return self._registry.topics.get(uid)

    def cursors(self) -> dict[str, int]:
        """Return up to where each log is applied."""
        logs = list(self._registry.logs.values())
        return {log.name: log.cursor for log in logs if log.cursor is not None}

    def unjoined_logs(self) -> list[str]:
        """Return the logs in use whose join record was not read yet."""
        logs = list(self._registry.logs.values())
        return [log.name for log in logs if log.joined is None and not log.retired]

    def ring(self, id: str) -> KeyRing | None:
        """Return a key ring."""
        return self._registry.rings.get(id)

    def version(self, number: int) -> LiveVersion | None:
        """Return a living version."""
        return self._registry.versions.get(number)

    def fragment(self, number: int) -> bytes:
        """Return the JSON of a match of a version."""
        return self._registry.fragments[number] or b"{}"

    def parts(self, subscription: str) -> list[str]:
        """Return a subscription, or its members here; nothing if it is not here."""
        return self._registry.parts(subscription)

    def newest(self, subscription: str) -> int | None:
        """Return the number of the newest version of a subscription, or of a member."""
        numbers = self._registry.numbers.get(subscription, ())
        return numbers[-1] if numbers else None

    def address(self, number: int) -> str:
        """Return the address of a version."""
        return self._registry.addresses[int(self._registry.address[number])]

    def is_here(self, subscription: str) -> bool:
        """Return whether a subscription has versions here."""
        return subscription in self._registry.numbers

    def is_elsewhere(self, subscription: str) -> bool:
        """Return whether a subscription has moved to another server since the start."""
        return subscription in self._registry.elsewhere

    def is_paused(self, subscription: str) -> bool:
        """Return whether a subscription, or a member of it, is paused."""
        return any(part in self._registry.paused for part in self.parts(subscription))

    def is_named(self, numbers: np.ndarray[tuple[int], np.dtype[np.int32]]) -> bool:
        """Return whether any of these versions lives, here or, having moved, elsewhere."""
        registry = self._registry
        return bool(np.any(registry.living[numbers])) or not registry.moved.isdisjoint(numbers.tolist())

    def subscriptions_at(self, address: str) -> list[str]:
        """Return the living subscriptions at an address."""
        registry = self._registry
        places = [place for place, known in enumerate(registry.addresses) if known == address]
        numbers = np.flatnonzero(registry.living & np.isin(registry.address, places)).tolist()
        found = (registry.versions.get(number) for number in numbers)
        return list(dict.fromkeys(subscription_of(version.id) for version in found if version is not None))

    def take_left_addresses(self) -> set[str]:
        """Take the addresses of versions that ended since the last call: rows may wait there for nobody."""
        left = self._registry.left
        return {left.popleft() for _ in range(len(left))}
