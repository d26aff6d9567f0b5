"""Compares what arrived with what was due."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.differential.plan import Pair, Plan
from tests.network import Delivery
from tests.oracle.values import read_event


@dataclass(slots=True)
class Verdict:
    due: int
    arrived: int
    missing: set[Pair] = field(default_factory=set)
    extra: set[Pair] = field(default_factory=set)
    twice: set[Pair] = field(default_factory=set)
    #: event → the values that a notification had
    altered: dict[str, Any] = field(default_factory=dict)

    @property
    def differences(self) -> int:
        return len(self.missing) + len(self.extra) + len(self.twice) + len(self.altered)

    def line(self) -> str:
        return (
            f"{self.due} pairs due, {self.arrived} arrived: {len(self.missing)} missing, "
            f"{len(self.extra)} extra, {len(self.twice)} twice, {len(self.altered)} altered"
        )

    def explain(self, plan: Plan, most: int = 5) -> str:
        """The first differences of each kind with filter and event."""
        lines = []
        for kind, pairs in (("missing", self.missing), ("extra", self.extra), ("twice", self.twice)):
            for subscription, event in sorted(pairs)[:most]:
                asked = plan.subscriptions.get(subscription)
                topic, values = plan.events.get(event, ("?", {}))
                lines.append(f"{kind}: {subscription} × {event} of topic {topic}")
                if asked is not None:
                    lines.append(f"  topic   {asked.topic}")
                    lines.append(f"  filter  {json.dumps(asked.filter)}")
                    lines.append(f"  sent    {json.dumps(asked.sent)}")
                lines.append(f"  event   {json.dumps(values)}")
        for event, values in sorted(self.altered.items())[:most]:
            lines.append(f"altered: {event} was {plan.events.get(event)} and arrived as {values}")
        return "\n".join(lines)


def judge(plan: Plan, names: Mapping[str, str], deliveries: Iterable[Delivery]) -> Verdict:
    """`names` translates the network's event ids to those of the plan. A POST with the webhook-id of one that
    was acknowledged before is a repeat, which a sink has to expect, and does not count."""
    counts: Counter[Pair] = Counter()
    altered: dict[str, Any] = {}
    seen: set[str] = set()
    for delivery in deliveries:
        if delivery.status >= 300 or delivery.webhook_id in seen:
            continue
        seen.add(delivery.webhook_id)
        for entry in delivery.body["notifications"]:
            told = entry["event"]
            name = names.get(told["id"], f"unknown {told['id']}")
            for match in entry["matches"]:
                counts[match["subscription"], name] += 1
            if name in plan.events and not _same(plan, name, entry["topic"], told["attributes"]):
                altered[name] = told["attributes"]
    arrived = counts.keys()
    return Verdict(
        due=len(plan.due),
        arrived=sum(counts.values()),
        missing=plan.due - arrived,
        extra=set(arrived - plan.due),
        twice={pair for pair, count in counts.items() if count > 1},
        altered=altered,
    )


def _same(plan: Plan, name: str, topic: str, attributes: Mapping[str, Any]) -> bool:
    own, values = plan.events[name]
    try:
        return topic == own and read_event(attributes, plan.schemas[own]) == values
    except (KeyError, ValueError):
        return False
