"""How much a cut lets through: hit ratios of all ways to cut, over precisions, workloads and placements.

The hit ratio is events forwarded ÷ (events published × servers); the lower the better, and that of the
precise summary is the best there is. Ten servers share the subscriptions, either at random or *clustered*:
neighbours in one hierarchy over all of them share a server, as a good placement would have it. All ways are
asked about the same events; `weighted` has seen others of the same distribution.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from edn.bench.workloads import Floats, Workload, market, uniform, zipf, zipf_both
from edn.summary import Maximal, Summary, new_router, tree
from edn.summary.measure import unit_rects

WAYS = ("level", "waste", "weighted")
PRECISIONS = (0.1, 0.25, 0.5, 1.0)
#: events that a weighted cut has seen: as many as a routing table remembers
SEEN = 2048


class CutQuality(msgspec.Struct, frozen=True):
    """One line of the table."""

    workload: str
    placement: str
    #: maximal rectangles a server, on average
    maximal: float
    way: str
    #: hit ratio by precision
    hit_ratio: dict[float, float]


def workloads() -> list[Workload]:
    return [uniform(4), uniform(8), zipf(4, 0.5), zipf(4, 1.0), zipf_both(4, 1.0), market()]


def cut_quality(
    workload: Workload,
    *,
    servers: int = 10,
    subscriptions: int = 10_000,
    events: int = 10_000,
    clustered: bool = False,
    precisions: Iterable[float] = PRECISIONS,
    seed: int = 1,
) -> list[CutQuality]:
    """Hit ratios of every way to cut; `subscriptions` are those of one server."""
    rng = np.random.default_rng(seed)
    lo, hi = workload.rectangles(rng, servers * subscriptions)
    points, seen = workload.points(rng, events), workload.points(rng, SEEN)
    order = neighbourhood(lo, hi) if clustered else np.arange(len(lo))
    summaries = [_summary(lo[part], hi[part]) for part in np.array_split(order, servers)]
    placement = "clustered" if clustered else "random"
    maximal = float(np.mean([summary.count for summary in summaries]))
    return [
        CutQuality(
            workload.name,
            placement,
            maximal,
            way,
            {
                p: float(np.mean([_hits(summary, p, way, points, seen) for summary in summaries]))
                for p in precisions
            },
        )
        for way in WAYS
    ]


def neighbourhood(lo: Floats, hi: Floats) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Rectangles in the order in which a walk through one hierarchy over all of them meets them."""
    n = len(lo)
    a, b = unit_rects(lo, hi)
    children = tree.grow_tree(a, b, 1024)
    order: list[int] = []
    waiting = [2 * n - 2]
    while waiting:
        node = waiting.pop()
        if node < n:
            order.append(node)
        else:
            waiting += children[node - n].tolist()
    return np.array(order)


def _summary(lo: Floats, hi: Floats) -> Summary:
    maximal = Maximal(lo.shape[1])
    maximal.insert(range(len(lo)), lo, hi)
    return Summary.build(*maximal.rects())


def _hits(summary: Summary, precision: float, way: str, points: Floats, seen: Floats) -> float:
    k = max(1, int(np.ceil(precision * summary.count - 1e-9)))
    if way == "level":
        cut = summary.cut(k, by="level")
    else:
        cut = summary.cut(k, weights=seen if way == "weighted" else None)
    out = np.zeros((len(points), 1), dtype=np.bool_)
    router = new_router("bitmap")
    router.bundle([(0, router.cover(*cut))]).mark(points, out)
    return float(out.mean())


app = typer.Typer(add_completion=False)


@app.command()
def cuts(
    subscriptions: Annotated[int, typer.Option(help="Subscriptions a server.")] = 10_000,
    servers: Annotated[int, typer.Option(help="Servers that share them.")] = 10,
    events: Annotated[int, typer.Option(help="Events that are asked about.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Another seed draws everything anew.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Hit ratios of all ways to cut a summary."""
    console = Console()
    rows: list[CutQuality] = []
    chosen = [(workload, clustered) for workload in workloads() for clustered in (False, True)]
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for workload, clustered in progress.track(chosen, description="cutting"):
            rows += cut_quality(
                workload,
                servers=servers,
                subscriptions=subscriptions,
                events=events,
                clustered=clustered,
                seed=seed,
            )
    if as_json:
        console.print_json(msgspec.json.encode(rows).decode())
        return
    table = Table("workload", "placement", "maximal", "cut by", *(f"{p:g}" for p in PRECISIONS))
    for row in rows:
        ratios = (f"{ratio:.4f}" for ratio in row.hit_ratio.values())
        table.add_row(row.workload, row.placement, f"{row.maximal:.0f}", row.way, *ratios)
    console.print(table)


if __name__ == "__main__":
    app()
