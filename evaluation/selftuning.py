"""The published self-tuning experiments (Figures 12, 16, 17), and both policies over many regimes, simulated.

Routing time is tests × a constant. The constant is fitted to the published Figure 12, in which precise
summaries route for 139 µs a server: with T_f = 1.6 ms and N_s = 10 that is its 334 events/s. Everything
else there is as published: S_m = 3 KB, B = 80 Mbit/s, T_c = 0. A second run takes our own router's CPU time
instead.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import msgspec

from evaluation.selftuning_curves import Curve, Curves, Setup, curves
from evaluation.selftuning_world import Phase, Trace, simulate
from selftune.paper import Rule
from selftune.throughput import Model, Operating, Parameters

#: published: seconds a server of routing with precise summaries
ROUTING_PRECISE = 139e-6
PUBLISHED = Parameters(servers=10, fixed=1.6e-3, message_bytes=3000.0, bandwidth=10e6)
#: intervals of one phase, and those of them in which a policy may search
PHASE, SEARCH = 60, 20
STARTS = (0.1, 1.0)


class Row(msgspec.Struct, frozen=True):
    """One precision of Figure 12."""

    precision: float
    hit_ratio: float
    tests: float
    routing_us: float
    tp_d: float
    tp_ol: float
    throughput: float


class Settling(msgspec.Struct, frozen=True):
    """How one run of a policy ended in one phase."""

    policy: str
    damping: float
    start: float
    phase: str
    best_precision: float
    best_throughput: float
    #: precisions in the rest of the phase, after the search
    visited: list[float]
    #: changes of the precision there
    changes: int
    #: mean throughput there ÷ that of the best fixed precision
    share: float
    trace: Trace

    @property
    def near(self) -> bool:
        """It stayed within one step of the best fixed precision."""
        return all(abs(at - self.best_precision) < 0.1 + 1e-9 for at in self.visited)


class Regime(msgspec.Struct, frozen=True):
    """One kind of network: the best fixed precision, and what each policy reaches of it in the worst run."""

    name: str
    bottlenecks: str
    best_precision: float
    best_throughput: float
    #: policy → mean throughput after the search ÷ best fixed: the least over starts and seeds
    least: dict[str, float]
    mean: dict[str, float]


class Result(msgspec.Struct, frozen=True):
    figure_12: list[Row]
    figure_12_own_router: list[Row]
    settling: list[Settling]
    regimes: list[Regime]


def priced(curve: Curve, second: float) -> dict[float, Operating]:
    """T_d as tests × a constant."""
    return {
        p: Operating(routing=point.tests * second, hit_ratio=point.hit_ratio) for p, point in curve.items()
    }


def own(curve: Curve) -> dict[float, Operating]:
    return {p: Operating(routing=point.kernel, hit_ratio=point.hit_ratio) for p, point in curve.items()}


def _rows(curve: Curve, model: Model) -> list[Row]:
    rows = []
    for precision, point in curve.items():
        parts = model.at(precision)
        rows.append(
            Row(
                precision=precision,
                hit_ratio=point.hit_ratio,
                tests=point.tests,
                routing_us=1e6 * model.curve[precision].routing,
                tp_d=parts.dispatcher,
                tp_ol=parts.outgoing,
                throughput=parts.throughput,
            )
        )
    return rows


def settle(
    policy: str, damping: float, start: float, phases: dict[str, Model], *, seed: int
) -> list[Settling]:
    """Run a policy through the phases; how it ended in each of them."""
    trace = simulate(
        policy,
        start,
        [Phase(model, PHASE) for model in phases.values()],
        seed=seed,
        rule=Rule(damping=damping),
    )
    ended = []
    for number, (name, model) in enumerate(phases.items()):
        begin, end = number * PHASE + SEARCH, (number + 1) * PHASE
        best = model.best()
        ended.append(
            Settling(
                policy=policy,
                damping=damping,
                start=start,
                phase=name,
                best_precision=best,
                best_throughput=model.throughput(best),
                visited=trace.visited(begin, end),
                changes=trace.changes(begin, end),
                share=trace.mean(begin, end) / model.throughput(best),
                trace=trace,
            )
        )
    return ended


def regimes(measured: Curves, second: float) -> dict[str, Model]:
    """Networks whose bottlenecks differ."""
    even, crowded = priced(measured.uniform, second), priced(measured.normal, second)
    base = PUBLISHED
    wide = replace(base, bandwidth=1e9)
    return {
        "routing and link cross (Figure 12)": Model(base, even),
        "the same, events normal(9.5, 0.25)": Model(base, crowded),
        "CPU-bound by routing": Model(replace(wide, fixed=0.05e-3), even),
        "CPU-bound by messaging, T_f = 5 ms": Model(replace(wide, fixed=5e-3), even),
        "CPU-bound by sending, T_c = 0.5 ms": Model(replace(wide, per_copy=0.5e-3), even),
        "T_c = 0.1 ms and link": Model(replace(base, per_copy=0.1e-3), even),
        "link-bound, 10 Mbit/s": Model(replace(base, bandwidth=1.25e6), even),
        "server-bound, T_s F = 8 ms": Model(replace(wide, serving=8e-3), even),
        "routing and servers cross": Model(replace(wide, serving=3e-3), even),
        "2 servers, 16 Mbit/s": Model(replace(base, servers=2, bandwidth=2e6), even),
        "50 servers, 400 Mbit/s": Model(replace(base, servers=50, bandwidth=50e6), even),
        "our own router, T_f = 20 µs, 1 Gbit/s": Model(
            replace(base, fixed=20e-6, per_copy=2e-6, message_bytes=350.0, bandwidth=125e6),
            own(measured.uniform),
        ),
    }


def _regime(name: str, model: Model, seeds: range) -> Regime:
    best = model.best()
    shares: dict[str, list[float]] = {}
    for policy in ("paper", "model"):
        shares[policy] = [
            settle(policy, 2.0, start, {name: model}, seed=seed)[0].share
            for start in (0.0, 0.1, 0.5, 1.0)
            for seed in seeds
        ]
    return Regime(
        name=name,
        bottlenecks=" ".join(dict.fromkeys(model.at(p).bottleneck for p in (0.0, best, 1.0))),
        best_precision=best,
        best_throughput=model.throughput(best),
        least={policy: min(found) for policy, found in shares.items()},
        mean={policy: fmean(found) for policy, found in shares.items()},
    )


def evaluate(setup: Setup, *, seeds: int = 5) -> Result:
    measured = curves(setup)
    second = ROUTING_PRECISE / measured.uniform[1.0].tests
    before = Model(PUBLISHED, priced(measured.uniform, second))
    after = Model(PUBLISHED, priced(measured.normal, second))
    phases = {"uniform": before, "normal(9.5, 0.25)": after}
    settled = [
        one
        for policy, damping in (("paper", 1.0), ("paper", 2.0), ("model", 2.0))
        for start in STARTS
        for one in settle(policy, damping, start, phases, seed=setup.seed)
    ]
    return Result(
        figure_12=_rows(measured.uniform, before),
        figure_12_own_router=_rows(measured.uniform, Model(PUBLISHED, own(measured.uniform))),
        settling=settled,
        regimes=[_regime(name, model, range(seeds)) for name, model in regimes(measured, second).items()],
    )
