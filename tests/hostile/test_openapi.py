"""The OpenAPI documents: whole, and true of what the running services answer to generated requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import schemathesis
from fastapi import APIRouter, FastAPI
from fastapi.routing import iter_route_contexts
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.transport.serialization import Binary
from starlette.routing import Route, WebSocketRoute

import dispatcher.app
import dispatcher.config
import edn_server.app
from edn_server.config import Settings
from edn_server.services import Services
from tests.hostile.requests import ATTRIBUTES, SINK
from tests.network import Network

SERVERS = 1
#: a generated request; schemathesis's own class is generic in things that no test here uses
Case = Any
SECRET = "a secret of the tests, long enough"
#: the document's own pages
DOCUMENTATION = {
    "/openapi.json",
    "/internal/openapi.json",
    "/docs",
    "/docs/{file}",
    "/docs/oauth2-redirect",
    "/redoc",
}
#: said by the web server, before any app is asked, of bytes that are no HTTP
NO_HTTP = b"Invalid HTTP request received."
#: answered until the caller goes; tests of their own read them
ENDLESS = {"/v1/live", "/v1/advertisements/{id}/wanted"}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def operations(app: FastAPI) -> set[tuple[str, str]]:
    """(method, path) of everything that is mounted, plain ASGI routes among them."""
    found: set[tuple[str, str]] = set()
    for route in iter_route_contexts(app.router.routes):
        if isinstance(route.original_route, WebSocketRoute):
            continue  # OpenAPI has no words for it
        # A mount has no methods and its own routes inside: nobody uses one, and none may hide something.
        methods = route.methods or {"every method"}
        if route.path not in DOCUMENTATION:
            # The document has no words for a parameter that takes slashes, too.
            path = str(route.path).replace(":path}", "}")
            found |= {(method, path) for method in methods - {"HEAD", "OPTIONS"}}
    return found


def document_of(app: FastAPI) -> dict[str, Any]:
    """The whole document, with internal calls: the dispatcher shows that one to the network only."""
    whole = {route.path: route for route in iter_route_contexts(app.router.routes)}.get(
        "/internal/openapi.json"
    )
    if whole is None:
        return app.openapi()
    found: dict[str, Any] = json.loads(asyncio.run(whole.endpoint()).body)
    return found


def documented(app: FastAPI) -> set[tuple[str, str]]:
    return {
        (method.upper(), path)
        for path, methods in document_of(app)["paths"].items()
        for method in methods
        if method != "parameters"
    }


@pytest.fixture
def dispatcher_app(tmp_path: Path) -> FastAPI:
    return dispatcher.app.create_app(dispatcher.config.Settings(data=tmp_path, secret=SECRET))


@pytest.fixture
def server_app(tmp_path: Path) -> Iterator[FastAPI]:
    given = Settings(id="s1", data=tmp_path, dispatcher=("http://127.0.0.1:9",), secret=SECRET)
    services = Services(given)
    yield edn_server.app.create_app(services, "http://127.0.0.1:9")
    services.close()


@pytest.mark.parametrize("name", ["dispatcher_app", "server_app"])
def test_every_mounted_route_is_in_the_document(name: str, request: pytest.FixtureRequest) -> None:
    app = request.getfixturevalue(name)
    mounted = operations(app)
    assert len(mounted) >= 5
    assert mounted == documented(app)


def test_a_server_takes_every_call_about_subscriptions_that_the_dispatcher_takes(
    dispatcher_app: FastAPI, tmp_path: Path
) -> None:
    given = Settings(id="s1", data=tmp_path / "s1", dispatcher=("http://127.0.0.1:9",), secret=SECRET)
    services = Services(given)
    server = operations(edn_server.app.create_app(services, "http://127.0.0.1:9"))
    services.close()
    # A stream of events is no answer that could be passed on.
    about = {
        one
        for one in operations(dispatcher_app)
        if one[1].startswith("/v1/subscriptions") and not one[1].endswith("/events")
    }
    assert len(about) >= 7
    assert about <= server


def test_a_route_that_the_document_lacks_is_found() -> None:
    app = FastAPI()

    @app.get("/hidden", include_in_schema=False)
    def hidden() -> None:
        """Not in the document."""

    @app.get("/shown")
    def shown() -> None:
        """In the document."""

    included = APIRouter()
    included.routes.append(Route("/plain", shown, methods=["POST"]))
    app.include_router(included, prefix="/outer")
    app.mount("/below", FastAPI())
    assert operations(app) - documented(app) == {
        ("GET", "/hidden"),
        ("POST", "/outer/plain"),
        ("every method", "/below"),
    }


@schemathesis.serializer("application/msgpack")
def as_msgpack(_: Any, value: Any) -> bytes:
    """The document calls these bodies bytes; what is generated otherwise is a message of the wrong shape."""
    return value.data if isinstance(value, Binary) else msgspec.msgpack.encode(value)


@schemathesis.serializer("application/soap+xml")
def as_it_is(_: Any, value: Any) -> bytes:
    return value.data if isinstance(value, Binary) else str(value).encode()


bounded = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def probe(url: str, adapt: Callable[[Case], None], mode: GenerationMode, secret: str | None = None) -> int:
    """Puts generated requests to every documented operation and checks each answer against the document.

    With the network's secret, the dispatcher's document has its internal calls, too.
    """
    asked = 0
    path = "/openapi.json" if secret is None else "/internal/openapi.json"
    document = httpx.get(f"{url}{path}", headers={"authorization": f"Bearer {secret}"}).json()
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=url)
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), "an operation that cannot be read"
        operation = found.ok()
        if operation.path in ENDLESS:
            continue

        @bounded
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Case) -> None:
            nonlocal asked
            adapt(case)
            answer = case.call()
            if answer.content != NO_HTTP:
                case.validate_response(answer, checks=CHECKS)
                asked += 1

        with contextlib.suppress(Unsatisfiable):  # a call without parameters or body cannot be called wrongly
            ask()
    return asked


def prepare(http: httpx.Client) -> None:
    """What the known names stand for; a case before may have deleted it."""
    http.put("/v1/topics/stocks", json={"attributes": ATTRIBUTES})
    http.post("/v1/subscriptions", json={"id": "known", "topic": "stocks", "sink": SINK})


@pytest.mark.parametrize(
    "mode", [GenerationMode.POSITIVE, pytest.param(GenerationMode.NEGATIVE, marks=pytest.mark.slow)]
)
def test_the_dispatcher_answers_generated_requests_as_documented(
    network: Network, mode: GenerationMode
) -> None:
    assert probe(network.url, lambda case: None, mode, network.secret) > 100


@pytest.mark.parametrize(
    "mode", [GenerationMode.POSITIVE, pytest.param(GenerationMode.NEGATIVE, marks=pytest.mark.slow)]
)
def test_the_dispatcher_answers_generated_requests_about_known_things(
    network: Network, mode: GenerationMode
) -> None:
    def adapt(case: Case) -> None:
        prepare(network.http)
        id = "s1" if "/servers/" in case.path else "known"
        known = {"name": "stocks", "file": "style.css", "server": "s1", "id": id}
        for parameter in case.path_parameters or {}:
            case.path_parameters[parameter] = known[parameter]
        if isinstance(case.body, dict) and "topic" in case.body:
            case.body["topic"] = "stocks"
        if isinstance(case.body, dict) and "sink" in case.body:
            case.body["sink"] = SINK
        if case.path.startswith("/internal/"):
            case.headers["authorization"] = f"Bearer {network.secret}"

    assert probe(network.url, adapt, mode, network.secret) > 100


def test_a_server_answers_generated_requests_as_documented(network: Network) -> None:
    def adapt(case: Case) -> None:
        if case.path.startswith("/internal/"):
            case.headers["authorization"] = f"Bearer {network.secret}"

    # Its bodies are documented as bytes, so there is no request that contradicts the document.
    assert probe(network.servers["s1"].url, adapt, GenerationMode.POSITIVE) > 10


def test_after_all_that_the_processes_live(network: Network) -> None:
    assert all(process.alive() for process in network.processes())
    network.await_servers("ready", "s1")
