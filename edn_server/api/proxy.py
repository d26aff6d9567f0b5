"""Forwards requests of subscribers to the dispatcher, so that any server accepts them.

A new subscription is forwarded with the server that this one suggests as its host, so the placement policy
applies whichever server was called. Only the dispatcher's answer acknowledges it, after the log has it. Other
requests are forwarded unchanged, and so are all answers, errors included. While no dispatcher can be reached,
the answer is 503 and nothing is stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
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
#: bytes up to which parsing a body is cheaper than calling a thread
SMALL = 4096

TakesBody = Literal["none", "optional", "required"]
#: method, operation, summary and answer of calls on all subscriptions
LISTS = (
    ("GET", "list_subscriptions", "List subscriptions", "a page"),
    ("DELETE", "unsubscribe_covered", "Cancel all subscriptions that a filter covers", "the ended ids"),
)
#: method, operation, summary, status, answer and body of calls on one subscription
SINGLE: tuple[tuple[str, str, str, str, str, TakesBody], ...] = (
    ("GET", "get_subscription", "Read a subscription", "200", "the subscription", "none"),
    ("PUT", "change_subscription", "Change a subscription", "200", "the subscription", "required"),
    ("DELETE", "unsubscribe", "Cancel a subscription", "204", "ended", "none"),
)
#: method, action, summary and body of further calls on one subscription
ACTIONS: tuple[tuple[str, str, str, TakesBody], ...] = (
    ("POST", "renew", "Set a new expiry", "required"),
    ("POST", "pause", "Pause delivery; notifications are buffered", "none"),
    ("POST", "resume", "Resume delivery, buffered notifications first", "optional"),
    ("GET", "attempts", "List recent attempts", "none"),
    ("POST", "recover", "Requeue dead letters", "required"),
    ("POST", "enable", "Enable a disabled address", "none"),
    ("POST", "example", "Send an example notification", "none"),
    ("POST", "rotate-secret", "Rotate the signing key", "optional"),
)
_METRICS_REFUSED: dict[int, type[EdnError]] = {401: Unauthorized, 403: Forbidden, 429: Overloaded}
#: seconds for which a permission to read metrics is cached, and for which it is trusted while no dispatcher
#: answers
FRESH_SECONDS = 5.0
TRUSTED_SECONDS = 3600.0
_MOST_READERS = 100
_PASSED = ("content-type", "accept", "origin", "sec-fetch-site", "sec-fetch-mode")
_ANYTHING = {"application/json": {"schema": {"type": "object"}}}
_REFUSALS = {
    "400": "the body cannot be read",
    "401": "an API key is required",
    "403": "the key lacks the scope",
    "404": "it does not exist",
    "409": "it conflicts with the current state",
    "413": "larger than the limit",
    "415": "the media type is not supported",
    "422": "the request is invalid; the problem names the place",
    "429": "too many requests; see Retry-After",
    "431": "the head of the request is larger than 64 KiB or has more than 100 fields",
    "503": "the dispatcher or the host cannot be reached; see Retry-After",
}


def client_of(request: Request) -> protocol.Client:
    """Returns the client's address and the headers that the dispatcher checks."""
    fields = request.headers
    return protocol.Client(
        address=request.client.host if request.client else "",
        authorization=fields.get("authorization", ""),
        host=fields.get("host", ""),
        origin=fields.get("origin", ""),
        site=fields.get("sec-fetch-site", ""),
    )


@owned("loop")
@dataclass(slots=True)
class DispatcherProxy:
    """Forwards requests to the dispatcher."""

    dispatchers: Dispatchers
    hints: PlacementHints
    #: network secret, with which the dispatcher trusts the forwarded client address
    secret: str = field(repr=False)
    #: digest of a client that may read metrics → time of the dispatcher's answer
    _readers: dict[bytes, float] = field(default_factory=dict, init=False)

    async def subscribe(self, body: bytes, client: protocol.Client) -> Response:
        """Forwards new subscriptions with suggested hosts; the dispatcher checks the client."""
        parse = self.hints.candidates
        found = parse(body) if len(body) <= SMALL else await asyncio.to_thread(parse, body)
        message = protocol.Subscribe(body, self.hints.suggest(found), client)
        return await self._send(
            "POST",
            "/internal/subscribe",
            content=protocol.encode(message),
            headers={"content-type": protocol.MSGPACK},
        )

    async def forward(self, request: Request, path: str) -> Response:
        """Forwards a request to a path of the dispatcher."""
        client = client_of(request)
        # Only the client's own key: the server's secret would permit everything.
        headers = {"authorization": client.authorization}
        headers |= {name: request.headers[name] for name in _PASSED if name in request.headers}
        headers |= {VIA: self.secret, CLIENT: client.address, CLIENT_HOST: client.host}
        query = request.url.query
        target = f"{path}?{query}" if query else path
        return await self._send(request.method, target, content=await request.body(), headers=headers)

    async def check_metrics(self, client: protocol.Client) -> None:
        """Raises unless the dispatcher permits this client to read metrics.

        While no dispatcher answers, permissions of the last `TRUSTED_SECONDS` hold: that is when metrics are
        needed most.
        """
        mark = hashlib.sha256(protocol.encode(client)).digest()
        good = self._readers.get(mark, -math.inf)
        if clock.monotonic() - good < FRESH_SECONDS:
            return
        try:
            answer = await self.dispatchers.request(
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
            raise Unavailable(
                "the API key cannot be checked, because no dispatcher can be reached", retry_after=2
            )
        if answer.status_code != 204:
            self._readers.pop(mark, None)
            kind = _METRICS_REFUSED.get(answer.status_code, Forbidden)
            raise kind(problem_detail(answer))
        if len(self._readers) >= _MOST_READERS:
            self._readers.clear()
        self._readers[mark] = clock.monotonic()

    async def _send(self, method: str, path: str, *, content: bytes, headers: dict[str, str]) -> Response:
        call = self.dispatchers.request(method, path, content=content, headers=headers, seconds=TIMEOUT)
        return await pass_back(call, "the dispatcher", retry_after=2)


def routes(proxy: DispatcherProxy) -> APIRouter:
    """Returns the routes of subscribers."""
    router = APIRouter(prefix=PATH, tags=["subscriptions"])

    @router.post(
        "", **_documented("Subscribe one or many", {"200": "they exist", "201": "created"}, "required")
    )
    async def subscribe(request: Request) -> Response:
        """Subscribes like the dispatcher's call; the answer names the server that hosts a subscription."""
        return await proxy.subscribe(await request.body(), client_of(request))

    async def forward_list(request: Request) -> Response:
        return await proxy.forward(request, PATH)

    for method, name, summary, answer in LISTS:
        described = _documented(summary, {"200": answer})
        router.add_api_route("", forward_list, methods=[method], name=name, **described)
    for method, name, summary, status, answer, body in SINGLE:
        described = _documented(summary, {status: answer}, body)
        router.add_api_route("/{id}", _forward(proxy, ""), methods=[method], name=name, **described)
    for method, action, summary, body in ACTIONS:
        described = _documented(summary, {"200": "as on the dispatcher"}, body)
        forward = _forward(proxy, f"/{action}")
        router.add_api_route(f"/{{id}}/{action}", forward, methods=[method], name="act", **described)
    return router


def _forward(proxy: DispatcherProxy, suffix: str) -> Callable[..., Awaitable[Response]]:
    async def forward(id: str, request: Request) -> Response:
        return await proxy.forward(request, _path(id) + suffix)

    return forward


def _path(id: str) -> str:
    if id in (".", ".."):  # an HTTP client would resolve them as path steps
        raise NotFound(f'no subscription "{id}"')
    return f"{PATH}/{quote(id, safe='')}"


def _documented(summary: str, answers: dict[str, str], body: TakesBody = "none") -> dict[str, Any]:
    """Describes a route for OpenAPI; the dispatcher's document has the schemas."""
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
        "description": "Forwarded to the dispatcher, whose document has the details.",
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
