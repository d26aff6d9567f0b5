"""Relative throughput by precision, where the outgoing link is the bottleneck after the dispatcher.

T_l = 100 µs (1 KB at 10 MB/s) and T_f = T_c = 0, as in the published simulations. Throughput is then
min(1 / T_d, 1 / (R T_l)) per server, and only its ratios matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from evaluation.cut_cost import OUR_WAY, PUBLISHED_WAY, Curve, Setup, Unit, Way, curve, price
from evaluation.experiment import Series
from selftune.throughput import Model, Parameters

#: T_l = 100 µs
LINK = Parameters(servers=10, fixed=0.0, message_bytes=1000.0, bandwidth=10e6)
#: T_l = 8 µs: the same message at 1 Gbit/s
FAST_LINK = Parameters(servers=10, fixed=0.0, message_bytes=1000.0, bandwidth=125e6)


@dataclass(frozen=True, slots=True)
class Pricing:
    """How T_d is determined."""

    unit: Unit = "tests"
    way: Way = PUBLISHED_WAY
    link: Parameters = LINK


#: the first one counts
READINGS: dict[str, Pricing] = {
    "tests × the constant of Figure 12": Pricing(),
    "coordinates × such a constant": Pricing(unit="coordinates"),
    "our cut, tests × such a constant": Pricing(way=OUR_WAY),
    "our own router's time": Pricing(unit="kernel"),
    "our own router's time, T_l = 8 µs": Pricing(unit="kernel", link=FAST_LINK),
}
FIRST = next(iter(READINGS))


@dataclass(frozen=True, slots=True)
class Modelled:
    """The throughput model of one network, and its best precision."""

    model: Model
    measured: Curve
    best: float

    @property
    def throughput(self) -> float:
        """At the best precision."""
        return self.model.throughput(self.best)

    @property
    def hit_ratio(self) -> float:
        """At the best precision."""
        return self.model.curve[self.best].hit_ratio

    @property
    def routing(self) -> float:
        """T_d of precise summaries."""
        return self.model.curve[1.0].routing

    @property
    def over_precise(self) -> float:
        return self.throughput / self.model.throughput(1.0)

    @property
    def over_none(self) -> float:
        return self.throughput / self.model.throughput(0.0)

    @property
    def relative(self) -> Series:
        """Throughput ÷ that of precise summaries, by precision."""
        own = self.model.throughput(1.0)
        axis = [at for at in self.model.curve if at > 0]
        return Series(axis, [self.model.throughput(at) / own for at in axis])


def modelled(setup: Setup, reading: str, seed: int) -> Modelled:
    pricing = READINGS[reading]
    measured = curve(replace(setup, way=pricing.way), seed)
    priced = measured.priced(pricing.unit, price(pricing.unit, pricing.way, seed))
    model = Model(pricing.link, priced)
    return Modelled(model, measured, model.best())
