"""The routes about delivery: attempts, dead letters, examples, secrets. The server that hosts is asked.

The directory knows which server that is. A dead letter's id names its server: `s2.1207` is letter 1207 of s2.
Of a subscription to a subtree all servers that host a part of it are asked, and answer as one
(`servers.fan_out`).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Path, Query
from pydantic import Field

from dispatcher.api.bodies import Body
from dispatcher.api.caller import Who
from dispatcher.auth.caller import Caller, Need, needs
from dispatcher.servers import fan_out
from dispatcher.servers.client import ServerClient
from dispatcher.servers.registry import ServerRegistry
from dispatcher.store import directory
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log
from dispatcher.subscriptions import signing_rings
from dispatcher.subscriptions.expiry import parse_expires
from edn.api import delivery
from edn.api.document import document
from edn.errors import Conflict, EdnError, Forbidden, InvalidInput, NotFound, Unavailable
from edn.formats import webhooks
from edn.http.asgi import StrictRoute
from edn.http.control_client import problem_detail
from edn.model import namespace
from edn.model.coordinates import instant, rfc3339

#: a letter's id: server and number
_LETTER = re.compile(r"([A-Za-z0-9_.-]{1,64})\.([0-9]{1,18})\Z")
_ASKED = {404: NotFound, 409: Conflict, 422: InvalidInput}
#: seconds that a server has to say how a subscription fares, before the answer goes without
GLANCE_SECONDS = 2.0
#: seconds that a recovery of many letters, or a slow sink's answer to an example, may take
LONG_SECONDS = 60.0

LetterId = Annotated[str, Path(max_length=100)]


class RecoverBody(Body):
    since: str = Field(
        description="An instant (RFC 3339): what was given up then or later.",
        max_length=64,
        examples=["2030-01-31T09:00:00Z"],
    )


class RotateBody(Body):
    secret: str | None = Field(None, description="The new one; without one, one is made.", max_length=128)
    grace: str = Field(
        "P1D", description="How long the secret before signs, too: a duration, or an instant.", max_length=64
    )


async def ask(
    calls: ServerClient, server: str, method: str, path: str, *, seconds: float = 10.0, **request: Any
) -> Any:
    """Return the answer of a server; raise its refusal."""
    response = await calls.call(server, method, path, timeout=seconds, **request)
    if response.status_code == 200:
        return response.json()
    detail = problem_detail(response)
    refused = _ASKED.get(response.status_code)
    if refused is not None:
        raise refused(detail)
    raise Unavailable(f"server {server} answered {response.status_code}: {detail}", retry_after=2)


async def hosts(log: Log, found: Subscription) -> list[str]:
    """The servers that host a subscription, or a part of it."""
    if found.subtree is None:
        return [found.server]
    members = await log.reading(lambda connection: directory.members(connection, found.id))
    return sorted({one.server for one in members})


async def ask_all(
    log: Log, calls: ServerClient, found: Subscription, method: str, what: str, **request: Any
) -> list[Any]:
    """Return the answers of several servers; raise the refusal of any."""
    path = _path(found.id, what)
    asked = (ask(calls, server, method, path, **request) for server in await hosts(log, found))
    return list(await asyncio.gather(*asked))


async def glance(log: Log, calls: ServerClient, found: Subscription) -> delivery.Delivery | None:
    """How a subscription's delivery is; None when its server cannot say."""
    try:
        return fan_out.delivery(await ask_all(log, calls, found, "GET", "delivery", seconds=GLANCE_SECONDS))
    except EdnError:
        return None


def _path(subscription: str, what: str) -> str:
    return f"/internal/subscriptions/{quote(subscription, safe='')}/{what}"


def routes(
    log: Log,
    members: ServerRegistry,
    calls: ServerClient,
    find: Callable[[Caller, str], Awaitable[Subscription]],
) -> APIRouter:
    """`find` gives a living subscription that a caller may know of, or raises `NotFound`."""
    router = APIRouter(prefix="/v1", tags=["delivery"], route_class=StrictRoute)

    async def about(who: Caller, id: str, method: str, what: str, **request: Any) -> list[Any]:
        return await ask_all(log, calls, await find(who, id), method, what, **request)

    def letter(id: str, what: str = "") -> tuple[str, str]:
        named = _LETTER.match(id)
        if named is None or members.get(named[1]) is None:
            raise NotFound(f'no dead letter "{id[:80]}"')
        return named[1], f"/internal/dead-letters/{int(named[2])}{what}"

    async def read(id: str, who: Caller) -> Any:
        """Read a letter of the caller's tenant of which a subscription lives; the operator reads every one.

        A letter is one tenant's, because its address is: there is nothing in it to leave out.
        """
        server, path = letter(id)
        found = await ask(calls, server, "GET", path)
        if who.operates:
            return found
        keys = found["subscriptions"]
        own = all(namespace.owner_of(key) == who.tenant for key in keys)
        if not own or not await knows_any(who, [namespace.id_of(key) for key in keys]):
            raise NotFound(f'no dead letter "{id[:80]}"')
        return {**found, "subscriptions": [namespace.id_of(key) for key in keys]}

    async def knows_any(who: Caller, ids: Sequence[str]) -> bool:
        for id in ids:
            with contextlib.suppress(NotFound):
                await find(who, id)
                return True
        return False

    @router.get("/subscriptions/{id}/attempts", response_model=document(delivery.AttemptList))
    @needs(Need.SUBSCRIBE)
    async def list_attempts(id: str, who: Who) -> Any:
        """The last attempts at the subscription's address, the newest first."""
        return fan_out.attempts(await about(who, id, "GET", "attempts"))

    @router.post("/subscriptions/{id}/recover", response_model=document(delivery.Queued))
    @needs(Need.SUBSCRIBE)
    async def recover(id: str, body: RecoverBody, who: Who) -> Any:
        """Queue again all dead letters of a subscription since a time, for its present sink."""
        try:
            since = max(0, instant(body.since))
        except ValueError as error:
            raise InvalidInput(
                f"since: an instant such as 2030-01-31T09:00:00Z; {error}", pointer="/since"
            ) from None
        asked = await about(who, id, "POST", "recover", json={"since": since}, seconds=LONG_SECONDS)
        return fan_out.queued(asked)

    @router.post("/subscriptions/{id}/enable", response_model=document(delivery.Delivery))
    @needs(Need.SUBSCRIBE)
    async def enable(id: str, who: Who) -> Any:
        """Send to a disabled or failing address again, at once."""
        return fan_out.delivery(await about(who, id, "POST", "enable"))

    @router.post("/subscriptions/{id}/example", response_model=document(delivery.Attempt))
    @needs(Need.SUBSCRIBE)
    async def send_example(id: str, who: Who) -> Any:
        """Send a made-up event, marked as an example, and tell how the sink answered. Nothing is stored."""
        found = await find(who, id)
        first = (await hosts(log, found))[:1]
        if not first:
            raise Conflict(
                "no topic that its filter fits is there yet: there is nothing to make an example of"
            )
        return await ask(calls, first[0], "POST", _path(found.id, "example"), seconds=LONG_SECONDS)

    @router.post("/subscriptions/{id}/rotate-secret", response_model=document(delivery.Rotation))
    @needs(Need.SUBSCRIBE)
    async def rotate_secret(id: str, who: Who, body: RotateBody | None = None) -> Any:
        """Sign with another secret from now on, and for a while with the one before, too."""
        found = await find(who, id)
        given = body or RotateBody.model_validate({})
        if given.secret is not None:
            try:
                webhooks.check_secret(given.secret)
            except EdnError as error:
                error.pointer = "/secret"
                raise
        now = log.now()
        grace = parse_expires(given.grace, now, pointer="/grace") - now
        rotated = await signing_rings.rotate(log, found.id, given.secret, grace)
        return delivery.Rotation(
            secret=rotated.ring.current if given.secret is None else None,
            previous_until=rfc3339(rotated.ring.until),
            subscriptions=rotated.subscriptions,
        )

    @router.get("/dead-letters", response_model=document(delivery.DeadLetterPage))
    @needs(Need.SUBSCRIBE)
    async def list_dead_letters(
        who: Who,
        subscription: Annotated[str | None, Query(max_length=128)] = None,
        after: Annotated[str | None, Query(max_length=160)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> Any:
        """Notifications that were given up, oldest death first: of a subscription, or server by server."""
        if subscription is not None:
            found = await find(who, subscription)
            of = {"subscription": found.id}
            if found.subtree is None:
                given = {**of, "limit": limit, **({} if after is None else {"after": after})}
                return await ask(calls, found.server, "GET", "/internal/dead-letters", params=given)
            return await letters_of(await hosts(log, found), after, limit, of)
        if not who.operates:
            raise Forbidden("an operator's key lists all dead letters; with others, name a subscription")
        return await letters_of(sorted(member.id for member in members), after, limit, {})

    async def letters_of(servers: Sequence[str], after: str | None, limit: int, of: dict[str, str]) -> Any:
        """A page of the letters of several servers, one after the other."""
        first, mark, inner = (after or "").partition("~")
        if after is not None and (not mark or members.get(first) is None):
            raise InvalidInput('after: not one that a listing gave as "next"', pointer="/after")
        letters: list[Any] = []
        for server in servers:
            if server < first:
                continue
            given = {
                **of,
                "limit": limit - len(letters),
                **({"after": inner} if server == first and inner else {}),
            }
            page = await ask(calls, server, "GET", "/internal/dead-letters", params=given)
            letters += page["dead_letters"]
            if page["next"] is not None:
                return {"dead_letters": letters, "next": f"{server}~{page['next']}"}
            if len(letters) == limit:
                later = [other for other in servers if other > server]
                return {"dead_letters": letters, "next": f"{min(later)}~" if later else None}
        return {"dead_letters": letters, "next": None}

    @router.get("/dead-letters/{id}", response_model=document(delivery.DeadLetter))
    @needs(Need.SUBSCRIBE)
    async def get_dead_letter(id: LetterId, who: Who) -> Any:
        """One of them, with what it would have said."""
        return await read(id, who)

    @router.post("/dead-letters/{id}/resend", response_model=document(delivery.Queued))
    @needs(Need.SUBSCRIBE)
    async def resend_dead_letter(id: LetterId, who: Who) -> Any:
        """Queue one again, for whoever of its subscriptions still lives, at their present sinks."""
        if not who.operates:
            await read(id, who)
        server, path = letter(id, "/resend")
        return await ask(calls, server, "POST", path)

    return router
