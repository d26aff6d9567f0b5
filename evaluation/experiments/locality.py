"""locality x: Subscriptions in a part of the space.

What if all subscriptions lie in a part x of the event space? 10,000 rectangles per server in 8 dimensions,
shrunk into a corner with the part x of the space; events are everywhere. T_l = 100 µs. The published text
gives ratios; each of ours is divided by the published one, so 1 is expected.
"""

from __future__ import annotations

from statistics import fmean

from evaluation.cut_cost import Setup
from evaluation.experiment import Claim, Experiment, Measure, Outcome, Progress, Series, track
from evaluation.figures import Canvas
from evaluation.relative_throughput import FIRST, modelled

WHAT = {
    "R": "hit ratio",
    "T_d": "routing time",
    "best": "1 ÷ best throughput",
    "RTP_p": "gain over precise",
    "RTP_n": "1 ÷ gain over none",
}


def run(
    seed: int, progress: Progress, *, shares: tuple[float, ...], per_server: int, servers: int, events: int
) -> Outcome:
    """Measures everything relative to x = 1."""
    rows = []
    for x in track((1.0, *shares), progress, "x = {0:g}"):
        # The smaller x, the more events are needed for the same number of hits.
        setup = Setup(servers=servers, per_server=per_server, events=int(events / x), within=x)
        one = modelled(setup, FIRST, seed)
        hits = one.measured.precise.hit_ratio
        rows.append((hits, one.routing, 1 / one.throughput, one.over_precise, 1 / one.over_none))
    columns = zip(WHAT, zip(*rows, strict=True), strict=True)
    return Outcome({}, {what: Series(shares, [y / ys[0] for y in ys[1:]]) for what, ys in columns})


def draw(canvas: Canvas) -> None:
    [panel] = canvas.panels(1)
    panel.labels("Locality", "x: part of the space that has subscriptions", "relative to x = 1")
    panel.curves(WHAT)
    axis = sorted(canvas.first.series["R"].x)
    panel.line("published: x", axis, axis)
    panel.level("published: unchanged", 1.0, ":")
    panel.log_log()


def _per_x(what: str) -> dict[str, Measure]:
    def ratio(outcome: Outcome) -> float:
        shown = outcome.series[what]
        return fmean(y / x for x, y in zip(shown.x, shown.y, strict=True))

    return {"÷ x, mean over the x": ratio}


EXPERIMENT = Experiment(
    name="locality",
    text=__doc__,
    sizes={
        "tiny": {"shares": (0.5, 0.25), "per_server": 200, "servers": 1, "events": 300},
        "quick": {"shares": (0.5, 0.25, 0.1), "per_server": 10_000, "servers": 1, "events": 1000},
        "full": {"shares": (0.5, 0.25, 0.1, 0.05), "per_server": 10_000, "servers": 2, "events": 2000},
    },
    run=run,
    draw=draw,
    claims=(
        Claim("The hit ratio falls by x.", _per_x("R"), paper=1.0),
        Claim(
            "The routing time falls by about x.",
            _per_x("T_d"),
            paper=1.0,
            partly=lambda ours: ours < 2.0,
            why="Events outside of the subspace are not free: the root of the tree is tested for each.",
        ),
        Claim("Absolute throughput rises by 1 / x.", _per_x("best"), paper=1.0),
        Claim(
            "The gain over precise summaries is unchanged.",
            {"mean over the x": lambda o: fmean(o.y("RTP_p"))},
            paper=1.0,
        ),
        Claim("The gain over no summaries rises by 1 / x.", _per_x("RTP_n"), paper=1.0),
    ),
)
