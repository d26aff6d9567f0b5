"""What a key may use up: rates by an injected clock, amounts by what is stored."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import dispatcher.app
import dispatcher.services
from dispatcher.auth.caller import Caller
from dispatcher.auth.keys import Quota, Scope
from dispatcher.auth.quotas import BUCKETS, BURST, Quotas
from dispatcher.config import Settings
from edn.errors import Overloaded
from edn.model.filter import Filter

SECRET = "s" * 24


def caller(**limits: Any) -> Caller:
    return Caller("k", "ann", "acme", frozenset({Scope.PUBLISH}), Quota(**limits))


@pytest.mark.parametrize("rate", [0.5, 1.0, 10.0, 1000.0])
def test_a_rate_is_an_average_with_bursts(rate: float) -> None:
    """Asked as often as one likes for a hundred seconds, as many pass as the rate and the burst allow."""
    now = 0.0
    quotas = Quotas(clock=lambda: now)
    passed = 0
    while now < 100:
        try:
            quotas.count_request(caller(requests_per_second=rate))
            passed += 1
        except Overloaded as error:
            now += error.retry_after or 0.0  # whoever waits as long as they are told gets through
            quotas.count_request(caller(requests_per_second=rate))
            passed += 1
    assert rate * 100 <= passed <= rate * (100 + BURST) + 2


def test_a_batch_of_any_size_passes_once_and_is_paid_for() -> None:
    now = 0.0
    quotas = Quotas(clock=lambda: now)
    who = caller(events_per_second=10)
    [bucket] = quotas.event_buckets(who)
    bucket.spend(1000)
    with pytest.raises(Overloaded) as refused:
        quotas.event_buckets(who)
    assert refused.value.retry_after == pytest.approx((1000 - 10 * BURST) / 10, rel=0.01)
    now = 99.0
    quotas.event_buckets(who)


def test_no_quota_is_no_limit() -> None:
    quotas = Quotas(clock=lambda: 0.0)
    for _ in range(10_000):
        quotas.count_request(caller())
        assert quotas.event_buckets(caller()) == []


def test_keys_share_the_rates_of_the_key_that_made_them() -> None:
    """Ten keys that one key has made pass no more together than that key alone."""
    now = 0.0
    quotas = Quotas(clock=lambda: now)
    maker = Quota(requests_per_second=5.0, events_per_second=50.0)
    pools = Quota(requests_per_second=2.0, pools=maker.pooled("top", "acme")).pooled("middle", "acme")
    assert [pool.key for pool in pools] == ["middle", "top"]
    passed = 0
    while now < 50:
        for number in range(10):
            who = Caller(f"k{number}", "ann", "acme", frozenset(), Quota(pools=maker.pooled("top", "acme")))
            with contextlib.suppress(Overloaded):
                quotas.count_request(who)
                passed += 1
        now += 0.1
    assert 5 * 50 <= passed <= 5 * (50 + BURST) + 2
    [bucket] = quotas.event_buckets(who)
    bucket.spend(1000)
    with pytest.raises(Overloaded, match=r"parent key top"):
        quotas.event_buckets(who)
    with pytest.raises(Overloaded, match="this key's"):
        quotas.event_buckets(Caller("top", "ann", "acme", frozenset(), maker))


def test_buckets_of_keys_that_are_gone_are_forgotten_and_empty_ones_are_not() -> None:
    now = 0.0
    quotas = Quotas(clock=lambda: now)
    spender = caller(events_per_second=1)
    [bucket] = quotas.event_buckets(spender)
    bucket.spend(1e9)
    for number in range(10 * BUCKETS):
        now += 0.01
        quotas.count_request(Caller(f"k{number}", "ann", "acme", frozenset(), Quota(requests_per_second=5.0)))
    assert len(quotas._buckets) <= BUCKETS
    with pytest.raises(Overloaded):
        quotas.event_buckets(spender)


def test_keys_share_the_streams_of_the_key_that_made_them() -> None:
    quotas = Quotas(clock=lambda: 0.0)
    maker = Caller("top", "ann", "acme", frozenset(), Quota(streams=2))
    made = [
        Caller(name, "ann", "acme", frozenset(), Quota(pools=maker.quota.pooled("top", "acme")))
        for name in "ab"
    ]
    with quotas.open_stream(made[0]), quotas.open_stream(made[1]):
        for who in (maker, *made):
            with pytest.raises(Overloaded), quotas.open_stream(who):
                pass
    with quotas.open_stream(maker):
        pass


def test_the_door_answers_429_with_a_time_and_413_for_a_body(tmp_path: Path) -> None:
    async def run() -> None:
        app = dispatcher.app.create_app(Settings(data=tmp_path, secret=SECRET))
        door: dispatcher.services.Services = app.state.services
        transport = httpx.ASGITransport(app)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
            app.router.lifespan_context(app),
        ):

            async def key(**limits: Any) -> dict[str, str]:
                _, token = await door.keys.create(
                    name="ann", tenant="acme", scopes=frozenset(Scope), quota=Quota(**limits)
                )
                return {"authorization": f"Bearer {token}"}

            await door.subtree_sync.put("t", {"a": "number", "b": "number"}, None, tenant="acme")
            few = await key(requests_per_second=1)
            said = [(await http.get("/v1/topics", headers=few)).status_code for _ in range(5)]
            assert said[0] == 200
            assert said[-1] == 429
            slow = await key(events_per_second=1)
            events = json.dumps([{"a": 1}] * 10)
            first = await http.post("/v1/topics/t/events", content=events, headers=slow)
            again = await http.post("/v1/topics/t/events", content=events, headers=slow)
            assert (first.status_code, again.status_code) == (202, 429)
            assert int(again.headers["retry-after"]) >= 5
            for most in (50, 0):
                small = await key(body=most)
                for path in ("/v1/topics/t/events", "/v1/subscriptions"):
                    assert (await http.post(path, content=events, headers=small)).status_code == 413, most
            for limits in ({"subscriptions": 0}, {"predicates": 1}):
                body = {"topic": "t", "filter": {"a": 1, "b": 2}}
                answer = await http.post("/v1/subscriptions", json=body, headers=await key(**limits))
                assert answer.status_code == 429, limits
                assert "retry-after" in answer.headers

    asyncio.run(run())


@pytest.mark.parametrize("named", [True, False])
def test_topics_and_attributes_of_a_tenant_have_limits(tmp_path: Path, named: bool) -> None:
    """A key that says nothing has the network's; the operator has none."""

    async def run() -> None:
        defaults: dict[str, Any] = {} if named else {"tenant_topics": 3, "tenant_attributes": 5}
        app = dispatcher.app.create_app(Settings(data=tmp_path, secret=SECRET, **defaults))
        door: dispatcher.services.Services = app.state.services
        transport = httpx.ASGITransport(app)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
            app.router.lifespan_context(app),
        ):
            keys = {}
            for tenant in ("acme", "other", ""):
                quota = Quota(topics=3, attributes=5) if named and tenant == "acme" else Quota()
                _, token = await door.keys.create(
                    name="ann", tenant=tenant, scopes=frozenset({Scope.ADMIN}), quota=quota
                )
                keys[tenant] = {"authorization": f"Bearer {token}"}

            async def put(name: str, attributes: int, tenant: str = "acme") -> tuple[int, str]:
                body = {"attributes": {f"a{n}": "number" for n in range(attributes)}}
                answer = await http.put(f"/v1/topics/{name}", json=body, headers=keys[tenant])
                return answer.status_code, answer.json().get("detail", "")

            assert (await put("one", 2))[0] == 201
            assert (await put("two", 2))[0] == 201
            status, detail = await put("three", 2)
            assert (status, "4 attributes and 2 more would exceed this key's quota of 5" in detail) == (
                429,
                True,
            )
            assert (await put("three", 1))[0] == 201
            status, detail = await put("four", 1)
            assert (status, "3 topics and 1 more would exceed this key's quota of 3" in detail) == (429, True)
            assert (await put("one", 3))[0] == 429, "an attribute more"
            assert (await put("one", 2))[0] == 200
            assert (await put("one", 1))[0] == 200, "an attribute less; its column stays"
            other = {"attributes": {"a0": "number", "z": "number"}}
            answer = await http.put("/v1/topics/one", json=other, headers=keys["acme"])
            assert answer.status_code == 429, "a column more"
            racing = await asyncio.gather(*(put(f"r{n}", 1, "other") for n in range(9)))
            assert sorted({status for status, _ in racing}) == ([201] if named else [201, 429])
            assert (await put("free", 100, ""))[0] == 201
            await http.delete("/v1/topics/two", headers=keys["acme"])
            assert (await put("four", 1))[0] == 201

    asyncio.run(run())


@pytest.mark.parametrize(
    ("filter", "predicates"),
    [
        (None, 0),
        ({"a": 1}, 1),
        ({"a": [1, 2, 3]}, 3),
        ({"a": {"gt": 1, "lt": 9, "ne": 5}}, 3),
        ({"$any": [{"a": {"contains": "x"}}, {"a": {"not": {"contains": "y"}}}]}, 2),
        ({"a": {"exists": True}}, 1),
        ({"$xpath": "contains(a, 'x') or b > 3 and c = 'd'"}, 6),
    ],
)
def test_predicates_are_comparisons(filter: Any, predicates: int) -> None:
    assert Filter.parse(filter).predicates == predicates


def test_many_comparisons_of_one_attribute_are_many_predicates(tmp_path: Path) -> None:
    async def run() -> None:
        app = dispatcher.app.create_app(Settings(data=tmp_path, secret=SECRET))
        door: dispatcher.services.Services = app.state.services
        transport = httpx.ASGITransport(app)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
            app.router.lifespan_context(app),
        ):
            await door.subtree_sync.put("t", {"a": "string"}, None, tenant="acme")
            _, token = await door.keys.create(
                name="ann", tenant="acme", scopes=frozenset(Scope), quota=Quota(predicates=100)
            )
            body = {"topic": "t", "filter": {"$any": [{"a": {"contains": f"{n}"}} for n in range(101)]}}
            answer = await http.post(
                "/v1/subscriptions", json=body, headers={"authorization": f"Bearer {token}"}
            )
            assert answer.status_code == 429
            assert "0 predicates and 101 more would exceed this key's quota of 100" in answer.json()["detail"]

    asyncio.run(run())
