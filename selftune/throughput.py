"""The throughput model: the bottleneck of a network, from a few measured times and sizes.

The published symbols, explained once:

    N_s   servers that receive events from the dispatcher
    T_f   dispatcher's fixed CPU time per event: receive, append, wake the streams
    T_d   dispatcher's CPU time to route one event for one server; falls with the precision
    T_c   dispatcher's CPU time to send one copy of an event
    R     hit ratio: copies sent ÷ (events × N_s); rises when the precision falls
    S_m   bytes of one copy on the outgoing link
    B     bytes per second of the outgoing link
    T_s   CPU time of a server to match one event
    F     load expansion: a server's CPU time per event, with its notifications, ÷ T_s
    T_p   time between two events of the publishers, T_l of one event on the incoming link

Each part of the network limits the throughput, in events per second:

    TP_IL = 1 / max(T_p, T_l)                       the incoming link
    TP_D  = 1 / (T_f + T_d N_s + T_c R N_s)         the dispatcher's CPU
    TP_OL = B / (R S_m N_s)                         its outgoing link
    TP_S  = 1 / (R T_s F)                           the servers, with an even load
    TP    = the minimum of them

Let TP' = min(TP_OL, TP_S). If TP' < TP_D at every precision, the precise summary is best; if TP' > TP_D at
every precision, no summary is best; otherwise the best precision is where they cross. That holds while TP_D
falls with the precision. With a large T_c it may not, so `Model.best` compares all precisions.

Units are seconds and bytes. Unknown times are 0, an unlimited B is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

Bottleneck = Literal["TP_IL", "TP_D", "TP_OL", "TP_S"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The parameters that do not depend on the precision."""

    #: N_s
    servers: int
    #: T_f
    fixed: float
    #: T_c
    per_copy: float = 0.0
    #: S_m
    message_bytes: float = 0.0
    #: B; infinite if it is unlimited
    bandwidth: float = math.inf
    #: T_s · F
    serving: float = 0.0
    #: max(T_p, T_l)
    arrival: float = 0.0
    #: speed of the dispatcher's core: the share that it gets, or the factor of a faster one
    core: float = 1.0


class OperatingPoint(msgspec.Struct, frozen=True):
    """The measurements at one precision."""

    #: T_d
    routing: float
    #: R
    hit_ratio: float


class Components(msgspec.Struct, frozen=True):
    """Throughput of each part in events per second; infinite if it is unlimited."""

    incoming: float
    dispatcher: float
    outgoing: float
    servers: float

    @property
    def by_name(self) -> dict[Bottleneck, float]:
        return {
            "TP_D": self.dispatcher,
            "TP_OL": self.outgoing,
            "TP_S": self.servers,
            "TP_IL": self.incoming,
        }

    @property
    def throughput(self) -> float:
        return min(self.by_name.values())

    @property
    def bottleneck(self) -> Bottleneck:
        return min(self.by_name, key=self.by_name.__getitem__)


def _rate(seconds: float) -> float:
    return 1.0 / seconds if seconds > 0 else math.inf


def components(parameters: Parameters, at: OperatingPoint) -> Components:
    copies = at.hit_ratio * parameters.servers
    sent = copies * parameters.message_bytes
    return Components(
        incoming=_rate(parameters.arrival),
        dispatcher=parameters.core
        * _rate(parameters.fixed + at.routing * parameters.servers + parameters.per_copy * copies),
        outgoing=parameters.bandwidth / sent if sent > 0 else math.inf,
        servers=_rate(at.hit_ratio * parameters.serving),
    )


@dataclass(frozen=True, slots=True)
class Model:
    """Parameters, and measurements at some precisions, 0 … 1."""

    parameters: Parameters
    curve: Mapping[float, OperatingPoint]

    def at(self, precision: float) -> Components:
        return components(self.parameters, self.curve[precision])

    def throughput(self, precision: float) -> float:
        return self.at(precision).throughput

    def best(self) -> float:
        """Return the precision with the largest throughput; of equals the largest, which sends least."""
        return max(self.curve, key=lambda precision: (self.throughput(precision), precision))


def with_subscriptions(at: OperatingPoint, factor: float) -> OperatingPoint:
    """Estimate the same precision with `factor` times as many subscriptions of the same kind.

    It assumes that rectangles are independent and that routing time is proportional to their number, which is
    accurate only for small changes.
    """
    return OperatingPoint(
        routing=at.routing * factor, hit_ratio=1.0 - (1.0 - min(1.0, at.hit_ratio)) ** factor
    )
