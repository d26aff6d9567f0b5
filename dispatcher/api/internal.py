"""The calls of the network's own processes: registration, heartbeats, what servers must know to choose a
host, and subscriptions that clients brought to a server. All of them want the network's secret.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import TypeAdapter, ValidationError
from starlette.types import Receive, Scope, Send

from dispatcher.api import bodies, openapi
from dispatcher.auth.access import Guard, authorization_of
from dispatcher.auth.audit import Audit
from dispatcher.auth.caller import Caller, Need, needs
from dispatcher.servers.admission import Leadership
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


class HeartbeatEndpoint:
    """The same as the route of heartbeats below, which describes it, without the layers around that one.

    Every server calls it every second, and those layers cost several times what it does.
    """

    _BEFORE, _AFTER = "/internal/servers/", "/heartbeat"
    _LIMIT = 1 << 16

    def __init__(self, registration: Registration, guard: Guard, audit: Audit) -> None:
        self._registration = registration
        self._guard = guard
        self._audit = audit
        self._decoder = protocol.Decoder(protocol.Heartbeat)

    @classmethod
    def serves(cls, scope: Scope) -> bool:
        path: str = scope.get("path", "")
        return path.startswith(cls._BEFORE) and path.endswith(cls._AFTER) and scope.get("method") == "POST"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        try:
            self._guard.check_network(authorization_of(scope))
            body = await read_body(receive, self._LIMIT)
            self._registration.heartbeat(
                path[len(self._BEFORE) : -len(self._AFTER)], self._decoder.decode(body)
            )
        except EdnError as error:
            if isinstance(error, Unauthorized):
                error = self._audit.refused(scope, error)
            await problem_response(error)(scope, receive, send)
        except Exception as error:
            await bug_response(path, error)(scope, receive, send)
        else:
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})


def routes(
    log: Log,
    topics: Topics,
    placing: Placer,
    registration: Registration,
    leadership: Leadership,
    requests: SubscriptionRequests,
    subscriptions: Subscriptions,
    guard: Guard,
    audit: Audit,
) -> APIRouter:
    router = APIRouter(prefix="/internal", tags=["internal"])
    register_decoder = protocol.Decoder(protocol.Register)
    heartbeat_decoder = protocol.Decoder(protocol.Heartbeat)
    poll_decoder = protocol.Decoder(protocol.PeerPoll)
    client_decoder = protocol.Decoder(protocol.Client)
    subscribe_decoder = protocol.Decoder(protocol.Subscribe)
    one_or_many: TypeAdapter[Any] = TypeAdapter(bodies.OneOrMany)

    async def read(request: Request, decoder: protocol.Decoder[Any]) -> Any:
        return decoder.decode(await request.body())

    def admit(asked: Scope) -> Caller:
        """Hold what a client asked of a server against the same rules as what it asks here."""
        try:
            return guard.admit(asked, anywhere=True)
        except EdnError as error:
            raise audit.refused(asked, error) from None

    @router.post("/servers", openapi_extra=openapi.MESSAGE)
    @needs(Need.NETWORK)
    async def register(request: Request) -> Response:
        registered = await registration.register(await read(request, register_decoder))
        return Response(protocol.encode(registered), media_type=protocol.MSGPACK)

    @router.post("/servers/{id}/heartbeat", status_code=204, openapi_extra=openapi.MESSAGE)
    @needs(Need.NETWORK)
    async def heartbeat(id: str, request: Request) -> None:
        registration.heartbeat(id, await read(request, heartbeat_decoder))

    @router.post("/changes", openapi_extra=openapi.MESSAGE)
    @needs(Need.NETWORK)
    async def changes(request: Request) -> Response:
        """Changes for another dispatcher: `PeerPoll` and `PeerPage` of `edn.protocol`."""
        poll: protocol.PeerPoll = await read(request, poll_decoder)
        return Response(protocol.encode(await leadership.answer(poll)), media_type=protocol.MSGPACK)

    @router.get(
        "/routing-summaries",
        response_class=Response,
        responses={200: {"description": "`edn.protocol.RoutingSummaries`", **openapi.MESSAGE_CONTENT}},
        openapi_extra={"security": openapi.MESSAGE["security"]},
    )
    @needs(Need.NETWORK)
    async def routing_summaries(
        incarnation: Annotated[int, Query(description="that of the last answer")] = 0,
        since: Annotated[int, Query(description="version of the last answer")] = 0,
    ) -> Response:
        """Subscriptions of all servers, in few rectangles each, as far as they have changed."""
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
        """Subscribe what a client brought to a server, which may suggest hosts: `edn.protocol.Subscribe`."""
        message: protocol.Subscribe = await read(request, subscribe_decoder)
        asked = _as_asked(message.client, "POST", "/v1/subscriptions")
        who = admit(asked)
        try:
            if who.quota.body is not None and len(message.body) > who.quota.body:
                raise too_large(who.quota.body)
            try:
                body = one_or_many.validate_python(strict_json.decode(message.body), from_attributes=True)
            except ValidationError as error:
                raise invalid(list(error.errors()), skip=bodies.UNION_TAGS) from None
            content, response.status_code, headers = await requests.subscribe(
                bodies.requested(body), who, message.suggested
            )
        except EdnError as error:
            audit.called(asked, who, error.status)
            raise
        audit.called(asked, who, response.status_code)
        response.headers.update(headers)
        return content

    @router.post("/metrics-access", status_code=204, openapi_extra=openapi.MESSAGE)
    @needs(Need.NETWORK)
    async def metrics_access(request: Request) -> None:
        """Check that a client of a server may read metrics: `edn.protocol.Client`."""
        client: protocol.Client = await read(request, client_decoder)
        admit(_as_asked(client, "GET", "/metrics"))

    @router.post(
        "/subscriptions/{id}/failed",
        status_code=204,
        openapi_extra={"security": openapi.MESSAGE["security"]},
    )
    @needs(Need.NETWORK)
    async def failed(id: str) -> None:
        """End a subscription whose endpoint its server has given up, and whose protocol ends it then."""
        await subscriptions.delete(subscription_of(id), end=FAILED)

    return router


def _as_asked(client: protocol.Client, method: str, path: str) -> Scope:
    """Return the request that a client made at a server, as if it had come here."""
    given = (
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
        "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in given if value],
    }
