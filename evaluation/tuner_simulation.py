"""Self-tuning policies on simulated networks: where they settle, and which share of the best they reach.

A simulated network follows the throughput model, with curves R(p) and T_d(p) of real summaries
(`cut_cost`). It is always offered more than it can carry, so its throughput is that of the model, and the
dispatcher's CPU is as busy as that throughput requires. Policies see it as they would see a real network:
CPU share and throughput with noise. The predicting policy also gets parameters that are wrong by some
percent for the whole run, and a curve that is measured in each interval, with noise.

Parameters are those of the published implementation unless a regime changes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from edn.arrays import Floats
from evaluation.cut_cost import Curve
from selftune.paper import Rule
from selftune.reading import Reading
from selftune.throughput import Model, OperatingPoint, Parameters
from selftune.tuning import Tuning

#: T_f = 1.6 ms, S_m = 3 KB, B = 80 Mbit/s, T_c = 0, ten servers
PUBLISHED = Parameters(servers=10, fixed=1.6e-3, message_bytes=3000.0, bandwidth=10e6)
#: intervals per phase, and how many of them a policy may spend searching
PHASE, SEARCH = 60, 20
#: standard deviations of the noise, relative to the measured value; that of the parameters is drawn per run
CPU_NOISE, THROUGHPUT_NOISE, CURVE_NOISE, PARAMETER_NOISE = 0.01, 0.02, 0.03, 0.1


@dataclass(slots=True)
class Trace:
    """Precision and throughput of a run, per interval."""

    precisions: list[float] = field(default_factory=list)
    throughputs: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """One phase of one run, after the search."""

    phase: str
    best_precision: float
    visited: list[float]
    mean_precision: float
    #: changes of the precision
    changes: int
    #: mean throughput, and its share of that of the best fixed precision
    throughput: float
    share: float
    #: of all phases
    trace: Trace

    @property
    def is_near(self) -> bool:
        """Whether the precision stayed within one step of the best fixed precision."""
        return all(abs(at - self.best_precision) < 0.1 + 1e-9 for at in self.visited)


def settle(
    policy: str, damping: float, start: float, phases: Mapping[str, Model], *, seed: int
) -> list[Settling]:
    """Runs a policy through the phases and returns the end of each."""
    trace = _simulate(Tuning(mode=policy, precision=start, rule=Rule(damping=damping)), phases, seed)
    ended = []
    for number, (name, model) in enumerate(phases.items()):
        part = slice(number * PHASE + SEARCH, (number + 1) * PHASE)
        best = model.best()
        stayed, passed = trace.precisions[part], trace.throughputs[part]
        throughput = sum(passed) / len(passed)
        ended.append(
            Settling(
                phase=name,
                best_precision=best,
                visited=sorted(set(stayed)),
                mean_precision=sum(stayed) / len(stayed),
                changes=sum(one != other for one, other in pairwise(stayed)),
                throughput=throughput,
                share=throughput / model.throughput(best),
                trace=trace,
            )
        )
    return ended


def _simulate(tuning: Tuning, phases: Mapping[str, Model], seed: int) -> Trace:
    rng = np.random.default_rng(seed)
    errors = np.exp(rng.normal(0.0, PARAMETER_NOISE, 4))
    trace = Trace()
    for model in phases.values():
        for _ in range(PHASE):
            at = tuning.precision
            true = model.at(at)
            trace.precisions.append(at)
            trace.throughputs.append(true.throughput)
            load = true.throughput / true.dispatcher + rng.normal(0.0, CPU_NOISE)
            reading = Reading(
                cpu=float(np.clip(load, 0.0, 1.0)),
                throughput=true.throughput * float(np.exp(rng.normal(0.0, THROUGHPUT_NOISE))),
                model=_measured(model, errors, rng),
            )
            tuning.read(reading, time=len(trace.precisions))
    return trace


def _measured(truth: Model, errors: Floats, rng: np.random.Generator) -> Model:
    """Returns the model with the errors of its measurements."""
    known = truth.parameters
    parameters = replace(
        known,
        fixed=known.fixed * errors[0],
        per_copy=known.per_copy * errors[1],
        serving=known.serving * errors[2],
    )
    curve = {}
    for precision, at in truth.curve.items():
        routing, hits = np.exp(rng.normal(0.0, CURVE_NOISE, 2))
        curve[precision] = OperatingPoint(
            routing=at.routing * float(errors[3] * routing), hit_ratio=min(1.0, at.hit_ratio * float(hits))
        )
    return Model(parameters, curve)


def regimes(
    even: Mapping[float, OperatingPoint],
    crowded: Mapping[float, OperatingPoint],
    own: Mapping[float, OperatingPoint],
) -> dict[str, Model]:
    """Returns networks with different bottlenecks; `own` is the curve with our own router's times."""
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
    """Returns the precisions that policies step on."""
    return {at: one for at, one in curve.items() if round(10 * at, 6).is_integer()}


def published_model(curve: Curve, price: float) -> Model:
    """Returns the published implementation, with T_d in counted tests."""
    return Model(PUBLISHED, tenths(curve.priced("tests", price)))
