"""Calls between the network's processes: registration, heartbeats, routing summaries, and subscriptions that
clients sent to a server. All require the network's secret.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import TypeAdapter, ValidationError
from starlette.types import Receive, Scope, Send

from dispatcher.api import bodies, openapi
from dispatcher.auth.access import Guard, authorization_of
from dispatcher.auth.audit import Audit
from dispatcher.auth.caller import Caller, Need, needs
from dispatcher.servers.placement import Placer
from dispatcher.servers.registration import Registration
from dispatcher.store.event_log import Log
from dispatcher.subscriptions.requests import SubscriptionRequests
from dispatcher.subscriptions.service import Subscriptions
from dispatcher.subscriptions.topics import Topics
from edn import protocol
from edn.api import subscriptions as api
from edn.api.document import document
from edn.errors import EdnError, Unauthorized
from edn.formats import strict_json
from edn.formats.soap.eventing import FAILED
from edn.http.asgi import bug_response, invalid, problem_response, read_body, too_large
from edn.model.namespace import subscription_of

Message = TypeVar("Message", bound=msgspec.Struct)


class HeartbeatEndpoint:
    """Serves heartbeats as plain ASGI; the route below documents it.

    Every server calls it every second, and FastAPI's layers cost several times as much as the heartbeat.
    """

    _PREFIX, _SUFFIX = "/internal/servers/", "/heartbeat"
    _LIMIT = 1 << 16

    def __init__(self, registration: Registration, guard: Guard, audit: Audit) -> None:
        self._registration = registration
        self._guard = guard
        self._audit = audit
        self._decoder = protocol.Decoder(protocol.Heartbeat)

    @classmethod
    def serves(cls, scope: Scope) -> bool:
        path: str = scope.get("path", "")
        return path.startswith(cls._PREFIX) and path.endswith(cls._SUFFIX) and scope.get("method") == "POST"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        try:
            self._guard.check_network(authorization_of(scope))
            body = await read_body(receive, self._LIMIT)
            urls = self._registration.heartbeat(
                path[len(self._PREFIX) : -len(self._SUFFIX)], self._decoder.decode(body)
            )
        except EdnError as error:
            if isinstance(error, Unauthorized):
                error = self._audit.record_refusal(scope, error)
            await problem_response(error)(scope, receive, send)
        except Exception as error:
            await bug_response(path, error)(scope, receive, send)
        else:
            answer = protocol.encode(protocol.HeartbeatAck(urls))
            headers = [(b"content-length", b"%d" % len(answer))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": answer})


def routes(
    log: Log,
    topics: Topics,
    placing: Placer,
    registration: Registration,
    requests: SubscriptionRequests,
    subscriptions: Subscriptions,
    guard: Guard,
    audit: Audit,
) -> APIRouter:
    router = APIRouter(prefix="/internal", tags=["internal"])
    decoder_of = functools.cache(protocol.Decoder)
    one_or_many: TypeAdapter[Any] = TypeAdapter(bodies.OneOrMany)

    async def read(request: Request, message: type[Message]) -> Message:
        decoded: Message = decoder_of(message).decode(await request.body())
        return decoded

    def admit(scope: Scope) -> Caller:
        """Applies to a request at a server the same rules as to one at this dispatcher."""
        try:
            return guard.admit(scope, any_port=True)
        except EdnError as error:
            raise audit.record_refusal(scope, error) from None

    @router.post("/servers", openapi_extra=openapi.MESSAGE)
    @needs(Need.NETWORK)
    async def register(request: Request) -> Response:
        registered = await registration.register(await read(request, protocol.Register))
        return Response(protocol.encode(registered), media_type=protocol.MSGPACK)

    @router.post("/servers/{id}/heartbeat", openapi_extra=openapi.MESSAGE)
    @needs(Need.NETWORK)
    async def heartbeat(id: str, request: Request) -> Response:
        urls = registration.heartbeat(id, await read(request, protocol.Heartbeat))
        return Response(protocol.encode(protocol.HeartbeatAck(urls)), media_type=protocol.MSGPACK)

    @router.get(
        "/routing-summaries",
        response_class=Response,
        responses={200: {"description": "`edn.protocol.RoutingSummaries`", **openapi.MESSAGE_CONTENT}},
    )
    @needs(Need.NETWORK)
    async def routing_summaries(
        incarnation: Annotated[int, Query(description="incarnation of the last response")] = 0,
        since: Annotated[int, Query(description="version of the last response")] = 0,
    ) -> Response:
        """Get few rectangles per server that describe its subscriptions, as far as they have changed."""
        mine = log.incarnation
        summaries = placing.hints(
            [topic.info() for topic in topics.all("")],
            incarnation=mine,
            since=since if incarnation == mine else 0,
        )
        return Response(protocol.encode(summaries), media_type=protocol.MSGPACK)

    @router.post(
        "/subscribe",
        status_code=201,
        response_model=document(api.Subscription | api.SubscriptionList),
        response_model_exclude_unset=True,
        responses={200: {"model": document(api.Subscription | api.SubscriptionList)}},
        openapi_extra=openapi.MESSAGE,
    )
    @needs(Need.NETWORK)
    async def subscribe(request: Request, response: Response) -> Any:
        """Create subscriptions that a client sent to a server: `edn.protocol.Subscribe`."""
        message = await read(request, protocol.Subscribe)
        scope = _scope_of(message.client, "POST", "/v1/subscriptions")
        who = admit(scope)
        try:
            if who.quota.body is not None and len(message.body) > who.quota.body:
                raise too_large(who.quota.body)
            try:
                body = one_or_many.validate_python(strict_json.decode(message.body), from_attributes=True)
            except ValidationError as error:
                raise invalid(list(error.errors()), skip=bodies.UNION_TAGS) from None
            content, response.status_code, headers = await requests.subscribe(
                bodies.to_requests(body), who, message.suggested
            )
        except EdnError as error:
            audit.record_call(scope, who, error.status)
            raise
        audit.record_call(scope, who, response.status_code)
        response.headers.update(headers)
        return content

    @router.post("/metrics-access", status_code=204, openapi_extra=openapi.MESSAGE)
    @needs(Need.NETWORK)
    async def metrics_access(request: Request) -> None:
        """Check that a client of a server may read metrics: `edn.protocol.Client`."""
        admit(_scope_of(await read(request, protocol.Client), "GET", "/metrics"))

    @router.post(
        "/subscriptions/{id}/failed",
        status_code=204,
    )
    @needs(Need.NETWORK)
    async def failed(id: str) -> None:
        """End a subscription whose protocol ends it when delivery has failed."""
        await subscriptions.delete(subscription_of(id), end=FAILED)

    return router


def _scope_of(client: protocol.Client, method: str, path: str) -> Scope:
    """Returns the ASGI scope of a client's request at a server, as if this dispatcher had received it."""
    headers = (
        ("authorization", client.authorization),
        ("host", client.host),
        ("origin", client.origin),
        ("sec-fetch-site", client.site),
    )
    return {
        "type": "http",
        "method": method,
        "path": path,
        "client": (client.address, 0) if client.address else None,
        "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers if value],
    }
