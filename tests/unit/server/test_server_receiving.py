"""The server's door for subscribers: whom it suggests, what it passes on, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from fastapi import FastAPI

from edn import protocol
from edn.http.asgi import install
from edn_server.api.proxy import DispatcherProxy, routes
from edn_server.dispatchers.client import Dispatchers
from edn_server.dispatchers.placement_hints import PlacementHints

TOPIC = protocol.TopicInfo(3, "", "quotes", [("price", "number")], "bitmap")
Handler = Callable[[httpx.Request], httpx.Response]


def boxes(server: str, *sides: tuple[float, float], topic: int = 3) -> protocol.ServerRects:
    lo, hi = np.array([[lo] for lo, _ in sides]), np.array([[hi] for _, hi in sides])
    return protocol.ServerRects(
        topic, server, protocol.points_bytes(lo), protocol.points_bytes(hi), 1 if sides else 0
    )


def summaries(
    *told: protocol.ServerRects, loads: dict[str, int] | None = None, **changes: Any
) -> protocol.RoutingSummaries:
    given: dict[str, Any] = {
        "incarnation": 1,
        "version": 1,
        "rule": protocol.PlacementRule("rtree", None, None, 64, 0),
        "topics": [TOPIC],
        "peers": [protocol.Host(name, load, [], 1.0) for name, load in (loads or {"a": 5, "b": 5}).items()],
        "boxes": list(told),
    }
    return protocol.RoutingSummaries(**(given | changes))


class Dispatcher:
    """Answers what the test says, and remembers what it was asked."""

    def __init__(self, answer: Handler | None = None) -> None:
        self.asked: list[httpx.Request] = []
        self.summaries = summaries(boxes("a", (0, 10)), boxes("b", (20, 30)))
        self._answer = answer or (lambda _: httpx.Response(201, json={"id": "x"}))

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/internal/routing-summaries":
            return httpx.Response(200, content=protocol.encode(self.summaries))
        self.asked.append(request)
        return self._answer(request)

    @property
    def subscribed(self) -> protocol.Subscribe:
        assert self.asked[-1].url.path == "/internal/subscribe"
        return msgspec.msgpack.decode(self.asked[-1].content, type=protocol.Subscribe)


def call(
    dispatcher: Handler,
    method: str,
    path: str,
    *,
    learn: bool = True,
    content: bytes = b"",
    urls: Sequence[str] = ("http://dispatcher",),
    **more: Any,
) -> httpx.Response:
    """One request to the door of a server that has, or has not, heard of the others."""

    async def run() -> httpx.Response:
        dispatchers = Dispatchers(urls, "secret", transport=httpx.MockTransport(dispatcher))
        exchange = PlacementHints(dispatchers, 5.0)
        if learn:
            await exchange.refresh()
        app = FastAPI()
        install(app)
        app.include_router(routes(DispatcherProxy(dispatchers, exchange, "secret")))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as door:
            answer = await door.request(method, path, content=content, **more)
        await dispatchers.close()
        return answer

    return asyncio.run(run())


def subscribe(dispatcher: Handler, given: Any, **more: Any) -> httpx.Response:
    return call(dispatcher, "POST", "/v1/subscriptions", content=json.dumps(given).encode(), **more)


def wanted(filter: Any, **more: Any) -> dict[str, Any]:
    return {"topic": "quotes", "filter": filter, "sink": {"url": "http://127.0.0.1:9/"}, **more}


@pytest.mark.parametrize(
    ("given", "suggested"),
    [
        (wanted("price > 21 and price < 29"), ["b"]),
        (wanted({"price": {"between": [1, 2]}}), ["a"]),
        ([wanted("price < 5 and price > 2"), wanted("price == 25")], ["a", "b"]),
        # What it does not understand the dispatcher shall judge.
        ([wanted("price < 5 and price > 2"), wanted("prize == 25"), 7], ["a", None, None]),
        (wanted("price == 1", topic="unheard of"), [None]),
        (wanted("price == 1", location=["north"]), [None]),
    ],
)
def test_the_host_with_the_best_overlap_is_suggested(given: Any, suggested: list[str | None]) -> None:
    dispatcher = Dispatcher()
    assert subscribe(dispatcher, given).status_code == 201
    assert dispatcher.subscribed.suggested == suggested
    assert json.loads(dispatcher.subscribed.body) == given


def test_a_body_that_is_no_json_goes_on_as_it_is() -> None:
    dispatcher = Dispatcher(lambda _: httpx.Response(400, json={"detail": "no JSON"}))
    assert call(dispatcher, "POST", "/v1/subscriptions", content=b"{").status_code == 400
    client = protocol.Client(address="127.0.0.1", host="server")
    assert dispatcher.subscribed == protocol.Subscribe(b"{", [], client)


def test_a_server_that_knows_nothing_yet_suggests_nobody() -> None:
    dispatcher = Dispatcher()
    assert subscribe(dispatcher, wanted("price == 1"), learn=False).status_code == 201
    assert dispatcher.subscribed.suggested == []


def test_answers_come_back_unchanged() -> None:
    problem = {"status": 422, "detail": "no", "errors": [{"pointer": "/filter"}]}
    refusal = httpx.Response(
        422, json=problem, headers={"content-type": "application/problem+json", "retry-after": "7"}
    )
    answer = subscribe(Dispatcher(lambda _: refusal), wanted("price == 1"))
    assert (answer.status_code, answer.json()) == (422, problem)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["retry-after"] == "7"
    made = httpx.Response(201, json={"id": "x"}, headers={"location": "/v1/subscriptions/x"})
    assert subscribe(Dispatcher(lambda _: made), wanted(None)).headers["location"] == "/v1/subscriptions/x"


@pytest.mark.parametrize(
    ("method", "path", "asked"),
    [
        ("GET", "/v1/subscriptions?topic=q&limit=3", "/v1/subscriptions?topic=q&limit=3"),
        ("DELETE", "/v1/subscriptions?topic=q&filter=a%20%3E", "/v1/subscriptions?topic=q&filter=a%20%3E"),
        ("GET", "/v1/subscriptions/x%3Fy", "/v1/subscriptions/x%3Fy"),
        ("PUT", "/v1/subscriptions/x", "/v1/subscriptions/x"),
        ("POST", "/v1/subscriptions/x/renew", "/v1/subscriptions/x/renew"),
        ("POST", "/v1/subscriptions/x/pause", "/v1/subscriptions/x/pause"),
        ("GET", "/v1/subscriptions/x/attempts?n=1", "/v1/subscriptions/x/attempts?n=1"),
        ("DELETE", "/v1/subscriptions/x", "/v1/subscriptions/x"),
    ],
)
def test_all_other_calls_go_on_as_they_came(method: str, path: str, asked: str) -> None:
    dispatcher = Dispatcher(lambda _: httpx.Response(200, json={}))
    assert call(dispatcher, method, path, content=b'{"a": 1}').status_code == 200
    [request] = dispatcher.asked
    assert (request.method, request.url.raw_path.decode(), request.content) == (method, asked, b'{"a": 1}')


def test_steps_in_a_path_do_not_leave_it() -> None:
    dispatcher = Dispatcher()
    assert call(dispatcher, "GET", "/v1/subscriptions/%2E%2E").status_code == 404
    assert dispatcher.asked == []


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (httpx.ConnectError("refused"), "nothing was stored"),
        (httpx.ReadTimeout("slow"), "may or may not"),
        (AttributeError("no getpeername"), "may or may not"),
    ],
)
def test_a_dispatcher_that_does_not_answer_is_unavailable(failure: Exception, said: str) -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise failure

    answer = subscribe(Dispatcher(fail), wanted("price == 1"))
    assert answer.status_code == 503
    assert said in answer.json()["detail"]
    assert int(answer.headers["retry-after"]) >= 1


def test_what_is_learnt_replaces_what_was_known() -> None:
    exchange = PlacementHints(Dispatchers(["http://dispatcher"], "secret"), 5.0)

    def host(price: float) -> str | None:
        [chosen] = exchange.suggest(exchange.candidates(json.dumps(wanted({"price": price})).encode()))
        return chosen

    exchange.update(summaries(boxes("a", (0, 10)), boxes("b", (20, 30))))
    assert (host(5), host(25)) == ("a", "b")
    exchange.update(summaries(boxes("a", (20, 30)), boxes("b"), version=2))
    assert host(25) == "a"
    # Another life of the dispatcher: what the earlier one said is void.
    exchange.update(summaries(boxes("b", (20, 30)), incarnation=2, loads={"a": 9, "b": 9}))
    assert host(25) == "b"
    exchange.update(summaries(topics=[], version=3, incarnation=2))
    assert host(25) is None
    # A server that is away is not suggested, whatever it hosts; nor is one that has nothing of the kind.
    exchange.update(summaries(boxes("b", (20, 30)), boxes("a", (0, 10)), incarnation=3, loads={"a": 50}))
    assert (host(25), host(5)) == (None, "a")


def test_location_and_limits_count_as_on_the_dispatcher() -> None:
    exchange = PlacementHints(Dispatchers(["http://dispatcher"], "secret"), 5.0)
    peers = [protocol.Host("east", 4, [100.0], 1.0), protocol.Host("west", 4, [0.0], 1.0)]
    rule = protocol.PlacementRule("rtree", 6, None, 64, 0)
    exchange.update(summaries(peers=peers, rule=rule))
    near = [wanted("price == 1", location=[1.0]), wanted("price == 1", location=[98.0])] * 3
    found = exchange.suggest(exchange.candidates(json.dumps(near).encode()))
    # The third that would go to either finds it at the threshold; then the other one, until both are.
    assert found[:4] == ["west", "east", "west", "east"]
    assert exchange.suggest(
        exchange.candidates(json.dumps(wanted("price == 1", location=[1, 2])).encode())
    ) == [None]


def test_while_nobody_comes_nothing_is_asked_and_the_first_who_comes_is_left_to_the_dispatcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("edn_server.dispatchers.placement_hints.IDLE_SECONDS", -1.0)
    asked = 0

    async def ask() -> None:
        nonlocal asked
        asked += 1

    async def run() -> None:
        exchange = PlacementHints(Dispatchers(["http://dispatcher"], "secret"), 0.0)
        exchange.update(summaries(boxes("a", (0, 10)), boxes("b", (20, 30))))
        monkeypatch.setattr(exchange, "refresh", ask)
        task = asyncio.create_task(exchange.run())
        body = json.dumps(wanted("price == 25")).encode()
        for expected in (1, 2):
            for _ in range(20):
                await asyncio.sleep(0)
            assert asked == expected
            assert exchange.suggest(exchange.candidates(body)) == []
            assert exchange.suggest(exchange.candidates(body)) == ["b"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
