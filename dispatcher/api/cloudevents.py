"""The CloudEvents Subscriptions API (draft), mapped to the subscriptions of REST.

It stores nothing itself: it creates the same subscriptions as `POST /v1/subscriptions`, and shows, changes
and deletes those of every interface. `edn.model.filter.dialects` translates filters in both directions; the
other fields only have different names:

| CloudEvents | REST |
|---|---|
| `source`, `types`, `filters` | `filter` |
| `sink`, `sinkcredential`, and `headers`, `format`, `secret`, `consent` of `protocolsettings` | `sink` |
| `config.topic`, or the `source` of a topic's plain events | `topic` |
| other entries of `config` | fields of the same name |

Only webhooks can be created here; other sinks (stream, SOAP, mail, brokers) are shown as `protocol`. Settings
of a sink that have no field here (timeout, retries, rate, order, other credentials) stay when a change keeps
the URL.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import AliasChoices, BaseModel, Field, WithJsonSchema

from dispatcher.api.bodies import AskConsent, Body, Expires, Location, Name, Recipient, SigningKey, Who
from dispatcher.auth.caller import Caller, Need, needs
from dispatcher.store.directory import Subscription
from dispatcher.subscriptions.requests import Change, NewSubscription, SubscriptionRequests
from dispatcher.subscriptions.service import Subscriptions
from dispatcher.subscriptions.sinks import Sink, target_of
from dispatcher.subscriptions.topics import Topic, Topics
from edn.errors import Conflict, EdnError, InvalidInput, InvalidSink, NotFound
from edn.formats import broker_url, cloudevents, sink_settings
from edn.formats.sink_settings import Basic, Bearer, Credentials, SinkSettings
from edn.http.asgi import StrictRoute
from edn.model import namespace
from edn.model.filter import dialects

PATH = "/cloudevents/subscriptions"
HTTP = "HTTP"
#: URL scheme of a sink → protocol
_PROTOCOLS = {
    "http": HTTP,
    "https": HTTP,
    "soap": "SOAP",
    "mailto": "SMTP",
    **{scheme: kind.upper() for scheme, (kind, *_) in broker_url.SCHEMES.items()},
}
#: protocol of a stream
_STREAM = "SSE"
#: `source` of a topic's plain events, without the topic's name
_TOPIC_SOURCE = cloudevents.defaults("")["source"]

Text = Annotated[str, Field(min_length=1, max_length=2048)]


class Config(Body):
    """Settings that are specific to edn."""

    topic: str | None = Field(
        None,
        max_length=256,
        description="Name of the topic. Optional if `source` is /v1/topics/{name}.",
    )
    id: Name | None = Field(
        None, description="New subscriptions only: an id chosen by the client makes the request idempotent."
    )
    owner: Name | None = None
    recipient: Recipient = None
    expires: Expires = None
    since: str | None = Field(
        None, alias="from", max_length=64, description="New subscriptions only: the start, as over REST."
    )
    location: Location = None


class HttpSettings(Body):
    method: Literal["POST"] = "POST"
    headers: dict[str, str] = Field({}, description="Static headers of every request.")
    format: Literal["cloudevents-binary", "cloudevents-structured", "cloudevents-batch", "json"] = Field(
        "cloudevents-binary",
        description="Content mode of CloudEvents, or `json`: notifications as over REST.",
    )
    secret: SigningKey = None
    consent: AskConsent = None


FilterExpression = Annotated[
    Any,
    WithJsonSchema(
        {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "description": f"An object with one key, the dialect: {', '.join(dialects.DIALECTS)}.",
            "examples": [{"prefix": {"type": "com.example."}}, {dialects.OURS: "price > 30"}],
        }
    ),
]


class SinkCredential(Body):
    """Credentials of the sink: `PLAIN` with identifier and secret, or `ACCESSTOKEN` with accesstoken.

    A change with the type alone keeps the stored ones.
    """

    credentialtype: Literal["PLAIN", "ACCESSTOKEN"] = Field(
        validation_alias=AliasChoices("credentialtype", "credentialType")
    )
    identifier: str | None = Field(None, max_length=1024)
    secret: str | None = Field(None, max_length=1024, repr=False)
    accesstoken: str | None = Field(
        None, max_length=8192, repr=False, validation_alias=AliasChoices("accesstoken", "accessToken")
    )
    accesstokentype: Literal["bearer"] = Field(
        "bearer", validation_alias=AliasChoices("accesstokentype", "accessTokenType")
    )


class SubscriptionRequest(Body):
    id: Any = Field(None, description="Ignored for new subscriptions; otherwise the id in the path.")
    source: Text | None = Field(None, description="Exact `source` of events.")
    types: list[Text] | None = Field(
        None, min_length=1, max_length=1000, description="Allowed `type`s of events."
    )
    config: Config = Field(default_factory=lambda: Config.model_validate({}))
    filters: list[FilterExpression] | None = Field(
        None, max_length=1000, description="Filter expressions; all must hold."
    )
    sink: str = Field(max_length=2048, description="URL that events are posted to.")
    sinkcredential: SinkCredential | None = Field(
        None, validation_alias=AliasChoices("sinkcredential", "sinkCredential")
    )
    protocol: str = Field(max_length=64, description=f"Must be {HTTP}.", examples=[HTTP])
    protocolsettings: HttpSettings = Field(default_factory=lambda: HttpSettings.model_validate({}))


class SubscriptionView(BaseModel):
    id: str
    source: str | None = None
    types: list[str] | None = None
    config: dict[str, Any]
    filters: list[dict[str, Any]]
    sink: str
    #: only the type; the secrets are never shown
    sinkcredential: dict[str, str] | None = None
    #: HTTP, or the protocol of a subscription that another interface created
    protocol: str
    protocolsettings: dict[str, Any]


def routes(topics: Topics, subscriptions: Subscriptions, requests: SubscriptionRequests) -> APIRouter:
    router = APIRouter(prefix=PATH, tags=["CloudEvents"], route_class=StrictRoute)

    async def topic_of(body: SubscriptionRequest, who: Caller) -> Topic:
        name = body.config.topic
        if name is None and body.source is not None and body.source.startswith(_TOPIC_SOURCE):
            name = body.source.removeprefix(_TOPIC_SOURCE)
        if not name:
            raise InvalidInput(
                'config.topic must name a topic, such as {"config": {"topic": "stocks"}}, or source must be '
                f"{_TOPIC_SOURCE}<name>",
                pointer="/config/topic",
            )
        pointer = "/config/topic" if body.config.topic is not None else "/source"
        if namespace.is_subtree(name):
            raise InvalidInput(f"{name} is a subtree: use POST /v1/subscriptions", pointer=pointer)
        try:
            return await topics.find(name, who.tenant)
        except NotFound as error:
            error.pointer = pointer
            raise

    def view(found: Subscription, who: Caller) -> dict[str, Any]:
        return _view(requests.view(found, who), topics.by_uid(found.topic))

    @router.post(
        "",
        status_code=201,
        response_model=SubscriptionView,
        response_model_exclude_unset=True,
        responses={200: {"model": SubscriptionView}},
    )
    @needs(Need.SUBSCRIBE)
    async def create_cloudevents_subscription(body: SubscriptionRequest, response: Response, who: Who) -> Any:
        """Create a subscription. It matches events accepted after the response."""
        topic = await topic_of(body, who)
        config = body.config
        request = NewSubscription(
            topic=topic.name,
            filter=_filter(topic, body),
            sink=_sink(body),
            **config.model_dump(include={"expires", "id", "owner", "since", "location"}),
        )
        with _translated_pointers():
            created, response.status_code, _ = await requests.subscribe(request, who)
        response.headers["location"] = f"{PATH}/{created['id']}"
        return _view(created, topic)

    @router.get("", response_model=list[SubscriptionView], response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def list_cloudevents_subscriptions(
        response: Response,
        who: Who,
        topic: Annotated[str | None, Query(max_length=256)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: Annotated[str | None, Query(max_length=64)] = None,
    ) -> Any:
        """List subscriptions in order of creation; the header `Link` names the next page."""
        found, following = await subscriptions.page(
            limit=limit,
            cursor=cursor,
            topic=await topics.find(topic, who.tenant) if topic is not None else None,
            tenant=None if who.is_operator else who.tenant,
        )
        if following is not None:
            narrowed = f"&topic={topic}" if topic is not None else ""
            response.headers["link"] = f'<{PATH}?limit={limit}&cursor={following}{narrowed}>; rel="next"'
        return [view(one, who) for one in found]

    @router.options("", include_in_schema=False)
    @needs(Need.KEY)
    async def cloudevents_features() -> Response:
        return Response(headers={"allow": "GET, POST, OPTIONS"})

    @router.get("/{id}", response_model=SubscriptionView, response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def get_cloudevents_subscription(id: str, who: Who) -> Any:
        """Get a subscription of any interface."""
        return view(await requests.find(who, id), who)

    @router.put("/{id}", response_model=SubscriptionView, response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def change_cloudevents_subscription(id: str, body: SubscriptionRequest, who: Who) -> Any:
        """Replace source, types, filters, sink and expiry in place, without a gap."""
        found = await requests.find(who, id)
        topic = topics.by_uid(found.topic)
        if topic is None:
            raise Conflict(
                "a subtree subscription must be changed with PUT /v1/subscriptions/{id}", pointer="/id"
            )
        if body.id not in (None, id):
            raise Conflict("the id of a subscription cannot be changed", pointer="/id")
        _check_unchanged(requests.view(found, who), body.config)
        sink = _sink(body, found)
        change = Change(filter=_filter(topic, body), sink=sink, expires=body.config.expires)
        with _translated_pointers():
            return _view(await requests.change(id, change, who), topic)

    @router.delete("/{id}", response_model=SubscriptionView, response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def delete_cloudevents_subscription(id: str, who: Who) -> Any:
        """Delete a subscription and return its last state."""
        found = await requests.find(who, id)
        await subscriptions.delete(found.id)
        return view(found, who)

    @router.options("/{id}", include_in_schema=False)
    @needs(Need.KEY)
    async def cloudevents_subscription_features(id: str) -> Response:
        return Response(headers={"allow": "GET, PUT, DELETE, OPTIONS"})

    return router


def _check_unchanged(view: dict[str, Any], config: Config) -> None:
    """Raises if a change sets an immutable field to another value; equal values allow read-modify-write."""
    for name in ("topic", "owner", "id"):
        given = getattr(config, name)
        if given is not None and given != view[name]:
            raise Conflict(
                f'the {name} of a subscription cannot be changed; it is "{view[name]}"',
                pointer=f"/config/{name}",
            )
    for name, given in (("from", config.since), ("location", config.location)):
        if given is not None:
            raise InvalidInput(f"{name} is allowed for new subscriptions only", pointer=f"/config/{name}")


# -- to REST ---------------------------------------------------------------------------------------------


def _filter(topic: Topic, body: SubscriptionRequest) -> dict[str, Any] | None:
    context = dialects.Context.of(topic.name, topic.schema)
    return dialects.read(context, source=body.source, types=body.types, filters=body.filters)


#: credentialtype → type of REST
_CREDENTIALS = {"PLAIN": "basic", "ACCESSTOKEN": "bearer"}


def _credentials(given: SinkCredential) -> Credentials | None:
    """Return the credentials of a request; None: the stored ones are kept."""
    is_plain = given.credentialtype == "PLAIN"
    if is_plain and given.identifier is not None and given.secret is not None and given.accesstoken is None:
        return Basic(given.identifier, given.secret)
    if not is_plain and given.accesstoken is not None and given.identifier is None and given.secret is None:
        return Bearer(given.accesstoken)
    if given.identifier is None and given.secret is None and given.accesstoken is None:
        return None
    rule = "identifier and secret" if is_plain else "accesstoken"
    raise InvalidSink(
        f"sinkcredential of type {given.credentialtype} must have {rule}, and nothing else",
        pointer="/sinkcredential",
    )


def _sink(body: SubscriptionRequest, found: Subscription | None = None) -> Sink:
    """Return the sink of a request; `found`: the subscription that it changes."""
    if body.protocol != HTTP:
        raise InvalidSink(f'protocol must be {HTTP}, got "{body.protocol[:64]}"', pointer="/protocol")
    if broker_url.is_broker(body.sink):
        raise InvalidSink(
            f"sink must be a URL of {HTTP}, got a broker; POST /v1/subscriptions accepts it", pointer="/sink"
        )
    if not body.sink.lower().startswith(("http:", "https:")):
        raise InvalidSink("sink must be an https:// or http:// URL", pointer="/sink")
    settings, given = body.protocolsettings, body.sinkcredential
    kept = SinkSettings()
    if found is not None and target_of(found.url) == body.sink:
        kept = sink_settings.decode(found.settings)
    credentials = None if given is None else _credentials(given)
    if given is not None:
        keeping = "" if credentials is not None else _CREDENTIALS[given.credentialtype]
    else:  # other types have no field here
        keeping = "" if kept.credentials in _CREDENTIALS.values() else kept.credentials
    return Sink(
        url=body.sink,
        format=settings.format,
        secret=settings.secret,
        consent=settings.consent,
        recipient=body.config.recipient,
        headers=settings.headers,
        credentials=credentials,
        kept_credentials=keeping,
        timeout=kept.timeout,
        retry=kept.retry,
        rate=kept.rate,
        ordered=kept.ordered,
    )


#: pointer to a field of REST → pointer to the field of this API
_POINTERS = {
    "/sink/url": "/sink",
    "/sink/secret": "/protocolsettings/secret",
    "/sink/consent": "/protocolsettings/consent",
    "/sink/headers": "/protocolsettings/headers",
    "/sink/credentials": "/sinkcredential",
    "/sink/recipient": "/config/recipient",
    "/filter": "/filters",
    "/topic": "/config/topic",
    "/id": "/config/id",
    "/owner": "/config/owner",
    "/expires": "/config/expires",
    "/from": "/config/from",
    "/location": "/config/location",
}


@contextlib.contextmanager
def _translated_pointers() -> Iterator[None]:
    try:
        yield
    except EdnError as error:
        for rest, pointer in _POINTERS.items():
            if error.pointer is not None and f"{error.pointer}/".startswith(f"{rest}/"):
                error.pointer = pointer
                break
        raise


# -- from REST -------------------------------------------------------------------------------------------


def _view(view: dict[str, Any], topic: Topic | None) -> dict[str, Any]:
    """Converts REST's view of a subscription."""
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
        settings |= {name: sink[name] for name in ("consent", "secret", "headers") if name in sink}
    shown: dict[str, Any] = {"id": view["id"]}
    for name, type in _CREDENTIALS.items():
        if sink is not None and sink.get("credentials", {}).get("type") == type:
            shown["sinkcredential"] = {"credentialtype": name}
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
