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
from edn_server.subscriptions.counters import Tally
from edn_server.subscriptions.registry import Hosting, Version
from edn_server.subscriptions.topic_index import Topic


@owned("any")
class RegistryView:
    """Any thread may call it; it changes nothing."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting

    @property
    def limits(self) -> UsageLimits:
        """The bytes that tenants may occupy."""
        return self._hosting.limits

    @property
    def counters(self) -> Tally:
        """The counters of versions, which have a lock of their own."""
        return self._hosting.tally

    @property
    def fragments(self) -> Sequence[bytes | None]:
        """The JSON of a match by version number; it stays while a row of the outbox names the number."""
        return self._hosting.fragments

    def subscriptions(self) -> int:
        """Return how many subscriptions there are."""
        return len(self._hosting.numbers)

    def paused_subscriptions(self) -> int:
        """Return how many subscriptions are paused."""
        return len(self._hosting.paused)

    def topics(self) -> list[Topic]:
        """Return the topics that have versions, or had lately."""
        return list(self._hosting.topics.values())

    def topic(self, uid: int) -> Topic | None:
        """Return a topic."""
        return self._hosting.topics.get(uid)

    def cursors(self) -> dict[str, int]:
        """Return up to where each log is applied."""
        logs = list(self._hosting.logs.values())
        return {log.name: log.cursor for log in logs if log.cursor is not None}

    def unjoined_logs(self) -> list[str]:
        """Return the logs in use whose join record was not read yet."""
        logs = list(self._hosting.logs.values())
        return [log.name for log in logs if log.joined is None and not log.retired]

    def ring(self, id: str) -> KeyRing | None:
        """Return a key ring."""
        return self._hosting.rings.get(id)

    def version(self, number: int) -> Version | None:
        """Return a living version."""
        return self._hosting.versions.get(number)

    def fragment(self, number: int) -> bytes:
        """Return the JSON of a match of a version."""
        return self._hosting.fragments[number] or b"{}"

    def parts(self, subscription: str) -> list[str]:
        """Return a subscription, or its members here; nothing if it is not here."""
        return self._hosting.parts(subscription)

    def newest(self, subscription: str) -> int | None:
        """Return the number of the newest version of a subscription, or of a member."""
        numbers = self._hosting.numbers.get(subscription, ())
        return numbers[-1] if numbers else None

    def address(self, number: int) -> str:
        """Return the address of a version."""
        return self._hosting.addresses[int(self._hosting.address[number])]

    def is_here(self, subscription: str) -> bool:
        """Return whether a subscription has versions here."""
        return subscription in self._hosting.numbers

    def is_elsewhere(self, subscription: str) -> bool:
        """Return whether a subscription has moved to another server since the start."""
        return subscription in self._hosting.elsewhere

    def is_paused(self, subscription: str) -> bool:
        """Return whether a subscription, or a member of it, is paused."""
        return any(part in self._hosting.paused for part in self.parts(subscription))

    def is_named(self, numbers: np.ndarray[tuple[int], np.dtype[np.int32]]) -> bool:
        """Return whether any of these versions lives, here or, having moved, elsewhere."""
        hosting = self._hosting
        return bool(np.any(hosting.living[numbers])) or not hosting.moved.isdisjoint(numbers.tolist())

    def subscriptions_at(self, address: str) -> list[str]:
        """Return the living subscriptions at an address."""
        hosting = self._hosting
        places = [place for place, known in enumerate(hosting.addresses) if known == address]
        numbers = np.flatnonzero(hosting.living & np.isin(hosting.address, places)).tolist()
        found = (hosting.versions.get(number) for number in numbers)
        return list(dict.fromkeys(subscription_of(version.id) for version in found if version is not None))

    def take_left_addresses(self) -> set[str]:
        """Take the addresses of versions that ended since the last call: rows may wait there for nobody."""
        left = self._hosting.left
        return {left.popleft() for _ in range(len(left))}
