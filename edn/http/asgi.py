"""ASGI building blocks of both services: problem+json errors, strict JSON, body limits, bearer tokens.

`install(app)` makes a FastAPI app answer every error, including 404 and 405, as RFC 9457. `StrictRoute`
decodes bodies with `edn.formats.strict_json`, which refuses NaN, repeated keys and deep nesting.
"""

from __future__ import annotations

import hmac
import json
import math
import re
import sys
from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edn.errors import EdnError, InvalidInput, TooLarge, Unauthorized
from edn.formats import strict_json

PROBLEM = "application/problem+json"
#: headers of a call that a server forwards for a client: the network's secret, which authenticates the
#: others, the address of the client, and its Host header
VIA, CLIENT, CLIENT_HOST = "x-edn-via", "x-edn-client", "x-edn-host"

log = structlog.get_logger()


def problem_response(error: EdnError) -> Response:
    """Returns an error as a problem+json response."""
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after))
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    return _respond(error.problem(), headers)


def _respond(problem: dict[str, Any], headers: Mapping[str, str]) -> Response:
    content = msgspec.json.encode(problem)
    return Response(content, status_code=problem["status"], media_type=PROBLEM, headers=headers)


async def refuse(error: EdnError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a request, or the handshake of a WebSocket, with an error."""
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.title})
    else:
        await problem_response(error)(scope, receive, send)


#: fields whose values are not repeated in errors
_SECRET = frozenset({"key", "password", "secret"})
#: objects none of whose values are repeated in errors
_SECRETS = frozenset({"credentials", "sinkcredential", "sinkCredential"})
_SHOULD = re.compile(r"\w+ should (.*)", re.DOTALL)
_VALUE_CHARACTERS = 80


def bug_response(path: str, error: Exception) -> Response:
    """Logs an unexpected exception, and returns a response without its details."""
    log.error("unhandled_exception", path=path, exc_info=error)
    return problem_response(EdnError("internal error; the log of the service contains the cause"))


def invalid(errors: list[Any], *, skip: frozenset[str] = frozenset(), prefix: str = "") -> InvalidInput:
    """Converts the first of pydantic's errors, with its location as a JSON pointer.

    `skip` contains the tags of discriminated unions, which pydantic adds to locations.
    """
    first = errors[0]
    location = [part for part in first["loc"] if part not in skip]
    where = location[0] if location and location[0] in ("body", "query", "path", "header") else None
    parts = location[1:] if where else location
    pointer = prefix + "".join("/" + strict_json.token(str(part)) for part in parts)
    name = ".".join(str(part) for part in parts)
    is_secret = bool(parts) and (parts[-1] in _SECRET or not _SECRETS.isdisjoint(map(str, parts)))
    rule = _rule(first, is_secret=is_secret)
    if where and where != "body":
        detail = f'{where} parameter "{name}" {rule}'
    elif name:
        detail = f'"{name}" {rule}'
    else:
        detail = f"the body {rule}" if first["type"] != "missing" else "a JSON body is required"
    return InvalidInput(detail, pointer=pointer or None)


def _rule(error: Mapping[str, Any], *, is_secret: bool) -> str:
    """Words one of pydantic's errors as `must be <rule>, got <value>`."""
    if error["type"] == "missing":
        return "is required"
    if error["type"] == "extra_forbidden":
        return "is not permitted"
    message = str(error["msg"]).removeprefix("Value error, ")
    match = _SHOULD.match(message)
    if match is None:
        return f"is invalid: {message}"
    rule = match[1].replace(" after validation, not ", ", got ")
    if error["type"] in ("model_type", "model_attributes_type", "dict_type"):
        rule = "be an object"
    value = error.get("input")
    if is_secret or ", got " in rule or isinstance(value, dict | list):
        return f"must {rule}"
    return f"must {rule}, got {json.dumps(value, default=str)[:_VALUE_CHARACTERS]}"


def install(app: FastAPI, *, union_tags: frozenset[str] = frozenset()) -> None:
    """Makes the app answer every error as problem+json."""

    async def on_edn_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, EdnError)
        return problem_response(error)

    async def on_validation(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return problem_response(invalid(list(error.errors()), skip=union_tags))

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        # FastAPI wraps exceptions of reading a body into a bare 400.
        if isinstance(error.__cause__, EdnError):
            return problem_response(error.__cause__)
        title = HTTPStatus(error.status_code).phrase
        problem = {"type": "about:blank", "title": title, "status": error.status_code}
        detail = str(error.detail)
        if error.status_code == 404 and detail == title:
            detail = f"{request.url.path[:200]} does not exist; /docs lists all calls"
        elif error.status_code == 405 and detail == title:
            detail = f"{request.url.path[:200]} does not allow {request.method[:20]}"
        return _respond({**problem, "detail": detail}, error.headers or {})

    async def on_bug(request: Request, error: Exception) -> Response:
        return bug_response(request.url.path, error)

    app.add_exception_handler(EdnError, on_edn_error)
    app.add_exception_handler(RequestValidationError, on_validation)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(Exception, on_bug)


class StrictRequest(Request):
    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = strict_json.decode(await self.body())
        return self._json


class StrictRoute(APIRoute):
    """A FastAPI route that decodes JSON strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


async def read_body(receive: Receive, limit: int = sys.maxsize) -> bytes:
    """Reads the body of an ASGI request; raises `TooLarge` as soon as it exceeds `limit` bytes.

    The limit may be omitted behind `BodyLimit`.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise InvalidInput("the client closed the connection before its request was complete")
        body: bytes = message.get("body", b"")
        size += len(body)
        if size > limit:
            raise too_large(limit)
        if not message.get("more_body"):
            return b"".join((*parts, body)) if parts else body
        parts.append(body)


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body must be at most {limit} bytes; send it in smaller parts")


class BodyLimit:
    """Refuses bodies longer than `limit` bytes, counted as they arrive; `paths` have limits of their own."""

    def __init__(self, app: ASGIApp, *, limit: int, paths: dict[str, int] | None = None) -> None:
        self.app = app
        self.limit = limit
        self.paths = paths or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.paths.get(scope["path"], self.limit)
        refusal = too_large(limit)
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > limit:
                await problem_response(refusal)(scope, receive, send)
                return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > limit:
                    raise refusal
            return message

        await self.app(scope, counted, send)


def bearer(header: str) -> str:
    """Returns the token of an Authorization header, or ""."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def check_bearer(header: str | None, secret: str) -> None:
    """Raises `Unauthorized` unless the Authorization header contains the secret; takes constant time."""
    if not hmac.compare_digest(bearer(header or "").encode(), secret.encode()):
        raise Unauthorized(
            "only processes of the network may send this request: use Authorization: Bearer <network secret>"
        )
