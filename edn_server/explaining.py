"""What an event would be to this server: which subscriptions it would match, and by which clauses.

It is asked of the matcher that the stream uses, with the same intervals and expiries, so that an explanation
never differs from what would happen. Only the writer's thread may look at these.
"""

from __future__ import annotations

import numpy as np

from edn import wire
from edn.errors import CorruptMessage
from edn.filter.reasons import reasons
from edn_server.hosting import NEVER, Hosting


def explain(hosting: Hosting, question: wire.Explain) -> wire.Explained:
    topic, log = hosting.topics.get(question.topic), hosting.logs.get(question.log)
    if topic is None or log is None:
        return wire.Explained(0, [])
    if len(question.point) % 8:
        raise CorruptMessage("a point is made of doubles")
    point = np.frombuffer(question.point, dtype="<f8").reshape(1, -1)
    _, entries = topic.matcher.match(topic.fit(point, 1))
    numbers = np.unique(topic.number[entries])
    active = (log.since[numbers] != NEVER) & (log.until[numbers] == NEVER)
    active &= question.time < log.expires[numbers]
    matched = 0
    named: list[wire.Explanation] = []
    # A rectangle that only covers is no match yet: the predicate decides, for all of them alike.
    for number in numbers[active].tolist():
        version, bound = hosting.versions[number], hosting.bound(number)
        values = topic.schema(version.width).values(question.line)
        matches = bound.matches(values)
        matched += matches
        if len(named) < question.limit:
            paused = version.id in hosting.paused
            named.append(wire.Explanation(version.id, matches, reasons(bound, values), paused))
    return wire.Explained(matched, named)
