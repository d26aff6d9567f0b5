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
from edn.model.sequence import UNLESS
from edn_server.storage.versions import NEVER
from edn_server.subscriptions.registry import SubscriptionRegistry
from edn_server.subscriptions.sequences import NO_KEY, LiveSequence


@dataclass(frozen=True, slots=True)
class Candidate:
    """A subscription whose rectangle contains the event, with its filter."""

    id: str
    bound: BoundFilter
    schema: Schema
    paused: bool


@dataclass(frozen=True, slots=True)
class SequenceCandidate:
    """A sequence with rectangles that contain the event, and the filters of these roles."""

    id: str
    live: LiveSequence
    roles: list[tuple[int, BoundFilter]]
    schema: Schema
    paused: bool


def candidates(
    registry: SubscriptionRegistry, question: protocol.Explain
) -> list[Candidate | SequenceCandidate]:
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
    found: list[Candidate | SequenceCandidate] = []
    for number in numbers[active].tolist():
        version = registry.versions[number]
        paused = version.id in registry.paused
        live = registry.sequences.get(number)
        if live is not None and topic.role is not None:
            roles = np.unique(topic.role[entries[topic.number[entries] == number]]).tolist()
            bound = [(role, registry.bound_role(number, role)) for role in roles]
            schema = topic.schema(live.widths[topic.uid])
            found.append(SequenceCandidate(version.id, live, bound, schema, paused))
            continue
        found.append(Candidate(version.id, registry.bound(number), topic.schema(version.width), paused))
    return found


def explain(found: Sequence[Candidate | SequenceCandidate], question: protocol.Explain) -> protocol.Explained:
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
        if isinstance(one, SequenceCandidate):
            explanation = _explain_sequence(one, values)
            matched += explanation.matches
            if len(named) < question.limit:
                named.append(explanation)
            continue
        matches = one.bound.matches(values)
        matched += matches
        if len(named) < question.limit:
            named.append(protocol.Explanation(one.id, matches, reasons(one.bound, values), one.paused))
    return protocol.Explained(matched, named)


def _explain_sequence(one: SequenceCandidate, values: dict[str, Value]) -> protocol.Explanation:
    holding = [(role, bound) for role, bound in one.roles if bound.matches(values)]
    clauses = [clause for _, bound in holding for clause in reasons(bound, values)]
    step = _effect(one.live, {role for role, _ in holding}, values) if holding else ""
    return protocol.Explanation(one.id, bool(holding), clauses, one.paused, step)


def _effect(live: LiveSequence, roles: set[int], values: dict[str, Value]) -> str:
    """Says what an event would do if it came now, later than all events taken."""
    key = live.key_of(values) if live.sequence.by else NO_KEY
    if key is None:
        return "takes no part: an attribute of `by` is missing"
    awaited = live.plan.slots[len(live.halves.get(key, ()))]
    if awaited in roles:
        return f"would fill step {awaited + 1}"
    if live.halves.get(key) and UNLESS + awaited in roles:
        return f"would end the half match that waits for step {awaited + 1}"
    return f"would be ignored: the monitor waits for step {awaited + 1}"
