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
    """Kinds of violations."""

    #: a due notification did not arrive
    MISSING = "missing"
    #: a notification that no order of the operations allows
    UNEXPECTED = "unexpected"
    #: one (subscription, event) pair under two webhook-ids, or twice in one POST
    DUPLICATE = "duplicate"
    #: a notification differs from the published event, or a webhook-id has two contents
    ALTERED = "altered"
    #: a notification after the network was declared at rest, or later than the bound
    LATE = "late"
    #: a subscription was refused as unknown although it certainly existed
    ENDED = "ended"
    #: a subscription was accepted as known although it certainly had ended
    REVIVED = "revived"
    #: an event was accepted that no order of the calls lets its publisher have advertised
    UNADVERTISED = "unadvertised"
    #: an event was refused or dropped as unadvertised although an advertisement certainly covered it
    REFUSED = "refused"
    #: events of one publisher arrived in another order than published
    OUT_OF_ORDER = "out_of_order"


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One violation."""

    fault: Fault
    #: one sentence
    reason: str
    subscription: str | None = None
    topic: str | None = None
    event: str | None = None
    #: the attributes that were published
    attributes: dict[str, Any] | None = None
    #: the events of the recording in the order of time, with their lines
    story: list[str] = []


class Counts(msgspec.Struct):
    operations: int = 0
    subscriptions: int = 0
    events: int = 0
    posts: int = 0
    #: (subscription, event) pairs that were notified, repeats not counted
    notified: int = 0
    #: pairs that must be notified
    due: int = 0
    #: pairs that were notified and, as far as an observer knows, need not have been
    optional: int = 0
    #: notified pairs repeated under the same webhook-id, which is permitted
    repeats: int = 0
    #: events whose acceptance or refusal depended on advertisements
    guarded: int = 0
    #: complete sequences that were notified, and that must be
    sequences: int = 0
    sequences_due: int = 0
    #: keys of sequences whose events no observer can bring into an order
    sequences_open: int = 0


class Report(msgspec.Struct, kw_only=True):
    verdict: Verdict = Verdict.UNKNOWN
    counts: Counts
    #: number of violations per kind, including the informative ones
    faults: dict[str, int] = {}
    #: kinds that do not affect the verdict
    informative: list[str] = []
    #: the first of each kind, explained
    violations: list[Violation] = []
    #: reasons why something could not be decided, and the number of pairs
    undecided: dict[str, int] = {}

    def text(self) -> str:
        """Formats the report."""
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
    """Collects faults: counts all, and explains the first of each kind, because explaining is slow."""

    def __init__(self, explained: int) -> None:
        self._explained = explained
        self.faults: dict[str, int] = {}
        self.violations: list[Violation] = []
        self.undecided: dict[str, int] = {}

    def add(self, fault: Fault, items: Sequence[Any], explain: Callable[[Any], Violation]) -> None:
        """Adds one violation per item; `explain` is called only for those that are shown."""
        before = self.faults.get(fault, 0)
        if len(items):
            self.faults[fault] = before + len(items)
        self.violations += [explain(item) for item in items[: max(0, self._explained - before)]]

    def leave_open(self, reason: str, count: int = 0) -> None:
        self.undecided[reason] = self.undecided.get(reason, 0) + count
