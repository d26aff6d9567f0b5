"""What a run came to: figures, requirements, and the table that is printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edn.tools.checker import Report, Verdict
from tests.chaos.clients import Figures


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a run must have done for its verdict to count."""

    kills: int
    acknowledged_events: int
    acknowledged_changes: int
    #: calls of each kind that succeeded
    kinds: Mapping[str, int] = field(default_factory=dict)
    #: faults that were carried out, in all and of each kind
    faults: int = 0
    fault_kinds: Mapping[str, int] = field(default_factory=dict)


#: a full run's, for fifteen minutes; a longer or shorter one is held to its share
FULL = Requirements(
    kills=200,
    acknowledged_events=100_000,
    acknowledged_changes=5_000,
    kinds={
        "publish": 2000,
        "subscribe": 1500,
        "unsubscribe": 1000,
        "change": 1000,
        "renew": 500,
        "pause": 500,
        "resume": 400,
        "redirect": 150,
        "move": 1000,
    },
)
FULL_MINUTES = 15.0
#: a quick run's
QUICK = Requirements(
    kills=10,
    acknowledged_events=1_000,
    acknowledged_changes=50,
    kinds={
        "publish": 50,
        "subscribe": 30,
        "unsubscribe": 10,
        "change": 10,
        "renew": 5,
        "pause": 5,
        "resume": 5,
        "redirect": 1,
        "move": 10,
    },
)
#: of the calls of a kind that no fault explains, so many must have succeeded
LEAST_SHARE = 0.8


@dataclass
class Tally:
    seed: int
    replay: str
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: by kind of the schedule, those that were carried out
    fault_kinds: Counter[str] = field(default_factory=Counter)
    connections_ended: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    deaths: Counter[str] = field(default_factory=Counter)
    #: ends of processes that lost their lease although no fault concerned them
    unexplained: Counter[str] = field(default_factory=Counter)
    #: further figures, for people
    observed: dict[str, str] = field(default_factory=dict)
    clients: Figures = field(default_factory=Figures)
    #: POSTs by temper of the sink and status
    posts: Counter[tuple[str, int]] = field(default_factory=Counter)
    #: of the operator who moves subscriptions: how often, and how many have moved
    repartitions: int = 0
    moved: int = 0
    #: bytes
    #: addresses that were disabled, and notifications that were given up: none, whatever the clocks said
    disabled: int = 0
    #: None: nobody answered
    dead_letters: int | None = 0
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
        reached["faults"] = (self.fault_kinds.total(), required.faults)
        for kind, least in required.fault_kinds.items():
            reached[f"faults, {kind}"] = (self.fault_kinds[kind], least)
        found = [f"{what}: {got} of {least}" for what, (got, least) in reached.items() if got < least]
        for kind, least in required.kinds.items():
            good, bad = self.clients.outcomes[kind, "ok"], self.clients.outcomes[kind, "fail"]
            if good < least:
                found.append(f"{kind} that succeeded: {good} of {least}")
            if good < LEAST_SHARE * (good + bad):
                found.append(
                    f"{kind} that succeeded where no fault explains a failure: {good} of {good + bad}"
                )
        return found

    @property
    def too_early(self) -> bool:
        """Whether an address was disabled, or a notification given up, before its time."""
        return bool(self.disabled) or self.dead_letters != 0

    def exit_code(self, required: Requirements) -> int:
        """0 holds; 1 violated, or it never came to rest; 3 too little is known, or was done."""
        if self.report is None or self.report.verdict == Verdict.VIOLATED or self.quiet_seconds is None:
            return 1
        if self.too_early or self.unexplained:
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
        for what, count in sorted(self.unexplained.items()):
            rows.append((f"lost its lease without a reason, {what}", str(count)))
        rows += self.observed.items()
        rows += self._calls()
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

    def _calls(self) -> list[tuple[str, str]]:
        """The calls of each kind, how many succeeded, and what became of the others."""
        kinds = dict.fromkeys(kind for kind, _ in sorted(self.clients.outcomes))
        rows = []
        for kind in kinds:
            own = {what: count for (one, what), count in self.clients.outcomes.items() if one == kind}
            others = ", ".join(f"{count} {what}" for what, count in sorted(own.items()) if what != "ok")
            said = f"{sum(own.values())} calls, {own.get('ok', 0)} succeeded"
            rows.append((kind, f"{said}; {others}" if others else said))
        return rows

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
            ("sequences due", str(counts.sequences_due)),
            ("sequences complete", str(counts.sequences)),
            ("keys of sequences without a known order", str(counts.sequences_open)),
            ("lost", str(faults.get("missing", 0))),
            ("unexpected", str(faults.get("unexpected", 0))),
            ("pairs under two webhook-ids", str(faults.get("duplicate", 0))),
            ("altered", str(faults.get("altered", 0))),
            ("late", str(faults.get("late", 0))),
            ("ended before their time", str(faults.get("ended", 0))),
            ("revived after their end", str(faults.get("revived", 0))),
            ("addresses disabled before their time", str(self.disabled)),
            ("notifications given up before their time", str(self.dead_letters)),
            ("out of order (reported only)", str(faults.get("out_of_order", 0))),
            ("verdict", str(report.verdict)),
            *[("undecided", f"{reason} ({count})") for reason, count in report.undecided.items()],
        ]
