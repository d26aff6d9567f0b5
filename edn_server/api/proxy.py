"""The server's door for subscribers: whatever they ask of the dispatcher they may ask of any server.

A subscription goes on to the dispatcher with the host that this server would choose, so that it ends where
the placement policy wants it, whoever was asked; and it is acknowledged by the dispatcher's answer and by
nothing else, which keeps the promise of the log. All other calls go on as they came. Answers, errors among
them, come back as they are. While the dispatcher cannot be reached the answer is 503, and nothing was stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable
from typing import Any, Literal
from urllib.parse import quote

import structlog
from fastapi import APIRouter, Request, Response

from edn import protocol
from edn.errors import EdnError, Forbidden, NotFound, Overloaded, Unauthorized, Unavailable
from edn.http.asgi import CLIENT, CLIENT_HOST, PROBLEM, VIA
from edn.http.control_client import problem_detail
from edn.http.proxy import TIMEOUT, pass_back
from edn.runtime import clock
from edn.runtime.ownership import owned
from edn_server.dispatchers.client import Dispatchers
from edn_server.dispatchers.placement_hints import PlacementHints

logger = structlog.get_logger()

PATH = "/v1/subscriptions"
#: bytes of one request, as on the dispatcher
BODY_LIMIT = 1 << 20
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
_METRICS_REFUSED: dict[int, type[EdnError]] = {401: Unauthorized, 403: Forbidden, 429: Overloaded}
#: seconds for which the dispatcher is not asked again about a reader of metrics, and for which one is trusted
#: while no dispatcher answers
FRESH_SECONDS = 5.0
TRUSTED_SECONDS = 3600.0
_MOST_READERS = 100
_PASSED = ("content-type", "accept", "origin", "sec-fetch-site", "sec-fetch-mode")
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
    "431": "the head of the request is larger than 64 KiB or has more than 100 fields",
    "503": "the dispatcher, or the host, cannot be reached; Retry-After says when to try again",
}


def client_of(request: Request) -> protocol.Client:
    """Return who calls, as far as the dispatcher needs to know it."""
    fields = request.headers
    return protocol.Client(
        address=request.client.host if request.client else "",
        authorization=fields.get("authorization", ""),
        host=fields.get("host", ""),
        origin=fields.get("origin", ""),
        site=fields.get("sec-fetch-site", ""),
    )


@owned("loop")
class DispatcherProxy:
    """Passes calls on to the dispatcher."""

    def __init__(self, dispatchers: Dispatchers, exchange: PlacementHints, secret: str) -> None:
        """`secret`: the network's, which vouches to the dispatcher for what is said of clients."""
        self._dispatchers = dispatchers
        self._exchange = exchange
        self._secret = secret
        #: clients that may read metrics, by digest, and when the dispatcher said so
        self._readers: dict[bytes, float] = {}

    async def subscribe(self, body: bytes, client: protocol.Client) -> Response:
        """`client`: the dispatcher holds its key, address and host against its own rules."""
        understand = self._exchange.candidates
        found = understand(body) if len(body) <= SMALL else await asyncio.to_thread(understand, body)
        message = protocol.Subscribe(body, self._exchange.suggest(found), client)
        return await self._pass_on(
            "POST",
            "/internal/subscribe",
            content=protocol.encode(message),
            headers={"content-type": protocol.MSGPACK},
        )

    async def pass_on(self, request: Request, path: str) -> Response:
        """A call as it came, to the same path of the dispatcher."""
        # The client's own key, or none: never this server's secret, which opens everything.
        kept = {"authorization": request.headers.get("authorization", "")}
        kept |= {name: request.headers[name] for name in _PASSED if name in request.headers}
        client = client_of(request)
        kept |= {VIA: self._secret, CLIENT: client.address, CLIENT_HOST: client.host}
        query = request.url.query
        return await self._pass_on(
            request.method,
            f"{path}?{query}" if query else path,
            content=await request.body(),
            headers=kept,
        )

    async def check_metrics(self, client: protocol.Client) -> None:
        """Raise unless the dispatcher lets this client read metrics.

        While no dispatcher answers, a key that was good within `TRUSTED_SECONDS` is: that is when metrics
        are wanted most.
        """
        mark = hashlib.sha256(protocol.encode(client)).digest()
        good = self._readers.get(mark, -math.inf)
        if clock.monotonic() - good < FRESH_SECONDS:
            return
        try:
            answer = await self._dispatchers.request(
                "POST",
                "/internal/metrics-access",
                content=protocol.encode(client),
                headers={"content-type": protocol.MSGPACK},
            )
            unreachable = answer.status_code >= 500
        except Exception as error:
            logger.warning("metrics_access_not_checked", error=str(error) or type(error).__name__)
            unreachable = True
        if unreachable:
            if clock.monotonic() - good < TRUSTED_SECONDS:
                return
            raise Unavailable("the dispatcher, which knows the keys, cannot be reached", retry_after=2)
        if answer.status_code != 204:
            self._readers.pop(mark, None)
            kind = _METRICS_REFUSED.get(answer.status_code, Forbidden)
            raise kind(problem_detail(answer))
        if len(self._readers) >= _MOST_READERS:
            self._readers.clear()
        self._readers[mark] = clock.monotonic()

    async def _pass_on(self, method: str, path: str, *, content: bytes, headers: dict[str, str]) -> Response:
        call = self._dispatchers.request(method, path, content=content, headers=headers, seconds=TIMEOUT)
        return await pass_back(call, "the dispatcher", retry_after=2)


def routes(receiving: DispatcherProxy) -> APIRouter:
    """Return the routes of subscribers."""
    router = APIRouter(prefix=PATH, tags=["subscriptions"])

    @router.post(
        "", **_documented("Subscribe one or many", {"200": "they were there", "201": "made"}, "required")
    )
    async def subscribe(request: Request) -> Response:
        """Like the dispatcher's call; the server that hosts a subscription is named in the answer."""
        return await receiving.subscribe(await request.body(), client_of(request))

    @router.get("", **_documented("List subscriptions", {"200": "a page"}))
    async def list_subscriptions(request: Request) -> Response:
        return await receiving.pass_on(request, PATH)

    @router.delete("", **_documented("Cancel what a filter covers", {"200": "the ids of those that ended"}))
    async def unsubscribe_covered(request: Request) -> Response:
        return await receiving.pass_on(request, PATH)

    @router.get("/{id}", **_documented("Read a subscription", {"200": "the subscription"}))
    async def get_subscription(id: str, request: Request) -> Response:
        return await receiving.pass_on(request, _path(id))

    @router.put("/{id}", **_documented("Change a subscription", {"200": "the subscription"}, "required"))
    async def change_subscription(id: str, request: Request) -> Response:
        return await receiving.pass_on(request, _path(id))

    @router.delete("/{id}", **_documented("Cancel a subscription", {"204": "it has ended"}))
    async def unsubscribe(id: str, request: Request) -> Response:
        return await receiving.pass_on(request, _path(id))

    for method, action, summary, body in ACTIONS:
        described = _documented(summary, {"200": "as on the dispatcher"}, body)
        router.add_api_route(f"/{{id}}/{action}", _action(receiving, action), methods=[method], **described)
    return router


def _action(receiving: DispatcherProxy, action: str) -> Callable[..., Awaitable[Response]]:
    async def act(id: str, request: Request) -> Response:
        return await receiving.pass_on(request, f"{_path(id)}/{action}")

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
