"""A reading: what the self-tuner measures in one interval."""

from __future__ import annotations

from dataclasses import dataclass

from selftune.throughput import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    #: mean share of one core over the interval, 0 … 1
    cpu: float
    #: events per second that passed through the whole network
    throughput: float
    #: whether demand exceeded capacity; otherwise the throughput is not the capacity
    saturated: bool = True
    #: load of the outgoing link and of the busiest server, 0 … 1; None if unknown
    link: float | None = None
    server: float | None = None
    #: the throughput model with measured parameters; None if it is not measured
    model: Model | None = None
