"""What a key may use up: rates by an injected clock, amounts by what is stored."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import dispatcher.app
import dispatcher.door
from dispatcher.access import Caller
from dispatcher.keys import Quota, Scope
from dispatcher.quotas import BURST, Quotas
from dispatcher.settings import Settings
from edn.errors import Overloaded

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
            quotas.request(caller(requests_per_second=rate))
            passed += 1
        except Overloaded as error:
            now += error.retry_after or 0.0  # whoever waits as long as they are told gets through
            quotas.request(caller(requests_per_second=rate))
            passed += 1
    assert rate * 100 <= passed <= rate * (100 + BURST) + 2


def test_a_batch_of_any_size_passes_once_and_is_paid_for() -> None:
    now = 0.0
    quotas = Quotas(clock=lambda: now)
    who = caller(events_per_second=10)
    bucket = quotas.publishing(who)
    assert bucket is not None
    bucket.spend(1000)
    with pytest.raises(Overloaded) as refused:
        quotas.publishing(who)
    assert refused.value.retry_after == pytest.approx((1000 - 10 * BURST) / 10, rel=0.01)
    now = 99.0
    quotas.publishing(who)


def test_no_quota_is_no_limit() -> None:
    quotas = Quotas(clock=lambda: 0.0)
    for _ in range(10_000):
        quotas.request(caller())
        assert quotas.publishing(caller()) is None


def test_the_door_answers_429_with_a_time_and_413_for_a_body(tmp_path: Path) -> None:
    async def run() -> None:
        app = dispatcher.app.create_app(Settings(data=tmp_path, secret=SECRET))
        door: dispatcher.door.Door = app.state.door
        transport = httpx.ASGITransport(app)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://edn") as http,
            app.router.lifespan_context(app),
        ):

            async def key(**limits: Any) -> dict[str, str]:
                _, token = await door.keys.create(
                    name="ann", tenant="acme", scopes=frozenset(Scope), quota=Quota(**limits)
                )
                return {"authorization": f"Bearer {token}"}

            await door.joining.put("t", {"a": "number", "b": "number"}, None, tenant="acme")
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
