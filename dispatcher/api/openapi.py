"""The OpenAPI document: FastAPI's own, plus problem+json responses, the plain ASGI routes, and links.

Links name the calls that accept the ids in a response, for readers and for programs that generate sequences
of calls.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

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
    "security": [{"network": []}],
}


#: names of links contain letters, digits, dots, hyphens and underscores only
_LINK_NAME = str.maketrans({" ": ".", "/": ".", "{": None, "}": None})
_ID = {"id": "$response.body#/id"}
_SUBSCRIPTION = "/v1/subscriptions/{id}"
_CLOUDEVENTS = "/cloudevents/subscriptions/{id}"
_TOPIC = "/v1/topics/{name}"
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
    ("GET", "/v1/subscriptions", {"query.topic": _NAME["name"]}),
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


def install(app: FastAPI) -> None:
    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    document["paths"].setdefault("/v1/topics/{name}/events", {})["post"] = _PUBLISH
    document["paths"]["/soap"] = _SOAP
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema()
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    document["components"]["securitySchemes"] = {"network": {"type": "http", "scheme": "bearer"}}
    for path in document["paths"].values():
        for operation in path.values():
            for status, meaning in _REFUSALS.items():
                known = operation["responses"].get(status, {"description": meaning, "content": {}})
                shown = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
                operation["responses"][status] = {**known, "content": {**known["content"], **shown}}
    _add_links(document)
    return document


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
