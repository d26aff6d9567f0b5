"""A name that spells another tenant's topic, in every call that takes a name, with keys of every scope."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from dispatcher.auth.keys import Scope
from dispatcher.store.directory import find
from dispatcher.subscriptions.topics import path_of
from edn import protocol
from edn.errors import NotFound
from edn.formats.event_xml import NAMESPACE
from edn.formats.soap.eventing import WSE_2011
from tests.access.test_every_route import SECRET, House, house

#: names that spell her topic, its subtree, or all of her topics
TOPIC = "hers/hers"
SUBTREES = ("hers/**", "hers/hers.**", "**/hers", "/**")
SINK = {"url": "https://example.org/"}
WSE = WSE_2011.namespace


def soap(operation: str, content: str, namespace: str = NAMESPACE) -> str:
    return (
        '<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" xmlns:a='
        f'"http://www.w3.org/2005/08/addressing" xmlns:e="{NAMESPACE}" xmlns:o="{namespace}"><s:Body>'
        f"<o:{operation}>{content}</o:{operation}></s:Body></s:Envelope>"
    )


async def keys(door: House) -> AsyncIterator[str]:
    """Keys without a tenant, one of each scope and one of all but admin; and another tenant's."""
    made = door.app.state.services.keys
    for name, scopes in (
        ("publisher", {Scope.PUBLISH}),
        ("subscriber", {Scope.SUBSCRIBE}),
        ("both", {Scope.PUBLISH, Scope.SUBSCRIBE}),
        ("administrator", {Scope.ADMIN}),
    ):
        _, token = await made.create(name=name, tenant="", scopes=frozenset(scopes))
        yield token
    yield SECRET
    yield door.keys["his administrator"]


def calls(name: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Every call that takes a name of a topic."""
    there, xml = quote(name, safe=""), {"content-type": "application/soap+xml"}
    topic = f"<e:Topic>{name}</e:Topic>"
    event = '<e:event><price type="number">1</price></e:event>'
    target = "<o:Delivery><o:NotifyTo><a:Address>https://example.org/</a:Address></o:NotifyTo></o:Delivery>"
    messages = [
        ("/soap", soap("Publish", topic + event)),
        (f"/soap?topic={there}", soap("Publish", event)),
        ("/soap", soap("Subscribe", target + topic, WSE)),
        (f"/soap?topic={there}", soap("Subscribe", target, WSE)),
        ("/soap", soap("DeleteTopic", topic)),
        (
            "/soap",
            soap("CreateTopic", topic + '<e:Attributes><e:Attribute name="n" type="number"/></e:Attributes>'),
        ),
    ]
    one = {"topic": name, "sink": SINK}
    events = {"sink": SINK["url"], "protocol": "HTTP"}
    return [
        ("GET", f"/v1/topics/{there}", {}),
        ("PUT", f"/v1/topics/{there}", {"json": {"attributes": {"n": "number"}}}),
        ("DELETE", f"/v1/topics/{there}", {}),
        ("GET", f"/v1/topics/{there}/events?id=x", {}),
        ("POST", f"/v1/topics/{there}/events", {"json": {"price": 1}}),
        ("POST", f"/v1/topics/{there}/explain", {"json": {"event": {"price": 1}}}),
        ("GET", f"/v1/topics/{there}/projection?x=price&y=price", {}),
        ("POST", "/v1/subscriptions", {"json": one}),
        ("POST", "/v1/subscriptions", {"json": [one]}),
        ("POST", "/v1/subscriptions", {"json": {"topic": name}}),
        ("GET", f"/v1/subscriptions?topic={there}", {}),
        ("GET", f"/v1/subscriptions?topic={there}&search=e&members=true", {}),
        ("DELETE", f"/v1/subscriptions?topic={there}&filter=price%20exists&owner=publisher", {}),
        ("POST", "/cloudevents/subscriptions", {"json": {**events, "config": {"topic": name}}}),
        ("POST", "/cloudevents/subscriptions", {"json": {**events, "source": f"urn:edn:topic:{name}"}}),
        ("POST", "/cloudevents/subscriptions", {"json": {**events, "source": f"/v1/topics/{name}"}}),
        ("GET", f"/cloudevents/subscriptions?topic={there}", {}),
        *(("POST", path, {"content": content, "headers": xml}) for path, content in messages),
    ]


@pytest.mark.parametrize("name", [TOPIC, *SUBTREES])
def test_no_key_reaches_another_tenants_topic_by_spelling_it(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with house(tmp_path) as door:
            log = door.app.state.services.log
            head = log.head
            async for key in keys(door):
                for method, path, request in calls(name):
                    headers = {"authorization": f"Bearer {key}", **request.get("headers", {})}
                    answer = await door.http.request(method, path, **{**request, "headers": headers})
                    # SOAP says it inside a fault, by the same number.
                    told = answer.text if path.startswith("/soap") else f"{answer.status_code}</e:status>"
                    refused = [f"{code}</e:status>" in told for code in (400, 403, 404, 405, 422)]
                    assert any(refused), (method, path, answer.status_code, answer.text)
                    assert "publisher" not in answer.text or answer.status_code == 403, (method, path)
            assert log.head == head  # nothing was published, subscribed or ended
            found = find(log._reader, "hers,hers")
            assert found is not None
            assert [topic.path for topic in door.app.state.services.topics.all()] == [TOPIC]

    asyncio.run(run())


@pytest.mark.parametrize("name", [TOPIC, *SUBTREES])
def test_a_server_that_passes_a_subscription_on_reaches_no_further(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with house(tmp_path) as door:
            async for key in keys(door):
                body = msgspec.json.encode({"topic": name, "sink": SINK})
                message = protocol.Subscribe(body, ["s1"], protocol.Client("10.0.0.7", f"Bearer {key}"))
                answer = await door.http.post(
                    "/internal/subscribe",
                    content=protocol.encode(message),
                    headers={"authorization": f"Bearer {SECRET}"},
                )
                assert answer.status_code in (403, 404, 422), answer.text

    asyncio.run(run())


def test_an_operator_still_sees_tenants_by_listing_and_binds_their_names(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path) as door:
            headers = {"authorization": f"Bearer {SECRET}"}
            listed = (await door.http.get("/v1/subscriptions", headers=headers)).json()["subscriptions"]
            assert [one["topic"] for one in listed] == [TOPIC]
            bound = await door.http.put(f"/v1/routes/{TOPIC}", json={"engine": "scan"}, headers=headers)
            assert bound.status_code == 201
            for wrong in ("/hers", "hers/hers/hers", "a/b/**", "a b/c", "a:b/c", f"{'t' * 65}/c"):
                answer = await door.http.put(
                    f"/v1/routes/{quote(wrong)}", json={"engine": "scan"}, headers=headers
                )
                assert answer.status_code == 422, (wrong, answer.text)

    asyncio.run(run())


def test_no_path_can_be_composed_of_a_name_with_a_slash() -> None:
    assert (path_of("acme", "orders"), path_of("", "orders")) == ("acme/orders", "orders")
    for tenant in ("", "acme"):
        with pytest.raises(NotFound):
            path_of(tenant, "acme/orders")


@pytest.mark.parametrize(
    ("key", "owner", "status"),
    [
        ("hers subscriber", None, 503),  # beyond the checks: there is no server to store it
        ("hers subscriber", "subscriber", 503),
        ("hers subscriber", "publisher", 403),
        ("hers administrator", "publisher", 503),
    ],
)
def test_an_owner_is_the_name_of_the_key_unless_an_administrator_says_another(
    tmp_path: Path, key: str, owner: str | None, status: int
) -> None:
    async def run() -> None:
        async with house(tmp_path) as door:
            headers = {"authorization": f"Bearer {door.keys[key]}"}
            wanted = {"topic": "hers", "sink": SINK, "owner": owner}
            events = {"sink": SINK["url"], "protocol": "HTTP", "config": {"topic": "hers", "owner": owner}}
            for path, body, place in (
                ("/v1/subscriptions", wanted, "/owner"),
                ("/v1/subscriptions", [wanted], "/0/owner"),
                ("/cloudevents/subscriptions", events, "/config/owner"),
            ):
                answer = await door.http.post(path, json=body, headers=headers)
                assert answer.status_code == status, answer.text
                if status == 403:
                    assert 'owner must be "subscriber"' in answer.json()["detail"]
                    assert place in answer.text

    asyncio.run(run())
