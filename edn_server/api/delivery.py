"""Routes about delivery, for the dispatcher."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from edn.api import delivery as api
from edn.api.document import document
from edn.http.asgi import StrictRoute
from edn_server.api.messages import PROBLEM_BODY, UNAUTHORIZED
from edn_server.observe.delivery_status import DeliveryStatus

_REFUSALS: dict[int | str, dict[str, Any]] = {
    "400": {"description": "the body cannot be read", **PROBLEM_BODY},
    **UNAUTHORIZED,
    "404": {"description": "it does not exist on this server", **PROBLEM_BODY},
    "409": {"description": "there is no living recipient", **PROBLEM_BODY},
    "413": {"description": "longer than the limit", **PROBLEM_BODY},
    "422": {"description": "the request is invalid; the problem names the place", **PROBLEM_BODY},
    "503": {"description": "not ready", **PROBLEM_BODY},
}

Number = Annotated[int, Path(ge=1, lt=1 << 62)]


class SinceBody(BaseModel):
    """A time in microseconds."""

    model_config = ConfigDict(extra="forbid", strict=True)

    since: int = Field(ge=0, lt=1 << 62)


def router(status: DeliveryStatus, guard: Callable[..., Awaitable[None]]) -> APIRouter:
    routes = APIRouter(
        prefix="/internal",
        tags=["internal"],
        route_class=StrictRoute,
        dependencies=[Depends(guard)],
        responses=_REFUSALS,
    )

    @routes.get(
        "/subscriptions/{id}/delivery",
        response_model=document(api.Delivery),
        response_model_exclude_unset=True,
    )
    async def delivery(id: str) -> Any:
        return await status.delivery(id)

    @routes.get("/subscriptions/{id}/attempts", response_model=document(api.AttemptList))
    async def attempts(id: str) -> Any:
        return {"attempts": await status.attempts(id)}

    @routes.post("/subscriptions/{id}/recover", response_model=document(api.Queued))
    async def recover(id: str, body: SinceBody) -> Any:
        return await status.recover(id, body.since)

    @routes.post("/subscriptions/{id}/enable", response_model=document(api.Delivery))
    async def enable(id: str) -> Any:
        return await status.enable(id)

    @routes.post("/subscriptions/{id}/example", response_model=document(api.Attempt))
    async def example(id: str) -> Any:
        return await status.example(id)

    @routes.get("/dead-letters", response_model=dict[str, Any])
    async def dead_letters(
        subscription: Annotated[str | None, Query(max_length=256)] = None,
        after: Annotated[str | None, Query(max_length=64)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> Any:
        page, following = await status.letters(subscription, after, limit)
        return {"dead_letters": page, "next": following}

    @routes.get("/dead-letters/{number}", response_model=document(api.DeadLetter))
    async def dead_letter(number: Number) -> Any:
        return await status.letter(number)

    @routes.post("/dead-letters/{number}/resend", response_model=document(api.Queued))
    async def resend(number: Number) -> Any:
        return await status.resend(number)

    return routes
