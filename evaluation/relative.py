"""Relative throughput over the precision, where the outgoing link is the bottleneck below the dispatcher.

T_l = 100 µs (1 KB at 10 MB/s) and T_f = T_c = 0, as in the published simulations. So throughput is
min(1 / T_d, 1 / (R T_l)) a server, and only its ratios count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from evaluation.outcome import Series
from evaluation.searching import OUR_WAY, PUBLISHED_WAY, Curve, Setup, Unit, Way, curve, price
from selftune.throughput import Model, Parameters

#: T_l = 100 µs
LINK = Parameters(servers=10, fixed=0.0, message_bytes=1000.0, bandwidth=10e6)
#: T_l = 8 µs: the same message at 1 Gbit/s
FAST_LINK = Parameters(servers=10, fixed=0.0, message_bytes=1000.0, bandwidth=125e6)


@dataclass(frozen=True, slots=True)
class Pricing:
    """How T_d is had."""

    unit: Unit = "tests"
    way: Way = PUBLISHED_WAY
    link: Parameters = LINK


#: the first counts
READINGS: dict[str, Pricing] = {
    "tests × the constant of Figure 12": Pricing(),
    "coordinates × such a constant": Pricing(unit="coordinates"),
    "our cut, tests × such a constant": Pricing(way=OUR_WAY),
    "our own router's time": Pricing(unit="kernel"),
    "our own router's time, T_l = 8 µs": Pricing(unit="kernel", link=FAST_LINK),
}
FIRST = next(iter(READINGS))


@dataclass(frozen=True, slots=True)
class Best:
    """The best point of a curve beside its ends."""

    precision: float
    hit_ratio: float
    over_precise: float
    over_none: float


def best(model: Model) -> Best:
    at = model.best()
    top = model.throughput(at)
    return Best(at, model.curve[at].hit_ratio, top / model.throughput(1.0), top / model.throughput(0.0))


def relative(model: Model) -> Series:
    """Throughput in parts of that of precise summaries."""
    own = model.throughput(1.0)
    axis = [at for at in model.curve if at > 0]
    return Series(axis, [model.throughput(at) / own for at in axis])


def modelled(setup: Setup, reading: Pricing, seed: int) -> tuple[Model, Curve]:
    found = curve(replace(setup, way=reading.way), seed)
    cost = price(reading.unit, reading.way, seed)
    return Model(reading.link, found.priced(reading.unit, cost)), found
