"""Prints the results of the benchmark."""

from __future__ import annotations

from rich.console import Console

from edn.tools.bench.delivery.results import Outcome
from edn.tools.bench.report import print_rows, print_table
from edn.tools.console import show_json

#: cores that other programs may use before the figures are doubted
MOST_FOREIGN = 0.2

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
    ("load", "{r.load}"),
    ("CPU µs/POST", "{r.cpu_us_per_post:.1f}"),
    ("POSTs/s", "{r.posts_per_second:,.0f}"),
)
_FAIRNESS = (
    ("addresses", "{r.addresses:,}"),
    ("healthy, slow, dead", "{r.healthy}, {r.slow}, {r.dead}"),
    ("system", "{r.system}"),
    ("p50 / p99 ms alone", "{r.alone_p50:.1f} / {r.alone_p99:.1f}"),
    ("beside", "{r.beside_p50:.1f} / {r.beside_p99:.1f}"),
    ("p99 ratio", "{r.p99_ratio:.2f}"),
    ("entries/s alone", "{r.alone_entries:,.0f}"),
    ("beside", "{r.beside_entries:,.0f}"),
    ("ratio", "{r.entries_ratio:.2f}"),
    ("missing, surplus", "{r.missing}, {r.surplus}"),
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
    for timeline in outcome.timelines:
        print_table(
            f"One subscriber, {timeline.load}: medians of {timeline.events} events",
            ("step", "ms since publishing"),
            [(name, f"{at:.2f}") for name, at in timeline.steps.items()],
        )
    if outcome.fairness:
        print_rows("Healthy addresses, alone and beside slow and dead ones", _FAIRNESS, outcome.fairness)
    console = Console()
    for verdict in outcome.verdicts():
        console.print(verdict)
    foreign = max((cost.foreign for cost in costs), default=0.0)
    if foreign > MOST_FOREIGN:
        console.print(
            f"other programs used up to {foreign:.1f} cores: only ratios within a round mean anything"
        )
    for failure in outcome.failures():
        console.print(failure, style="red")
