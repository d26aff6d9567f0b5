"""A sequence in memory: its filters by role, its half matches, and candidates that wait.

Only the writer's thread changes it; other threads may read the sizes and the oldest half match.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from edn.model.coordinates import Value
from edn.model.filter import BoundFilter, Filter
from edn.model.sequence import HalfMatch, Plan, Sequence
from edn.model.sequence import decode as decode_sequence
from edn_server.storage.sequences.rows import Arrived, Waiting

#: most half matches of a subscription
MAX_HALVES = 10_000
#: the key without `by`
NO_KEY = b""
_PREFIX = '{"$sequence":'


def is_stored_sequence(filter: str) -> bool:
    """Returns whether the stored text of a version's filter is a sequence."""
    return filter.startswith(_PREFIX)


@dataclass(slots=True)
class LiveSequence:
    sequence: Sequence
    #: topic uid → width that its filters are bound to, and entries in its matcher
    widths: dict[int, int]
    entries: dict[int, list[int]]
    #: whether half matches of another server are still to come; until then candidates wait
    awaiting: bool = False
    #: rows of them that have arrived
    position: int = 0
    #: by key of `by`, the oldest first
    halves: dict[bytes, HalfMatch[Arrived]] = field(default_factory=dict)
    #: in the order of arrival
    waiting: dict[int, Waiting] = field(default_factory=dict)
    #: candidates that came later than `settle`, and half matches that were dropped at the limit
    late: int = 0
    dropped: int = 0
    plan: Plan = field(init=False)
    #: whether a candidate that the awaited step does not want has no effect, and need not be kept
    is_plain: bool = field(init=False)
    _bound: dict[int, BoundFilter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plan = self.sequence.plan
        self.is_plain = not self.sequence.settle and self.sequence.within is None

    def bound(self, role: int, schema_of: Any) -> BoundFilter:
        """Returns the predicate of a role; `schema_of(topic, width)` returns the schema of a topic."""
        if role not in self._bound:
            part = dict(self.sequence.roles)[role]
            schema = schema_of(part.topic, self.widths[part.topic])
            self._bound[role] = Filter.parse(part.filter).bind(schema)
        return self._bound[role]

    def key_of(self, values: Mapping[str, Value]) -> bytes | None:
        """Returns the key of an event; None if it lacks an attribute of `by`."""
        try:
            return msgspec.msgpack.encode([values[name] for name in self.sequence.by])
        except KeyError:
            return None

    def state(self) -> tuple[int, HalfMatch[Arrived]]:
        """Returns the number of half matches and the oldest one; any thread may call it."""
        halves = list(self.halves.values())
        return len(halves), halves[0] if halves else ()


def live_sequence(filter: str) -> Sequence:
    """Returns the sequence of a version's stored filter."""
    return decode_sequence(msgspec.json.decode(filter))
