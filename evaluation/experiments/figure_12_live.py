"""Figure 12 from a running network: throughput that was measured, beside what the model calculates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from edn.tools.bench import capacity
from edn.tools.bench.report import Progress as Line
from evaluation.claims import Claim, Number, Reading, number, share
from evaluation.drawing import Canvas
from evaluation.experiment import Experiment, Progress
from evaluation.outcome import Outcome, Series


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    servers: int
    per_server: int
    #: of each measurement
    seconds: float
    rounds: int
    #: of the dispatcher's tuner, which measures the parameters
    interval: float


def run(sizes: Sizes, seed: int, progress: Progress) -> Outcome:
    progress(0, 1, "a network, and each precision in turn")
    with Line() as line:
        found = capacity.run(
            servers=sizes.servers,
            subscriptions=sizes.per_server,
            interval=sizes.interval,
            seconds=sizes.seconds,
            rounds=sizes.rounds,
            bytes_per_second=None,
            seed=seed,
            progress=line,
        )
    axis = [row.precision for row in found.rows]
    return Outcome(
        {"MB/s": found.bytes_per_second / 1e6, "core": fmean(row.core for row in found.rows)},
        {
            "measured": Series(axis, [row.measured for row in found.rows]),
            "calculated": Series(axis, [row.predicted for row in found.rows]),
        },
    )


def draw(canvas: Canvas, outcomes: Sequence[Outcome]) -> None:
    left, right = canvas.panels(2)
    left.labels("Figure 12 from a running network", "precision", "events/s")
    left.curve("measured")
    left.curve("calculated", style="--")
    left.axes.set_ylim(0, None)
    right.labels("Measured ÷ calculated", "precision", "ratio")
    right.derived("measured ÷ calculated", lambda one: Series(one.series["measured"].x, _ratios(one)))
    right.published("closely matches", y=1.0)
    right.axes.set_ylim(0, 1.5)


def _ratios(outcome: Outcome) -> list[float]:
    return outcome.ratios("measured", "calculated")


def _gain(outcome: Outcome, precision: float) -> float:
    measured = outcome.series["measured"]
    return max(measured.y) / measured.at(precision) - 1


def _gains(text: str, published: float, precision: float) -> Claim:
    return Claim(
        text=text,
        paper=Number(published, "it carries more", lambda ours: ours > 0),
        readings=(Reading("measured", number(lambda o: _gain(o, precision))),),
        show="{:.0%}",
        why="The gain depends on where the link crosses the CPU, which here is set, and on the machine.",
    )


EXPERIMENT = Experiment(
    name="figure-12-live",
    line="Figure 12",
    title="Measured throughput of a running network",
    question="Does the network carry what the model calculates, and is an imprecise summary best?",
    setting=(
        "A dispatcher and servers as processes of one machine, saturated by a publisher; 8 dimensions; the "
        "router is libspatialindex's R-tree, whose cost is of the published order; the link is capped so "
        "that it and the CPU cross at 50 %. The model's parameters are those that the dispatcher measures "
        "of itself. It wants a machine of its own (`--live`)."
    ),
    sizes={
        "tiny": Sizes(servers=1, per_server=60, seconds=0.3, rounds=1, interval=0.2),
        "quick": Sizes(servers=3, per_server=3000, seconds=3.0, rounds=1, interval=3.0),
        "full": Sizes(servers=3, per_server=3000, seconds=4.0, rounds=2, interval=3.0),
    },
    seeds={"tiny": 1, "quick": 1, "full": 1},
    run=run,
    draw=draw,
    live=True,
    claims=(
        Claim(
            text="What is measured matches what is calculated (mean ratio 1).",
            paper=Number(1.0, "within a factor of two", lambda ours: 0.5 < ours < 2),
            readings=(
                Reading("mean over the precisions", number(lambda o: fmean(_ratios(o)))),
                Reading("the worst of them", number(lambda o: min(_ratios(o)))),
            ),
            why=(
                "All processes share two cores, and time that the dispatcher waits for a lock is not in "
                "the model."
            ),
        ),
        _gains("The best precision carries 31 % more than precise summaries.", 0.31, 1.0),
        _gains("And 27 % more than none.", 0.27, 0.0),
        Claim(
            text="The best precision is neither the precise one nor none.",
            readings=(
                Reading(
                    "measured",
                    lambda o: share(0 < o.series["measured"].x[_argmax(o.series["measured"].y)] < 1),
                ),
            ),
        ),
    ),
)


def _argmax(values: Sequence[float]) -> int:
    return max(range(len(values)), key=lambda at: values[at])
