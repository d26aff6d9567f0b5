"""Routes of repartitions, and of adding and removing servers."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Path
from pydantic import Field

from dispatcher.api import bodies
from dispatcher.auth.caller import Need, needs
from dispatcher.rebalance.advisor import RepartitionAdvisor
from dispatcher.rebalance.handover import Handover
from dispatcher.rebalance.runner import RATE, RepartitionRunner
from dispatcher.store.repartitions import Repartition as Row
from edn.api import fields
from edn.api.document import document
from edn.api.repartitions import FullRepartition, HitRatio, Preview, Proposal, Repartitions
from edn.http.asgi import StrictRoute
from edn.model.coordinates import rfc3339

#: assignments per request
MOST_ASSIGNMENTS = 5000

Rate = Annotated[float, Field(gt=0, le=1_000_000, description="subscriptions per second")]
#: name of a server, or id of a subscription or of a member
Name = Annotated[str, Field(min_length=1, max_length=240)]
Id = Annotated[int, Path(ge=1, lt=1 << 53)]


class RepartitionBody(bodies.Body):
    rate: Rate = RATE
    #: hit ratio that the plan predicts
    expected_hit_ratio: Annotated[float | None, Field(ge=0, le=1)] = None


class ServerMoveBody(bodies.Body):
    rate: Rate = RATE


OptionalBody = Annotated[ServerMoveBody | None, Body()]


class Assignments(bodies.Body):
    #: subscription → server
    assignments: Annotated[dict[Name, Name], Field(max_length=MOST_ASSIGNMENTS)]


def routes(runner: RepartitionRunner, handover: Handover, advisor: RepartitionAdvisor) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["repartitions"], route_class=StrictRoute)

    async def view(row: Row) -> FullRepartition:
        return view_with(row, await handover.count_unfinished())

    def view_with(row: Row, unsettled: int) -> FullRepartition:
        return fields.fill(
            FullRepartition,
            row,
            created=rfc3339(row.created),
            began=None if row.began is None else rfc3339(row.began),
            ended=None if row.ended is None else rfc3339(row.ended),
            unsettled=unsettled,
            waiting=runner.waiting if row.state == "running" else None,
        )

    @router.get("/repartitions", response_model=document(Repartitions))
    @needs(Need.OPERATOR)
    async def list_repartitions() -> Any:
        """List the last repartitions, the current hit ratio, and the proposal of another one."""
        proposal, unsettled = advisor.proposal, await handover.count_unfinished()
        return Repartitions(
            repartitions=[view_with(row, unsettled) for row in await runner.newest()],
            unsettled=unsettled,
            hit_ratio=HitRatio(**advisor.describe()),
            proposal=None
            if proposal is None
            else fields.fill(Proposal, proposal, since=rfc3339(proposal.since)),
        )

    @router.post("/repartitions", status_code=201, response_model=document(FullRepartition))
    @needs(Need.OPERATOR)
    async def open_repartition(body: RepartitionBody) -> Any:
        """Create a repartition, to add assignments to before it starts; refused while another one runs."""
        return await view(await runner.open(rate=body.rate, expected_hit_ratio=body.expected_hit_ratio))

    @router.get("/repartitions/{id}", response_model=document(FullRepartition))
    @needs(Need.OPERATOR)
    async def get_repartition(id: Id) -> Any:
        """Get the progress of a repartition."""
        return await view(await runner.get(id))

    @router.post("/repartitions/{id}/assignments", response_model=document(FullRepartition))
    @needs(Need.OPERATOR)
    async def assign(id: Id, body: Assignments) -> Any:
        """Assign subscriptions to servers."""
        return await view(await runner.assign(id, body.assignments.items()))

    @router.get("/repartitions/{id}/preview", response_model=document(Preview))
    @needs(Need.OPERATOR)
    async def preview(id: Id) -> Any:
        """Preview how many subscriptions would migrate, and how many each server would host."""
        found, seen = await runner.get(id), await runner.preview(id)
        ratios = {"hit_ratio": advisor.hit_ratio(), "expected_hit_ratio": found.expected_hit_ratio}
        return fields.fill(Preview, seen, **ratios)

    @router.post("/repartitions/{id}/start", response_model=document(FullRepartition))
    @needs(Need.OPERATOR)
    async def start(id: Id) -> Any:
        """Start the migrations. They run while events are published, and continue after a crash."""
        return await view(await runner.start(id))

    @router.post("/repartitions/{id}/cancel", response_model=document(FullRepartition))
    @needs(Need.OPERATOR)
    async def cancel(id: Id) -> Any:
        """Cancel the remaining migrations; finished ones are not reverted."""
        return await view(await runner.cancel(id))

    def rate(body: ServerMoveBody | None) -> float:
        return RATE if body is None else body.rate

    @router.post("/servers/{id}/drain", status_code=202, response_model=document(FullRepartition))
    @needs(Need.OPERATOR)
    async def drain(id: str, body: OptionalBody = None) -> Any:
        """Drain a server: migrate its subscriptions and place no new ones on it."""
        return await view(await runner.drain(id, rate=rate(body)))

    @router.post("/servers/{id}/replace", status_code=202, response_model=document(FullRepartition))
    @needs(Need.OPERATOR)
    async def replace(id: str, body: OptionalBody = None) -> Any:
        """Restore the subscriptions of a lost server on other servers."""
        return await view(await runner.replace(id, rate=rate(body)))

    @router.post("/servers/{id}/fill", status_code=202, response_model=document(FullRepartition))
    @needs(Need.OPERATOR)
    async def fill(id: str, body: OptionalBody = None) -> Any:
        """Migrate a share of the subscriptions to a new server."""
        return await view(await runner.fill(id, rate=rate(body)))

    @router.delete("/servers/{id}", status_code=204)
    @needs(Need.OPERATOR)
    async def forget(id: str) -> None:
        """Remove a stopped server that hosts no subscriptions."""
        await runner.forget(id)

    return router
