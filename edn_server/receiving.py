"""The server's door for subscribers: whatever they ask of the dispatcher they may ask of any server.

A subscription goes on to the dispatcher with the host that this server would choose, so that it ends where
the placement policy wants it, whoever was asked; and it is acknowledged by the dispatcher's answer and by
nothing else, which keeps the promise of the log. All other calls go on as they came. Answers, errors among
them, come back as they are. While the dispatcher cannot be reached the answer is 503, and nothing was stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal
from urllib.parse import quote

import httpx
import structlog
from fastapi import APIRouter, Request, Response

from edn import wire
from edn.asgi import PROBLEM
from edn.errors import NotFound, Unavailable
from edn_server.dispatchers import Dispatchers
from edn_server.exchange import Exchange

logger = structlog.get_logger()

PATH = "/v1/subscriptions"
#: bytes of one request, as on the dispatcher
BODY_LIMIT = 1 << 20
#: longer than the dispatcher waits for the server that stores
TIMEOUT = 30.0
#: up to so many bytes a body is understood faster than a thread is asked to do it
SMALL = 4096

TakesBody = Literal["none", "optional", "required"]
#: what can be done to one subscription, besides reading, changing and cancelling it; whether it takes a body
ACTIONS: tuple[tuple[str, str, str, TakesBody], ...] = (
    ("POST", "renew", "Set a new expiry", "required"),
    ("POST", "pause", "Keep notifications back", "none"),
    ("POST", "resume", "Send what was kept, and what follows", "optional"),
    ("GET", "attempts", "What was tried lately", "none"),
    ("POST", "recover", "Send again what was given up", "required"),
    ("POST", "enable", "Try an address again that was given up", "none"),
    ("POST", "example", "Send an example to the address", "none"),
    ("POST", "rotate-secret", "Sign with another secret", "optional"),
)
_PASSED_BACK = ("content-type", "location", "retry-after", "allow", "www-authenticate")
_ANYTHING = {"application/json": {"schema": {"type": "object"}}}
_REFUSALS = {
    "400": "the body cannot be read",
    "401": "a key is wanted",
    "403": "the key may not do this",
    "404": "there is no such thing",
    "409": "it contradicts what is there",
    "413": "more than the limit",
    "415": "a media type that this call does not take",
    "422": "the request was read, but cannot be taken; the problem names the place",
    "429": "too much at once; Retry-After says when",
    "503": "the dispatcher, or the host, cannot be reached; Retry-After says when to try again",
}


class Receiving:
    """Passes calls on to the dispatcher."""

    def __init__(self, dispatchers: Dispatchers, exchange: Exchange) -> None:
        self._dispatchers = dispatchers
        self._exchange = exchange

    async def subscribe(self, body: bytes, authorization: str = "") -> Response:
        """`authorization`: the client's own header, which the dispatcher holds against its keys."""
        understand = self._exchange.candidates
        found = understand(body) if len(body) <= SMALL else await asyncio.to_thread(understand, body)
        message = wire.Subscribe(body, self._exchange.suggest(found), authorization)
        return await self._pass_on(
            "POST",
            "/internal/subscribe",
            content=wire.encode(message),
            headers={"content-type": wire.MSGPACK},
        )

    async def pass_on(self, request: Request, path: str) -> Response:
        """A call as it came, to the same path of the dispatcher."""
        # The client's own key, or none: never this server's secret, which opens everything.
        kept = {"authorization": request.headers.get("authorization", "")}
        kept |= {
            name: request.headers[name] for name in ("content-type", "accept") if name in request.headers
        }
        query = request.url.query
        return await self._pass_on(
            request.method,
            f"{path}?{query}" if query else path,
            content=await request.body(),
            headers=kept,
        )

    async def _pass_on(self, method: str, path: str, *, content: bytes, headers: dict[str, str]) -> Response:
        try:
            answer = await self._dispatchers.request(
                method, path, content=content, headers=headers, timeout=TIMEOUT
            )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Unavailable(
                "the dispatcher cannot be reached, and nothing was stored: try again", retry_after=2
            ) from error
        except Exception as error:
            # Not only the client's own errors: see `dispatcher.network`. Sent, but not answered.
            logger.warning("the dispatcher did not answer", reason=str(error) or type(error).__name__)
            raise Unavailable(
                "the dispatcher did not answer: it may or may not have done what it was asked; an id of your "
                "own makes it safe to subscribe again",
                retry_after=2,
            ) from error
        passed = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
        return Response(answer.content, status_code=answer.status_code, headers=passed)


def routes(receiving: Callable[[], Receiving]) -> APIRouter:
    """`receiving` is asked at each call: there is none before the server has started."""
    router = APIRouter(prefix=PATH, tags=["subscriptions"])

    @router.post(
        "", **_documented("Subscribe one or many", {"200": "they were there", "201": "made"}, "required")
    )
    async def subscribe(request: Request) -> Response:
        """Like the dispatcher's call; the server that hosts a subscription is named in the answer."""
        return await receiving().subscribe(await request.body(), request.headers.get("authorization", ""))

    @router.get("", **_documented("List subscriptions", {"200": "a page"}))
    async def list_subscriptions(request: Request) -> Response:
        return await receiving().pass_on(request, PATH)

    @router.delete("", **_documented("Cancel what a filter covers", {"200": "the ids of those that ended"}))
    async def unsubscribe_covered(request: Request) -> Response:
        return await receiving().pass_on(request, PATH)

    @router.get("/{id}", **_documented("Read a subscription", {"200": "the subscription"}))
    async def get_subscription(id: str, request: Request) -> Response:
        return await receiving().pass_on(request, _path(id))

    @router.put("/{id}", **_documented("Change a subscription", {"200": "the subscription"}, "required"))
    async def change_subscription(id: str, request: Request) -> Response:
        return await receiving().pass_on(request, _path(id))

    @router.delete("/{id}", **_documented("Cancel a subscription", {"204": "it has ended"}))
    async def unsubscribe(id: str, request: Request) -> Response:
        return await receiving().pass_on(request, _path(id))

    for method, action, summary, body in ACTIONS:
        described = _documented(summary, {"200": "as on the dispatcher"}, body)
        router.add_api_route(f"/{{id}}/{action}", _action(receiving, action), methods=[method], **described)
    return router


def _action(receiving: Callable[[], Receiving], action: str) -> Callable[..., Awaitable[Response]]:
    async def act(id: str, request: Request) -> Response:
        return await receiving().pass_on(request, f"{_path(id)}/{action}")

    return act


def _path(id: str) -> str:
    if id in (".", ".."):  # a client would take them for steps in the path
        raise NotFound(f'no subscription "{id}"')
    return f"{PATH}/{quote(id, safe='')}"


def _documented(summary: str, answers: dict[str, str], body: TakesBody = "none") -> dict[str, Any]:
    """How a call looks in the OpenAPI document; the dispatcher's says what the objects are."""
    good = {
        status: {"description": text, **({} if status == "204" else {"content": _ANYTHING})}
        for status, text in answers.items()
    }
    bad = {
        status: {"description": text, "content": {PROBLEM: {"schema": {"type": "object"}}}}
        for status, text in _REFUSALS.items()
    }
    described: dict[str, Any] = {
        "summary": summary,
        "description": "As on the dispatcher, whose document describes it.",
        "response_class": Response,
        "status_code": int(min(answers)),
        "responses": {int(status): what for status, what in (good | bad).items()},
    }
    if body != "none":
        schema = {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]}
        described["openapi_extra"] = {
            "requestBody": {
                "required": body == "required",
                "content": {"application/json": {"schema": schema}},
            }
        }
    return described
