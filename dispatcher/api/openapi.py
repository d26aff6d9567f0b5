"""The OpenAPI document: FastAPI's own, with problem+json, the plain ASGI routes, ids, security and links.

`/openapi.json` has the public calls, `/internal/openapi.json` all, for processes of the network and tests.
`python -m dispatcher.print_openapi` prints the public one.

Generated clients name their methods by `OPERATIONS`, so an id does not change with a function's name. Links
name the calls that accept the ids in a response, for readers and for programs that generate sequences of
calls.
"""

from __future__ import annotations

import functools
import json
import re
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel
from starlette.responses import JSONResponse

from dispatcher.auth.caller import Need, need_of, needs
from edn.http.asgi import PROBLEM
from edn.protocol import MSGPACK


class Problem(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] | None = None
    index: int | None = None
    column: int | None = None


_REFUSALS = {
    "400": "malformed body",
    "401": "an API key, or the network's secret, is required",
    "403": "the key lacks the right",
    "404": "not found",
    "405": "method not allowed",
    "409": "conflict with the current state",
    "413": "a limit of size is exceeded",
    "415": "unsupported media type",
    "422": "invalid content; the problem points to the field",
    "429": "a quota is exceeded; Retry-After says when to retry",
    "431": "the head of the request exceeds 64 KiB or 100 fields",
    "503": "temporarily unavailable; Retry-After says when to retry",
}
_EVENT = {
    "type": "object",
    "description": "Attributes of the event; $id, $time and $availability are reserved.",
    "example": {"symbol": "GE", "price": 31.5},
}
_PUBLISH = {
    "summary": "Publish one event or an array of events, all or nothing",
    "operationId": "publish",
    "tags": ["events"],
    "parameters": [
        {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}},
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "With key k, the events get the ids k/0, k/1, …",
            "schema": {"type": "string", "minLength": 1, "maxLength": 200},
        },
        {
            "name": "traceparent",
            "in": "header",
            "required": False,
            "description": "W3C Trace Context, optionally with `tracestate`; passed on to sinks.",
            "schema": {"type": "string"},
        },
    ],
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"oneOf": [_EVENT, {"type": "array", "items": _EVENT}]}}},
    },
    "responses": {
        "202": {
            "description": "Durable; will be delivered",
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["accepted", "ids"],
                        "properties": {
                            "accepted": {"type": "integer"},
                            "ids": {"type": "array", "items": {"type": "string"}},
                            "unadvertised": {
                                "type": "array",
                                "items": {"type": "integer"},
                                "description": "Places of events that were dropped as unadvertised.",
                            },
                        },
                    }
                }
            },
        }
    },
}

_ENVELOPE = {"application/soap+xml": {"schema": {"type": "string", "format": "binary"}}}
_SOAP = {
    "get": {
        "summary": "Get the WSDL of the SOAP interface",
        "operationId": "wsdl",
        "tags": ["SOAP"],
        "responses": {
            "200": {"description": "WSDL 1.1", "content": {"text/xml": {"schema": {"type": "string"}}}}
        },
    },
    "post": {
        "summary": "Call an operation of the WSDL: WS-Eventing, publishing, management",
        "description": "SOAP 1.2, or SOAP 1.1 as text/xml, whose faults have status 500.",
        "operationId": "soap",
        "tags": ["SOAP"],
        "requestBody": {"required": True, "content": _ENVELOPE},
        "responses": {
            "200": {"description": "Reply", "content": _ENVELOPE},
            "202": {"description": "Done; the message requested no reply"},
            "400": {"description": "Fault of the sender", "content": _ENVELOPE},
            "500": {"description": "Fault of the receiver", "content": _ENVELOPE},
        },
    },
}

#: bodies of internal calls
MESSAGE_CONTENT: dict[str, Any] = {"content": {MSGPACK: {"schema": {"type": "string", "format": "binary"}}}}
MESSAGE: dict[str, Any] = {
    "requestBody": {"required": True, **MESSAGE_CONTENT},
}


#: names of links contain letters, digits, dots, hyphens and underscores only
_LINK_NAME = str.maketrans({" ": ".", "/": ".", "{": None, "}": None})
_ID = {"id": "$response.body#/id"}
_SUBSCRIPTION = "/v1/subscriptions/{id}"
_CLOUDEVENTS = "/cloudevents/subscriptions/{id}"
_TOPIC = "/v1/topics/{name}"
_ADVERTISEMENT = "/v1/advertisements/{id}"
_NAME = {"name": "$response.body#/name"}

#: a call that can follow, and the sources of its parameters
Following = tuple[str, str, dict[str, str]]

_OF_A_SUBSCRIPTION: tuple[Following, ...] = (
    ("GET", _SUBSCRIPTION, _ID),
    ("PUT", _SUBSCRIPTION, _ID),
    ("DELETE", _SUBSCRIPTION, _ID),
    *(
        ("POST", f"{_SUBSCRIPTION}/{action}", _ID)
        for action in ("pause", "resume", "renew", "enable", "example", "rotate-secret", "recover")
    ),
    ("GET", f"{_SUBSCRIPTION}/attempts", _ID),
    ("GET", _CLOUDEVENTS, _ID),
    ("PUT", _CLOUDEVENTS, _ID),
    ("DELETE", _CLOUDEVENTS, _ID),
)
_OF_A_TOPIC: tuple[Following, ...] = (
    ("GET", _TOPIC, _NAME),
    ("PUT", _TOPIC, _NAME),
    ("DELETE", _TOPIC, _NAME),
    ("POST", f"{_TOPIC}/events", _NAME),
    ("POST", f"{_TOPIC}/explain", _NAME),
    ("GET", f"{_TOPIC}/schema", _NAME),
    ("GET", "/v1/subscriptions", {"query.topic": _NAME["name"]}),
    ("GET", "/v1/advertisements", {"query.topic": _NAME["name"]}),
)
_OF_AN_ADVERTISEMENT: tuple[Following, ...] = (
    ("GET", _ADVERTISEMENT, _ID),
    ("PUT", _ADVERTISEMENT, _ID),
    ("DELETE", _ADVERTISEMENT, _ID),
)

#: (method, path, statuses) → calls that accept the ids in the response
LINKS: dict[tuple[str, str, tuple[str, ...]], tuple[Following, ...]] = {
    ("PUT", _TOPIC, ("200", "201")): _OF_A_TOPIC,
    ("GET", _TOPIC, ("200",)): _OF_A_TOPIC,
    ("GET", "/v1/topics", ("200",)): (("GET", _TOPIC, {"name": "$response.body#/topics/0/name"}),),
    ("POST", f"{_TOPIC}/events", ("202",)): (
        (
            "GET",
            f"{_TOPIC}/events",
            {"name": "$request.path.name", "query.id": "$response.body#/ids/0"},
        ),
    ),
    ("POST", "/v1/advertisements", ("200", "201")): _OF_AN_ADVERTISEMENT,
    ("GET", "/v1/advertisements", ("200",)): (
        ("GET", _ADVERTISEMENT, {"id": "$response.body#/advertisements/0/id"}),
        ("GET", "/v1/advertisements", {"query.cursor": "$response.body#/next"}),
    ),
    ("POST", "/v1/subscriptions", ("200", "201")): _OF_A_SUBSCRIPTION,
    ("POST", "/cloudevents/subscriptions", ("200", "201")): _OF_A_SUBSCRIPTION,
    ("GET", "/v1/subscriptions", ("200",)): (
        ("GET", _SUBSCRIPTION, {"id": "$response.body#/subscriptions/0/id"}),
        ("GET", "/v1/subscriptions", {"query.cursor": "$response.body#/next"}),
    ),
    ("GET", "/cloudevents/subscriptions", ("200",)): (("GET", _CLOUDEVENTS, {"id": "$response.body#/0/id"}),),
    ("GET", "/v1/servers", ("200",)): (
        ("GET", "/v1/servers/{id}/summary", {"id": "$response.body#/servers/0/id"}),
    ),
    ("POST", "/v1/keys", ("201",)): (("DELETE", "/v1/keys/{id}", _ID),),
    ("GET", "/v1/dead-letters", ("200",)): (
        ("GET", "/v1/dead-letters/{id}", {"id": "$response.body#/dead_letters/0/id"}),
        ("POST", "/v1/dead-letters/{id}/resend", {"id": "$response.body#/dead_letters/0/id"}),
    ),
}


#: (method, path) → operation id
OPERATIONS: dict[tuple[str, str], str] = {
    ("PUT", "/v1/topics/{name}"): "putTopic",
    ("GET", "/v1/topics/{name}"): "getTopic",
    ("DELETE", "/v1/topics/{name}"): "deleteTopic",
    ("GET", "/v1/topics"): "listTopics",
    ("GET", "/v1/topics/{name}/events"): "traceEvent",
    ("POST", "/v1/topics/{name}/events"): "publish",
    ("POST", "/v1/topics/{name}/explain"): "explain",
    ("GET", "/v1/topics/{name}/projection"): "projectTopic",
    ("GET", "/v1/topics/{name}/schema"): "getTopicSchema",
    ("GET", "/v1/asyncapi"): "getAsyncApi",
    ("POST", "/v1/advertisements"): "advertise",
    ("GET", "/v1/advertisements"): "listAdvertisements",
    ("DELETE", "/v1/advertisements"): "unadvertiseCovered",
    ("GET", "/v1/advertisements/{id}"): "getAdvertisement",
    ("PUT", "/v1/advertisements/{id}"): "changeAdvertisement",
    ("DELETE", "/v1/advertisements/{id}"): "unadvertise",
    ("GET", "/v1/advertisements/{id}/wanted"): "watchWanted",
    ("POST", "/v1/subscriptions"): "subscribe",
    ("GET", "/v1/subscriptions"): "listSubscriptions",
    ("DELETE", "/v1/subscriptions"): "unsubscribeCovered",
    ("GET", "/v1/subscriptions/{id}"): "getSubscription",
    ("PUT", "/v1/subscriptions/{id}"): "changeSubscription",
    ("DELETE", "/v1/subscriptions/{id}"): "unsubscribe",
    ("POST", "/v1/subscriptions/{id}/renew"): "renewSubscription",
    ("POST", "/v1/subscriptions/{id}/pause"): "pauseSubscription",
    ("POST", "/v1/subscriptions/{id}/resume"): "resumeSubscription",
    ("GET", "/v1/subscriptions/{id}/events"): "streamEvents",
    ("GET", "/v1/subscriptions/{id}/attempts"): "listAttempts",
    ("POST", "/v1/subscriptions/{id}/recover"): "recoverDeadLetters",
    ("POST", "/v1/subscriptions/{id}/enable"): "enableDelivery",
    ("POST", "/v1/subscriptions/{id}/example"): "sendExample",
    ("POST", "/v1/subscriptions/{id}/rotate-secret"): "rotateSecret",
    ("GET", "/v1/dead-letters"): "listDeadLetters",
    ("GET", "/v1/dead-letters/{id}"): "getDeadLetter",
    ("POST", "/v1/dead-letters/{id}/resend"): "resendDeadLetter",
    ("POST", "/cloudevents/subscriptions"): "createCloudEventsSubscription",
    ("GET", "/cloudevents/subscriptions"): "listCloudEventsSubscriptions",
    ("GET", "/cloudevents/subscriptions/{id}"): "getCloudEventsSubscription",
    ("PUT", "/cloudevents/subscriptions/{id}"): "changeCloudEventsSubscription",
    ("DELETE", "/cloudevents/subscriptions/{id}"): "deleteCloudEventsSubscription",
    ("GET", "/cloudevents/consent/{server}"): "followConsent",
    ("POST", "/cloudevents/consent/{server}"): "giveConsent",
    ("GET", "/v1/tenants"): "listTenants",
    ("GET", "/v1/ownership"): "showOwnership",
    ("POST", "/v1/sources"): "createSource",
    ("GET", "/v1/sources"): "listSources",
    ("GET", "/v1/sources/{id}"): "getSource",
    ("DELETE", "/v1/sources/{id}"): "deleteSource",
    ("GET", "/v1/sources/{id}/dead-letters"): "listSourceDeadLetters",
    ("DELETE", "/v1/sources/{id}/dead-letters"): "deleteSourceDeadLetters",
    ("POST", "/v1/keys"): "createKey",
    ("GET", "/v1/keys"): "listKeys",
    ("GET", "/v1/keys/{id}"): "getKey",
    ("DELETE", "/v1/keys/{id}"): "revokeKey",
    ("GET", "/v1/servers"): "listServers",
    ("DELETE", "/v1/servers/{id}"): "forgetServer",
    ("GET", "/v1/servers/{id}/summary"): "getServerSummary",
    ("GET", "/v1/servers/{id}/backup"): "backupServer",
    ("POST", "/v1/servers/{id}/drain"): "drainServer",
    ("POST", "/v1/servers/{id}/replace"): "replaceServer",
    ("POST", "/v1/servers/{id}/fill"): "fillServer",
    ("GET", "/v1/dispatchers"): "listDispatchers",
    ("GET", "/v1/routes"): "listRoutes",
    ("PUT", "/v1/routes/{name}"): "bindRoute",
    ("DELETE", "/v1/routes/{name}"): "unbindRoute",
    ("GET", "/v1/tuning"): "getTuning",
    ("PUT", "/v1/tuning"): "setTuning",
    ("POST", "/v1/tuning/survey"): "surveyTuning",
    ("GET", "/v1/link"): "getLink",
    ("PUT", "/v1/link"): "setLink",
    ("GET", "/v1/clock"): "getClock",
    ("POST", "/v1/clock/confirm"): "confirmClock",
    ("GET", "/v1/secrets"): "getSecrets",
    ("POST", "/v1/secrets/reseal"): "resealSecrets",
    ("POST", "/v1/backup/begin"): "beginBackup",
    ("POST", "/v1/backup/end"): "endBackup",
    ("GET", "/v1/backup"): "backupDispatcher",
    ("GET", "/v1/repartitions"): "listRepartitions",
    ("POST", "/v1/repartitions"): "openRepartition",
    ("GET", "/v1/repartitions/{id}"): "getRepartition",
    ("POST", "/v1/repartitions/{id}/assignments"): "assignSubscriptions",
    ("GET", "/v1/repartitions/{id}/preview"): "previewRepartition",
    ("POST", "/v1/repartitions/{id}/start"): "startRepartition",
    ("POST", "/v1/repartitions/{id}/cancel"): "cancelRepartition",
    ("GET", "/v1/live"): "streamSamples",
    ("GET", "/livez"): "getLiveness",
    ("GET", "/readyz"): "getReadiness",
    ("GET", "/metrics"): "getMetrics",
    ("GET", "/"): "getDashboard",
    ("GET", "/dashboard/{file}"): "getDashboardFile",
    ("GET", "/soap"): "getWsdl",
    ("POST", "/soap"): "callSoap",
    ("POST", "/internal/servers"): "registerServer",
    ("POST", "/internal/servers/{id}/heartbeat"): "sendHeartbeat",
    ("POST", "/internal/changes"): "readChanges",
    ("GET", "/internal/routing-summaries"): "getRoutingSummaries",
    ("POST", "/internal/subscribe"): "forwardSubscribe",
    ("POST", "/internal/metrics-access"): "checkMetricsAccess",
    ("POST", "/internal/subscriptions/{id}/failed"): "reportFailure",
}

_INTERNAL = "/internal/"
#: names of the security schemes
_KEY, _NETWORK = "key", "network"
_SCHEMES = {
    _KEY: {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key (`edn key create`), or the network's secret.",
    },
    _NETWORK: {"type": "http", "scheme": "bearer", "description": "The network's secret."},
}


def install(app: FastAPI, *, is_open: bool) -> None:
    """Replaces FastAPI's document; `is_open`: calls without a key are admitted, too."""
    whole = functools.cache(lambda: _document(app, is_open))
    public = functools.cache(lambda: _public(whole()))
    app.openapi = public  # type: ignore[method-assign]  # FastAPI's documented way

    @app.get(f"{_INTERNAL}openapi.json", include_in_schema=False)
    @needs(Need.NETWORK)
    async def whole_document() -> JSONResponse:
        return JSONResponse(whole())


def _public(document: dict[str, Any]) -> dict[str, Any]:
    """Returns the document without internal calls, and without the schemas that only they use."""
    shown = {
        **document,
        "paths": {path: calls for path, calls in document["paths"].items() if not path.startswith(_INTERNAL)},
        "components": {**document["components"], "securitySchemes": {_KEY: _SCHEMES[_KEY]}},
    }
    schemas = document["components"]["schemas"]
    used: set[str] = set()
    waiting = [shown["paths"]]
    while waiting:
        found = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(waiting.pop()))) - used
        used |= found
        waiting += [schemas[name] for name in found]
    shown["components"]["schemas"] = {name: schema for name, schema in schemas.items() if name in used}
    return shown


def _document(app: FastAPI, is_open: bool) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    document["paths"].setdefault("/v1/topics/{name}/events", {})["post"] = _PUBLISH
    document["paths"]["/soap"] = _SOAP
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema()
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    document["components"]["securitySchemes"] = _SCHEMES
    required = _needs(app)
    for path, calls in document["paths"].items():
        for method, operation in calls.items():
            call = (method.upper(), path)
            operation["operationId"] = OPERATIONS.get(call, operation["operationId"])
            operation["security"] = _security(required[call], is_open)
            for status, meaning in _REFUSALS.items():
                known = operation["responses"].get(status, {"description": meaning, "content": {}})
                # FastAPI documents errors of its own form, which no call answers.
                content = {} if "HTTPValidationError" in str(known["content"]) else known["content"]
                shown = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
                operation["responses"][status] = {**known, "content": {**content, **shown}}
    _add_links(document)
    return document


def _needs(app: FastAPI) -> dict[tuple[str, str], Need]:
    """Returns the need of each call, by method and path as the document writes it."""
    found = {}
    for route in iter_route_contexts(app.router.routes):
        for method in route.methods or ():
            path = str(route.path).replace(":path}", "}")
            found[method, path] = need_of(route) or Need.OPERATOR
    return found


def _security(need: Need, is_open: bool) -> list[dict[str, list[str]]]:
    if need is Need.PUBLIC:
        return []
    if need is Need.NETWORK:
        return [{_NETWORK: []}]
    return [{_KEY: []}, *([{}] if is_open else [])]


def _add_links(document: dict[str, Any]) -> None:
    paths = document["paths"]
    for (method, path, statuses), following in LINKS.items():
        for status in statuses:
            links = paths[path][method.lower()]["responses"][status].setdefault("links", {})
            for then, target, parameters in following:
                operation = paths[target][then.lower()]
                links[f"{then} {target}".translate(_LINK_NAME)] = {
                    "operationId": operation["operationId"],
                    "parameters": parameters,
                    "description": operation.get("summary", ""),
                }
