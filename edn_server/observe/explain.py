"""Explains which subscriptions of this server an event would match, and by which clauses.

It uses the same matcher, intervals and expiries as a frame, so an explanation never differs from a real
match. Only the writer's thread reads these; the filters are evaluated in another thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edn import protocol
from edn.errors import CorruptMessage
from edn.model.coordinates import Value
from edn.model.filter import BoundFilter
from edn.model.filter.reasons import reasons
from edn.model.schema import Schema
from edn_server.storage.versions import NEVER
from edn_server.subscriptions.registry import SubscriptionRegistry


@dataclass(frozen=True, slots=True)
class Candidate:
    """A subscription whose rectangle contains the event, with its filter."""

    id: str
    bound: BoundFilter
    schema: Schema
    paused: bool


def candidates(registry: SubscriptionRegistry, question: protocol.Explain) -> list[Candidate]:
    """Finds the subscriptions whose rectangles contain the event; in the writer's thread."""
    topic, log = registry.topics.get(question.topic), registry.logs.get(question.log)
    if topic is None or log is None:
        return []
    if len(question.point) % 8:
        raise CorruptMessage(f"length of a point must be a multiple of 8, got {len(question.point)}")
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
    """Evaluates the filters; in any thread, because they may be slow."""
    matched = 0
    point = np.frombuffer(question.point, dtype="<f8").tolist()
    named: list[protocol.Explanation] = []
    decoded: dict[int, dict[str, Value]] = {}
    # A rectangle may be only a cover, so the predicate decides for all candidates.
    for one in found:
        values = decoded.get(id(one.schema))
        if values is None:
            values = decoded[id(one.schema)] = one.schema.values(question.line, point)
        matches = one.bound.matches(values)
        matched += matches
        if len(named) < question.limit:
            named.append(protocol.Explanation(one.id, matches, reasons(one.bound, values), one.paused))
    return protocol.Explained(matched, named)
