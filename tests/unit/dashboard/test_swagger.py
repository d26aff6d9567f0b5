"""The document of the interface: its ids, security and version; and `/docs`, which needs no other host."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

import dispatcher.app
import dispatcher.config
from dispatcher.api import swagger
from dispatcher.api.openapi import OPERATIONS
from edn import __version__

STATIC = Path(swagger.__file__).parent / "static"
SECRET = "a secret of the tests, long enough"
#: of swagger-ui-dist 5.34.1
DIGESTS = {
    "swagger-ui-bundle.js": "36eeb4d5640b9c036b1d0f854499af1cceebbdb260b790a03a18be5e8488fbf5",
    "swagger-ui.css": "c3cfe8248c4b0b89673600fb829924eafbac6de4bc4b2b06f5f5243483074d0a",
}


def make(folder: Path, *, is_open: bool = False) -> FastAPI:
    return dispatcher.app.create_app(dispatcher.config.Settings(data=folder, secret=SECRET, open=is_open))


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    return make(tmp_path)


class Reader:
    """Reads pages of an application in this process."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    def get(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        async def read() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
                return await http.get(path, headers=headers)

        return asyncio.run(read())


def calls(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_ids_are_stable_unique_and_clean(app: FastAPI) -> None:
    found = {(method, path): operation["operationId"] for method, path, operation in calls(app.openapi())}
    public = {call: id for call, id in OPERATIONS.items() if not call[1].startswith("/internal/")}
    assert found == public, "every call has an id in the table, and the table no other call"
    assert len(set(OPERATIONS.values())) == len(OPERATIONS)
    assert all(re.fullmatch(r"[a-z][A-Za-z]+", id) for id in OPERATIONS.values())
    # A generated client depends on these names: a change breaks programs.
    names = ["subscribe", "unsubscribe", "publish", "listTopics", "putTopic", "listSubscriptions", "explain"]
    assert set(names) <= set(found.values())


def test_the_public_document_has_no_internal_calls_and_the_whole_one_is_for_the_network(app: FastAPI) -> None:
    client = Reader(app)
    text = client.get("/openapi.json").text
    assert "/internal" not in text
    assert "network" not in json.loads(text)["components"]["securitySchemes"]
    assert json.loads(text)["info"]["version"] == __version__
    assert client.get("/internal/openapi.json").status_code == 401
    whole = client.get("/internal/openapi.json", headers={"authorization": f"Bearer {SECRET}"}).json()
    assert any(path.startswith("/internal/") for path in whole["paths"])


def test_every_reference_of_the_document_leads_to_a_schema(app: FastAPI) -> None:
    document = app.openapi()
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert named == set(document["components"]["schemas"]), "none is missing, none is unused"


@pytest.mark.parametrize("is_open", [False, True])
def test_calls_that_need_a_key_say_so(tmp_path: Path, is_open: bool) -> None:
    document = make(tmp_path, is_open=is_open).openapi()
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    keyed: list[dict[str, list[str]]] = [{"key": []}, {}] if is_open else [{"key": []}]
    public = {path for _, path, operation in calls(document) if operation["security"] == []}
    assert public == {"/", "/dashboard/{file}", "/livez", "/readyz", "/soap", "/cloudevents/consent/{server}"}
    assert all(one["security"] == keyed for _, path, one in calls(document) if path not in public)
    assert document["paths"]["/soap"]["post"]["security"] == keyed


def test_the_page_and_its_files_name_no_other_host(app: FastAPI) -> None:
    client = Reader(app)
    page = client.get("/docs")
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]
    named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert named
    for name in named:
        assert "//" not in name
        assert client.get(f"/{name}").status_code == 200, name
    own = (STATIC / "page.js").read_text() + page.text
    assert "://" not in own
    assert client.get("/docs/index.html").status_code == 404
    assert client.get("/docs/nothing.js").status_code == 404


def test_the_files_of_swagger_ui_are_as_published_with_their_licence() -> None:
    for name, digest in DIGESTS.items():
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == digest, name
    assert "Apache License" in (STATIC / "LICENSE").read_text()
    assert "SmartBear" in (STATIC / "NOTICE").read_text()
    # Its style names no picture or font of another host.
    assert not re.search(r"url\([\"']?(?:https?:)?//", (STATIC / "swagger-ui.css").read_text())
