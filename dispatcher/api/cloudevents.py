"""The Subscriptions API of CloudEvents, as its draft has it, over the subscriptions that REST has, too.

Nothing is kept here: a subscription that is made at this door is the one that `POST /v1/subscriptions` would
make, and whatever was made anywhere is shown, changed and cancelled. `edn.model.filter.dialects` translates
filters there and back; the rest is a matter of names:

| here | there |
|---|---|
| `source`, `types`, `filters` | `filter` |
| `sink`, and of `protocolsettings` `format`, `secret` and `consent` | `sink` |
| `config.topic`, or a `source` that is a topic's own | `topic` |
| other entries of `config` | fields of the same name |

Deliveries are POSTs; what a subscription of another kind is told by (a stream, SOAP, mail) is shown as its
`protocol`, and cannot be asked for here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import AliasChoices, BaseModel, Field, WithJsonSchema

from dispatcher.api import bodies
from dispatcher.api.bodies import Body, Coordinate, Expires, Name
from dispatcher.api.caller import Who
from dispatcher.auth.caller import Caller, Need, needs
from dispatcher.store.directory import Subscription
from dispatcher.subscriptions.requests import SubscriptionRequests
from dispatcher.subscriptions.service import Subscriptions
from dispatcher.subscriptions.topics import Topic, Topics
from edn.errors import Conflict, EdnError, InvalidInput, InvalidSink, NotFound
from edn.formats import cloudevents
from edn.http.asgi import StrictRoute
from edn.model import namespace
from edn.model.filter import dialects

PATH = "/cloudevents/subscriptions"
HTTP = "HTTP"
#: schemes of the addresses of other sinks, as protocols
_PROTOCOLS = {"http": HTTP, "https": HTTP, "soap": "SOAP", "mailto": "SMTP"}
#: of a subscription without a sink
_STREAM = "SSE"
#: the source of plain events of a topic: what follows is its name
_TOPIC_SOURCE = cloudevents.defaults("")["source"]

Text = Annotated[str, Field(min_length=1, max_length=2048)]


class Config(Body):
    """What this network asks besides."""

    topic: str | None = Field(
        None,
        max_length=256,
        description="The topic's name. May be left out where `source` is that of a topic's plain events, "
        "/v1/topics/{name}.",
    )
    id: Name | None = Field(
        None, description="For a new one: the client's own id, which makes subscribing idempotent."
    )
    owner: Name | None = None
    recipient: str | None = Field(None, description="Whom it is for.", min_length=1, max_length=256)
    expires: Expires = None
    since: str | None = Field(
        None, alias="from", max_length=64, description="For a new one: where it begins, as over REST."
    )
    location: list[Coordinate] | None = Field(None, min_length=1, max_length=8)


class HttpSettings(Body):
    method: Literal["POST"] = "POST"
    headers: Any = Field(None, description="Not supported: a sink is told who posts by a signature.")
    format: Literal["cloudevents-binary", "cloudevents-structured", "cloudevents-batch", "json"] = Field(
        "cloudevents-binary", description="The mode; or notifications as REST has them."
    )
    secret: str | None = Field(
        None, max_length=128, description="What deliveries are signed with; without one, one is made."
    )
    consent: bool | None = Field(
        None, description="Whether the sink is asked for its consent before anything is posted."
    )


FilterExpression = Annotated[
    Any,
    WithJsonSchema(
        {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "description": f"One key, its dialect: {', '.join(dialects.DIALECTS)}.",
            "examples": [{"prefix": {"type": "com.example."}}, {dialects.OURS: "price > 30"}],
        }
    ),
]


class SubscriptionRequest(Body):
    id: Any = Field(None, description="Not looked at when subscribing; else it must be that of the path.")
    source: Text | None = Field(None, description="Of the events: exactly this.")
    types: list[Text] | None = Field(
        None, min_length=1, max_length=1000, description="Of the events: one of them."
    )
    config: Config = Field(default_factory=lambda: Config.model_validate({}))
    filters: list[FilterExpression] | None = Field(
        None, max_length=1000, description="Expressions that all hold."
    )
    sink: str = Field(max_length=2048, description="Where events are posted.")
    sinkcredential: Any = Field(
        None,
        validation_alias=AliasChoices("sinkcredential", "sinkCredential"),
        description="Not supported: deliveries are signed instead.",
    )
    protocol: str = Field(max_length=64, description=f"{HTTP}: others are not supported.", examples=[HTTP])
    protocolsettings: HttpSettings = Field(default_factory=lambda: HttpSettings.model_validate({}))


class SubscriptionView(BaseModel):
    id: str
    source: str | None = None
    types: list[str] | None = None
    config: dict[str, Any]
    filters: list[dict[str, Any]]
    sink: str
    #: HTTP; of what was not made here also others
    protocol: str
    protocolsettings: dict[str, Any]


class _Manager:
    """The subscription manager, as the draft calls it."""

    def __init__(self, topics: Topics, subscriptions: Subscriptions, requests: SubscriptionRequests) -> None:
        self._topics = topics
        self._subscriptions = subscriptions
        self._requests = requests

    async def create(self, body: SubscriptionRequest, who: Caller) -> tuple[dict[str, Any], bool]:
        """The subscription as it is shown, and whether it is new."""
        topic = self._topic(body, who)
        config = body.config
        wanted: dict[str, Any] = {
            "topic": topic.name,
            "filter": _filter(topic, body),
            "sink": _sink(body),
            "expires": config.expires,
            "id": config.id,
            "owner": config.owner,
            "from": config.since,
            "location": config.location,
        }
        try:
            shown, status, _ = await self._requests.subscribe(
                bodies.SubscriptionBody.model_validate(wanted).request(), who
            )
        except EdnError as error:
            raise _placed(error) from None
        return _shown(shown, topic), status == 201

    async def change(self, id: str, body: SubscriptionRequest, who: Caller) -> dict[str, Any]:
        found, topic = await self._find(id, who)
        if topic is None:
            raise Conflict("it is to a subtree: PUT /v1/subscriptions/{id} changes it", pointer="/id")
        if body.id not in (None, id):
            raise Conflict("the id of a subscription stays what it is", pointer="/id")
        self._check_unchanged(found, body, who)
        wanted = {"filter": _filter(topic, body), "sink": _sink(body), "expires": body.config.expires}
        try:
            shown = await self._requests.change(id, bodies.ChangeBody.model_validate(wanted).request(), who)
        except EdnError as error:
            raise _placed(error) from None
        return _shown(shown, topic)

    async def delete(self, id: str, who: Caller) -> dict[str, Any]:
        """The subscription as it was."""
        found, topic = await self._find(id, who)
        await self._subscriptions.delete(found.id)
        return _shown(self._requests.view(found, who), topic)

    async def get(self, id: str, who: Caller) -> dict[str, Any]:
        found, topic = await self._find(id, who)
        return _shown(self._requests.view(found, who), topic)

    async def page(
        self, who: Caller, topic: str | None, limit: int, cursor: str | None
    ) -> tuple[list[dict[str, Any]], str | None]:
        wanted = self._topics.get(topic, who.tenant) if topic is not None else None
        tenant = None if who.operates else who.tenant
        found, following = await self._subscriptions.page(
            limit=limit, cursor=cursor, topic=wanted, tenant=tenant
        )
        by_uid = self._topics.by_uid
        return [_shown(self._requests.view(one, who), by_uid(one.topic)) for one in found], following

    async def _find(self, id: str, who: Caller) -> tuple[Subscription, Topic | None]:
        found = await self._requests.find(who, id)
        return found, self._topics.by_uid(found.topic)

    def _topic(self, body: SubscriptionRequest, who: Caller) -> Topic:
        name = body.config.topic
        if name is None and body.source is not None and body.source.startswith(_TOPIC_SOURCE):
            name = body.source.removeprefix(_TOPIC_SOURCE)
        if not name:
            raise InvalidInput(
                'which topic? {"config": {"topic": "stocks"}} names it, '
                f"or the source {_TOPIC_SOURCE}stocks",
                pointer="/config/topic",
            )
        place = "/config/topic" if body.config.topic is not None else "/source"
        if namespace.is_subtree(name):
            raise InvalidInput(f"{name} is a subtree: POST /v1/subscriptions subscribes to it", pointer=place)
        try:
            return self._topics.get(name, who.tenant)
        except NotFound as error:
            error.pointer = place
            raise

    def _check_unchanged(self, found: Subscription, body: SubscriptionRequest, who: Caller) -> None:
        """What a change may not change may stand there as it is, so that what was read can be sent back."""
        config = body.config
        shown = self._requests.view(found, who)
        for name, given, there in (
            ("topic", config.topic, shown["topic"]),
            ("owner", config.owner, found.owner),
            ("id", config.id, shown["id"]),
        ):
            if given is not None and given != there:
                raise Conflict(
                    f'the {name} of a subscription stays what it is, "{there}"', pointer=f"/config/{name}"
                )
        for name in ("since", "location"):
            if getattr(config, name) is not None:
                shown_name = "from" if name == "since" else name
                raise InvalidInput(f"{shown_name} is for new ones", pointer=f"/config/{shown_name}")


def routes(topics: Topics, subscriptions: Subscriptions, requests: SubscriptionRequests) -> APIRouter:
    router = APIRouter(prefix=PATH, tags=["CloudEvents"], route_class=StrictRoute)
    manager = _Manager(topics, subscriptions, requests)

    @router.post(
        "",
        status_code=201,
        response_model=SubscriptionView,
        response_model_exclude_unset=True,
        responses={200: {"model": SubscriptionView}},
    )
    @needs(Need.SUBSCRIBE)
    async def create_cloudevents_subscription(body: SubscriptionRequest, response: Response, who: Who) -> Any:
        """Subscribe. Events that are accepted after the answer are not missed."""
        shown, new = await manager.create(body, who)
        response.status_code = 201 if new else 200
        response.headers["location"] = f"{PATH}/{shown['id']}"
        return shown

    @router.get("", response_model=list[SubscriptionView], response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def list_cloudevents_subscriptions(
        response: Response,
        who: Who,
        topic: Annotated[str | None, Query(max_length=256)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: Annotated[str | None, Query(max_length=64)] = None,
    ) -> Any:
        """In the order of creation; where more follow, the header `Link` names the next page."""
        shown, following = await manager.page(who, topic, limit, cursor)
        if following is not None:
            narrowed = f"&topic={topic}" if topic is not None else ""
            response.headers["link"] = f'<{PATH}?limit={limit}&cursor={following}{narrowed}>; rel="next"'
        return shown

    @router.options("", include_in_schema=False)
    @needs(Need.KEY)
    async def cloudevents_features() -> Response:
        return Response(headers={"allow": "GET, POST, OPTIONS"})

    @router.get("/{id}", response_model=SubscriptionView, response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def get_cloudevents_subscription(id: str, who: Who) -> Any:
        """One subscription, wherever it was made."""
        return await manager.get(id, who)

    @router.put("/{id}", response_model=SubscriptionView, response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def change_cloudevents_subscription(id: str, body: SubscriptionRequest, who: Who) -> Any:
        """Replace source, types, filters, sink and expiry in place, without a gap."""
        return await manager.change(id, body, who)

    @router.delete("/{id}", response_model=SubscriptionView, response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def delete_cloudevents_subscription(id: str, who: Who) -> Any:
        """Cancel; the answer is the subscription as it was."""
        return await manager.delete(id, who)

    @router.options("/{id}", include_in_schema=False)
    @needs(Need.KEY)
    async def cloudevents_subscription_features(id: str) -> Response:
        return Response(headers={"allow": "GET, PUT, DELETE, OPTIONS"})

    return router


# -- there ------------------------------------------------------------------------------------------------


def _filter(topic: Topic, body: SubscriptionRequest) -> dict[str, Any] | None:
    context = dialects.Context.of(topic.name, topic.schema)
    return dialects.read(context, source=body.source, types=body.types, filters=body.filters)


def _sink(body: SubscriptionRequest) -> dict[str, Any]:
    """The sink as REST has it."""
    if body.protocol != HTTP:
        raise InvalidSink(
            f'events are not delivered over "{body.protocol[:64]}"; {HTTP} is right', pointer="/protocol"
        )
    if body.sinkcredential is not None:
        raise InvalidSink(
            "credentials for sinks are not supported: deliveries are signed (protocolsettings.secret)",
            pointer="/sinkcredential",
        )
    if body.protocolsettings.headers:
        raise InvalidSink(
            "headers of the subscriber's own are not sent: deliveries are signed (protocolsettings.secret)",
            pointer="/protocolsettings/headers",
        )
    if not body.sink.lower().startswith(("http:", "https:")):
        raise InvalidSink("events are posted; https://… is right", pointer="/sink")
    settings = body.protocolsettings
    return {
        "url": body.sink,
        "format": settings.format,
        "secret": settings.secret,
        "consent": settings.consent,
        "recipient": body.config.recipient,
    }


#: where the errors of REST's fields have their places here
_PLACES = {
    "/sink/url": "/sink",
    "/sink/secret": "/protocolsettings/secret",
    "/sink/consent": "/protocolsettings/consent",
    "/sink/recipient": "/config/recipient",
    "/filter": "/filters",
    "/topic": "/config/topic",
    "/id": "/config/id",
    "/owner": "/config/owner",
    "/expires": "/config/expires",
    "/from": "/config/from",
    "/location": "/config/location",
}


def _placed(error: EdnError) -> EdnError:
    if error.pointer is not None:
        for there, here in _PLACES.items():
            if error.pointer == there or error.pointer.startswith(f"{there}/"):
                error.pointer = here
                break
    return error


# -- and back ---------------------------------------------------------------------------------------------


def _shown(view: dict[str, Any], topic: Topic | None) -> dict[str, Any]:
    """A subscription as REST shows it, as the Subscriptions API does."""
    sink = view["sink"]
    config = {"topic": view["topic"], "owner": view["owner"]}
    if view["expires"] is not None:
        config["expires"] = view["expires"]
    settings: dict[str, Any] = {}
    if sink is None:
        protocol, url = _STREAM, f"/v1/subscriptions/{view['id']}/events"
    else:
        url, scheme = sink["url"], sink["url"].partition(":")[0].lower()
        protocol = _PROTOCOLS.get(scheme, scheme.upper())
        if sink["recipient"] is not None:
            config["recipient"] = sink["recipient"]
        if protocol == HTTP:
            settings = {"method": "POST", "format": sink.get("format", "json")}
        settings |= {name: sink[name] for name in ("consent", "secret") if name in sink}
    shown: dict[str, Any] = {"id": view["id"]}
    if topic is not None:
        written = dialects.write(dialects.Context.of(topic.name, topic.schema), view["filter"])
        if written.source is not None:
            shown["source"] = written.source
        if written.types is not None:
            shown["types"] = written.types
        filters = written.filters
    else:
        filters = [] if view["filter"] is None else [{dialects.OURS: view["filter"]}]
    return shown | {
        "config": config,
        "filters": filters,
        "sink": url,
        "protocol": protocol,
        "protocolsettings": settings,
    }
