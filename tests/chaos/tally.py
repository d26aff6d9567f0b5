"""What a run came to: figures, requirements, and the table that is printed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from edn.checker import Report, Verdict
from tests.chaos.clients import Figures


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a run must have done for its verdict to count."""

    kills: int
    acknowledged_events: int
    acknowledged_changes: int


#: a full run's, for fifteen minutes; a longer or shorter one is held to its share
FULL = Requirements(kills=200, acknowledged_events=100_000, acknowledged_changes=5_000)
FULL_MINUTES = 15.0
#: a quick run's
QUICK = Requirements(kills=10, acknowledged_events=1_000, acknowledged_changes=50)


@dataclass
class Tally:
    seed: int
    replay: str
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    connections_ended: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    deaths: Counter[str] = field(default_factory=Counter)
    clients: Figures = field(default_factory=Figures)
    #: POSTs by temper of the sink and status
    posts: Counter[tuple[str, int]] = field(default_factory=Counter)
    #: of the operator who moves subscriptions: how often, and how many have moved
    repartitions: int = 0
    moved: int = 0
    #: bytes
    largest_rss: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    quiet_seconds: float | None = None
    check_seconds: float = 0.0
    report: Report | None = None
    recording: Path | None = None

    @property
    def kills(self) -> int:
        return sum(count for (kind, _), count in self.faults.items() if kind == "kill")

    def shortfalls(self, required: Requirements) -> list[str]:
        reached = {
            "kills": (self.kills, required.kills),
            "acknowledged events": (self.clients.acknowledged_events, required.acknowledged_events),
            "acknowledged subscribe, unsubscribe and change": (
                self.clients.acknowledged_changes,
                required.acknowledged_changes,
            ),
        }
        return [f"{what}: {got} of {least}" for what, (got, least) in reached.items() if got < least]

    def exit_code(self, required: Requirements) -> int:
        """0 holds; 1 violated, or it never came to rest; 3 too little is known, or was done."""
        if self.report is None or self.report.verdict == Verdict.VIOLATED or self.quiet_seconds is None:
            return 1
        if self.report.verdict != Verdict.HOLDS or self.shortfalls(required):
            return 3
        return 0

    # -- for people -------------------------------------------------------------------------------------

    def table(self, required: Requirements) -> str:
        rows: list[tuple[str, str]] = [("seed", str(self.seed))]
        for (kind, role), count in sorted(self.faults.items()):
            rows.append((f"{kind} {role}".strip(), str(count)))
        rows.append(("connections cut or half-closed", str(self.connections_ended)))
        for what, count in sorted(self.left_out.items()):
            rows.append((f"left out: {what}", str(count)))
        for what, count in sorted(self.deaths.items()):
            rows.append((f"ended by itself, {what}", str(count)))
        for (kind, outcome), count in sorted(self.clients.outcomes.items()):
            rows.append((f"{kind} {outcome}", str(count)))
        for what, example in sorted(self.clients.surprises.items()):
            rows.append((f"surprising answer to {what}", example))
        rows.append(("acknowledged events", str(self.clients.acknowledged_events)))
        rows.append(("acknowledged changes of subscriptions", str(self.clients.acknowledged_changes)))
        rows.append(("repartitions, subscriptions moved", f"{self.repartitions}, {self.moved}"))
        for (temper, status), count in sorted(self.posts.items()):
            rows.append((f"POSTs to {temper} sinks, {status}", str(count)))
        rows += self._verdict()
        for role, size in sorted(self.largest_rss.items()):
            rows.append((f"largest RSS, {role}", f"{size / 2**20:.0f} MiB"))
        rows.append(("seconds", f"{self.seconds:.0f}, and {self.check_seconds:.0f} to check"))
        rows += [("too little", shortfall) for shortfall in self.shortfalls(required)]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)

    def _verdict(self) -> list[tuple[str, str]]:
        quiet = "never" if self.quiet_seconds is None else f"after {self.quiet_seconds:.1f} s"
        rows = [("came to rest", quiet)]
        report = self.report
        if report is None:
            return [*rows, ("verdict", "none: the recording could not be checked")]
        counts, faults = report.counts, report.faults
        return [
            *rows,
            ("pairs due", str(counts.due)),
            ("pairs notified", f"{counts.notified}, {counts.optional} of them optional"),
            ("repeats under one webhook-id", str(counts.repeats)),
            ("lost", str(faults.get("missing", 0))),
            ("unexpected", str(faults.get("unexpected", 0))),
            ("pairs under two webhook-ids", str(faults.get("duplicate", 0))),
            ("altered", str(faults.get("altered", 0))),
            ("late", str(faults.get("late", 0))),
            ("out of order (reported only)", str(faults.get("out_of_order", 0))),
            ("verdict", str(report.verdict)),
            *[("undecided", f"{reason} ({count})") for reason, count in report.undecided.items()],
        ]
