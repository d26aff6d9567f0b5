"""Subtrees and routes as callers see them: bodies, statuses, and places of errors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from corekit import Servers, make_ready

import dispatcher.app
from dispatcher.auth.keys import Quota, Scope
from dispatcher.config import Settings
from dispatcher.services import Services
from edn.model.namespace import member_id

SECRET = "s" * 24
SINK = {"url": "https://example.org/in", "recipient": "ann"}


@dataclass
class House:
    door: Services
    http: httpx.AsyncClient

    async def put(self, name: str, *attributes: str, **headers: str) -> None:
        body = {"attributes": dict.fromkeys(attributes, "number")}
        answer = await self.http.put(f"/v1/topics/{name}", json=body, headers=headers)
        assert answer.status_code in (200, 201), answer.text

    async def subscribe(self, status: int = 201, **body: Any) -> dict[str, Any]:
        answer = await self.http.post("/v1/subscriptions", json={"sink": SINK, **body})
        assert answer.status_code == status, answer.text
        found: dict[str, Any] = answer.json()
        return found


@contextlib.asynccontextmanager
async def house(folder: Path, **more: Any) -> AsyncIterator[House]:
    app = dispatcher.app.create_app(Settings(data=folder, secret=SECRET, **{"open": True, **more}))
    door: Services = app.state.services
    make_ready(door, "s1", "s2")
    door.calls.store = Servers().store  # type: ignore[method-assign]  # the stub of the kit
    async with (
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http,
        app.router.lifespan_context(app),
    ):
        yield House(door, http)


def run(folder: Path, work: Callable[[House], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def inside() -> None:
        async with house(folder, **settings) as made:
            await work(made)

    asyncio.run(inside())


def test_a_subtree_is_one_subscription_with_one_view(tmp_path: Path) -> None:
    async def work(at: House) -> None:
        await at.put("stocks.nyse", "price")
        await at.put("stocks.news", "length")
        made = await at.subscribe(topic="stocks.**", filter="price > 1", id="w", owner="ann")
        servers = {one["server"] for one in made["topics"]}
        assert servers <= {"s1", "s2"}
        assert [one["topic"] for one in made["topics"]] == ["stocks.nyse"]
        assert [one["topic"] for one in made["left_out"]] == ["stocks.news"]
        assert "price" in made["left_out"][0]["reason"]
        secret = made["sink"].pop("secret")
        assert secret.startswith("whsec_")
        assert (made["topic"], made["server"], made["state"]) == ("stocks.**", None, "active")
        read = (await at.http.get("/v1/subscriptions/w")).json()
        assert {**read, "delivery": None} == {**made, "delivery": None, "advertised": None}
        listed = (await at.http.get("/v1/subscriptions")).json()["subscriptions"]
        assert [(one["id"], one["topic"]) for one in listed] == [("w", "stocks.**")]
        assert "topics" not in listed[0]
        again = await at.subscribe(200, topic="stocks.**", filter="price > 1", id="w", owner="ann")
        assert again["created"] == made["created"]
        other = await at.subscribe(409, topic="**", filter="price > 1", id="w", owner="ann")
        assert other["errors"][0]["pointer"] == "/id"

    run(tmp_path, work)


def test_its_members_are_nobodys_business(tmp_path: Path) -> None:
    async def work(at: House) -> None:
        await at.put("a", "price")
        await at.subscribe(topic="**", id="w")
        member = member_id("w", at.door.topics.get("a").uid)
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("GET", "/events")):
            answer = await at.http.request(method, f"/v1/subscriptions/{member}{path}")
            assert answer.status_code == 404, (method, path)
        refused = await at.http.post("/v1/subscriptions", json={"topic": "a", "id": member, "sink": SINK})
        assert refused.status_code == 422
        found = (await at.http.get("/v1/subscriptions?members=true")).json()["subscriptions"]
        assert [(one["id"], one["topic"]) for one in found] == [(member, "a")]

    run(tmp_path, work)


WRONG: list[tuple[dict[str, Any], int, str, str]] = [
    ({"topic": "stocks**"}, 422, "/topic", "subtree"),
    ({"topic": "**.nyse"}, 422, "/topic", "subtree"),
    ({"topic": "stocks.**", "filter": "colour == 1"}, 422, "/filter", "fits none of the topics"),
    ({"topic": "stocks.**", "filter": "price >"}, 422, "/filter", ""),
    ({"topic": "stocks.**", "sink": {"url": "ftp://x"}}, 422, "/sink/url", ""),
    ({"topic": "stocks.**", "expires": "yesterday"}, 422, "/expires", ""),
]


@pytest.mark.parametrize(("body", "status", "pointer", "why"), WRONG)
def test_a_wrong_request_is_refused_with_its_place(
    tmp_path: Path, body: dict[str, Any], status: int, pointer: str, why: str
) -> None:
    async def work(at: House) -> None:
        await at.put("stocks.nyse", "price")
        problem = await at.subscribe(status, **body)
        assert problem["errors"][0]["pointer"].startswith(pointer)
        assert why in problem["detail"]
        # In an array, behind what is right: all or nothing.
        many = await at.http.post(
            "/v1/subscriptions", json=[{"topic": "stocks.**", "sink": SINK}, {"sink": SINK, **body}]
        )
        assert many.status_code == status
        assert many.json()["errors"][0]["pointer"].startswith(f"/1{pointer}")
        assert (await at.http.get("/v1/subscriptions")).json()["subscriptions"] == []

    run(tmp_path, work)


def test_an_array_may_hold_topics_and_subtrees(tmp_path: Path) -> None:
    async def work(at: House) -> None:
        await at.put("a", "price")
        await at.put("a.b", "price")
        bodies = [
            {"topic": name, "id": id, "sink": SINK}
            for name, id in (("a.**", "w1"), ("a", "p1"), ("**", "w2"), ("a.b", "p2"))
        ]
        answer = await at.http.post("/v1/subscriptions", json=bodies)
        assert answer.status_code == 201, answer.text
        made = answer.json()["subscriptions"]
        assert [(one["id"], one["topic"], one["server"] is None) for one in made] == [
            ("w1", "a.**", True),
            ("p1", "a", False),
            ("w2", "**", True),
            ("p2", "a.b", False),
        ]
        for id in ("w1", "w2"):
            shown = (await at.http.get(f"/v1/subscriptions/{id}")).json()
            assert [one["topic"] for one in shown["topics"]] == ["a", "a.b"]
        again = await at.http.post("/v1/subscriptions", json=bodies)
        assert again.status_code == 200

    run(tmp_path, work)


def test_change_renew_pause_resume_redirect_and_cancel(tmp_path: Path) -> None:
    async def work(at: House) -> None:
        await at.put("a.b", "price")
        await at.put("a.c", "price", "volume")
        await at.subscribe(topic="a.**", filter="price > 1", id="w")
        path = "/v1/subscriptions/w"
        changed = await at.http.put(path, json={"filter": "volume > 1", "sink": SINK, "expires": "PT1H"})
        assert changed.status_code == 200, changed.text
        assert [one["topic"] for one in changed.json()["topics"]] == ["a.c"]
        assert [one["topic"] for one in changed.json()["left_out"]] == ["a.b"]
        renewed = await at.http.post(f"{path}/renew", json={"expires": None})
        assert renewed.json()["expires"] is None
        assert (await at.http.post(f"{path}/pause")).json()["state"] == "paused"
        moved = await at.http.post(f"{path}/resume", json={"sink": {"url": "https://example.org/other"}})
        assert (moved.json()["state"], moved.json()["sink"]["url"]) == ("active", "https://example.org/other")
        wrong = await at.http.put(path, json={"filter": "colour == 1", "sink": SINK})
        assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/filter")
        assert (await at.http.delete(path)).status_code == 204
        assert (await at.http.get(path)).status_code == 404
        await at.subscribe(topic="a.**", filter="price > 2", id="w", owner="ann")
        gone = await at.http.delete("/v1/subscriptions?topic=a.**&filter=price>1&owner=ann")
        assert gone.json() == {"ids": ["w"]}

    run(tmp_path, work)


def test_a_subtree_counts_once_in_a_quota_and_belongs_to_its_tenant(tmp_path: Path) -> None:
    async def work(at: House) -> None:
        keys = {}
        for tenant in ("hers", "his"):
            _, keys[tenant] = await at.door.keys.create(
                name="k", tenant=tenant, scopes=frozenset({Scope.ADMIN}), quota=Quota(subscriptions=2)
            )
        hers = {"authorization": f"Bearer {keys['hers']}"}
        his = {"authorization": f"Bearer {keys['his']}"}
        for name in ("a", "b", "c"):
            await at.put(name, "price", **hers)
        bodies = [{"topic": "**", "id": f"w{n}", "sink": SINK} for n in range(3)]
        for body, status in zip(bodies, (201, 201, 429), strict=True):
            answer = await at.http.post("/v1/subscriptions", json=body, headers=hers)
            assert answer.status_code == status, answer.text
        assert len(answer.json()["detail"]) > 20
        assert (await at.http.get("/v1/subscriptions/w0", headers=his)).status_code == 404
        listed = await at.http.get("/v1/subscriptions", headers=his)
        assert listed.json()["subscriptions"] == []
        listed = await at.http.get("/v1/subscriptions", headers=hers)
        assert [one["id"] for one in listed.json()["subscriptions"]] == ["w0", "w1"]
        # His own subtree of the same name holds nothing of hers.
        answer = await at.http.post("/v1/subscriptions", json={**bodies[2], "id": "x"}, headers=his)
        assert (answer.status_code, answer.json()["topics"]) == (201, [])

    run(tmp_path, work, open=False)


def test_routes_are_bound_listed_and_unbound(tmp_path: Path) -> None:
    async def work(at: House) -> None:
        path = "/v1/routes/stocks.**"
        made = await at.http.put(path, json={"servers": ["s2"], "engine": "urn:edn:matcher:rtree"})
        assert made.status_code == 201, made.text
        assert (await at.http.put(path, json={"servers": ["s2"], "engine": "rtree"})).status_code == 200
        await at.put("stocks.nyse", "price")
        await at.put("bonds", "price")
        assert (await at.http.get("/v1/topics/stocks.nyse")).json()["engine"] == "rtree"
        await at.subscribe(topic="**", id="w")
        listed = (await at.http.get("/v1/routes")).json()
        found = {(one["name"], one["server"]): one for one in listed["routes"]}
        entry = found["stocks.nyse", "s2"]
        assert (entry["subscriptions"], entry["rectangles"], entry["everything"]) == (1, 1, True)
        assert {name for name, _ in found} == {"bonds", "stocks.nyse"}
        [binding] = listed["bindings"]
        assert (binding["name"], binding["servers"], binding["engine"]) == ("stocks.**", ["s2"], "rtree")
        assert binding["misplaced"] == 0
        only = (await at.http.get("/v1/routes?name=bonds")).json()
        assert ({one["name"] for one in only["routes"]}, only["bindings"]) == ({"bonds"}, [])
        wrong = await at.http.put(path, json={"servers": ["s1", "s9"]})
        assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/servers/1")
        assert (await at.http.put("/v1/routes/acme/stocks", json={"servers": ["s1"]})).status_code == 201
        assert (await at.http.delete("/v1/routes/acme/stocks")).status_code == 204
        assert (await at.http.delete(path)).status_code == 204
        assert (await at.http.delete(path)).status_code == 404

    run(tmp_path, work)


def test_a_plan_or_a_drain_against_a_binding_is_refused(tmp_path: Path) -> None:
    async def work(at: House) -> None:
        await at.http.put("/v1/routes/stocks.**", json={"servers": ["s2"]})
        await at.put("stocks.nyse", "price")
        await at.subscribe(topic="stocks.nyse", id="p")
        opened = (await at.http.post("/v1/repartitions", json={})).json()["id"]
        path = f"/v1/repartitions/{opened}/assignments"
        refused = await at.http.post(path, json={"assignments": {"p": "s1"}})
        assert refused.status_code == 422, refused.text
        assert (refused.json()["errors"][0]["pointer"], "stocks.**" in refused.json()["detail"]) == (
            "/assignments/p",
            True,
        )
        assert (await at.http.post(path, json={"assignments": {"p": "s2"}})).status_code == 200
        drained = await at.http.post("/v1/servers/s2/drain")
        assert drained.status_code == 409
        assert 'route "stocks.**"' in drained.json()["detail"]
        servers = (await at.http.get("/v1/servers")).json()["servers"]
        assert {one["leaving"] for one in servers} == {None}

    run(tmp_path, work)
