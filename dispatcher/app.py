"""The dispatcher's ASGI application: its routes, and the guard and audit before them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator

from fastapi import APIRouter, FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dispatcher.api import (
    advertisements,
    bodies,
    cloudevents,
    consent,
    delivery,
    internal,
    openapi,
    sources,
    streams,
    subscriptions,
    swagger,
)
from dispatcher.api import topics as topic_routes
from dispatcher.api.admin import (
    backup,
    keys,
    metrics,
    operations,
    ownership,
    repartitions,
    routes,
    secrets,
    tuning,
)
from dispatcher.api.dashboard import pages
from dispatcher.api.publish import BODY_BYTES, PublishEndpoint
from dispatcher.api.soap import eventing, management, publishing
from dispatcher.api.soap.endpoint import PATH as SOAP_PATH
from dispatcher.api.soap.endpoint import SoapEndpoint
from dispatcher.api.soap.operations import Table
from dispatcher.auth.access import Guard, UnknownKey
from dispatcher.auth.audit import Audit
from dispatcher.auth.caller import Need, needs
from dispatcher.config import Settings
from dispatcher.services import Services
from edn import __version__
from edn.errors import EdnError
from edn.http.asgi import BodyLimit, StrictRoute, install, refuse


class _App(FastAPI):
    """FastAPI that serves hot routes before its own layers, which cost more than the routes."""

    publish: PublishEndpoint
    soap: SoapEndpoint
    heartbeat: internal.HeartbeatEndpoint
    guard: Guard
    audit: Audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if PublishEndpoint.serves(scope):
            await self.publish(scope, receive, send)
        elif internal.HeartbeatEndpoint.serves(scope):
            await self.heartbeat(scope, receive, send)
        elif scope["type"] == "lifespan":
            await super().__call__(scope, receive, send)
        else:
            await self._guard(scope, receive, send)

    async def _guard(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            try:
                who = self.guard.admit(scope)
            except UnknownKey:
                await self.guard.learn_keys()
                who = self.guard.admit(scope)
        except EdnError as error:
            await refuse(self.audit.record_refusal(scope, error), scope, receive, send)
            return
        if self.audit.is_audited(scope):
            send = self.audit.record_response(scope, who, send)
        if who.quota.body is not None:
            await BodyLimit(self._dispatch, limit=who.quota.body)(scope, receive, send)
        else:
            await self._dispatch(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        if SoapEndpoint.serves(scope):
            await self.soap(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(settings: Settings) -> FastAPI:
    services = Services(settings)
    guard, audit, publish = services.guard, services.audit, services.publish

    @contextlib.asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await services.start()
        yield
        await services.stop()

    app = _App(
        title="edn",
        version=__version__,
        description="Publish events, subscribe with filters over their content.",
        lifespan=life,
        docs_url=None,  # `dispatcher.api.swagger` serves it, without files from other hosts
        redoc_url=None,
    )
    app.publish = publish
    app.soap = SoapEndpoint(guard, _soap_operations(services, publish))
    app.guard, app.audit = guard, audit
    for page in app.router.routes:  # so far only FastAPI's documentation pages
        needs(Need.PUBLIC)(getattr(page, "endpoint"))  # noqa: B009  Starlette's base class does not declare it
    app.heartbeat = internal.HeartbeatEndpoint(services.registration, guard, audit)
    app.router.route_class = StrictRoute
    install(app, union_tags=bodies.UNION_TAGS)
    app.router.routes += _plain_routes(app)
    for router in [*_routers(services), swagger.routes()]:
        app.include_router(router)
    openapi.install(app, is_open=settings.open)
    guard.protect(iter_route_contexts(app.router.routes))
    app.add_middleware(BodyLimit, limit=BODY_BYTES)
    app.state.services = services
    app.state.closing = [services.sampler.close]
    return app


def _plain_routes(app: _App) -> list[Route]:
    """Returns routes that `_App` serves before FastAPI: for the guard, and to refuse other methods.

    `dispatcher.api.openapi` documents them.
    """
    plain = [Route(PublishEndpoint.PATH, app.publish, methods=["POST"], include_in_schema=False)]
    for method, need in (("GET", Need.PUBLIC), ("POST", Need.KEY)):
        endpoint = needs(need)(functools.partial(app.soap))
        plain.append(Route(SOAP_PATH, endpoint, methods=[method], include_in_schema=False))
    return plain


def _soap_operations(parts: Services, publish: PublishEndpoint) -> Table:
    return {
        **eventing.operations(parts.log, parts.requests, parts.subscriptions),
        **publishing.operations(parts.topics, publish),
        **management.operations(
            parts.topics,
            parts.subtree_sync,
            parts.guard.quotas,
            parts.entries,
            parts.bindings,
            parts.members,
            parts.advertisements,
        ),
    }


def _routers(parts: Services) -> list[APIRouter]:
    """Returns FastAPI's routers, in the order of the OpenAPI document."""
    log, topics, guard = parts.log, parts.topics, parts.guard
    members, calls, pipeline = parts.members, parts.calls, parts.pipeline
    requests, descriptions = parts.requests, parts.descriptions
    return [
        topic_routes.routes(
            topics,
            parts.subtree_sync,
            guard.quotas,
            parts.explainer,
            parts.event_trace,
            parts.advertisements,
            requests.find,
        ),
        advertisements.document_routes(parts.documents),
        advertisements.routes(
            parts.advertisements, topics, parts.reach, parts.wanted, parts.bound_advertisements, guard
        ),
        subscriptions.routes(log, calls, requests, parts.subscriptions, parts.reach),
        operations.routes(members, parts.table, pipeline, descriptions, parts.membership, parts.admission),
        operations.clock_routes(members, calls, parts.subscriptions),
        ownership.routes(log),
        internal.routes(
            log,
            topics,
            parts.placing,
            parts.registration,
            requests,
            parts.subscriptions,
            guard,
            parts.audit,
        ),
        cloudevents.routes(topics, parts.subscriptions, requests),
        consent.routes(members, calls),
        keys.routes(parts.keys, topics, log),
        sources.routes(parts.sources),
        routes.routes(parts.entries, parts.bindings, members),
        tuning.routes(pipeline.backpressure, parts.link, parts.counters, parts.tuner),
        pages.routes(parts.sampler, parts.projector, topics, guard),
        metrics.routes(
            log,
            topics,
            parts.table,
            pipeline,
            parts.counters,
            descriptions,
            parts.tuner,
            parts.admission,
            parts.publication_guard,
            parts.reach,
            parts.runner.figures,
            parts.sources.figures,
        ),
        backup.routes(log, members, calls, parts.backup_gate),
        secrets.routes(log, members, calls),
        repartitions.routes(parts.runner, parts.handover, parts.advisor),
        delivery.routes(log, members, calls, requests.find),
        streams.routes(log, calls, requests.find, guard),
    ]
