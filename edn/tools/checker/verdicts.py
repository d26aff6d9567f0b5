"""Findings of a check, as data for programs and as text for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import msgspec


class Verdict(StrEnum):
    HOLDS = "holds"
    VIOLATED = "violated"
    UNKNOWN = "unknown"


class Fault(StrEnum):
    """The ways in which a promise is broken."""

    #: an event that had to be notified was not
    MISSING = "missing"
    #: a notification that no order of the operations allows
    UNEXPECTED = "unexpected"
    #: one (subscription, event) pair under two webhook-ids, or twice in one POST
    DUPLICATE = "duplicate"
    #: a notification does not say what was published, or a webhook-id was used for two contents
    ALTERED = "altered"
    #: it came after the network was said to be at rest, or later than the bound
    LATE = "late"
    #: a subscription was refused as unknown although it surely lived
    ENDED = "ended"
    #: a subscription was accepted as known although it surely was gone
    REVIVED = "revived"
    #: events of one publisher, published one after the other, arrived the other way round
    OUT_OF_ORDER = "out_of_order"


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One proof that the promise was broken."""

    fault: Fault
    #: one sentence
    reason: str
    subscription: str | None = None
    topic: str | None = None
    event: str | None = None
    #: the attributes that were published
    attributes: dict[str, Any] | None = None
    #: what happened, in the order of time, and the lines of the recording that say so
    story: list[str] = []


class Counts(msgspec.Struct):
    operations: int = 0
    subscriptions: int = 0
    events: int = 0
    posts: int = 0
    #: (subscription, event) pairs that were notified, repeats not counted
    notified: int = 0
    #: pairs that had to be notified
    due: int = 0
    #: pairs that were notified and, for all that an observer knows, might as well not have been
    optional: int = 0
    #: notified pairs that came again under the same webhook-id, which is permitted
    repeats: int = 0


class Report(msgspec.Struct, kw_only=True):
    verdict: Verdict = Verdict.UNKNOWN
    counts: Counts
    #: how many violations of each kind there are; those that only inform are among them
    faults: dict[str, int] = {}
    #: faults that did not decide the verdict because nobody asked for them
    informative: list[str] = []
    #: the first of each kind, explained
    violations: list[Violation] = []
    #: why something could not be decided, and for how many pairs
    undecided: dict[str, int] = {}

    def text(self) -> str:
        """For people."""
        counts = self.counts
        lines = [
            f"verdict: {self.verdict}",
            f"  {counts.operations} operations: {counts.subscriptions} subscriptions, {counts.events} events;"
            f" {counts.posts} POSTs",
            f"  {counts.due} pairs were due, {counts.notified} were notified"
            f" ({counts.optional} of them optional), {counts.repeats} repeated under their webhook-id",
        ]
        for fault in Fault:
            note = " (reported only)" if fault in self.informative else ""
            lines.append(f"  {fault.replace('_', ' ')}: {self.faults.get(fault, 0)}{note}")
        for reason, count in self.undecided.items():
            lines.append(f"  undecided: {reason}" + (f" ({count})" if count else ""))
        for violation in self.violations:
            lines.append("")
            lines.append(f"{violation.fault.replace('_', ' ')}: {violation.reason}")
            lines.extend(f"    {part}" for part in violation.story)
        shown = len(self.violations)
        if sum(self.faults.values()) > shown:
            lines += ["", f"… and {sum(self.faults.values()) - shown} more"]
        return "\n".join(lines)


class Findings:
    """Collects faults: counts all, explains the first of each kind, because explaining costs time."""

    def __init__(self, explained: int) -> None:
        self._explained = explained
        self.faults: dict[str, int] = {}
        self.violations: list[Violation] = []
        self.undecided: dict[str, int] = {}

    def add(self, fault: Fault, items: Sequence[Any], explain: Callable[[Any], Violation]) -> None:
        """One violation an item; `explain` is asked only for those that are shown."""
        before = self.faults.get(fault, 0)
        if len(items):
            self.faults[fault] = before + len(items)
        self.violations += [explain(item) for item in items[: max(0, self._explained - before)]]

    def leave_open(self, reason: str, count: int = 0) -> None:
        self.undecided[reason] = self.undecided.get(reason, 0) + count
