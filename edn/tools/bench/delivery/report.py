"""Prints the results of the benchmark."""

from __future__ import annotations

from rich.console import Console

from edn.tools.bench.delivery.results import Cost, Outcome
from edn.tools.bench.report import print_rows
from edn.tools.console import show_json

_COSTS = (
    ("addresses", "{r.addresses:,}"),
    ("load", "{r.load}"),
    ("system", "{r.system}"),
    ("p50 / p99 / p99.9 ms", "{r.p50:.1f} / {r.p99:.1f} / {r.p999:.1f}"),
    ("POSTs/s", "{r.posts_per_second:,.0f}"),
    ("entries/s", "{r.entries_per_second:,.0f}"),
    ("events/s", "{r.events_per_second:,.1f}"),
    ("CPU µs/POST (idle)", "{r.cpu_us_per_post:.0f} ({r.idle_us_per_post:.0f})"),
    ("/entry", "{r.cpu_us_per_entry:.1f}"),
    ("MB", "{r.memory_mb:,.0f}"),
    ("foreign cores", "{r.foreign:.2f}"),
    ("missing, surplus", "{r.missing}, {r.surplus}"),
)
_ROLES = (
    ("addresses", "{r.addresses:,}"),
    ("load", "{r.load}"),
    ("system", "{r.system}"),
    ("CPU µs/POST by process", lambda r: _listed(r.roles, "{:.0f}")),
    ("idle, cores", lambda r: _listed(r.idle, "{:.3f}")),
)
_FLOOR = (
    ("addresses", "{r.addresses:,}"),
    ("floor", "{r.variant}"),
    ("CPU µs/POST", "{r.cpu_us_per_post:.1f}"),
    ("POSTs/s", "{r.posts_per_second:,.0f}"),
)


def _listed(figures: dict[str, float], form: str) -> str:
    return ", ".join(f"{name} {form.format(figure)}" for name, figure in figures.items())


def show(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        show_json(outcome.to_json())
        return
    costs = sorted(outcome.costs, key=lambda cost: cost.addresses)
    title = f"Delivery to {outcome.sink} sinks, medians of {outcome.rounds} rounds"
    if costs:
        print_rows(title, _COSTS, costs)
        print_rows("CPU by process", _ROLES, costs)
    if outcome.floor:
        print_rows("The least that a POST costs", _FLOOR, outcome.floor)
    console = Console()
    for verdict in outcome.verdicts():
        console.print(verdict)
    if not outcome.is_complete:
        console.print(f"[red]notifications are missing or surplus: {', '.join(map(_wrong, costs))}[/red]")


def _wrong(cost: Cost) -> str:
    return f"{cost.system}, {cost.load}: {cost.missing} missing, {cost.surplus} surplus"
