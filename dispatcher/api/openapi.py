"""The OpenAPI document: FastAPI's own, with problem+json at every call, the plain ASGI routes, and links."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from dispatcher.api import openapi_links
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
    "400": "the body cannot be read",
    "401": "a key is wanted, or the network's secret",
    "403": "the key may not do this",
    "404": "there is no such thing",
    "405": "that method is not for this path",
    "409": "it contradicts what is there",
    "413": "more than the limit",
    "415": "a media type that this call does not take",
    "422": "the body was read, but cannot be taken; the problem names the place",
    "429": "too much at once; Retry-After says when",
    "431": "the head of the request is larger than 64 KiB or has more than 100 fields",
    "503": "not now; Retry-After says when",
}
_EVENT = {
    "type": "object",
    "description": "The event's attributes; $id, $time and $availability are the network's.",
    "example": {"symbol": "GE", "price": 31.5},
}
_PUBLISH = {
    "summary": "Publish one event or an array of them, all or nothing",
    "operationId": "publish",
    "tags": ["events"],
    "parameters": [
        {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}},
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "k gives the events the ids k/0, k/1, …",
            "schema": {"type": "string", "minLength": 1, "maxLength": 200},
        },
        {
            "name": "traceparent",
            "in": "header",
            "required": False,
            "description": "W3C Trace Context, with `tracestate` if there is one; goes on to the sinks.",
            "schema": {"type": "string"},
        },
    ],
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"oneOf": [_EVENT, {"type": "array", "items": _EVENT}]}}},
    },
    "responses": {
        "202": {
            "description": "On disk; it will be delivered",
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
        "summary": "The WSDL of the SOAP door",
        "operationId": "wsdl",
        "tags": ["SOAP"],
        "responses": {
            "200": {"description": "WSDL 1.1", "content": {"text/xml": {"schema": {"type": "string"}}}}
        },
    },
    "post": {
        "summary": "WS-Eventing, publishing and management, as the WSDL says",
        "description": "SOAP 1.2, as here, or SOAP 1.1 as text/xml, whose faults have the status 500.",
        "operationId": "soap",
        "tags": ["SOAP"],
        "requestBody": {"required": True, "content": _ENVELOPE},
        "responses": {
            "200": {"description": "The answer", "content": _ENVELOPE},
            "202": {"description": "Done; the message asked for no answer"},
            "400": {"description": "A fault of the sender", "content": _ENVELOPE},
            "500": {"description": "A fault of the receiver", "content": _ENVELOPE},
        },
    },
}

#: bodies of the internal calls
MESSAGE_CONTENT: dict[str, Any] = {"content": {MSGPACK: {"schema": {"type": "string", "format": "binary"}}}}
MESSAGE: dict[str, Any] = {
    "requestBody": {"required": True, **MESSAGE_CONTENT},
    "security": [{"network": []}],
}


def install(app: FastAPI) -> None:
    """Make `app.openapi()` whole."""

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
    openapi_links.add(document)
    return document
