"""The dispatcher as an ASGI application: all of its routes, and what stands before them."""

from __future__ import annotations

import functools

from fastapi import APIRouter, FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dispatcher.api import (
    bodies,
    cloudevents,
    consent,
    delivery,
    explain,
    internal,
    openapi,
    streams,
    subscriptions,
)
from dispatcher.api import topics as topics_door
from dispatcher.api.admin import backup, clock, keys, metrics, operations, repartitions, routes, tuning
from dispatcher.api.dashboard import door as dashboard_door
from dispatcher.api.leader_proxy import Leading
from dispatcher.api.publish import BODY_BYTES, PublishEndpoint
from dispatcher.api.soap.door import PATH as SOAP_PATH
from dispatcher.api.soap.door import SoapEndpoint
from dispatcher.auth.access import Guard, needs
from dispatcher.auth.audit import Audit
from dispatcher.auth.caller import Need
from dispatcher.config import Settings
from dispatcher.observe.projection import Projector
from dispatcher.services import Door
from edn.errors import EdnError
from edn.http.asgi import BodyLimit, StrictRoute, install, refuse


class _App(FastAPI):
    """FastAPI, but hot routes are answered before any of its layers: they cost more than the routes."""

    publish: PublishEndpoint
    soap: SoapEndpoint
    heartbeat: internal.HeartbeatEndpoint
    guard: Guard
    audit: Audit
    #: where there are several dispatchers
    leading: Leading | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if PublishEndpoint.serves(scope):
            await self.publish(scope, receive, send)
        elif internal.HeartbeatEndpoint.serves(scope):
            await self.heartbeat(scope, receive, send)
        elif scope["type"] == "lifespan":
            await super().__call__(scope, receive, send)
        else:
            await self._guarded(scope, receive, send)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            who = self.guard.admit(scope)
        except EdnError as error:
            await refuse(self.audit.refused(scope, error), scope, receive, send)
            return
        if self.audit.concerns(scope):
            send = self.audit.following(scope, who, send)
        if who.quota.body is not None:
            limited = BodyLimit(self._answered, limit=who.quota.body)
            await limited(scope, receive, send)
        else:
            await self._answered(scope, receive, send)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        if SoapEndpoint.serves(scope):
            await self.soap(scope, receive, send)
        elif self.leading is not None and Leading.concerns(scope):
            await self.leading(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(settings: Settings) -> FastAPI:
    door = Door(settings)
    publish = PublishEndpoint(door.network, door.topics, door.guard, door.audit, door.peers)
    app = _App(
        title="edn dispatcher",
        version="1",
        description="Publish events, subscribe with filters over their content.",
        lifespan=door.life,
    )
    app.publish = publish
    app.soap = SoapEndpoint(door, publish)
    app.guard, app.audit = door.guard, door.audit
    door.guard.watch(lambda: iter_route_contexts(app.router.routes))
    for page in app.router.routes:  # so far, those that describe the interface
        needs(Need.PUBLIC)(getattr(page, "endpoint"))  # noqa: B009  what Starlette's base class does not name
    app.heartbeat = internal.HeartbeatEndpoint(door.network, door.guard, door.audit)
    if door.peers is not None:
        carry_out = functools.partial(FastAPI.__call__, app)
        app.leading = Leading(carry_out, door.peers, limit=BODY_BYTES, secret=settings.secret)
    app.router.route_class = StrictRoute
    install(app, union_tags=bodies.UNION_TAGS)
    app.router.routes += _plain_routes(app)
    for router in _routers(door):
        app.include_router(router)
    app.add_middleware(BodyLimit, limit=BODY_BYTES)
    openapi.install(app)
    app.state.door = door
    app.state.closing = [door.sampler.close]
    return app


def _plain_routes(app: _App) -> list[Route]:
    """Those that are answered before FastAPI is asked: for the guard, and for the wrong method.

    `dispatcher.api.openapi` describes them.
    """
    plain = [Route(PublishEndpoint.PATH, app.publish, methods=["POST"], include_in_schema=False)]
    for method, need in (("GET", Need.PUBLIC), ("POST", Need.KEY)):
        endpoint = needs(need)(functools.partial(app.soap))
        plain.append(Route(SOAP_PATH, endpoint, methods=[method], include_in_schema=False))
    return plain


def _routers(door: Door) -> list[APIRouter]:
    """All others, in the order of the OpenAPI document."""
    network, topics = door.network, door.topics
    return [
        topics_door.routes(topics, door.joining, door.guard.quotas),
        explain.routes(topics, door.explainer, door.follower),
        subscriptions.routes(door),
        operations.routes(network, door.peers),
        clock.routes(door),
        internal.routes(door),
        cloudevents.routes(door),
        consent.routes(network),
        keys.routes(door.keys),
        routes.routes(network, topics),
        tuning.routes(network, door.tuner),
        dashboard_door.routes(door.sampler, Projector(network), topics, door.guard),
        metrics.routes(network, topics, door.tuner, door.accepting, door.partition),
        backup.routes(network),
        repartitions.routes(door.repartitioning, door.settling, door.proposing),
        delivery.routes(network, door.subscribing.find),
        streams.routes(network, door.subscribing.find, door.guard),
    ]
