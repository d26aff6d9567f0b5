"""The routes of tuning and of the link."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from dispatcher.api.bodies import Body
from dispatcher.auth.caller import Need, needs
from dispatcher.servers import client
from dispatcher.servers.pipeline import Backpressure, PipelineCounters
from dispatcher.tuning.loop import Tuner
from edn.api.document import document
from edn.api.tuning import FullTuning, Link
from edn.http.asgi import StrictRoute


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


def routes(
    backpressure: Backpressure, way: client.Link, counters: PipelineCounters, tuner: Tuner
) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["operations"], route_class=StrictRoute)

    @router.get("/tuning", response_model=document(FullTuning))
    @needs(Need.OPERATOR)
    async def get_tuning() -> Any:
        """Mode and precision, why they are so, what was last read, what the throughput model makes of it."""
        return tuner.describe()

    @router.put("/tuning", response_model=document(FullTuning))
    @needs(Need.OPERATOR)
    async def put_tuning(body: TuningBody) -> Any:
        """Hold a precision (`fixed`; 1 is precise, 0 sends everything everywhere), or tune it from there."""
        await tuner.set(body.mode, body.precision)
        return tuner.describe()

    @router.post("/tuning/survey", response_model=document(FullTuning))
    @needs(Need.OPERATOR)
    async def survey() -> Any:
        """Measure every precision on recent events now: seconds of work beside the flow of events."""
        await tuner.survey()
        return tuner.describe()

    def link() -> Link:
        return Link(
            bytes_per_second=way.bytes_per_second,
            lag_limit=backpressure.limit,
            sent_bytes=counters.counts.sent_bytes,
            copies=counters.counts.copies,
            held=backpressure.held,
        )

    @router.get("/link", response_model=document(Link))
    @needs(Need.OPERATOR)
    async def get_link() -> Any:
        """The limits of the way to the servers, and what has passed since the dispatcher started."""
        return link()

    @router.put("/link", response_model=document(Link))
    @needs(Need.OPERATOR)
    async def put_link(body: LinkBody) -> Any:
        """Other limits, at once and until the dispatcher's next start; null lifts one."""
        way.limit(body.bytes_per_second)
        backpressure.set_limit(body.lag_limit)
        return link()

    return router
