"""A simulated network for the self-tuner: the throughput model made flesh, with noise.

More is always asked of it than it carries, so what passes is the model's throughput, and the dispatcher's
CPU is as full as that throughput makes it. The policies see it as they would see a real one: the CPU share
with noise, the throughput with noise, and, for the one that predicts, parameters that are wrong by some
percent for the whole run and a curve that is measured anew, with noise, in each interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import msgspec
import numpy as np

from selftune.paper import Rule
from selftune.predictive import PredictiveRule
from selftune.reading import Reading
from selftune.throughput import Model, OperatingPoint, Parameters
from selftune.tuning import Tuning


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Standard deviations, as shares of what is measured."""

    cpu: float = 0.01
    throughput: float = 0.02
    curve: float = 0.03
    #: of each parameter, drawn once a run
    parameters: float = 0.1


@dataclass(frozen=True, slots=True)
class Phase:
    """A network that stays as it is for so many intervals."""

    truth: Model
    intervals: int


class Trace(msgspec.Struct, frozen=True):
    """What a run did, interval by interval."""

    policy: str
    start: float
    precisions: list[float]
    throughputs: list[float]

    def changes(self, begin: int, end: int | None = None) -> int:
        """How often the precision changed within these intervals."""
        part = self.precisions[begin:end]
        return sum(one != other for one, other in pairwise(part))

    def mean(self, begin: int, end: int | None = None) -> float:
        part = self.throughputs[begin:end]
        return sum(part) / len(part)

    def visited(self, begin: int, end: int | None = None) -> list[float]:
        return sorted(set(self.precisions[begin:end]))


def simulate(
    policy: str,
    start: float,
    phases: Sequence[Phase],
    *,
    seed: int,
    rule: Rule | None = None,
    predictive_rule: PredictiveRule | None = None,
    noise: Noise | None = None,
) -> Trace:
    """Let a policy loose on the phases, one after the other."""
    rng = np.random.default_rng(seed)
    noise = noise or Noise()
    tuning = Tuning(mode=policy, precision=start, rule=rule, predictive_rule=predictive_rule)
    errors = np.exp(rng.normal(0.0, noise.parameters, 4))
    trace = Trace(policy, start, [], [])
    time = 0
    for phase in phases:
        for _ in range(phase.intervals):
            at = tuning.precision
            true = phase.truth.at(at)
            trace.precisions.append(at)
            trace.throughputs.append(true.throughput)
            load = true.throughput / true.dispatcher + rng.normal(0.0, noise.cpu)
            reading = Reading(
                cpu=float(np.clip(load, 0.0, 1.0)),
                throughput=true.throughput * float(np.exp(rng.normal(0.0, noise.throughput))),
                model=_seen(phase.truth, errors, noise, rng),
            )
            time += 1
            tuning.read(reading, time=time)
    return trace


def _seen(
    truth: Model, errors: np.ndarray[tuple[int], np.dtype[np.float64]], noise: Noise, rng: np.random.Generator
) -> Model:
    """The model as its measurements show it."""
    known: Parameters = truth.parameters
    parameters = replace(
        known,
        fixed=known.fixed * errors[0],
        per_copy=known.per_copy * errors[1],
        serving=known.serving * errors[2],
        message_bytes=known.message_bytes,
    )
    curve = {}
    for precision, at in truth.curve.items():
        routing, hits = np.exp(rng.normal(0.0, noise.curve, 2))
        curve[precision] = OperatingPoint(
            routing=at.routing * float(errors[3] * routing), hit_ratio=min(1.0, at.hit_ratio * float(hits))
        )
    return Model(parameters, curve)
