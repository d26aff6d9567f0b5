"""Explains which subscriptions of this server an event would match, and by which clauses.

It is asked of the matcher that the stream uses, with the same intervals and expiries, so that an explanation
never differs from what would happen. Only the writer's thread may look at these; the filters are asked in
another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edn import protocol
from edn.errors import CorruptMessage
from edn.model.coordinates import Key
from edn.model.filter import BoundFilter
from edn.model.filter.reasons import reasons
from edn.model.schema import Schema
from edn_server.storage.versions import NEVER
from edn_server.subscriptions.registry import SubscriptionRegistry


@dataclass(frozen=True, slots=True)
class Candidate:
    """A subscription whose rectangle holds the event, and all that is needed to ask its filter."""

    id: str
    bound: BoundFilter
    schema: Schema
    paused: bool


def candidates(registry: SubscriptionRegistry, question: protocol.Explain) -> list[Candidate]:
    """Find the subscriptions whose filters must be asked; in the writer's thread."""
    topic, log = registry.topics.get(question.topic), registry.logs.get(question.log)
    if topic is None or log is None:
        return []
    if len(question.point) % 8:
        raise CorruptMessage("a point is made of doubles")
    point = np.frombuffer(question.point, dtype="<f8").reshape(1, -1)
    _, entries = topic.match(point, 1)
    numbers = np.unique(topic.number[entries])
    active = (log.since[numbers] != NEVER) & (log.until[numbers] == NEVER)
    active &= question.time < log.expires[numbers]
    found = []
    for number in numbers[active].tolist():
        version = registry.versions[number]
        paused = version.id in registry.paused
        found.append(Candidate(version.id, registry.bound(number), topic.schema(version.width), paused))
    return found


def explain(found: Sequence[Candidate], question: protocol.Explain) -> protocol.Explained:
    """Ask them; any thread, because filters may take long."""
    matched = 0
    named: list[protocol.Explanation] = []
    decoded: dict[int, dict[str, Key]] = {}
    # A rectangle that only covers is no match yet: the predicate decides, for all of them alike.
    for one in found:
        values = decoded.get(id(one.schema))
        if values is None:
            values = decoded[id(one.schema)] = one.schema.values(question.line)
        matches = one.bound.matches(values)
        matched += matches
        if len(named) < question.limit:
            named.append(protocol.Explanation(one.id, matches, reasons(one.bound, values), one.paused))
    return protocol.Explained(matched, named)
