"""Routes of delivery: attempts, dead letters, example events, signing keys.

The server that hosts the subscription answers; the directory names it. The id of a dead letter names its
server: `s2.1207` is dead letter 1207 of s2. For a subtree subscription, the responses of all servers that
host members are combined (`servers.fan_out`).
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

from dispatcher.api.bodies import Body, Who
from dispatcher.auth.caller import Caller, Need, needs
from dispatcher.servers import fan_out
from dispatcher.servers.client import ServerClient
from dispatcher.servers.registry import ServerRegistry
from dispatcher.store import directory
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log
from dispatcher.subscriptions import signing_rings
from dispatcher.subscriptions.expiry import parse_expires, parse_since
from edn.api import delivery
from edn.api.document import document
from edn.errors import Conflict, EdnError, Forbidden, InvalidInput, NotFound, Unavailable
from edn.formats import webhooks
from edn.http.asgi import StrictRoute
from edn.http.control_client import ControlAnswer, problem_detail
from edn.model import namespace
from edn.model.coordinates import instant, rfc3339

#: id of a dead letter: server and number
_LETTER = re.compile(r"([A-Za-z0-9_.-]{1,64})\.([0-9]{1,18})\Z")
#: a server and its place in a cursor
_PLACE = re.compile(r"([A-Za-z0-9_.-]{1,64})~(\d{1,18}-\d{1,18})", re.ASCII)
_ERRORS = {404: NotFound, 409: Conflict, 422: InvalidInput}
#: timeout of the delivery state, without which a subscription is shown
STATE_SECONDS = 2.0
#: timeout of a recovery of many dead letters, and of a slow sink's response to an example
LONG_SECONDS = 60.0

LetterId = Annotated[str, Path(max_length=100)]


class RecoverBody(Body):
    since: str = Field(
        description="A time (RFC 3339), or a duration such as 1h: requeue dead letters since then.",
        max_length=64,
        examples=["2030-01-31T09:00:00Z"],
    )


class RotateBody(Body):
    secret: str | None = Field(
        None, description="The new signing key. Without it, one is generated.", max_length=128
    )
    grace: str = Field(
        "P1D",
        description="How long the previous signing key signs, too: a duration or a time (RFC 3339).",
        max_length=64,
    )


async def _call_server(
    calls: ServerClient, server: str, method: str, path: str, *, seconds: float = 10.0, **request: Any
) -> Any:
    response = await calls.call(server, method, path, timeout=seconds, **request)
    if response.status_code == 200:
        return response.json()
    raise server_error(response, server)


def server_error(response: ControlAnswer, server: str) -> EdnError:
    detail = problem_detail(response)
    kind = _ERRORS.get(response.status_code)
    if kind is not None:
        return kind(detail)
    return Unavailable(f"server {server} answered {response.status_code}: {detail}", retry_after=2)


async def _hosts(log: Log, found: Subscription) -> list[str]:
    """Returns the servers that host a subscription or its members."""
    if found.subtree is None:
        return [found.server]
    members = await log.reading(lambda connection: directory.members(connection, found.id))
    return sorted({one.server for one in members})


async def _call_hosts(
    log: Log, calls: ServerClient, found: Subscription, method: str, action: str, **request: Any
) -> list[Any]:
    """Returns the responses of all hosts of a subscription, or raises the error of one."""
    path = _path(found.id, action)
    responses = (_call_server(calls, server, method, path, **request) for server in await _hosts(log, found))
    return list(await asyncio.gather(*responses))


async def delivery_state(log: Log, calls: ServerClient, found: Subscription) -> delivery.Delivery | None:
    """Returns the delivery state of a subscription; None if its server does not answer."""
    try:
        responses = await _call_hosts(log, calls, found, "GET", "delivery", seconds=STATE_SECONDS)
        return fan_out.delivery(responses)
    except EdnError:
        return None


def _path(subscription: str, action: str) -> str:
    return f"/internal/subscriptions/{quote(subscription, safe='')}/{action}"


def routes(
    log: Log,
    servers: ServerRegistry,
    calls: ServerClient,
    find: Callable[[Caller, str], Awaitable[Subscription]],
) -> APIRouter:
    """`find` returns a subscription that is visible to a caller, or raises `NotFound`."""
    router = APIRouter(prefix="/v1", tags=["delivery"], route_class=StrictRoute)

    async def call_hosts(who: Caller, id: str, method: str, action: str, **request: Any) -> list[Any]:
        return await _call_hosts(log, calls, await find(who, id), method, action, **request)

    async def call_letter(id: str, method: str, action: str = "") -> Any:
        parts = _LETTER.match(id)
        if parts is None or servers.get(parts[1]) is None:
            raise _no_letter(id)
        return await _call_server(calls, parts[1], method, f"/internal/dead-letters/{int(parts[2])}{action}")

    async def read_letter(id: str, who: Caller) -> Any:
        """Returns a dead letter of which a subscription of the caller exists; the operator reads all.

        A dead letter belongs to one tenant, as its address does, so nothing has to be filtered out.
        """
        letter = await call_letter(id, "GET")
        if who.is_operator:
            return letter
        keys = letter["subscriptions"]
        ids = [namespace.id_of(key) for key in keys]
        if any(namespace.owner_of(key) != who.tenant for key in keys) or not await sees_any(who, ids):
            raise _no_letter(id)
        return {**letter, "subscriptions": ids}

    async def sees_any(who: Caller, ids: Sequence[str]) -> bool:
        for id in ids:
            with contextlib.suppress(NotFound):
                await find(who, id)
                return True
        return False

    @router.get("/subscriptions/{id}/attempts", response_model=document(delivery.AttemptList))
    @needs(Need.SUBSCRIBE)
    async def list_attempts(id: str, who: Who) -> Any:
        """List the last attempts at the subscription's address, newest first."""
        return fan_out.attempts(await call_hosts(who, id, "GET", "attempts"))

    @router.post("/subscriptions/{id}/recover", response_model=document(delivery.Queued))
    @needs(Need.SUBSCRIBE)
    async def recover(id: str, body: RecoverBody, who: Who) -> Any:
        """Requeue all dead letters of a subscription since a time, for its current sink."""
        now = log.now()
        since = parse_since(body.since, now, pointer="/since")
        return fan_out.queued(
            await call_hosts(
                who,
                id,
                "POST",
                "recover",
                json={"since": now if since is None else since},
                seconds=LONG_SECONDS,
            )
        )

    @router.post("/subscriptions/{id}/enable", response_model=document(delivery.Delivery))
    @needs(Need.SUBSCRIBE)
    async def enable(id: str, who: Who) -> Any:
        """Enable a disabled or failing address: retry at once."""
        return fan_out.delivery(await call_hosts(who, id, "POST", "enable"))

    @router.post("/subscriptions/{id}/example", response_model=document(delivery.Attempt))
    @needs(Need.SUBSCRIBE)
    async def send_example(id: str, who: Who) -> Any:
        """Send an invented event, marked as an example, and return the sink's response. Nothing is stored."""
        found = await find(who, id)
        hosts = await _hosts(log, found)
        if not hosts:
            raise Conflict(
                "the subtree has no topic that fits the filter yet, so there is no schema for an example"
            )
        path = _path(found.id, "example")
        return await _call_server(calls, hosts[0], "POST", path, seconds=LONG_SECONDS)

    @router.post("/subscriptions/{id}/rotate-secret", response_model=document(delivery.Rotation))
    @needs(Need.SUBSCRIBE)
    async def rotate_secret(id: str, who: Who, body: RotateBody | None = None) -> Any:
        """Replace the signing key; the previous one signs, too, until the grace period ends."""
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
        after: Annotated[str | None, Query(max_length=16_384)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> Any:
        """List dead letters, oldest first: of a subscription, or, for operators, all."""
        if subscription is not None:
            found = await find(who, subscription)
            only = {"subscription": found.id}
            return await letters_of(who, await _hosts(log, found), limit, after, only)
        if not who.is_operator:
            raise Forbidden(
                "listing all dead letters requires an operator's key; otherwise name a subscription"
            )
        return await letters_of(who, [server.id for server in servers], limit, after, {})

    async def letters_of(
        who: Caller, ids: Sequence[str], limit: int, after: str | None, only: dict[str, str]
    ) -> Any:
        """Returns a page of the dead letters of servers, merged by time.

        The cursor of a page has one place per server: `s1~place,s2~place`.
        """
        places = _read_places(after)

        async def read(server: str) -> list[Any]:
            place = {"after": places[server]} if server in places else {}
            parameters = {**only, "limit": limit, **place}
            page = await _call_server(calls, server, "GET", "/internal/dead-letters", params=parameters)
            return [
                (instant(letter["died"]), server, letter, page["next"] is not None)
                for letter in page["dead_letters"]
            ]

        pages = await asyncio.gather(*(read(server) for server in sorted(ids)))
        # Each server's letters are in order, so the sort keeps them so.
        found = sorted((row for page in pages for row in page), key=lambda row: row[:2])
        letters = []
        for _, server, letter, _ in found[:limit]:
            places[server] = letter.pop("cursor")
            if not who.is_operator:
                letter["subscriptions"] = [namespace.id_of(key) for key in letter["subscriptions"]]
            letters.append(letter)
        has_more = len(found) > limit or any(more for *_, more in found)
        cursor = ",".join(f"{server}~{place}" for server, place in places.items())
        return {"dead_letters": letters, "next": cursor if has_more else None}

    @router.get("/dead-letters/{id}", response_model=document(delivery.DeadLetter))
    @needs(Need.SUBSCRIBE)
    async def get_dead_letter(id: LetterId, who: Who) -> Any:
        """Get a dead letter with its notifications."""
        return await read_letter(id, who)

    @router.post("/dead-letters/{id}/resend", response_model=document(delivery.Queued))
    @needs(Need.SUBSCRIBE)
    async def resend_dead_letter(id: LetterId, who: Who) -> Any:
        """Requeue a dead letter for its remaining subscriptions, at their current sinks."""
        if not who.is_operator:
            await read_letter(id, who)
        return await call_letter(id, "POST", "/resend")

    return router


def _read_places(after: str | None) -> dict[str, str]:
    """Returns the place of each server in a cursor of dead letters."""
    if after is None:
        return {}
    places = {}
    for part in after.split(","):
        found = _PLACE.fullmatch(part)
        if found is None:
            raise InvalidInput('after must be the "next" of a previous page', pointer="/after")
        places[found[1]] = found[2]
    return places


def _no_letter(id: str) -> NotFound:
    return NotFound(f'dead letter "{id[:80]}" does not exist')
