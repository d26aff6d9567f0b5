"""What a policy is told, once an interval."""

from __future__ import annotations

from dataclasses import dataclass

from selftune.throughput import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    #: mean share of one core over the interval, 0 … 1
    cpu: float
    #: events a second that passed through the whole network
    throughput: float
    #: more was asked of the network than it carried; else its throughput says nothing about its capacity
    saturated: bool = True
    #: how full the outgoing link and the fullest server were, 0 … 1; None where nobody knows
    link: float | None = None
    server: float | None = None
    #: live parameters, and what was measured at some precisions; None where nobody measures
    model: Model | None = None
