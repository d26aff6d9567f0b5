"""Self-tuning of a running network, compared with every fixed precision in three situations.

1. *base*: uniform events, and a link so wide that routing and link carry the same at precision 0.5;
2. *events*: the events change to normal(9.5, 0.25);
3. *link*: uniform events again, and a link of another width.

The tuned network starts precise and passes all three; events and link change while it is tuned to the former
situation. In each situation it gets time to adapt and is measured; then every fixed precision is measured, in
rounds; then the best of them and the tuned network, in turns. Constant precisions are judged by the same
marks as the tuned network.
"""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import typer

from edn.tools.bench.capacity import crossing, parameters_under_load
from edn.tools.bench.report import Cells, Progress, new_axes, print_rows, save
from edn.tools.bench.saturation import Saturated, Size, saturated
from edn.tools.bench.workloads import Workload, crowd, uniform
from edn.tools.console import show_json

COLUMNS: Cells = (
    ("situation", "{r.name}"),
    ("MB/s", lambda r: f"{r.bytes_per_second / 1e6:.2f}"),
    ("best fixed", "{r.best:g}"),
    ("events/s", "{r.best_throughput:,.0f}"),
    ("precise", lambda r: f"{r.fixed[1.0]:,.0f}"),
    ("none", lambda r: f"{r.fixed[0.0]:,.0f}"),
    ("tuned", "{r.tuned:,.0f}"),
    ("÷ best", "{r.share:.2f}"),
    ("at", lambda r: " ".join(f"{at:g}" for at in r.visited)),
    ("changes", "{r.changes}"),
)
#: required shares of the best fixed precision, per situation
MARKS = (0.95, 0.9, 0.9)
#: required factor over precise summaries and none, in the first situation
GAIN = 1.1


class Situation(msgspec.Struct, frozen=True):
    name: str
    bytes_per_second: float
    #: precision → events per second
    fixed: dict[float, float]
    #: the best of them, measured again in turns with the tuned network
    best: float
    best_throughput: float
    tuned: float
    #: samples of the tuned network: seconds since the beginning, precision, throughput
    trace: list[tuple[float, float, float]]
    #: precisions after it adapted
    visited: list[float]
    changes: int

    @property
    def share(self) -> float:
        return self.tuned / self.best_throughput

    def relative(self, precision: float) -> float:
        """Returns a fixed precision ÷ the best, from the same rounds."""
        return self.fixed[precision] / self.fixed[self.best]


class Outcome(msgspec.Struct, frozen=True):
    mode: str
    situations: list[Situation]
    #: decisions of the tuner
    history: list[dict[str, Any]]

    def passes(self, shares: list[float]) -> bool:
        """Returns whether these shares of the best fixed precision, one per situation, reach the marks."""
        base = self.situations[0]
        reached = all(share >= mark for share, mark in zip(shares, MARKS, strict=True))
        return reached and shares[0] >= GAIN * max(base.relative(0.0), base.relative(1.0))

    def verdicts(self) -> dict[str, bool]:
        """Judges the tuned network, and the constant precisions that it must beat."""
        verdicts = {self.mode: self.passes([situation.share for situation in self.situations])}
        for constant in (0.0, 0.5, 1.0):
            verdicts[f"fixed {constant:g}"] = self.passes([one.relative(constant) for one in self.situations])
        return verdicts


def show(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        show_json({**msgspec.structs.asdict(outcome), "passes": outcome.verdicts()})
        return
    print_rows(_title(outcome), COLUMNS, outcome.situations)
    for name, passes in outcome.verdicts().items():
        typer.echo(f"{name}: {'reaches' if passes else 'misses'} the marks")


def _title(outcome: Outcome) -> str:
    return f"Self-tuning, mode {outcome.mode}"


def run(
    *,
    servers: int,
    subscriptions: int,
    interval: float = 3.0,
    mode: str,
    seconds: float,
    rounds: int,
    adapting: float,
    wider: float,
    seed: int,
    progress: Progress,
) -> Outcome:
    """`seconds`: of each measurement; `adapting`: seconds to adapt; `wider`: factor of the link."""
    size = Size(servers=servers, subscriptions=subscriptions, router="rtree", interval=interval)
    even, crowded = uniform(size.dimensions), crowd(size.dimensions)
    with saturated(size, even, seed=seed, progress=progress) as network:
        progress.say("measuring the model's parameters")
        width = crossing(parameters_under_load(network, 2.5 * size.interval), 0.5)
        plan: list[tuple[str, Workload, float]] = [
            ("base", even, width),
            ("events", crowded, width),
            ("link", even, wider * width),
        ]
        network.link(width)
        network.tune(mode, 1.0)
        began = time.perf_counter()
        situations = []
        for name, workload, bytes_per_second in plan:
            network.events(workload, seed)
            network.link(bytes_per_second)
            trace: list[tuple[float, float, float]] = []
            _watch(network, adapting, began, trace, f"{name}: tuning", progress)
            adapted = len(trace)
            _watch(network, 4 * seconds, began, trace, f"{name}: tuned", progress)
            precision = trace[-1][1]
            swept = network.sweep(rounds, seconds, progress, f"{name}: ")
            fixed = {at: fmean(one.throughput for one in passed) for at, passed in swept.items()}
            best = max(fixed, key=fixed.__getitem__)
            # In turns, so that a slow moment of the machine slows both.
            at_best, tuned = [], []
            for number in range(2 * rounds):
                progress.say(f"{name}: best fixed and tuned, turn {number + 1} of {2 * rounds}")
                at_best.append(network.at(best, settle=min(1.5, seconds), seconds=seconds).throughput)
                network.tune(mode, precision)
                time.sleep(min(1.5, seconds))  # like a fixed precision
                tuned.append(network.watch(seconds).throughput)
                precision = float(network.tuning()["precision"])
            # The next situation must find the network tuned to this one.
            _watch(network, 2 * size.interval, began, [], f"{name}: tuned again", progress)
            seen = [at for _, at, _ in trace[adapted - 1 :]]
            situations.append(
                Situation(
                    name=name,
                    bytes_per_second=bytes_per_second,
                    fixed=fixed,
                    best=best,
                    best_throughput=fmean(at_best),
                    tuned=fmean(tuned),
                    trace=trace,
                    visited=sorted(set(seen)),
                    changes=sum(one != other for one, other in pairwise(seen)),
                )
            )
        history = network.tuning()["history"]
    return Outcome(mode=mode, situations=situations, history=history)


def _watch(
    network: Saturated,
    seconds: float,
    began: float,
    trace: list[tuple[float, float, float]],
    what: str,
    progress: Progress,
) -> None:
    """Appends samples of the network to the trace for some seconds."""
    progress.say(what)
    step = min(seconds, 2.0)
    for _ in range(max(1, round(seconds / step))):
        passed = network.watch(step).throughput
        trace.append((time.perf_counter() - began, float(network.tuning()["precision"]), passed))


def draw(outcome: Outcome, path: Path) -> None:
    """Draws precision and throughput over time, with the best fixed precision of each situation."""
    figure, (upper, lower) = new_axes(2, 1, 10, 6, sharex=True)
    begin = 0.0
    for situation in outcome.situations:
        first = situation.trace[0][0]
        times = [begin + at - first for at, _, _ in situation.trace]
        upper.plot(times, [passed for _, _, passed in situation.trace], color="tab:orange")
        upper.hlines(situation.best_throughput, times[0], times[-1], linestyles="--", color="grey")
        lower.step(times, [at for _, at, _ in situation.trace], where="post", color="tab:blue")
        lower.hlines(situation.best, times[0], times[-1], linestyles="--", color="grey")
        upper.text(times[0], 0.97, situation.name, va="top", transform=upper.get_xaxis_transform())
        begin = times[-1] + 2.0
    upper.set(ylim=(0, None), ylabel="events/s", title=_title(outcome))
    xlabel = "seconds; dashed: the best fixed precision"
    lower.set(ylim=(-0.05, 1.05), ylabel="precision", xlabel=xlabel)
    save(figure, path)
