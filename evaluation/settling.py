"""The self-tuning policies on simulated networks: where they settle, and what they reach of the best.

The networks obey the throughput model (see `world`), with curves R(p) and T_d(p) of real summaries (see
`searching`). Parameters are those of the published implementation unless a regime says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from evaluation.searching import Curve
from evaluation.world import Phase, Trace, simulate
from selftune.paper import Rule
from selftune.throughput import Model, OperatingPoint, Parameters

#: T_f = 1.6 ms, S_m = 3 KB, B = 80 Mbit/s, T_c = 0, ten servers
PUBLISHED = Parameters(servers=10, fixed=1.6e-3, message_bytes=3000.0, bandwidth=10e6)
#: intervals of one phase, and those of them in which a policy may search
PHASE, SEARCH = 60, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """How one run of a policy ended in one phase."""

    phase: str
    best_precision: float
    #: precisions in the rest of the phase, after the search, and their mean
    visited: list[float]
    mean_precision: float
    #: changes of the precision there
    changes: int
    #: mean throughput there, and in parts of that of the best fixed precision
    throughput: float
    share: float
    trace: Trace

    @property
    def near(self) -> bool:
        """It stayed within one step of the best fixed precision."""
        return all(abs(at - self.best_precision) < 0.1 + 1e-9 for at in self.visited)


def settle(
    policy: str, damping: float, start: float, phases: Mapping[str, Model], *, seed: int
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
        stayed = trace.precisions[begin:end]
        ended.append(
            Settling(
                phase=name,
                best_precision=best,
                visited=trace.visited(begin, end),
                mean_precision=sum(stayed) / len(stayed),
                changes=trace.changes(begin, end),
                throughput=trace.mean(begin, end),
                share=trace.mean(begin, end) / model.throughput(best),
                trace=trace,
            )
        )
    return ended


def regimes(
    even: Mapping[float, OperatingPoint],
    crowded: Mapping[float, OperatingPoint],
    own: Mapping[float, OperatingPoint],
) -> dict[str, Model]:
    """Networks whose bottlenecks differ; `own` is with our own router's times."""
    base = PUBLISHED
    wide = replace(base, bandwidth=1e9)
    fast = replace(base, fixed=20e-6, per_copy=2e-6, message_bytes=350.0, bandwidth=125e6)
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
        "our own router, T_f = 20 µs, 1 Gbit/s": Model(fast, own),
    }


def tenths(curve: Mapping[float, OperatingPoint]) -> dict[float, OperatingPoint]:
    """The precisions that the policies step on."""
    return {at: one for at, one in curve.items() if round(10 * at, 6).is_integer()}


def published_model(curve: Curve, price: float) -> Model:
    """The published implementation, with T_d in counted tests."""
    return Model(PUBLISHED, tenths(curve.priced("tests", price)))
