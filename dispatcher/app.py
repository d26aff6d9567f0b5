"""The dispatcher's HTTP door."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec
import structlog
from fastapi import APIRouter, Body, FastAPI, Query, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dispatcher import (
    bodies,
    changes,
    directory,
    evidence,
    internal,
    keyrings,
    keys_door,
    metrics,
    openapi,
    sinks,
    streaming,
)
from dispatcher.access import Caller, Guard, Need, Who, needs
from dispatcher.audit import Audit
from dispatcher.backup_door import routes as backup_routes
from dispatcher.cloudevents_door import routes as cloudevents_routes
from dispatcher.consent_door import routes as consent_routes
from dispatcher.covering import Covering
from dispatcher.dashboard import door as dashboard
from dispatcher.dashboard.projecting import Projector
from dispatcher.dashboard.sampling import Sampler
from dispatcher.expiry import parse_expires, parse_since
from dispatcher.explaining import Explainer, one_of
from dispatcher.following import Follower
from dispatcher.joining import Joining
from dispatcher.keys import Keys
from dispatcher.leading import Leading
from dispatcher.merging import Merger
from dispatcher.moving import Moving
from dispatcher.moving_door import routes as moving_routes
from dispatcher.network import Network
from dispatcher.peers import Peers
from dispatcher.proposing import Proposing
from dispatcher.publishing import PublishEndpoint
from dispatcher.repartitioning import Repartitioning
from dispatcher.replaying import Replayer
from dispatcher.restoring import Restoring
from dispatcher.routes_door import routes as route_routes
from dispatcher.settings import Settings
from dispatcher.settling import Settling
from dispatcher.soap.door import SoapEndpoint
from dispatcher.subscriptions import Subscriptions, Wanted, new_id
from dispatcher.subtrees import Subtree, check_fits
from dispatcher.topics import Topic, Topics, check_dialect, path_of
from dispatcher.tuning_door import routes as tuning_routes
from dispatcher.tuning_loop import Tuner
from edn import namespace, strictjson
from edn.asgi import BodyLimit, StrictRoute, install, refuse
from edn.coordinates import rfc3339
from edn.errors import EdnError, InvalidInput, InvalidSink, NotFound, TooLarge, Unavailable
from edn.filter import BoundFilter, Filter
from edn.sinkpolicy import check_url
from edn.webhooks import check_secret
from selftune.tuning import Tuning

logger = structlog.get_logger()


class Door:
    """Everything that the routes need, made once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.network = Network(settings)
        self.topics = Topics(self.network.log)
        self.keys = Keys(self.network.log)
        self.guard = Guard(self.keys, settings.secret, open=settings.open, admin_port=settings.admin_port)
        self.audit = Audit(settings.data)
        self.replayer = Replayer(self.network, self.topics)
        self.subscriptions = Subscriptions(self.network, self.topics, self.replayer.begin)
        self.covering = Covering(self.network.log, self.topics, self.subscriptions)
        self.explainer = Explainer(self.network, self.subscriptions)
        self.follower = Follower(self.network)
        stored = dict(
            self.network.log.reader.execute(
                "SELECT key, value FROM meta WHERE key IN ('mode', 'precision')"
            ).fetchall()
        )
        tuning = Tuning(**{"mode": settings.tuning, **stored})
        self.network.table.set_precision(tuning.precision)
        self.tuner = Tuner(self.network, tuning, interval=settings.tuning_seconds)
        self.sampler = Sampler(self.network, self.topics, self.tuner)
        #: the other dispatchers, if there are any
        self.peers: Peers | None = None
        changes.prepare(self.network.log, shared=bool(settings.peers))
        if settings.peers:
            merger = Merger(
                self.network,
                self.topics,
                self.replayer.begin,
                on_keys=self.keys.reload,
                on_names=lambda: self.joining.doubt(),
            )
            self.peers = Peers(self.network, merger)
        self.joining = Joining(self.network, self.topics, self.subscriptions, self.peers)
        self.network.on_return = Restoring(self.network, self.topics).store_again
        self.settling = Settling(self.network)
        moving = Moving(
            self.network,
            self.topics,
            self.subscriptions,
            on_moved=self.settling.wake,
            on_replay=self.replayer.begin,
        )
        self.proposing = Proposing(
            self.network,
            precision=lambda: self.tuner.tuning.precision,
            may_start=lambda: self.repartitioning.running() is None,
        )
        self.repartitioning = Repartitioning(
            self.network,
            self.topics,
            moving,
            self.peers,
            unsettled=self.settling.unsettled,
            hit_ratio=self.proposing.hit_ratio,
            on_done=self.proposing.done,
        )

    @contextlib.asynccontextmanager
    async def life(self, _: FastAPI) -> AsyncIterator[None]:
        await self.network.start()
        self.replayer.start()
        self.network.spawn(self._sweep(), "expiry")
        if self.peers is not None:
            self.peers.start()
        self.network.spawn(self.tuner.run(), "tuning")
        self.network.spawn(self.sampler.run(), "sampling")
        self.network.spawn(self.settling.run(), "settling")
        self.network.spawn(self.repartitioning.run(), "repartitioning")
        self.network.spawn(self.proposing.run(), "proposing")
        self.network.spawn(self.joining.run(), "joining")
        yield
        await self.network.stop()
        if self.peers is not None:
            await self.peers.stop()
        self.replayer.stop()
        self.audit.close()

    async def _sweep(self) -> None:
        while True:
            try:
                mine = self.peers is None or self.peers.leads()
                ended = await self.subscriptions.sweep() if mine else 0
            except Unavailable:
                ended = 0
            if not ended:
                await asyncio.sleep(1.0)

    def accepting(self) -> bool:
        """Whether events are taken."""
        return not self.network.disk_full and (self.peers is None or self.peers.accepting())

    def partition(self) -> dict[str, float]:
        """How good the partition of subscriptions is, and what is being moved: for metrics."""
        running, ratio = self.repartitioning.running(), self.proposing.describe()
        seen = {"hit_ratio": ratio["now"], "best_hit_ratio": ratio["best"]}
        return {
            **{name: value for name, value in seen.items() if value is not None},
            "repartition_proposed": float(self.proposing.proposal is not None),
            "repartition_left_subscriptions": running.left if running else 0,
            "unsettled_subscriptions": self.settling.unsettled(),
        }

    # -- from bodies to the model ------------------------------------------------------------------------

    def wanted(
        self, body: bodies.SubscriptionBody, who: Caller, prefix: str = "", suggested: str | None = None
    ) -> Wanted:
        """A request checked against its topic; errors name the place in the request."""
        try:
            topic = self.place(body.topic, who)
        except (NotFound, InvalidInput) as error:
            error.pointer = f"{prefix}/topic"
            raise
        # A stream is named after its subscription, so the id comes first.
        id = body.id if body.sink is not None else body.id or new_id()
        want = self.wanted_on(topic, body, prefix, id=id, owner=body.owner or who.name)
        want = replace(want, since=self._since(topic, body.since, prefix))
        if body.location is None:
            return replace(want, suggested=suggested)
        try:
            self.network.placing.check_location(body.location)
        except EdnError as error:
            error.pointer = f"{prefix}/location"
            raise
        return replace(want, suggested=suggested, location=tuple(body.location))

    def place(self, name: str, who: Caller) -> Topic | Subtree:
        """What a caller can subscribe to under a name: a topic that there is, or any subtree."""
        if not namespace.is_subtree(name):
            return self.topics.get(name, who.tenant)
        namespace.check_subtree_name(name)
        return Subtree(path_of(who.tenant, name))

    def _since(self, topic: Topic | Subtree, text: str | None, prefix: str) -> int | None:
        """Where a subscription begins, as `Wanted` has it."""
        if text is None:
            return 0
        now = self.network.log.now()
        since = parse_since(text, now, pointer=f"{prefix}/from")
        if since is None or isinstance(topic, Subtree):  # each topic tells what it has
            return since
        kept = topic.created if math.isinf(topic.availability) else now - int(topic.availability * 1e6)
        if since < max(kept, topic.created) and not self.replayer.reaches(topic.uid, since):
            raise InvalidInput(
                f'from "{text[:60]}": events of "{topic.name}" are kept since '
                f"{rfc3339(max(kept, topic.created))}",
                pointer=f"{prefix}/from",
            )
        return since

    def wanted_on(
        self,
        topic: Topic | Subtree,
        body: bodies.SubscriptionBody | bodies.ChangeBody,
        prefix: str,
        *,
        id: str | None,
        owner: str,
    ) -> Wanted:
        place = "/filter"
        sink = body.sink or bodies.SinkBody.model_validate({"url": streaming.address(id or "")})
        try:
            parsed = Filter.parse(body.filter)
            bound = self._bound(parsed, topic)
            if body.sink is not None:
                place = "/sink/url"
                self._check_sink(body.sink.url)
            place = "/sink/secret"
            if sink.secret is not None:
                check_secret(sink.secret)
            place = "/sink"
            url = sinks.address_of(sink, consent=self.settings.require_consent)
            place = ""
            expires = None if body.expires is None else parse_expires(body.expires, self.network.log.now())
        except EdnError as error:
            error.pointer = prefix + place + (error.pointer or "")
            raise
        return Wanted(
            id=id,
            owner=owner,
            topic=topic,
            filter=parsed,
            bound=bound,
            url=url,
            recipient=sink.recipient,
            expires=expires,
            secret=sink.secret,
        )

    def _bound(self, filter: Filter, topic: Topic | Subtree) -> BoundFilter | None:
        """A filter under a topic's schema; of a subtree it is only checked that there may be one for it."""
        if isinstance(topic, Subtree):
            check_fits(filter, topic, self.topics.below(topic.path))
            return None
        check_dialect(filter, topic)
        return filter.bind(topic.schema)

    def _check_sink(self, url: str) -> None:
        development = self.settings.allow_loopback_sinks
        check_url(
            url,
            allow_loopback=development,
            allow_http=development,
            allow_mail=self.settings.allow_mail_sinks,
        )

    # -- from the model to bodies ------------------------------------------------------------------------

    def topic_view(self, topic: Topic) -> dict[str, Any]:
        return {
            "name": topic.name,
            "attributes": topic.schema.attributes,
            "engine": topic.engine,
            "availability": "forever" if math.isinf(topic.availability) else topic.availability,
            "revision": topic.revision,
            "created": rfc3339(topic.created),
        }

    def check_room(self, who: Caller, wanted: Sequence[Wanted]) -> None:
        """Raise `Overloaded` if a key's quota has none; what is there under the same id counts once."""
        self.guard.quotas.check_room(
            who,
            self.network.log.reader,
            [topic.uid for topic in self.topics.all(who.tenant)],
            [want.attributes for want in wanted],
            [want.id for want in wanted if want.id is not None],
        )

    def find(self, who: Caller, id: str) -> directory.Subscription:
        """A living subscription that this caller may know of; raises `NotFound`."""
        found = self.subscriptions.get(id)
        topic = self.topic_of(found)
        # Members are parts of what they are members of, and nothing by themselves.
        foreign = not who.operates and (topic is None or topic.tenant != who.tenant)
        if foreign or namespace.is_member(id):
            raise NotFound(f'no subscription "{id[:80]}"')
        return found

    def topic_of(self, found: directory.Subscription) -> Topic | Subtree | None:
        """What a subscription is to; None if its topic has just ended."""
        return self.topics.by_uid(found.topic) if found.subtree is None else Subtree(found.subtree)

    def view(
        self, found: directory.Subscription, who: Caller, made: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """A subscription as it is shown; `made` are the secrets that were made for this very request."""
        secret = (made or {}).get(found.ring)
        return {
            "id": found.id,
            "topic": self._named(self.topic_of(found), who),
            "filter": found.filter,
            "sink": sinks.view(found, secret),
            "state": "paused" if found.paused else "active",
            "expires": None if found.expires is None else rfc3339(found.expires),
            "owner": found.owner,
            "server": found.server or None,
            "created": rfc3339(found.created),
            "location": found.location,
        }

    def whole_view(
        self, found: directory.Subscription, who: Caller, made: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """The same; one to a subtree with the topics that it has, and those that it has not."""
        view = self.view(found, who, made)
        if found.subtree is None:
            return view
        members = [
            {"topic": self._named(self.topic_of(one), who), "server": one.server}
            for one in directory.members(self.network.log.reader, found.id)
        ]
        others = [
            {"topic": self._named(one.topic, who), "reason": one.reason}
            for one in self.subscriptions.left_out(found)
        ]
        return {**view, "topics": sorted(members, key=lambda one: one["topic"]), "left_out": others}

    @staticmethod
    def _named(topic: Topic | Subtree | None, who: Caller) -> str:
        """A topic by its name; of another tenant by its path."""
        if topic is None:
            return ""
        return topic.name if topic.tenant == who.tenant else topic.path

    async def subscribe(
        self,
        body: bodies.SubscriptionBody | list[bodies.SubscriptionBody],
        who: Caller,
        suggested: Sequence[str | None] = (),
    ) -> tuple[Any, int, dict[str, str]]:
        """Subscribe one or many; the answer's content, status and headers."""
        # Servers know the operator's topics by name, and nobody else's.
        hosts = {} if who.tenant else dict(enumerate(suggested))
        if isinstance(body, list):
            most = self.settings.subscriptions_per_request
            if len(body) > most:
                raise TooLarge(f"{len(body)} subscriptions in one request; at most {most} are taken")
            wanted = [self.wanted(one, who, f"/{place}", hosts.get(place)) for place, one in enumerate(body)]
            self.check_room(who, wanted)
            wanted, secrets = await keyrings.assign(self.network.log, wanted)
            made = await self.subscriptions.create(wanted) if wanted else []
            status = 200 if made and not any(new for _, new in made) else 201
            return {"subscriptions": [self.view(found, who, secrets) for found, _ in made]}, status, {}
        wanted = [self.wanted(body, who, suggested=hosts.get(0))]
        self.check_room(who, wanted)
        wanted, secrets = await keyrings.assign(self.network.log, wanted)
        with _at_the_sink():
            [(found, new)] = await self.subscriptions.create(wanted)
        headers = {"location": f"/v1/subscriptions/{found.id}"}
        return self.whole_view(found, who, secrets), 201 if new else 200, headers

    async def change(self, id: str, body: bodies.ChangeBody, who: Caller) -> dict[str, Any]:
        """Replace filter, sink and expiry; the subscription as it is shown."""
        found = self.find(who, id)
        topic = self.topic_of(found)
        if topic is None:
            raise NotFound(f'no subscription "{id[:80]}"')
        want = self.wanted_on(topic, body, "", id=id, owner=found.owner)
        self.check_room(who, [want])
        secrets: dict[str, str] = {}
        if want.secret is None and want.url == found.url:
            want = replace(want, ring=found.ring)  # the address stays, and what it is signed with
        else:
            [want], secrets = await keyrings.assign(self.network.log, [want])
        with _at_the_sink():
            changed = await self.subscriptions.change(id, want)
        return self.whole_view(changed, who, secrets)


@contextlib.contextmanager
def _at_the_sink() -> Iterator[None]:
    """What a server says of a sink, of the only one that there is: it did not consent, say."""
    try:
        yield
    except InvalidSink as error:
        error.pointer = "/sink/url"
        raise


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
            self.audit.refused(scope, error)
            await refuse(error, scope, receive, send)
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
    door.guard.watch(app.router.routes)
    for page in app.router.routes:  # so far, those that describe the interface
        needs(Need.PUBLIC)(getattr(page, "endpoint"))  # noqa: B009  what Starlette's base class does not name
    app.heartbeat = internal.HeartbeatEndpoint(door.network, door.guard)
    if door.peers is not None:
        carry_out = functools.partial(FastAPI.__call__, app)
        app.leading = Leading(carry_out, door.peers, limit=settings.body_limit, secret=settings.secret)
    app.router.route_class = StrictRoute
    install(app, union_tags=bodies.UNION_TAGS)
    app.router.routes.append(
        Route(
            PublishEndpoint.PATH,
            publish,
            methods=["POST"],
            include_in_schema=False,  # dispatcher.openapi describes it
        )
    )
    for method, need in (("GET", Need.PUBLIC), ("POST", Need.KEY)):
        endpoint = needs(need)(functools.partial(app.soap))
        app.router.routes.append(Route("/soap", endpoint, methods=[method], include_in_schema=False))
    for router in (_topics(door), _subscriptions(door), _operations(door), internal.routes(door)):
        app.include_router(router)
    app.include_router(cloudevents_routes(door))
    app.include_router(consent_routes(door.network))
    app.include_router(keys_door.routes(door.keys))
    app.include_router(route_routes(door.network, door.topics))
    app.include_router(tuning_routes(door.network, door.tuner))
    app.include_router(dashboard.routes(door.sampler, Projector(door.network), door.topics))
    app.include_router(metrics.routes(door.network, door.topics, door.tuner, door.accepting, door.partition))
    app.include_router(backup_routes(door.network))
    app.include_router(moving_routes(door.repartitioning, door.settling, door.proposing))
    app.include_router(evidence.routes(door.network, door.find))
    app.include_router(streaming.routes(door.network, door.find))
    app.add_middleware(BodyLimit, limit=settings.body_limit)
    openapi.install(app)
    app.state.door = door
    app.state.closing = [door.sampler.close]
    return app


def _topics(door: Door) -> APIRouter:
    router = APIRouter(prefix="/v1/topics", tags=["topics"], route_class=StrictRoute)

    @router.put("/{name}", response_model=bodies.Topic, responses={201: {"model": bodies.Topic}})
    @needs(Need.ADMIN)
    async def put_topic(name: str, body: bodies.TopicBody, response: Response, who: Who) -> Any:
        """Create a topic, or change its schema. What stored filters use cannot be taken away."""
        lasting = math.inf if body.availability == "forever" else body.availability
        topic, new = await door.joining.put(name, body.attributes, body.engine, lasting, tenant=who.tenant)
        if new:
            response.status_code = 201
            response.headers["location"] = f"/v1/topics/{topic.name}"
        return door.topic_view(topic)

    @router.get("", response_model=bodies.TopicList)
    @needs(Need.KEY)
    async def list_topics(who: Who) -> Any:
        return {"topics": [door.topic_view(topic) for topic in door.topics.all(who.tenant)]}

    @router.get("/{name}", response_model=bodies.Topic)
    @needs(Need.KEY)
    async def get_topic(name: str, who: Who) -> Any:
        return door.topic_view(door.topics.get(name, who.tenant))

    @router.get("/{name}/events", response_model=bodies.FollowedEvent)
    @needs(Need.SUBSCRIBE)
    async def follow(name: str, who: Who, id: Annotated[str, Query(max_length=512)]) -> Any:
        """What became of a recent event: where it was sent, whom it matched, how they were told."""
        return await door.follower.follow(door.topics.get(name, who.tenant), id)

    @router.post("/{name}/explain", response_model=bodies.ExplainedEvent | bodies.ExplainedFilter)
    @needs(Need.SUBSCRIBE)
    async def explain(name: str, body: bodies.ExplainBody, who: Who) -> Any:
        """What would become of an event, tier by tier; or what a filter would hear. Nothing is changed."""
        topic = door.topics.get(name, who.tenant)
        if one_of(body.event, body.filter, body.model_fields_set) == "event":
            return await door.explainer.event(topic, body.event)
        return await door.explainer.filter(topic, body.filter)

    @router.delete("/{name}", status_code=204)
    @needs(Need.ADMIN)
    async def delete_topic(
        name: str,
        who: Who,
        cascade: Annotated[bool, Query(description="delete its subscriptions too")] = False,
    ) -> None:
        """Delete a topic; refused while it has subscriptions, unless they go with it."""
        await door.joining.delete(name, cascade=cascade, tenant=who.tenant)

    return router


def _subscriptions(door: Door) -> APIRouter:
    router = APIRouter(prefix="/v1/subscriptions", tags=["subscriptions"], route_class=StrictRoute)

    @router.post(
        "",
        status_code=201,
        response_model=bodies.Subscription | bodies.SubscriptionList,
        response_model_exclude_unset=True,
        responses={200: {"model": bodies.Subscription | bodies.SubscriptionList}},
    )
    @needs(Need.SUBSCRIBE)
    async def subscribe(body: Annotated[bodies.OneOrMany, Body()], response: Response, who: Who) -> Any:
        """Subscribe one or many, all or nothing. Events that are accepted after the answer are not missed."""
        content, response.status_code, headers = await door.subscribe(body, who)
        response.headers.update(headers)
        return content

    @router.get("", response_model=bodies.SubscriptionPage, response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def list_subscriptions(
        who: Who,
        topic: Annotated[str | None, Query(max_length=256)] = None,
        owner: Annotated[str | None, Query(max_length=128)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: Annotated[str | None, Query(max_length=64)] = None,
        search: Annotated[
            str | None, Query(max_length=256, description="in id, owner, address, recipient or filter")
        ] = None,
        members: Annotated[
            bool, Query(description="of those to subtrees the members: a topic and a server each")
        ] = False,
    ) -> Any:
        """In the order of creation; `next` is the cursor of the following page. The operator sees all."""
        wanted = door.place(topic, who) if topic is not None else None
        tenant = None if who.operates else who.tenant
        if search:
            found, following = await door.subscriptions.search(
                search,
                limit=limit,
                cursor=cursor,
                topic=wanted,
                owner=owner,
                tenant=tenant,
                members=members,
            )
        else:
            found, following = door.subscriptions.page(
                limit=limit, cursor=cursor, topic=wanted, owner=owner, tenant=tenant, members=members
            )
        return {"subscriptions": [door.view(one, who) for one in found], "next": following}

    @router.delete("", response_model=bodies.Ended)
    @needs(Need.SUBSCRIBE)
    async def unsubscribe_covered(
        who: Who,
        topic: Annotated[str, Query(max_length=256)],
        filter: Annotated[str, Query(max_length=65_536, description="as text, or as JSON")],
        owner: Annotated[str | None, Query(max_length=128)] = None,
    ) -> Any:
        """Cancel all of an owner's subscriptions whose filter this one covers; none covered, no effect."""
        place = door.place(topic, who)
        given = strictjson.decode(filter.encode()) if filter.lstrip().startswith("{") else filter
        try:
            parsed = Filter.parse(given)
            if isinstance(place, Topic):
                parsed.bind(place.schema)
        except EdnError as error:
            error.pointer = "/filter" + (error.pointer or "")
            raise
        return {"ids": await door.covering.unsubscribe(place, owner or who.name, parsed)}

    @router.get("/{id}", response_model=bodies.Subscription, response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def get_subscription(id: str, who: Who) -> Any:
        """One subscription, with the state of its delivery and its counters."""
        found = door.find(who, id)
        return {**door.whole_view(found, who), "delivery": await evidence.glance(door.network, found)}

    @router.put("/{id}", response_model=bodies.Subscription, response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def change_subscription(id: str, body: bodies.ChangeBody, who: Who) -> Any:
        """Replace filter, sink and expiry in place, without a gap."""
        return await door.change(id, body, who)

    @router.post("/{id}/renew", response_model=bodies.Subscription, response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def renew_subscription(id: str, body: bodies.RenewBody, who: Who) -> Any:
        """Set a new expiry, or none."""
        door.find(who, id)
        expires = None if body.expires is None else parse_expires(body.expires, door.network.log.now())
        return door.view(await door.subscriptions.renew(id, expires), who)

    @router.post("/{id}/pause", response_model=bodies.Subscription, response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def pause_subscription(id: str, who: Who) -> Any:
        """Keep notifications, in order, instead of sending them."""
        door.find(who, id)
        return door.view(await door.subscriptions.pause(id, True), who)

    @router.post("/{id}/resume", response_model=bodies.Subscription, response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def resume_subscription(id: str, who: Who, body: bodies.ResumeBody | None = None) -> Any:
        """Send what was kept and go on, at another sink if one is given."""
        found = door.find(who, id)
        if body is not None and body.sink is not None:
            expires = None if found.expires is None else rfc3339(found.expires)
            changed = bodies.ChangeBody(filter=found.filter, sink=body.sink, expires=expires)
            await door.change(id, changed, who)
        return door.view(await door.subscriptions.pause(id, False), who)

    @router.delete("/{id}", status_code=204)
    @needs(Need.SUBSCRIBE)
    async def unsubscribe(id: str, who: Who) -> None:
        """Events that are accepted after the answer are not notified."""
        door.find(who, id)
        await door.subscriptions.delete(id)

    return router


def _operations(door: Door) -> APIRouter:
    router = APIRouter(tags=["operations"], route_class=StrictRoute)

    @router.get("/v1/servers", response_model=bodies.ServerList)
    @needs(Need.OPERATOR)
    async def list_servers() -> Any:
        network = door.network
        servers = network.describe_servers()
        asked = network.published * len(servers)
        forwarded = sum(server["forwarded"] for server in servers)
        return {
            "servers": servers,
            "published": network.published,
            "hit_ratio": forwarded / asked if asked else None,
        }

    @router.get("/v1/dispatchers", response_model=bodies.DispatcherList)
    @needs(Need.OPERATOR)
    async def list_dispatchers() -> Any:
        """All dispatchers as this one sees them, itself first; alone, it is always ready."""
        if door.peers is not None:
            return {"dispatchers": door.peers.describe()}
        own = {"log": door.network.log.id, "url": door.settings.url, "self": True, "reachable": True}
        return {"dispatchers": [{**own, "ready": True, "level": True, "leader": True, "failure": None}]}

    @router.get("/v1/servers/{id}/summary", response_model=dict[str, Any])
    @needs(Need.OPERATOR)
    async def server_summary(id: str) -> Any:
        """What the dispatcher holds of a server: rectangles in use, precision, size."""
        if door.network.members.get(id) is None:
            raise NotFound(f'no server "{id[:80]}"')
        return msgspec.to_builtins(door.network.table.describe(id))

    @router.get("/livez", response_model=dict[str, str])
    @needs(Need.PUBLIC)
    async def livez() -> Any:
        return {"status": "alive"}

    @router.get("/readyz", response_model=dict[str, Any])
    @needs(Need.PUBLIC)
    async def readyz() -> Any:
        """Ready when at least one server can host subscriptions, and this dispatcher may take events."""
        if door.peers is not None and not door.peers.accepting():
            raise Unavailable("not level with the other dispatchers", retry_after=1)
        ready = len(door.network.members.ready())
        if not ready:
            raise Unavailable("no server is ready", retry_after=math.ceil(door.settings.heartbeat_seconds))
        return {"status": "ready", "servers": ready}

    return router
