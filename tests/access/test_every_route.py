"""Every route, read from the app itself, against callers that must not get in: no new one is forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from lxml import etree

import dispatcher.app
from dispatcher.auth.caller import Need, need_of
from dispatcher.auth.keys import Scope
from dispatcher.config import Settings
from dispatcher.services import Services
from dispatcher.store.directory import Subscription, insert
from dispatcher.store.interface import Transaction
from edn import protocol
from edn.errors import Unauthorized
from edn.formats.event_xml import NAMESPACE
from edn.http.asgi import CLIENT, CLIENT_HOST, VIA
from edn.model.namespace import key_of

SECRET = "s" * 24
#: bodies that a route takes from whoever may call it
BODIES: dict[tuple[str, str], Any] = {
    ("PUT", "/v1/topics/{name}"): {"attributes": {"price": "number"}},
    ("POST", "/v1/topics/{name}/events"): {"price": 1},
    ("POST", "/v1/subscriptions"): {"topic": "hers", "sink": {"url": "https://example.org/"}},
    ("PUT", "/v1/subscriptions/{id}"): {"sink": {"url": "https://example.org/"}},
    ("POST", "/v1/subscriptions/{id}/renew"): {"expires": None},
    ("POST", "/v1/subscriptions/{id}/recover"): {"since": "2026-01-01T00:00:00Z"},
    ("POST", "/cloudevents/subscriptions"): {
        "config": {"topic": "hers"},
        "sink": "https://example.org/",
        "protocol": "HTTP",
    },
    ("PUT", "/cloudevents/subscriptions/{id}"): {"sink": "https://example.org/", "protocol": "HTTP"},
    ("POST", "/v1/keys"): {"name": "another", "scopes": ["publish"]},
    ("POST", "/v1/advertisements"): {"topic": "hers", "advertisement": {"price": {"gt": 0}}},
    ("PUT", "/v1/advertisements/{id}"): {"advertisement": {"price": {"gt": 0}}},
    ("POST", "/v1/sources"): {"topic": "hers", "url": "nats://127.0.0.1:9/S"},
    ("POST", "/v1/topics/{name}/explain"): {"event": {"price": 1}},
    ("PUT", "/v1/tuning"): {},
    ("PUT", "/v1/link"): {},
}
QUERIES = {
    ("GET", "/v1/topics/{name}/events"): "id=any",
    ("DELETE", "/v1/subscriptions"): "topic=hers&filter=price>0",
    ("DELETE", "/v1/advertisements"): "topic=hers&advertisement={}",
}
#: what stands for a thing of another tenant in a path
HERS = "hers"
#: routes that name nothing of anybody's: another tenant's key is answered with its own things, or makes some
NOT_ABOUT_A_THING = {
    ("PUT", "/v1/topics/{name}"),
    ("GET", "/v1/topics"),
    ("GET", "/v1/subscriptions"),
    ("GET", "/cloudevents/subscriptions"),
    ("GET", "/v1/keys"),
    ("GET", "/v1/sources"),
    ("GET", "/v1/advertisements"),
    ("GET", "/v1/asyncapi"),
    ("POST", "/v1/keys"),
    ("POST", "/soap"),  # see below
}


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    need: Need | None

    @property
    def url(self) -> str:
        query = QUERIES.get((self.method, self.path), "")
        return re.sub(r"\{[^}]+\}", HERS, self.path) + (f"?{query}" if query else "")


def operations(app: FastAPI) -> list[Operation]:
    return [
        Operation(method, str(route.path), need_of(route))
        for route in iter_route_contexts(app.router.routes)
        for method in sorted((route.methods or {"WEBSOCKET"}) - {"HEAD", "OPTIONS"})
    ]


@dataclass(slots=True)
class House:
    """The dispatcher's door with keys of every kind, and a tenant, hers, with a topic and a subscription."""

    app: FastAPI
    http: httpx.AsyncClient
    keys: dict[str, str] = field(default_factory=dict)

    async def call(self, one: Operation, key: str | None) -> httpx.Response:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        body = BODIES.get((one.method, one.path))
        return await self.http.request(one.method, one.url, json=body, headers=headers)


@contextlib.asynccontextmanager
async def house(folder: Path, **settings: Any) -> AsyncIterator[House]:
    app = dispatcher.app.create_app(Settings(data=folder, secret=SECRET, **settings))
    door: Services = app.state.services
    scopes = {
        "publisher": {Scope.PUBLISH},
        "subscriber": {Scope.SUBSCRIBE},
        "administrator": {Scope.ADMIN},
    }
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        made = House(app, http)
        async with app.router.lifespan_context(app):
            for tenant in ("hers", "his"):
                for name, may in scopes.items():
                    _, token = await door.keys.create(name=name, tenant=tenant, scopes=frozenset(may))
                    made.keys[f"{tenant} {name}"] = token
            topic, _ = await door.subtree_sync.put("hers", {"price": "number"}, None, tenant="hers")

            def subscribe(transaction: Transaction) -> None:
                subscription = Subscription(
                    id=key_of("hers", "hers"),
                    version=1,
                    owner="publisher",
                    topic=topic.uid,
                    filter=None,
                    url="https://example.org/",
                    recipient=None,
                    expires=None,
                    server="away",
                    created=transaction.time,
                )
                insert(transaction.connection, subscription, frozenset())

            await door.log.submit(subscribe)
            yield made


def test_every_route_declares_what_it_needs(tmp_path: Path) -> None:
    app = dispatcher.app.create_app(Settings(data=tmp_path, secret=SECRET))
    found = operations(app)
    assert len(found) > 30
    assert not [f"{one.method} {one.path}" for one in found if one.need is None], (
        "put @needs(Need.…) below the router's decorator"
    )


def test_without_a_key_every_route_but_the_public_ones_answers_401(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path) as door:
            for one in operations(door.app):
                for key in (None, "", "wrong", "edn_000000000000_wrong", SECRET + "x"):
                    answer = await door.call(one, key)
                    if one.need is Need.PUBLIC:
                        assert answer.status_code not in (401, 403), one
                    else:
                        assert answer.status_code == 401, (one, key)
                        assert answer.headers["www-authenticate"] == "Bearer"

    asyncio.run(run())


#: for each need, keys that have something, but not that
SHORT_OF: dict[Need, list[str]] = {
    Need.PUBLISH: ["hers subscriber"],
    Need.SUBSCRIBE: ["hers publisher"],
    Need.ADMIN: ["hers publisher", "hers subscriber"],
    Need.OPERATOR: ["hers publisher", "hers subscriber", "hers administrator"],
}


def test_with_the_wrong_scope_every_route_answers_403(tmp_path: Path) -> None:
    async def run() -> None:
        checked = 0
        async with house(tmp_path) as door:
            for one in operations(door.app):
                assert one.need is not None
                for name in SHORT_OF.get(one.need, []):
                    answer = await door.call(one, door.keys[name])
                    assert answer.status_code == 403, (one, name)
                    checked += 1
                if one.need is Need.NETWORK:
                    answer = await door.call(one, door.keys["hers administrator"])
                    assert answer.status_code == 401, one
        assert checked > 30

    asyncio.run(run())


@pytest.mark.parametrize("topics_too", [False, True], ids=["without topics", "with a topic of the same name"])
def test_what_another_tenant_has_is_not_there(tmp_path: Path, topics_too: bool) -> None:
    """`his` administrator may do everything, to his own: of hers he finds nothing, whatever the route."""

    async def run() -> None:
        checked = 0
        async with house(tmp_path) as door:
            if topics_too:
                await door.app.state.services.subtree_sync.put(
                    "hers", {"price": "number"}, None, tenant="his"
                )
            for one in operations(door.app):
                if one.need not in (Need.KEY, Need.PUBLISH, Need.SUBSCRIBE, Need.ADMIN):
                    continue
                if (one.method, one.path) in NOT_ABOUT_A_THING:
                    continue
                if topics_too and "{id}" not in one.path:
                    continue  # it means his own
                if one.method == "WEBSOCKET":
                    continue  # tests/streams
                answer = await door.call(one, door.keys["his administrator"])
                if one.path == "/v1/dead-letters":
                    assert answer.status_code == 403, one
                else:
                    assert answer.status_code == 404, (one, answer.text)
                checked += 1
        assert checked >= (10 if topics_too else 15)

    asyncio.run(run())


def test_listings_show_a_tenant_its_own(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path) as door:

            async def get(path: str, name: str) -> Any:
                token = SECRET if name == "operator" else door.keys[name]
                answer = await door.http.get(path, headers={"authorization": f"Bearer {token}"})
                assert answer.status_code == 200
                return answer.json()

            for name, topics, subscriptions in (
                ("his administrator", [], []),
                ("hers administrator", ["hers"], [("hers", "hers")]),
                ("operator", [], [("hers,hers", "hers/hers")]),
            ):
                assert [one["name"] for one in (await get("/v1/topics", name))["topics"]] == topics
                listed = (await get("/v1/subscriptions", name))["subscriptions"]
                assert [(one["id"], one["topic"]) for one in listed] == subscriptions
                listed = await get("/cloudevents/subscriptions", name)
                assert [(one["id"], one["config"]["topic"]) for one in listed] == subscriptions
            mine = (await get("/v1/keys", "his administrator"))["keys"]
            assert {key["tenant"] for key in mine} == {"his"}
            assert len(mine) == 3
            assert len((await get("/v1/keys", "operator"))["keys"]) == 6

    asyncio.run(run())


def test_an_open_door_asks_nobody_but_for_the_networks_own_calls(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path, open=True) as door:
            guard = door.app.state.services.guard
            for one in operations(door.app):
                # Not called: some answer without end.
                scope = {"type": "http", "method": one.method, "path": one.url, "headers": []}
                if one.need is Need.NETWORK:
                    with pytest.raises(Unauthorized):
                        guard.admit(scope)
                else:
                    assert guard.admit(scope).is_operator, one

    asyncio.run(run())


def test_administration_has_an_address_of_its_own_where_one_is_set(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path, admin_port=7) as door:
            secret = {"authorization": f"Bearer {SECRET}"}
            seen = {}
            for port in (80, 7):
                base = f"http://localhost:{port}"
                for one in operations(door.app):
                    if one.method != "GET" or one.need not in (Need.OPERATOR, Need.ADMIN, Need.KEY):
                        continue
                    if one.path in ("/v1/topics", "/v1/keys", "/v1/servers", "/v1/tuning"):
                        answer = await door.http.get(f"{base}{one.path}", headers=secret)
                        seen[port, one.path] = answer.status_code
            assert seen[80, "/v1/topics"] == seen[7, "/v1/topics"] == 200
            for path in ("/v1/keys", "/v1/servers", "/v1/tuning"):
                assert (seen[80, path], seen[7, path]) == (404, 200)

    asyncio.run(run())


def envelope(operation: str, header: str = "") -> str:
    qualified = etree.QName(operation)
    return (
        '<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope">'
        f"<s:Header>{header}</s:Header>"
        f'<s:Body><o:{qualified.localname} xmlns:o="{qualified.namespace}"/></s:Body></s:Envelope>'
    )


def test_every_operation_of_soap_needs_its_scope_and_finds_nothing_of_another_tenant(tmp_path: Path) -> None:
    async def run() -> None:
        hers = f'<e:Subscription xmlns:e="{NAMESPACE}">hers</e:Subscription>'
        async with house(tmp_path) as door:

            async def post(operation: str, key: str) -> str:
                content = envelope(operation, hers + f'<e:Topic xmlns:e="{NAMESPACE}">hers</e:Topic>')
                headers = {"authorization": f"Bearer {key}", "content-type": "application/soap+xml"}
                return (await door.http.post("/soap", content=content, headers=headers)).text

            table = door.app.soap._table  # type: ignore[attr-defined]
            assert len(table) > 10
            for name, operation in table.items():
                for short in SHORT_OF.get(operation.need, []):
                    assert "<e:status>403</e:status>" in await post(name, door.keys[short]), name
                if name.endswith(("GetStatus", "Unsubscribe", "DeleteTopic")):
                    assert "404</e:status>" in await post(name, door.keys["his administrator"]), name

    asyncio.run(run())


def test_soap_operations_that_administer_have_the_admin_address_only(tmp_path: Path) -> None:
    """As the calls of REST that do the same; whatever a caller may do elsewhere, it may do there."""

    async def run() -> None:
        async with house(tmp_path, admin_port=7) as door:

            async def post(operation: str, port: int) -> str:
                headers = {"authorization": f"Bearer {SECRET}", "content-type": "application/soap+xml"}
                url = f"http://localhost:{port}/soap"
                return (await door.http.post(url, content=envelope(operation), headers=headers)).text

            table = door.app.soap._table  # type: ignore[attr-defined]
            administration = [name for name, one in table.items() if one.need in (Need.ADMIN, Need.OPERATOR)]
            assert len(administration) >= 5
            for name in table:
                elsewhere = "served at the admin port only" in await post(name, 80)
                assert elsewhere == (name in administration), name
                assert "admin port only" not in await post(name, 7), name

    asyncio.run(run())


@pytest.mark.parametrize("field", ["host", "origin"])
def test_what_a_foreign_page_asks_of_a_server_is_refused_by_an_open_dispatcher(
    tmp_path: Path, field: str
) -> None:
    async def run() -> None:
        async with house(tmp_path, open=True) as door:
            secret = {"authorization": f"Bearer {SECRET}"}
            for foreign, status in (
                ("http://evil.example" if field == "origin" else "evil.example", 403),
                ("", 404),
            ):
                client = protocol.Client(**{"address": "127.0.0.1", "host": "localhost", field: foreign})
                body = b'{"topic": "none"}'
                content = protocol.encode(protocol.Subscribe(body, [], client))
                answer = await door.http.post("/internal/subscribe", content=content, headers=secret)
                assert answer.status_code == status, answer.text
                via = {VIA: SECRET, CLIENT: "127.0.0.1", CLIENT_HOST: client.host}
                if client.origin:
                    via["origin"] = client.origin
                answer = await door.http.get("/v1/subscriptions/none", headers=via)
                assert answer.status_code == status, answer.text
                content = protocol.encode(client)
                answer = await door.http.post("/internal/metrics-access", content=content, headers=secret)
                assert answer.status_code == (403 if status == 403 else 204)

    asyncio.run(run())
