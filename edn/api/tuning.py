"""Tuning of the precision, and the link to the servers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from edn.api.fields import Always


class Reading(msgspec.Struct, frozen=True):
    cpu: float
    throughput: float
    saturated: bool


class OperatingPoint(msgspec.Struct, frozen=True):
    """Measurements at one precision, and the events per second that each part sustains; null: no limit."""

    precision: float
    #: T_d, seconds per event and server
    routing: float
    #: R
    hit_ratio: float
    #: TP_IL, TP_D, TP_OL, TP_S and their minimum
    incoming: float | None
    dispatcher: float | None
    outgoing: float | None
    servers: float | None
    throughput: float | None
    bottleneck: Annotated[str, Literal["TP_IL", "TP_D", "TP_OL", "TP_S"]]


class Parameters(msgspec.Struct, frozen=True):
    """Parameters that do not depend on the precision; seconds and bytes, null: no limit."""

    #: N_s
    servers: int
    #: T_f
    fixed: float
    #: T_c
    per_copy: float
    #: S_m
    message_bytes: float
    #: B
    bandwidth: float | None
    #: T_s · F
    serving: float
    #: max(T_p, T_l)
    arrival: float
    #: share of one core that the dispatcher gets under load
    core: float


class Tuning(msgspec.Struct, frozen=True):
    #: "fixed", "paper" or "model"
    mode: str
    precision: Always[float] = None
    #: last decisions
    history: list[dict[str, Any]] = []


class FullTuning(Tuning, frozen=True, kw_only=True):
    interval_seconds: float
    reading: Reading | None
    parameters: Parameters | None
    curve: list[OperatingPoint]


class Link(msgspec.Struct, frozen=True):
    bytes_per_second: float | None
    lag_limit: int | None
    sent_bytes: int
    #: sent events, counted once per server
    copies: int
    #: delayed publish requests
    held: int
