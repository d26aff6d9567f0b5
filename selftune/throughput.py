"""The throughput model: what bounds a network, from a handful of measured times and sizes.

The published symbols, explained once:

    N_s   servers that receive events from the dispatcher
    T_f   dispatcher's fixed CPU time an event: receiving, logging, waking the streams
    T_d   dispatcher's CPU time to route one event for one server; falls with the precision
    T_c   dispatcher's CPU time for one copy of an event that it sends
    R     hit ratio: copies sent ÷ (events × N_s); rises when the precision falls
    S_m   bytes of one copy on the outgoing link
    B     bytes a second that the outgoing link carries
    T_s   CPU time of a server to match one event
    F     load expansion: a server's whole time an event, notifications and all, ÷ T_s
    T_p   time between two events of the publishers, T_l one event on the incoming link

Each part of the network bounds the events a second that pass through all of it:

    TP_IL = 1 / max(T_p, T_l)                       the incoming link
    TP_D  = 1 / (T_f + T_d N_s + T_c R N_s)         the dispatcher's CPU
    TP_OL = B / (R S_m N_s)                         its outgoing link
    TP_S  = 1 / (R T_s F)                           the servers, which share the load evenly
    TP    = the least of them

Let TP' = min(TP_OL, TP_S). Where TP' < TP_D at every precision, the precise summary is best; where TP' >
TP_D at every one, none is; else the best is where they cross. That holds while TP_D falls with the
precision; with a large T_c it need not, which is why `Model.best` looks at every precision.

Seconds and bytes throughout; what is not known or not limited is 0 (times) or infinite (B).
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
    """Everything in the model that does not depend on the precision."""

    #: N_s
    servers: int
    #: T_f
    fixed: float
    #: T_c
    per_copy: float = 0.0
    #: S_m
    message_bytes: float = 0.0
    #: B; infinite where nothing limits it
    bandwidth: float = math.inf
    #: T_s · F: all that a server spends on an event that it gets
    serving: float = 0.0
    #: max(T_p, T_l)
    arrival: float = 0.0
    #: the dispatcher's speed: the part of one core that it gets, or a faster one's in parts of this one
    core: float = 1.0


class Operating(msgspec.Struct, frozen=True):
    """What is measured of one precision."""

    #: T_d
    routing: float
    #: R
    hit_ratio: float


class Components(msgspec.Struct, frozen=True):
    """Events a second that each part could carry; infinite where it bounds nothing."""

    incoming: float
    dispatcher: float
    outgoing: float
    servers: float

    @property
    def throughput(self) -> float:
        return min(self.incoming, self.dispatcher, self.outgoing, self.servers)

    @property
    def bottleneck(self) -> Bottleneck:
        named: dict[Bottleneck, float] = {
            "TP_D": self.dispatcher,
            "TP_OL": self.outgoing,
            "TP_S": self.servers,
            "TP_IL": self.incoming,
        }
        return min(named, key=lambda name: named[name])


def _rate(seconds: float) -> float:
    return 1.0 / seconds if seconds > 0 else math.inf


def components(parameters: Parameters, at: Operating) -> Components:
    """The four bounds at one precision."""
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
    """Parameters and what was measured at some precisions, 0 … 1."""

    parameters: Parameters
    curve: Mapping[float, Operating]

    def at(self, precision: float) -> Components:
        return components(self.parameters, self.curve[precision])

    def throughput(self, precision: float) -> float:
        return self.at(precision).throughput

    def best(self) -> float:
        """The precision with the largest throughput; of equals the largest, which sends least."""
        return max(self.curve, key=lambda precision: (self.throughput(precision), precision))


def with_subscriptions(at: Operating, factor: float) -> Operating:
    """A guess at the same precision with `factor` times the subscriptions, of the same kind.

    Rectangles are taken as independent: an event misses a server when it misses each of its parts. Routing
    time is taken as proportional to the rectangles. Both are close for small changes only.
    """
    return Operating(routing=at.routing * factor, hit_ratio=1.0 - (1.0 - min(1.0, at.hit_ratio)) ** factor)
