"""Runs a scenario file for `edn evaluate siena --scenario`."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from rich.table import Table

from edn.errors import InvalidInput
from edn.tools.console import show_json, show_table
from evaluation.siena import exact
from evaluation.siena.scenario import TITLES, Population, parse_scenario
from evaluation.siena.trace import Trace


def run_scenario(path: Path, seeds: int, *, json: bool = False) -> None:
    """Simulates a scenario event by event, once per seed, and prints mean costs and messages by type."""
    try:
        text = path.read_text()
    except OSError as problem:
        raise InvalidInput(f"scenario must be a readable file, got {path}: {problem.strerror}") from None
    found = parse_scenario(text)
    traces: list[Trace] = []
    for seed in range(seeds):
        network = found.network(seed)
        population = Population.draw(found.scenario, network.sites, seed)
        traces.append(exact.simulate(network, found.architecture, population).trace)
    kinds = sorted({kind for trace in traces for kind in trace.requests | trace.messages})
    rows = [
        {
            "type": kind,
            "requests": fmean(trace.requests[kind] for trace in traces),
            "messages": fmean(trace.messages[kind] for trace in traces),
            "cost": fmean(trace.cost[kind] for trace in traces),
        }
        for kind in kinds
    ]
    if json:
        show_json({"architecture": found.architecture, "seeds": seeds, "by_type": rows})
        return
    table = Table("", "requests", "messages between sites", "cost", title=TITLES[found.architecture])
    for row in rows:
        table.add_row(str(row["type"]), *(f"{row[name]:,.1f}" for name in ("requests", "messages", "cost")))
    table.add_row("all", "", "", f"{fmean(trace.total_cost for trace in traces):,.1f}")
    show_table(table)
