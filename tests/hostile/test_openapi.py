"""The OpenAPI documents: whole, and true of what the running services answer to generated requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import edn_server.app
import httpx
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.routing import BaseRoute

import dispatcher.app
import dispatcher.settings
import edn_server.settings
from tests.hostile.requests import ATTRIBUTES, SINK
from tests.network import Network

SERVERS = 1
SECRET = "a secret of the tests, long enough"
#: the document's own pages
DOCUMENTATION = {"/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc"}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def operations(routes: list[BaseRoute], prefix: str = "") -> set[tuple[str, str]]:
    """(method, path) of everything that is mounted, plain ASGI routes among them."""
    found: set[tuple[str, str]] = set()
    for route in routes:
        path = prefix + str(getattr(route, "path", ""))
        inner = getattr(route, "routes", None)
        if inner:
            found |= operations(list(inner), path)
        elif path not in DOCUMENTATION:
            methods = getattr(route, "methods", None) or {"*"}
            found |= {(method, path) for method in methods - {"HEAD", "OPTIONS"}}
    return found


def documented(app: FastAPI) -> set[tuple[str, str]]:
    return {
        (method.upper(), path)
        for path, methods in app.openapi()["paths"].items()
        for method in methods
        if method != "parameters"
    }


def dispatcher_app(folder: Path) -> FastAPI:
    return dispatcher.app.create_app(dispatcher.settings.Settings(data=folder, secret=SECRET))


def server_app(folder: Path) -> FastAPI:
    given = edn_server.settings.Settings(id="s1", data=folder, dispatcher="http://127.0.0.1:9", secret=SECRET)
    return edn_server.app.create_app(given)


@pytest.mark.parametrize("make", [dispatcher_app, server_app])
def test_every_mounted_route_is_in_the_document(make: Any, tmp_path: Path) -> None:
    app = make(tmp_path)
    mounted = operations(app.router.routes)
    assert len(mounted) >= 5
    assert mounted == documented(app)


def test_a_route_that_the_document_lacks_is_found() -> None:
    app = FastAPI()

    @app.get("/hidden", include_in_schema=False)
    def hidden() -> None:
        """Not in the document."""

    @app.get("/shown")
    def shown() -> None:
        """In the document."""

    assert operations(app.router.routes) - documented(app) == {("GET", "/hidden")}


@pytest.fixture(scope="module")
def dispatcher_api(network: Network) -> Any:
    return schemathesis.openapi.from_url(f"{network.url}/openapi.json")


@pytest.fixture(scope="module")
def server_api(network: Network) -> Any:
    return schemathesis.openapi.from_url(f"{network.servers['s1'].url}/openapi.json")


def prepare(http: httpx.Client) -> None:
    """What the known names stand for; a case before may have deleted it."""
    http.put("/v1/topics/stocks", json={"attributes": ATTRIBUTES})
    http.post("/v1/subscriptions", json={"id": "known", "topic": "stocks", "sink": SINK})


bounded = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.function_scoped_fixture,
    ],
)
dispatcher_schema = schemathesis.pytest.from_fixture("dispatcher_api")
server_schema = schemathesis.pytest.from_fixture("server_api")


@dispatcher_schema.parametrize()
@bounded
def test_the_dispatcher_answers_generated_requests_as_documented(
    case: schemathesis.Case, network: Network
) -> None:
    case.call_and_validate(checks=CHECKS)


@dispatcher_schema.parametrize()
@bounded
def test_the_dispatcher_answers_generated_requests_about_known_things(
    case: schemathesis.Case, network: Network
) -> None:
    prepare(network.http)
    known = {"name": "stocks", "id": "s1" if "/servers/" in case.path else "known"}
    for parameter in case.path_parameters:
        case.path_parameters[parameter] = known[parameter]
    if isinstance(case.body, dict) and "topic" in case.body:
        case.body["topic"] = "stocks"
    if case.path.startswith("/internal/"):
        case.headers["authorization"] = f"Bearer {network.secret}"
    case.call_and_validate(checks=CHECKS)


@server_schema.parametrize()
@bounded
def test_a_server_answers_generated_requests_as_documented(case: schemathesis.Case, network: Network) -> None:
    if case.path.startswith("/internal/"):
        case.headers["authorization"] = f"Bearer {network.secret}"
    case.call_and_validate(checks=CHECKS)


def test_after_all_that_the_processes_live(network: Network) -> None:
    assert all(process.alive() for process in network.processes())
    network.await_servers("ready", "s1")
