"""Routes of tuning, and of the link to the servers."""

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
        None,
        ge=0,
        le=1,
        strict=False,
        description="Precision to fix, or to start with. Default: the current one.",
    )


class LinkBody(Body):
    bytes_per_second: float | None = Field(
        None,
        ge=1000,
        le=1e15,
        strict=False,
        description="Bytes per second to all servers together; null: no limit.",
    )
    lag_limit: int | None = Field(
        None,
        ge=1,
        le=1 << 53,
        description="Delay publishers while a server lags more records behind; null: never.",
    )


def routes(
    backpressure: Backpressure, link: client.Link, counters: PipelineCounters, tuner: Tuner
) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["operations"], route_class=StrictRoute)

    @router.get("/tuning", response_model=document(FullTuning))
    @needs(Need.OPERATOR)
    async def get_tuning() -> Any:
        """Get mode, precision, the last decision and reading, and the estimate of the throughput model."""
        return tuner.describe()

    @router.put("/tuning", response_model=document(FullTuning))
    @needs(Need.OPERATOR)
    async def put_tuning(body: TuningBody) -> Any:
        """Fix the precision (`fixed`; 1 is precise, 0 sends all events to all servers), or tune it."""
        await tuner.set(body.mode, body.precision)
        return tuner.describe()

    @router.post("/tuning/survey", response_model=document(FullTuning))
    @needs(Need.OPERATOR)
    async def survey() -> Any:
        """Measure all precisions on recent events now. Takes seconds, while events are routed."""
        await tuner.survey()
        return tuner.describe()

    def view() -> Link:
        return Link(
            bytes_per_second=link.bytes_per_second,
            lag_limit=backpressure.limit,
            sent_bytes=counters.counts.sent_bytes,
            copies=counters.counts.copies,
            held=backpressure.held,
        )

    @router.get("/link", response_model=document(Link))
    @needs(Need.OPERATOR)
    async def get_link() -> Any:
        """Get the limits of the link to the servers, and its traffic since the start."""
        return view()

    @router.put("/link", response_model=document(Link))
    @needs(Need.OPERATOR)
    async def put_link(body: LinkBody) -> Any:
        """Set limits until the dispatcher's next start; null removes one."""
        link.limit(body.bytes_per_second)
        backpressure.set_limit(body.lag_limit)
        return view()

    return router
