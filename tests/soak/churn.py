"""One tenant: publishes steadily, and creates, changes and deletes everything that it can.

The number of topics, keys and subscriptions stays near a target, so that whatever grows in the network is
something that it failed to forget.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.soak.sinks import Sinks

ATTRIBUTES = {"symbol": "string", "price": "number", "volume": "integer", "open": "boolean", "note": "string"}
STEADY = ("stocks", "stocks.nyse")
_SYMBOLS = [f"S{number:02d}" for number in range(40)]
#: what each tenant has at a time, about
SUBSCRIPTIONS, TOPICS, KEYS, STREAMS = 30, 4, 4, 4
#: events of one request, requests a second, operations a second
BATCH, POSTS, OPERATIONS = 20, 4.0, 5.0
#: answers that churn expects now and then: gone meanwhile, a limit, a server that is busy
_EXPECTED = frozenset({404, 409, 422, 429, 503})


@dataclass(slots=True)
class Figures:
    """What was asked, and how it was answered."""

    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    events: int = 0
    stream_lines: int = 0
    #: an example of each answer that nobody should get
    surprises: dict[str, str] = field(default_factory=dict)

    def succeeded(self, operation: str) -> int:
        return sum(
            count for (name, status), count in self.answers.items() if name == operation and status < 300
        )

    def operations(self) -> list[str]:
        return sorted({name for name, _ in self.answers})


class Tenant:
    def __init__(
        self, name: str, url: str, key: str, chance: random.Random, sinks: Sinks, figures: Figures
    ) -> None:
        self.name = name
        self._chance = chance
        self._sinks = sinks
        self._figures = figures
        self._number = 0
        self._subscriptions: list[str] = []
        self._streams: list[str] = []
        self._topics: list[str] = []
        self._keys: list[tuple[str, str]] = []
        headers = {"authorization": f"Bearer {key}"}
        self.http = httpx.AsyncClient(base_url=url, headers=headers, timeout=30.0, trust_env=False)
        self._actions: list[tuple[float, Callable[[], Awaitable[object]]]] = [
            (6, self._subscribe), (5, self._cancel), (3, self._change), (2, self._pause), (2, self._renew),
            (2, self._create_stream), (2, self._cancel_stream), (3, self._read_stream),
            (2, self._create_topic), (2, self._delete_topic), (2, self._create_key), (2, self._revoke_key),
            (2, self._recover), (1, self._resend), (1, self._rotate), (2, self._look),
        ]  # fmt: skip

    async def open(self) -> None:
        for topic in STEADY:
            await self._ask("create topic", "PUT", f"/v1/topics/{topic}", {"attributes": ATTRIBUTES})

    async def publish(self, ending: asyncio.Event) -> None:
        """At a steady rate, whatever the answers take."""
        due = time.monotonic()
        while not ending.is_set():
            topic = self._chance.choice([*STEADY, *self._topics])
            events = self.events()
            answer = await self._ask("publish", "POST", f"/v1/topics/{topic}/events", events)
            if answer is not None and answer.is_success:
                self._figures.events += len(events)
            due = max(due + 1 / POSTS, time.monotonic() - 1)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def churn(self, ending: asyncio.Event) -> None:
        weights, actions = zip(*self._actions, strict=True)
        due = time.monotonic()
        while not ending.is_set():
            await self._chance.choices(actions, weights)[0]()
            due = max(due + 1 / OPERATIONS, time.monotonic() - 1)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    # -- requests --------------------------------------------------------------------------------------

    async def _ask(
        self, operation: str, method: str, path: str, body: Any = None, key: str | None = None
    ) -> httpx.Response | None:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        try:
            answer = await self.http.request(method, path, json=body, headers=headers)
        except httpx.HTTPError as error:
            self._figures.answers[operation, 599] += 1
            self._figures.surprises.setdefault(f"{operation} {type(error).__name__}", path)
            return None
        status = answer.status_code
        self._figures.answers[operation, status] += 1
        if status >= 300 and status not in _EXPECTED:
            self._figures.surprises.setdefault(f"{operation} {status}", answer.text[:300])
        return answer

    def _name(self, kind: str) -> str:
        self._number += 1
        return f"{self.name}-{kind}-{self._number}"

    def events(self) -> list[dict[str, Any]]:
        """What one request publishes."""
        return [self._event() for _ in range(BATCH)]

    def _event(self) -> dict[str, Any]:
        chance = self._chance
        return {
            "symbol": chance.choice(_SYMBOLS),
            "price": round(chance.uniform(1, 500), 2),
            "volume": chance.randrange(10_000),
            "open": chance.random() < 0.5,
            "note": "n" * chance.choice([0, 20, 400]),
        }

    def _filter(self) -> Any:
        chance = self._chance
        low = round(chance.uniform(1, 480), 2)
        narrow = {"symbol": chance.choice(_SYMBOLS), "price": {"between": [low, low + 60]}}
        return chance.choice(
            [
                narrow,
                {**narrow, "note": {"contains": "n" * chance.randint(1, 5)}},
                f'symbol == "{chance.choice(_SYMBOLS)}" and price > {low} and not open == true',
                {"symbol": chance.sample(_SYMBOLS, 3), "volume": {"lt": 3000}},
            ]
        )

    # -- subscriptions ---------------------------------------------------------------------------------

    async def _subscribe(self) -> None:
        if len(self._subscriptions) >= SUBSCRIPTIONS:
            return
        chance, name = self._chance, self._name("w")
        body: dict[str, Any] = {"id": name, "filter": self._filter(), "sink": {"url": self._sinks.address()}}
        body["topic"] = chance.choice([*STEADY, *STEADY, "stocks.**", "**", *self._topics])
        if chance.random() < 0.3:
            body["expires"] = chance.choice(["PT2S", "PT20S", "PT1H"])
        answer = await self._ask("subscribe", "POST", "/v1/subscriptions", body)
        if answer is not None and answer.is_success:
            self._subscriptions.append(name)

    async def _cancel(self) -> None:
        if len(self._subscriptions) > SUBSCRIPTIONS // 2:
            name = self._subscriptions.pop(self._chance.randrange(len(self._subscriptions)))
            await self._ask("cancel", "DELETE", f"/v1/subscriptions/{name}")

    def _any(self) -> str | None:
        return self._chance.choice(self._subscriptions) if self._subscriptions else None

    async def _change(self) -> None:
        if name := self._any():
            body: dict[str, Any] = {"filter": self._filter(), "sink": {"url": self._sinks.address()}}
            await self._forget_if_gone(
                name, await self._ask("change", "PUT", f"/v1/subscriptions/{name}", body)
            )

    async def _forget_if_gone(self, name: str, answer: httpx.Response | None) -> None:
        if answer is not None and answer.status_code == 404 and name in self._subscriptions:
            self._subscriptions.remove(name)  # it has expired

    async def _pause(self) -> None:
        if name := self._any():
            answer = await self._ask("pause", "POST", f"/v1/subscriptions/{name}/pause")
            await self._forget_if_gone(name, answer)
            await asyncio.sleep(self._chance.uniform(0, 1))
            if answer is not None and answer.is_success:
                await self._ask("resume", "POST", f"/v1/subscriptions/{name}/resume")

    async def _renew(self) -> None:
        if name := self._any():
            body = {"expires": self._chance.choice(["PT5S", "PT1M", None])}
            answer = await self._ask("renew", "POST", f"/v1/subscriptions/{name}/renew", body)
            await self._forget_if_gone(name, answer)

    async def _rotate(self) -> None:
        if name := self._any():
            await self._ask("rotate secret", "POST", f"/v1/subscriptions/{name}/rotate-secret", {})

    async def _recover(self) -> None:
        if name := self._any():
            await self._ask("enable", "POST", f"/v1/subscriptions/{name}/enable")
            body = {"since": "2020-01-01T00:00:00Z"}
            await self._ask("recover", "POST", f"/v1/subscriptions/{name}/recover", body)

    async def _resend(self) -> None:
        name = self._any()
        if name is None:
            return
        answer = await self._ask("dead letters", "GET", f"/v1/dead-letters?limit=20&subscription={name}")
        if answer is not None and answer.is_success:
            for letter in answer.json()["dead_letters"][:2]:
                await self._ask("resend", "POST", f"/v1/dead-letters/{letter['id']}/resend")

    async def _look(self) -> None:
        await self._ask("list", "GET", "/v1/subscriptions?limit=50")
        if name := self._any():
            await self._ask("show", "GET", f"/v1/subscriptions/{name}")
            await self._ask("attempts", "GET", f"/v1/subscriptions/{name}/attempts")
        await self._ask("explain", "POST", "/v1/topics/stocks/explain", {"event": self._event()})

    # -- streams ---------------------------------------------------------------------------------------

    async def _create_stream(self) -> None:
        if len(self._streams) >= STREAMS:
            return
        name, topic = self._name("s"), self._chance.choice([*STEADY, "stocks.**"])
        body = {"id": name, "topic": topic, "filter": {"symbol": self._chance.choice(_SYMBOLS)}}
        answer = await self._ask("create stream", "POST", "/v1/subscriptions", body)
        if answer is not None and answer.is_success:
            self._streams.append(name)

    async def _cancel_stream(self) -> None:
        if len(self._streams) > STREAMS // 2:
            await self._ask("cancel stream", "DELETE", f"/v1/subscriptions/{self._streams.pop(0)}")

    async def _read_stream(self) -> None:
        """Reads for a moment, then closes the connection without a word."""
        if not self._streams:
            return
        name = self._chance.choice(self._streams)
        try:
            async with (
                asyncio.timeout(self._chance.uniform(0.2, 1.5)),
                self.http.stream("GET", f"/v1/subscriptions/{name}/events") as answer,
            ):
                self._figures.answers["read stream", answer.status_code] += 1
                async for _ in answer.aiter_lines():
                    self._figures.stream_lines += 1
        except (TimeoutError, httpx.HTTPError):
            pass

    # -- topics and keys -------------------------------------------------------------------------------

    async def _create_topic(self) -> None:
        if len(self._topics) >= TOPICS:
            return
        name = self._chance.choice(["", "stocks."]) + self._name("t")
        wide = {f"a{number}": "string" for number in range(self._chance.choice([3, 20, 60]))}
        body: dict[str, Any] = {"attributes": {**ATTRIBUTES, **wide}}
        if self._chance.random() < 0.3:
            body["availability"] = 10
        answer = await self._ask("create topic", "PUT", f"/v1/topics/{name}", body)
        if answer is not None and answer.is_success:
            self._topics.append(name)

    async def _delete_topic(self) -> None:
        if len(self._topics) > TOPICS // 2:
            await self._ask("delete topic", "DELETE", f"/v1/topics/{self._topics.pop(0)}?cascade=true")

    async def _create_key(self) -> None:
        if len(self._keys) >= KEYS:
            return
        body = {"name": self._name("k"), "tenant": self.name, "scopes": ["publish", "subscribe"]}
        answer = await self._ask("create key", "POST", "/v1/keys", body)
        if answer is not None and answer.is_success:
            made = answer.json()
            self._keys.append((made["id"], made["key"]))
            await self._ask("use key", "GET", "/v1/topics", key=made["key"])

    async def _revoke_key(self) -> None:
        if len(self._keys) > KEYS // 2:
            id, _ = self._keys.pop(0)
            await self._ask("revoke key", "DELETE", f"/v1/keys/{id}")
