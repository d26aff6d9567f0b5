"""How much a cut lets through: hit ratios of all ways to cut, over precisions, workloads and placements.

The hit ratio is events forwarded ÷ (events published × servers): the lower the better, and no cut is better
than the precise summary. Ten servers share the subscriptions, either at random or *clustered*: neighbours
in one hierarchy over all of them share a server, as a good placement would have it. All ways are asked
about the same events; `weighted` has seen others of the same distribution.
"""

from __future__ import annotations

from statistics import fmean
from typing import Annotated

import msgspec
import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from edn.bench.workloads import Floats, Workload, crowd, market, uniform, zipf, zipf_both
from edn.summary import Maximal, Summary, new_router, tree
from edn.summary.kernels import Words
from edn.summary.measure import unit_rects
from edn.summary.selection import most_selective, select

#: `split level` is how it was first published: a tree split from the top and cut at a depth. `level` cuts
#: our own hierarchy so, `waste` and `weighted` in its own order, `bloom` by waste and with masks for
#: equality
WAYS = ("split level", "level", "waste", "weighted", "bloom")
PRECISIONS = (0.1, 0.25, 0.5, 1.0)
#: events that a weighted cut has seen: as many as a routing table remembers
SEEN = 2048


class Selection(msgspec.Struct, frozen=True):
    """One line of the table of summaries over a few attributes."""

    workload: str
    placement: str
    attributes: int
    #: maximal rectangles a server, on average
    maximal: float
    hit_ratio: float


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
    return [uniform(4), uniform(8), crowd(8), zipf(4, 1.0), zipf_both(4, 1.0), market()]


def cut_quality(
    workload: Workload,
    *,
    servers: int = 10,
    subscriptions: int = 10_000,
    events: int = 10_000,
    clustered: bool = False,
    seed: int = 1,
) -> list[CutQuality]:
    """Hit ratios of every way to cut; `subscriptions` are those of one server."""
    rng = np.random.default_rng(seed)
    parts = _placed(workload, rng, servers, subscriptions, clustered)
    points, seen = workload.points(rng, events), workload.points(rng, SEEN)
    ours = [Summary.build(lo, hi) for lo, hi in parts]
    split = [Summary.build(lo, hi, split_only=True) for lo, hi in parts]
    rows = []
    for way in WAYS:
        summaries = split if way == "split level" else ours
        ratios = {p: fmean(_hits(s, p, way, points, seen) for s in summaries) for p in PRECISIONS}
        rows.append(
            CutQuality(workload.name, _PLACEMENT[clustered], fmean(s.count for s in ours), way, ratios)
        )
    return rows


def selection_quality(
    workload: Workload,
    *,
    servers: int = 10,
    subscriptions: int = 10_000,
    events: int = 10_000,
    clustered: bool = False,
    seed: int = 1,
) -> list[Selection]:
    """Precise summaries of the most selective attributes, from one of them to all."""
    rng = np.random.default_rng(seed)
    parts = _placed(workload, rng, servers, subscriptions, clustered)
    points = workload.points(rng, events)
    rows = []
    for attributes in range(1, workload.dimensions + 1):
        chosen = [select(lo, hi, most_selective(lo, hi, attributes)) for lo, hi in parts]
        hits = fmean(_routed(points, lo, hi) for lo, hi in chosen)
        maximal = fmean(len(lo) for lo, _ in chosen)
        rows.append(Selection(workload.name, _PLACEMENT[clustered], attributes, maximal, hits))
    return rows


_PLACEMENT = {False: "random", True: "clustered"}


def _placed(
    workload: Workload, rng: np.random.Generator, servers: int, subscriptions: int, clustered: bool
) -> list[tuple[Floats, Floats]]:
    """The maximal rectangles of each server."""
    lo, hi = workload.rectangles(rng, servers * subscriptions)
    order = neighbourhood(lo, hi) if clustered else np.arange(len(lo))
    parts = []
    for part in np.array_split(order, servers):
        maximal = Maximal(workload.dimensions)
        maximal.insert(range(len(part)), lo[part], hi[part])
        parts.append(maximal.rects())
    return parts


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


def _hits(summary: Summary, precision: float, way: str, points: Floats, seen: Floats) -> float:
    k = max(1, int(np.ceil(precision * summary.count - 1e-9)))
    if way.endswith("level"):
        nodes = summary.choose(k, by="level")
    else:
        nodes = summary.choose(k, weights=seen if way == "weighted" else None)
    return _routed(points, *summary.bounds(nodes), summary.masks(nodes) if way == "bloom" else None)


def _routed(points: Floats, lo: Floats, hi: Floats, masks: Words | None = None) -> float:
    out = np.zeros((len(points), 1), dtype=np.bool_)
    router = new_router("bitmap")
    router.bundle([(0, router.cover(lo, hi, masks))]).mark(points, out)
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
    selections: list[Selection] = []
    options = {"servers": servers, "subscriptions": subscriptions, "events": events, "seed": seed}
    chosen = [(workload, clustered) for workload in workloads() for clustered in (False, True)]
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for workload, clustered in progress.track(chosen, description="cutting"):
            rows += cut_quality(workload, clustered=clustered, **options)
            selections += selection_quality(workload, clustered=clustered, **options)
    if as_json:
        console.print_json(msgspec.json.encode({"cuts": rows, "selections": selections}).decode())
        return
    table = Table("workload", "placement", "maximal", "cut by", *(f"{p:g}" for p in PRECISIONS))
    for row in rows:
        ratios = (f"{ratio:.4f}" for ratio in row.hit_ratio.values())
        table.add_row(row.workload, row.placement, f"{row.maximal:.0f}", row.way, *ratios)
    console.print(table)
    table = Table("workload", "placement", "attributes", "maximal", "hit ratio")
    for selection in selections:
        table.add_row(
            selection.workload,
            selection.placement,
            str(selection.attributes),
            f"{selection.maximal:.0f}",
            f"{selection.hit_ratio:.4f}",
        )
    console.print(table)


if __name__ == "__main__":
    app()
