"""The routes of tuning and of the link."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from dispatcher.access import Need, needs
from dispatcher.bodies import Body
from dispatcher.network import Network
from dispatcher.tuning_loop import Tuner
from edn.asgi import StrictRoute


class TuningBody(Body):
    mode: str = Field("fixed", max_length=64, description="fixed, paper or model.")
    precision: float | None = Field(
        None, ge=0, le=1, strict=False, description="To hold, or to begin with; without one, the present one."
    )


class LinkBody(Body):
    bytes_per_second: float | None = Field(
        None,
        ge=1000,
        le=1e15,
        strict=False,
        description="May leave for all servers together; null: no limit.",
    )
    lag_limit: int | None = Field(
        None,
        ge=1,
        le=1 << 53,
        description="Publishers wait while a server is so many records behind; null: the log grows instead.",
    )


class Reading(BaseModel):
    cpu: float
    throughput: float
    saturated: bool


class OperatingPoint(BaseModel):
    """One precision: what was measured, and the events a second that each part carries; null: no bound."""

    precision: float
    #: T_d, seconds an event and server
    routing: float
    #: R
    hit_ratio: float
    #: TP_IL, TP_D, TP_OL, TP_S and the least of them
    incoming: float | None
    dispatcher: float | None
    outgoing: float | None
    servers: float | None
    throughput: float | None
    bottleneck: Literal["TP_IL", "TP_D", "TP_OL", "TP_S"]


class Parameters(BaseModel):
    """What does not depend on the precision; seconds and bytes, null: no limit."""

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
    #: the part of one core that the dispatcher gets while it wants one
    core: float


class Tuning(BaseModel):
    mode: str
    precision: float
    history: list[dict[str, Any]]
    interval_seconds: float
    reading: Reading | None
    parameters: Parameters | None
    curve: list[OperatingPoint]


class Link(BaseModel):
    bytes_per_second: float | None
    lag_limit: int | None
    sent_bytes: int
    #: events that were sent, counted once a server
    copies: int
    #: publishers that had to wait
    held: int


def routes(network: Network, tuner: Tuner) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["operations"], route_class=StrictRoute)

    @router.get("/tuning", response_model=Tuning)
    @needs(Need.OPERATOR)
    async def get_tuning() -> Any:
        """Mode and precision, why they are so, what was last read, what the throughput model makes of it."""
        return tuner.describe()

    @router.put("/tuning", response_model=Tuning)
    @needs(Need.OPERATOR)
    async def put_tuning(body: TuningBody) -> Any:
        """Hold a precision (`fixed`; 1 is precise, 0 sends everything everywhere), or tune it from there."""
        await tuner.set(body.mode, body.precision)
        return tuner.describe()

    @router.post("/tuning/survey", response_model=Tuning)
    @needs(Need.OPERATOR)
    async def survey() -> Any:
        """Measure every precision on recent events now: seconds of work beside the flow of events."""
        await tuner.survey()
        return tuner.describe()

    def link() -> dict[str, Any]:
        return {
            "bytes_per_second": network.link.bytes_per_second,
            "lag_limit": network.pressure.limit,
            "sent_bytes": network.meter.counts.sent_bytes,
            "copies": network.meter.counts.copies,
            "held": network.pressure.held,
        }

    @router.get("/link", response_model=Link)
    @needs(Need.OPERATOR)
    async def get_link() -> Any:
        """The limits of the way to the servers, and what has passed since the dispatcher started."""
        return link()

    @router.put("/link", response_model=Link)
    @needs(Need.OPERATOR)
    async def put_link(body: LinkBody) -> Any:
        """Other limits, at once and until the dispatcher's next start; null lifts one."""
        network.link.limit(body.bytes_per_second)
        network.pressure.set_limit(body.lag_limit)
        return link()

    return router
