"""The routes of repartitions, and of servers that come and go."""

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
from edn.api.document import document
from edn.api.fields import fill
from edn.api.repartitions import FullRepartition, HitRatio, Preview, Proposal, Repartitions
from edn.http.asgi import StrictRoute
from edn.model.coordinates import rfc3339

#: assignments of one request
MOST_ASSIGNMENTS = 5000

Rate = Annotated[float, Field(gt=0, le=1_000_000, description="subscriptions a second")]
#: of a subscription, also of a member of one to a subtree; of a server
Name = Annotated[str, Field(min_length=1, max_length=240)]
Id = Annotated[int, Path(ge=1, lt=1 << 53)]


class RepartitionBody(bodies.Body):
    rate: Rate = RATE
    #: what the plan promises; shown beside what comes of it
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
        return shown(row, await handover.count_unfinished())

    def shown(row: Row, unsettled: int) -> FullRepartition:
        return fill(
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
        """The last repartitions, how good the present partition is, and whether another one is proposed."""
        proposal, unsettled = advisor.proposal, await handover.count_unfinished()
        return Repartitions(
            repartitions=[shown(row, unsettled) for row in await runner.newest()],
            unsettled=unsettled,
            hit_ratio=HitRatio(**advisor.describe()),
            proposal=None if proposal is None else fill(Proposal, proposal, since=rfc3339(proposal.since)),
        )

    @router.post("/repartitions", status_code=201, response_model=document(FullRepartition))
    @needs(Need.OPERATOR)
    async def open_repartition(body: RepartitionBody) -> Any:
        """A new repartition, to which assignments are added before it starts; refused while one runs."""
        made = await runner.open(rate=body.rate, expected_hit_ratio=body.expected_hit_ratio)
        return await view(made)

    @router.get("/repartitions/{id}", response_model=document(FullRepartition))
    @needs(Need.OPERATOR)
    async def get_repartition(id: Id) -> Any:
        """How far it is."""
        return await view(await runner.get(id))

    @router.post("/repartitions/{id}/assignments", response_model=document(FullRepartition))
    @needs(Need.OPERATOR)
    async def assign(id: Id, body: Assignments) -> Any:
        """Add where subscriptions shall go; a server that is not there is refused."""
        return await view(await runner.assign(id, body.assignments.items()))

    @router.get("/repartitions/{id}/preview", response_model=document(Preview))
    @needs(Need.OPERATOR)
    async def preview(id: Id) -> Any:
        """Preview: how many subscriptions would move, and how many each server would host."""
        found, seen = await runner.get(id), await runner.preview(id)
        ratios = {"hit_ratio": advisor.hit_ratio(), "expected_hit_ratio": found.expected_hit_ratio}
        return fill(Preview, seen, **ratios)

    @router.post("/repartitions/{id}/start", response_model=document(FullRepartition))
    @needs(Need.OPERATOR)
    async def start(id: Id) -> Any:
        """Move, while events are published; it goes on by itself after a crash."""
        return await view(await runner.start(id))

    @router.post("/repartitions/{id}/cancel", response_model=document(FullRepartition))
    @needs(Need.OPERATOR)
    async def cancel(id: Id) -> Any:
        """No further moves; what has moved stays where it is."""
        return await view(await runner.cancel(id))

    _server_routes(router, runner, view)
    return router


def _server_routes(router: APIRouter, runner: RepartitionRunner, view: Any) -> None:
    def rate(body: ServerMoveBody | None) -> float:
        return RATE if body is None else body.rate

    @router.post("/servers/{id}/drain", status_code=202, response_model=document(FullRepartition))
    @needs(Need.OPERATOR)
    async def drain(id: str, body: OptionalBody = None) -> Any:
        """Empty a server; it gets no new subscriptions, and may stop when it is done and settled."""
        return await view(await runner.drain(id, rate=rate(body)))

    @router.post("/servers/{id}/replace", status_code=202, response_model=document(FullRepartition))
    @needs(Need.OPERATOR)
    async def replace(id: str, body: OptionalBody = None) -> Any:
        """Build what a server that will not come back hosted anew on the others."""
        return await view(await runner.replace(id, rate=rate(body)))

    @router.post("/servers/{id}/fill", status_code=202, response_model=document(FullRepartition))
    @needs(Need.OPERATOR)
    async def fill(id: str, body: OptionalBody = None) -> Any:
        """Give a new server its share of the subscriptions."""
        return await view(await runner.fill(id, rate=rate(body)))

    @router.delete("/servers/{id}", status_code=204)
    @needs(Need.OPERATOR)
    async def forget(id: str) -> None:
        """Take a server that hosts nothing and does not run out of the network."""
        await runner.forget(id)
