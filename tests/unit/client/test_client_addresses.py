"""A client of several dispatchers spreads events over them, and goes to the next if one cannot answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from edn import AsyncClient, Client, ProblemError, Retries, UnreachableError
from edn.client import AVOID_SECONDS

A, B = "http://a.test", "http://b.test"


class Doors:
    """Dispatchers by host name: what each does, or None for one that is gone."""

    def __init__(self, **doors: int | type[httpx.TransportError]) -> None:
        self.doors = doors
        self.asked: list[httpx.Request] = []
        self.pauses: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.doors[request.url.host.partition(".")[0]]
        if isinstance(answer, int):
            return httpx.Response(answer, json={"accepted": 1, "ids": ["e"], "detail": "no"})
        raise answer("gone", request=request)

    @property
    def hosts(self) -> str:
        return "".join(request.url.host[0] for request in self.asked)

    def client(self, urls: str | Sequence[str] = (A, B), count: int = 2, *, spread: bool = False) -> Client:
        retries = Retries(count=count, first_seconds=0.5, dice=lambda: 1.0)
        transport = httpx.MockTransport(self)
        return Client(urls, retries=retries, spread=spread, transport=transport, sleep=self.pauses.append)


@pytest.mark.parametrize("urls", [f"{A},{B}", f"{A}/, {B}/", [A, B]])
def test_the_next_one_is_asked_at_once_and_stays_the_one(urls: Any) -> None:
    doors = Doors(a=httpx.ConnectError, b=202)
    with doors.client(urls) as client:
        client.publish("t", {})
        client.publish("t", {})
    assert (doors.hosts, doors.pauses) == ("abb", [])
    first, second, _ = doors.asked
    # The same event under the same id, though the first one may have taken it.
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


@pytest.mark.parametrize("a", [503, httpx.ReadTimeout, httpx.ReadError, httpx.ConnectTimeout])
def test_one_that_cannot_or_breaks_is_left_for_another(a: Any) -> None:
    doors = Doors(a=a, b=202)
    with doors.client() as client:
        client.publish("t", {})
    assert (doors.hosts, doors.pauses) == ("ab", [])


def test_when_none_answers_there_is_a_pause_and_an_end() -> None:
    doors = Doors(a=httpx.ConnectError, b=httpx.ConnectError)
    with doors.client() as client, pytest.raises(UnreachableError, match=r"http://a.test, http://b.test"):
        client.publish("t", {})
    assert (doors.hosts, doors.pauses) == ("abab", [0.5, 1.0])


@pytest.mark.parametrize("status", [404, 409, 429])
def test_a_refusal_is_the_same_everywhere(status: int) -> None:
    doors = Doors(a=status, b=202)
    with doors.client(count=0) as client, pytest.raises(ProblemError):
        client.publish("t", {})
    assert doors.hosts == "a"


def test_the_client_for_asyncio_does_the_same() -> None:
    doors = Doors(a=httpx.ConnectError, b=202)

    async def work() -> None:
        async with AsyncClient([A, B], spread=False, transport=httpx.MockTransport(doors)) as client:
            await client.publish("t", {})

    asyncio.run(work())
    assert doors.hosts == "ab"


def test_events_are_spread_and_other_calls_are_not() -> None:
    doors = Doors(a=202, b=202)
    with doors.client(spread=True) as client:
        for _ in range(6):
            client.publish("t", {})
        assert doors.hosts in ("ababab", "bababa")
        doors.asked.clear()
        for _ in range(3):
            client.unsubscribe("s")
    assert doors.hosts == "aaa"


def test_the_requests_of_one_call_go_to_one_dispatcher_in_order() -> None:
    doors = Doors(a=202, b=202)
    with doors.client(spread=True) as client:
        client.publish_many("t", [{"n": "x" * 400_000} for _ in range(6)])
        client.publish_many("t", [{}])
    assert doors.hosts[:-1] in ("aaa", "bbb")
    assert doors.hosts[-1] != doors.hosts[0]


@pytest.mark.parametrize("a", [503, httpx.ReadTimeout, httpx.ConnectError])
def test_one_that_fails_gets_no_events_for_a_while(a: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    doors = Doors(a=a, b=202)
    with doors.client(spread=True) as client:
        for _ in range(6):
            client.publish("t", {})
        assert doors.hosts.count("a") == 1
        assert doors.hosts.count("b") == 6
        assert doors.pauses == []
        doors.doors["a"] = 202
        later = time.monotonic() + AVOID_SECONDS + 1
        monkeypatch.setattr("edn.client.time.monotonic", lambda: later)
        doors.asked.clear()
        for _ in range(4):
            client.publish("t", {})
    assert sorted(doors.hosts) == ["a", "a", "b", "b"]


@pytest.mark.parametrize("urls", ["", "http://a,b", [], ["ftp://a"]])
def test_what_is_no_address_is_refused(urls: Any) -> None:
    with pytest.raises(ValueError, match="must begin with http://"):
        Client(urls)
