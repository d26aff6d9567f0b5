"""Every parameter of every call, read from the OpenAPI documents and the WSDL, and what each can name.

`unclassified` lists the parameters that `NAMES` does not know. A new one must be put there, under what it
names, or under `NOTHING`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from lxml import etree

from dispatcher.auth.keys import Quota


class Kind(Enum):
    """What a parameter names."""

    TOPIC = "topic or subtree"
    SUBSCRIPTION = "subscription"
    KEY = "key"
    SOURCE = "source"
    ADVERTISEMENT = "advertisement"
    TENANT = "tenant"
    OWNER = "owner"
    LETTER = "dead letter"
    SINK = "sink"
    EVENT = "event"
    POSITION = "position in a stream"
    CURSOR = "position in a listing"
    SERVER = "server"
    REPARTITION = "repartition"
    TOKEN = "token of a consent"
    MESSAGE = "message of the network's own"
    AUTHORIZATION = "authorization"
    FORWARDED = "what the network's processes say of a client"


NOTHING = None
_ID, _NAME = "path id", "path name"
_EXPIRES = {"body expires": NOTHING}
_SINK = {
    "body sink.url": Kind.SINK,
    "body sink.recipient": NOTHING,
    "body sink.secret": NOTHING,
    "body sink.format": NOTHING,
    "body sink.consent": NOTHING,
    **dict.fromkeys(
        (
            *(f"body sink.{name}" for name in ("headers", "timeout", "rate", "ordered")),
            *(f"body sink.retry.{name}" for name in ("schedule", "give_up", "permanent")),
            *(f"body sink.retry.exponential.{name}" for name in ("first", "factor", "longest")),
            *(
                f"body sink.credentials.{name}"
                for name in (
                    *("type", "token", "user", "password", "header", "value", "certificate", "key"),
                    *("token_url", "client_id", "client_secret", "scope", "audience", "authentication"),
                )
            ),
        ),
        NOTHING,
    ),
}
#: topics are in the steps, and in what ends them
_SEQUENCE = {
    "body sequence": Kind.TOPIC,
    **dict.fromkeys(("body by", "body within", "body settle"), NOTHING),
}
_SUBSCRIPTION_BODY = {
    "body topic": Kind.TOPIC,
    "body id": Kind.SUBSCRIPTION,
    "body owner": Kind.OWNER,
    "body filter": NOTHING,
    "body location": NOTHING,
    "body from": NOTHING,
    "body state": NOTHING,
    **_EXPIRES,
    **_SEQUENCE,
    **_SINK,
}
_ABOUT_SUBSCRIPTION = {_ID: Kind.SUBSCRIPTION}
_CLOUDEVENTS = {
    "body id": Kind.SUBSCRIPTION,
    "body source": NOTHING,
    "body types": NOTHING,
    "body config.topic": Kind.TOPIC,
    "body config.expires": NOTHING,
    "body config.recipient": NOTHING,
    "body config.id": Kind.SUBSCRIPTION,
    "body config.owner": Kind.OWNER,
    "body config.location": NOTHING,
    "body config.from": NOTHING,
    "body filters": NOTHING,
    "body sink": Kind.SINK,
    "body sinkcredential.credentialtype": NOTHING,
    "body sinkcredential.identifier": NOTHING,
    "body sinkcredential.secret": NOTHING,
    "body sinkcredential.accesstoken": NOTHING,
    "body sinkcredential.accesstokentype": NOTHING,
    "body protocol": NOTHING,
    "body protocolsettings.method": NOTHING,
    "body protocolsettings.headers": NOTHING,
    "body protocolsettings.consent": NOTHING,
    "body protocolsettings.format": NOTHING,
    "body protocolsettings.secret": NOTHING,
}
_SERVER = {_ID: Kind.SERVER, "body rate": NOTHING}
_REPARTITION = {_ID: Kind.REPARTITION}
_INTERNAL_LETTER = {"path number": Kind.LETTER}
_MESSAGE = {"body message": Kind.MESSAGE}

#: path → "location name" → what it names; for both services and all methods of the path
NAMES: dict[str, dict[str, Kind | None]] = {
    "/v1/topics/{name}": {
        _NAME: Kind.TOPIC,
        "query cascade": NOTHING,
        "header if-none-match": NOTHING,
        "header if-match": NOTHING,
        "body attributes": NOTHING,
        "body engine": NOTHING,
        "body closed": NOTHING,
        "body availability": NOTHING,
        "body advertising": NOTHING,
    },
    "/v1/topics/{name}/schema": {_NAME: Kind.TOPIC, "query publisher": Kind.OWNER},
    "/v1/topics/{name}/events": {
        _NAME: Kind.TOPIC,
        "query id": Kind.EVENT,
        "header Idempotency-Key": Kind.EVENT,
        "header traceparent": NOTHING,
        "body $id": Kind.EVENT,
    },
    "/v1/topics": {"query tenant": Kind.TENANT},
    "/v1/topics/{name}/explain": {
        _NAME: Kind.TOPIC,
        "body event": NOTHING,
        "body filter": NOTHING,
        "body subscription": Kind.SUBSCRIPTION,
    },
    "/v1/topics/{name}/projection": {
        _NAME: Kind.TOPIC,
        "query x": NOTHING,
        "query y": NOTHING,
        "query precision": NOTHING,
    },
    "/v1/subscriptions": {
        **_SUBSCRIPTION_BODY,
        "query topic": Kind.TOPIC,
        "query owner": Kind.OWNER,
        "query limit": NOTHING,
        "query cursor": Kind.CURSOR,
        "query search": Kind.SUBSCRIPTION,
        "query members": NOTHING,
        "query dead": NOTHING,
        "query filter": NOTHING,
        "query sequence": Kind.TOPIC,
    },
    "/v1/subscriptions/{id}": {
        **_ABOUT_SUBSCRIPTION,
        "body filter": NOTHING,
        **_EXPIRES,
        **_SEQUENCE,
        **_SINK,
    },
    "/v1/subscriptions/{id}/renew": {**_ABOUT_SUBSCRIPTION, **_EXPIRES},
    "/v1/subscriptions/{id}/pause": _ABOUT_SUBSCRIPTION,
    "/v1/subscriptions/{id}/resume": {
        **_ABOUT_SUBSCRIPTION,
        **_SINK,
    },
    "/v1/subscriptions/{id}/attempts": _ABOUT_SUBSCRIPTION,
    "/v1/subscriptions/{id}/recover": {**_ABOUT_SUBSCRIPTION, "body since": NOTHING},
    "/v1/subscriptions/{id}/enable": _ABOUT_SUBSCRIPTION,
    "/v1/subscriptions/{id}/example": _ABOUT_SUBSCRIPTION,
    "/v1/subscriptions/{id}/rotate-secret": {
        **_ABOUT_SUBSCRIPTION,
        "body secret": NOTHING,
        "body grace": NOTHING,
    },
    "/v1/subscriptions/{id}/events": {
        **_ABOUT_SUBSCRIPTION,
        "query last_event_id": Kind.POSITION,
        "header last-event-id": Kind.POSITION,
    },
    "/v1/servers/{id}": _SERVER,
    "/v1/servers/{id}/summary": _SERVER,
    "/v1/servers/{id}/backup": _SERVER,
    "/v1/servers/{id}/drain": _SERVER,
    "/v1/servers/{id}/replace": _SERVER,
    "/v1/servers/{id}/fill": _SERVER,
    "/v1/dead-letters": {
        "query subscription": Kind.SUBSCRIPTION,
        "query after": Kind.CURSOR,
        "query limit": NOTHING,
    },
    "/v1/dead-letters/{id}": {_ID: Kind.LETTER},
    "/v1/dead-letters/{id}/resend": {_ID: Kind.LETTER},
    "/cloudevents/subscriptions": {
        **_CLOUDEVENTS,
        "query topic": Kind.TOPIC,
        "query limit": NOTHING,
        "query cursor": Kind.CURSOR,
    },
    "/cloudevents/subscriptions/{id}": {**_CLOUDEVENTS, **_ABOUT_SUBSCRIPTION},
    "/cloudevents/consent/{server}": {
        "path server": Kind.SERVER,
        "query token": Kind.TOKEN,
        "header webhook-allowed-rate": NOTHING,
    },
    "/v1/keys": {
        "query tenant": Kind.TENANT,
        "body name": Kind.OWNER,
        "body tenant": Kind.TENANT,
        "body scopes": NOTHING,
        "body expires": NOTHING,
        **{f"body quota.{name}": NOTHING for name in Quota.__struct_fields__},
    },
    "/v1/keys/{id}": {_ID: Kind.KEY},
    "/v1/advertisements": {
        "body topic": Kind.TOPIC,
        "body id": Kind.ADVERTISEMENT,
        "body publisher": Kind.OWNER,
        "body advertisement": NOTHING,
        **_EXPIRES,
        "query topic": Kind.TOPIC,
        "query publisher": Kind.OWNER,
        "query advertisement": NOTHING,
        "query limit": NOTHING,
        "query cursor": Kind.CURSOR,
    },
    "/v1/advertisements/{id}": {_ID: Kind.ADVERTISEMENT, "body advertisement": NOTHING, **_EXPIRES},
    "/v1/advertisements/{id}/wanted": {_ID: Kind.ADVERTISEMENT},
    "/v1/sources": {
        "query tenant": Kind.TENANT,
        "body topic": Kind.TOPIC,
        "body url": NOTHING,
        "body id": Kind.SOURCE,
    },
    "/v1/sources/{id}": {_ID: Kind.SOURCE},
    "/v1/sources/{id}/dead-letters": {_ID: Kind.SOURCE, "query limit": NOTHING, "query before": NOTHING},
    "/v1/routes": {"query name": Kind.TOPIC},
    "/v1/routes/{name}": {_NAME: Kind.TOPIC, "body servers": Kind.SERVER, "body engine": NOTHING},
    "/v1/tuning": {"body mode": NOTHING, "body precision": NOTHING},
    "/v1/link": {"body bytes_per_second": NOTHING, "body lag_limit": NOTHING},
    "/v1/repartitions": {"body rate": NOTHING, "body expected_hit_ratio": NOTHING},
    "/v1/repartitions/{id}": _REPARTITION,
    "/v1/repartitions/{id}/assignments": {**_REPARTITION, "body assignments": Kind.SUBSCRIPTION},
    "/v1/repartitions/{id}/preview": _REPARTITION,
    "/v1/repartitions/{id}/start": _REPARTITION,
    "/v1/repartitions/{id}/cancel": _REPARTITION,
    "/dashboard/{file}": {"path file": NOTHING},
    "/soap": {"body message": NOTHING},  # see `SOAP`
    "/internal/servers": _MESSAGE,
    "/internal/servers/{id}/heartbeat": {_ID: Kind.SERVER, **_MESSAGE},
    "/internal/routing-summaries": {"query incarnation": NOTHING, "query since": NOTHING},
    "/internal/subscribe": _MESSAGE,
    "/internal/metrics-access": _MESSAGE,
    "/internal/subscriptions/{id}/failed": _ABOUT_SUBSCRIPTION,
    "/internal/subscriptions/{id}/delivery": _ABOUT_SUBSCRIPTION,
    "/internal/subscriptions/{id}/attempts": _ABOUT_SUBSCRIPTION,
    "/internal/subscriptions/{id}/recover": {**_ABOUT_SUBSCRIPTION, "body since": NOTHING},
    "/internal/subscriptions/{id}/enable": _ABOUT_SUBSCRIPTION,
    "/internal/subscriptions/{id}/example": _ABOUT_SUBSCRIPTION,
    "/internal/subscriptions/{id}/events": {
        **_ABOUT_SUBSCRIPTION,
        "header last-event-id": Kind.POSITION,
    },
    "/internal/dead-letters": {
        "query subscription": Kind.SUBSCRIPTION,
        "query after": Kind.CURSOR,
        "query limit": NOTHING,
    },
    "/internal/dead-letters/{number}": _INTERNAL_LETTER,
    "/internal/dead-letters/{number}/resend": _INTERNAL_LETTER,
    **{
        f"/internal/{path}": _MESSAGE
        for path in (
            "subscriptions",
            "stream",
            "replay",
            "explain",
            "journey",
            "departures",
            "departures/kept",
            "departures/progress",
            "arrivals",
            "arrivals/kept",
            "arrivals/progress",
            "consents",
            "secrets",
        )
    },
}

#: of every call: the headers that say who calls, and for whom
EVERYWHERE = {
    "header authorization": Kind.AUTHORIZATION,
    "header x-edn-via": Kind.FORWARDED,
    "header x-edn-passed-on": Kind.FORWARDED,
}

#: local name of an element or attribute of a SOAP message → what it names
SOAP: dict[str, Kind | None] = {
    "Topic": Kind.TOPIC,
    "Name": Kind.TOPIC,
    "Id": Kind.SUBSCRIPTION,
    "Subscription": Kind.SUBSCRIPTION,
    "Address": Kind.SINK,
    "IdempotencyKey": Kind.EVENT,
    "@id": Kind.EVENT,
    "@topic": Kind.TOPIC,
    "Server": Kind.SERVER,
    "?topic": Kind.TOPIC,
    **dict.fromkeys(
        (
            *("ReferenceParameters", "EndTo", "Delivery", "NotifyTo", "Format", "Expires", "Filter"),
            *("Recipient", "event", "attribute", "Attributes", "Attribute", "Engine", "Availability"),
            *("Closed", "Advertising", "Advertisement", "Publisher", "Covers"),
            *("Cascade", "@Mode", "@Name", "@Dialect", "@name", "@type", "@time", "@availability"),
        )
    ),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    method: str
    path: str
    #: path, query, header or body
    location: str
    name: str

    @property
    def label(self) -> str:
        return f"{self.location} {self.name}"


def parameters(document: dict[str, Any]) -> Iterator[Parameter]:
    """Yield the parameters of an OpenAPI document, fields of bodies by their dotted paths."""
    for path, operations in document["paths"].items():
        for method, described in operations.items():
            where = (method.upper(), path)
            for one in described.get("parameters", ()):
                if (one["in"], one["name"]) != ("header", "authorization"):  # see `EVERYWHERE`
                    yield Parameter(*where, one["in"], one["name"])
            for media, content in described.get("requestBody", {}).get("content", {}).items():
                if not media.endswith("json"):
                    yield Parameter(*where, "body", "message")
                    continue
                for name in sorted(set(_fields(content.get("schema", {}), document, ""))):
                    yield Parameter(*where, "body", name)


def _fields(schema: dict[str, Any], document: dict[str, Any], prefix: str) -> Iterator[str]:
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    inner = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    if "items" in schema and not prefix:
        inner.append(schema["items"])
    for one in inner:
        yield from (name for name in _fields(one, document, prefix) if name != prefix)
    for name, described in schema.get("properties", {}).items():
        found = list(_fields(described, document, f"{prefix}{name}."))
        yield from found or [f"{prefix}{name}"]


def unclassified(document: dict[str, Any]) -> list[str]:
    """List the parameters of a document that `NAMES` does not know."""
    return [
        f"{one.method} {one.path}: {one.label}"
        for one in parameters(document)
        if one.label not in NAMES.get(one.path, {})
    ]


_WSDL = "{http://schemas.xmlsoap.org/wsdl/}"
_XS = "{http://www.w3.org/2001/XMLSchema}"


def soap_operations(document: bytes) -> dict[str, set[str]]:
    """Read a WSDL: the element of each operation's request → names in it, attributes with an "@"."""
    root = etree.fromstring(document)
    declared: dict[str, Any] = {}
    for schema in root.iter(f"{_XS}schema"):
        for one in schema:
            if one.get("name"):
                declared[f"{{{schema.get('targetNamespace')}}}{one.get('name')}"] = one
    messages = {
        one.get("name"): _qualified(part, part.get("element"))
        for one in root.iter(f"{_WSDL}message")
        for part in one.iter(f"{_WSDL}part")
    }
    found: dict[str, set[str]] = {}
    for port_type in root.iter(f"{_WSDL}portType"):
        if port_type.get("name") == "EventSink":  # what subscribers offer
            continue
        for operation in port_type.iter(f"{_WSDL}operation"):
            given = operation.find(f"{_WSDL}input").get("message").partition(":")[2]
            element = messages[given]
            found[element] = set(_names(declared[element], declared, frozenset()))
    headers = {
        messages[one.get("message").partition(":")[2]].partition("}")[2]
        for one in root.iter()
        if isinstance(one.tag, str) and one.tag.endswith("}header")
    }
    return {element: names | headers | {"?topic"} for element, names in found.items()}


def _qualified(node: Any, name: str) -> str:
    prefix, _, local = name.rpartition(":")
    return f"{{{node.nsmap[prefix or None]}}}{local}"


def _names(node: Any, declared: dict[str, Any], above: frozenset[str]) -> Iterator[str]:
    for one in node.iter():
        if one is node or not isinstance(one.tag, str):
            continue
        local = one.tag.removeprefix(_XS)
        if local == "attribute":
            yield f"@{one.get('name')}"
        if local != "element":
            continue
        target = one.get("ref") or one.get("type")
        yield (one.get("ref") or one.get("name")).rpartition(":")[2]
        qualified = _qualified(one, target) if target else ""
        if qualified in declared and qualified not in above:
            yield from _names(declared[qualified], declared, above | {qualified})
    if node.get("type"):
        qualified = _qualified(node, node.get("type"))
        if qualified in declared and qualified not in above:
            yield from _names(declared[qualified], declared, above | {qualified})


def unclassified_soap(document: bytes) -> list[str]:
    """List the names in messages of SOAP that `SOAP` does not know."""
    return [
        f"{element}: {name}"
        for element, names in soap_operations(document).items()
        for name in sorted(names - SOAP.keys())
    ]
