"""Publishers and subscribers: every request is recorded, and an unknown outcome is treated as unknown.

What a publisher sends is drawn from the seed; when, depends on how the network answers. A subscriber's
choices are drawn from it, too, but from among the subscriptions that it has by then. Ids are always the
client's own, so that a request whose answer got lost can be repeated and stays one operation for the network.
A connection that was refused carried no request: that is a refusal, not an unknown outcome.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from edn.tools.checker import Operation, Recorder
from tests.workload import quotes

#: topics, and how long the events of each stay available to later subscribers
TOPICS: dict[str, float] = {"stocks.quotes": 0, "stocks.late": 0, "stocks.kept": 8}
#: events for sequences: each trader has one publisher, so that an observer knows their order
STEPS = "stocks.steps"
STEP_ATTRIBUTES = {"step": "string", "trader": "integer"}
_STEPS = "abcd"
#: traders of one publisher
_TRADERS = 10
#: share of the subscriptions that are sequences
_SEQUENCES = 1 / 3
#: how often each is chosen
_WEIGHTS = (7, 2, 1)
#: longer than a request takes, shorter than some stops last, so that answers get lost
_TIMEOUT = httpx.Timeout(4.0, connect=2.0)
_LONGEST_PAUSE = 1.0
#: attempts to bring the last events to an end, once clients shall come to theirs
_LAST_ATTEMPTS = 30
#: seconds by which the network's clock may be off, so that an expiry may come earlier
_TOLERANCE = 3.5
#: subscriptions of one client that are paused at a time, about
_MOST_PAUSED = 6


@dataclass
class Figures:
    """What the clients did, and what came of it."""

    #: (kind, outcome) of each recorded operation. A failure is "unreached" where nobody listened, "over"
    #: where its subscription may have ended by itself or by a request of unknown outcome, else "fail"
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    acknowledged_events: int = 0
    #: refusals that no client should see, with an example of each
    surprises: dict[str, str] = field(default_factory=dict)

    @property
    def acknowledged_changes(self) -> int:
        kinds = ("subscribe", "unsubscribe", "change", "redirect")
        return sum(self.outcomes[kind, "ok"] for kind in kinds)


@dataclass
class Client:
    """What both kinds of clients need."""

    name: str
    url: str
    recorder: Recorder
    chance: random.Random
    figures: Figures
    #: set when clients shall come to an end
    ending: asyncio.Event
    #: the dispatcher's name in the recording, if all of its lives have one log
    via: str | None

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, timeout=_TIMEOUT, trust_env=False)

    async def rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.ending.wait()
        except TimeoutError:
            pass

    async def ask(
        self,
        http: httpx.AsyncClient,
        operations: Sequence[tuple[str, Operation]],
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        expected: Sequence[int] = (),
        over: bool = False,
    ) -> httpx.Response | None:
        """Send one request that is all of these (kind, operation); the answer if it was 2xx or 4xx.

        `over`: its subscription may have ended, which explains a 404.
        """
        for _, operation in operations:
            operation.__enter__()
        outcome, answer = "unknown", None
        try:
            answer = await http.request(method, path, json=body, headers=headers)
        except httpx.ConnectError:
            outcome = "unreached"
            for _, operation in operations:
                operation.fail(reason="the connection was refused")
        except httpx.HTTPError as error:
            for _, operation in operations:
                operation.unknown(reason=type(error).__name__)
        except asyncio.CancelledError:
            for _, operation in operations:
                operation.unknown(reason="cancelled")
            raise
        else:
            outcome = self._hear(operations, answer, expected)
            if outcome == "fail" and over and answer.status_code == 404:
                outcome = "over"
        for kind, _ in operations:
            self.figures.outcomes[kind, outcome] += 1
        return answer if outcome in ("ok", "fail", "over") else None

    def _hear(
        self, operations: Sequence[tuple[str, Operation]], answer: httpx.Response, expected: Sequence[int]
    ) -> str:
        status = answer.status_code
        if 200 <= status < 300:
            told = answer.json() if answer.content else {}
            several = told.get("subscriptions", [told])
            for place, (kind, operation) in enumerate(operations):
                if kind == "publish":
                    operation.ok(ids=told["ids"])
                elif kind == "unsubscribe":
                    operation.ok()
                else:
                    operation.ok(expires=several[place]["expires"])
            return "ok"
        for _, operation in operations:
            operation.answered(status)
        if status not in expected and status != 503:
            self.figures.surprises.setdefault(f"{operations[0][0]}: {status}", answer.text[:300])
        return "fail" if 400 <= status < 500 else "unknown"


class Publisher(Client):
    """Batches and singles, at about `rate` events a second, until told to end."""

    async def run(self, rate: float) -> None:
        number = 0
        async with self.http() as http:
            while not self.ending.is_set():
                number += 1
                # Drawn apart for each batch: what an answer makes of this one changes no later one.
                chance = random.Random(self.chance.random())
                size = 1 if chance.random() < 0.25 else chance.randint(20, 100)
                began = asyncio.get_running_loop().time()
                await self._publish(http, chance, number, size)
                spent = asyncio.get_running_loop().time() - began
                await self.rest(max(0.0, size / rate - spent))

    async def _publish(self, http: httpx.AsyncClient, chance: random.Random, number: int, size: int) -> None:
        topic = _topic(chance)
        name = f"{self.name}-{number}"
        keyed = chance.random() < 0.5
        events = [
            {
                **({} if keyed else {"$id": f"{name}.{place}"}),
                **_availability(chance, topic),
                **quotes.event(chance),
            }
            for place in range(size)
        ]
        key = name if keyed else None
        headers = {"idempotency-key": name} if keyed else None
        persistent = chance.random() < 0.9
        pause, left = 0.05, _LAST_ATTEMPTS
        while True:
            operation = self.recorder.operation(
                "publish", topic=topic, events=events, key=key, via=self.via, publisher=self.name
            )
            body: Any = events[0] if size == 1 else events
            answer = await self.ask(
                http, [("publish", operation)], "POST", f"/v1/topics/{topic}/events", body, headers
            )
            if answer is not None:
                if answer.status_code == 202:
                    self.figures.acknowledged_events += size
                return
            if not persistent and chance.random() < 0.5:
                return  # for ever unknown
            left -= self.ending.is_set()
            if not left:
                return
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)


class StepPublisher(Client):
    """Events of its own traders, one request after the other; none is given up before the end."""

    async def run(self, rate: float) -> None:
        number = 0
        first = int(self.name[1:]) * _TRADERS
        async with self.http() as http:
            while not self.ending.is_set():
                number += 1
                chance = random.Random(self.chance.random())
                size = chance.choice([1, 2, 5, 10])
                events = [
                    {
                        "$id": f"{self.name}-{number}.{place}",
                        "step": chance.choice(_STEPS),
                        "trader": first + chance.randrange(_TRADERS),
                    }
                    for place in range(size)
                ]
                began = asyncio.get_running_loop().time()
                await self._publish(http, events)
                await self.rest(max(0.0, size / rate - (asyncio.get_running_loop().time() - began)))

    async def _publish(self, http: httpx.AsyncClient, events: list[dict[str, Any]]) -> None:
        pause, left = 0.05, _LAST_ATTEMPTS
        while left:
            operation = self.recorder.operation(
                "publish", topic=STEPS, events=events, via=self.via, publisher=self.name
            )
            path = f"/v1/topics/{STEPS}/events"
            answer = await self.ask(http, [("publish", operation)], "POST", path, events)
            if answer is not None:
                self.figures.acknowledged_events += len(events) * (answer.status_code == 202)
                return
            left -= self.ending.is_set()
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)


def _sequence(chance: random.Random) -> dict[str, Any]:
    """A sequence over the steps of one trader."""

    def part() -> dict[str, Any]:
        return {"topic": STEPS, "filter": {"step": chance.choice(_STEPS)}}

    steps = [part() for _ in range(chance.choice([2, 3, 3, 4]))]
    for step in steps[1:]:
        if chance.random() < 0.25:
            step["times"] = chance.randint(2, 3)
        if chance.random() < 0.25:
            step["unless"] = part()
    # Without `within`: clocks jump, and nobody could say how much time has passed.
    return {"sequence": steps, "by": ["trader"]}


def _topic(chance: random.Random) -> str:
    return chance.choices(list(TOPICS), _WEIGHTS)[0]


def _availability(chance: random.Random, topic: str) -> dict[str, Any]:
    """What an event says of its own availability, mostly nothing."""
    if not TOPICS[topic] or chance.random() < 0.7:
        return {}
    return {"$availability": chance.choice([0, 3, 20])}


@dataclass
class _Watch:
    """A subscription as its owner believes it to be."""

    id: str
    topic: str
    filter: dict[str, Any] | None
    address: str
    expires: str | None
    paused: bool = False
    #: when it may expire, by the loop's clock
    until: float = math.inf
    #: a request of unknown outcome may have ended it
    doubtful: bool = False
    #: in place of a filter
    sequence: dict[str, Any] | None = None

    @property
    def recipient(self) -> str:
        return f"for {self.id}"

    def body(self) -> dict[str, Any]:
        return {
            **(self.sequence or {"filter": self.filter}),
            "sink": {"url": self.address, "recipient": self.recipient},
            "expires": self.expires,
        }

    def may_be_over(self) -> bool:
        return self.doubtful or asyncio.get_running_loop().time() > self.until - _TOLERANCE


class Subscriber(Client):
    """Subscribes, changes, renews, pauses, resumes and unsubscribes; `most` subscriptions at a time.

    A subscription that may have expired by itself is left alone, mostly: what meets nothing tests nothing.
    """

    async def run(self, addresses: Sequence[str], most: int, rate: float) -> None:
        self._addresses = addresses
        self._count = 0
        self._left: list[str] = []
        self._again: set[str] = set()
        #: subscriptions that may be paused
        self._paused: dict[str, _Watch] = {}
        watches: list[_Watch] = []
        async with self.http() as http:
            while not self.ending.is_set():
                began = asyncio.get_running_loop().time()
                await self._step(http, watches, most)
                await self.rest(max(0.0, 1 / rate - (asyncio.get_running_loop().time() - began)))
            # Nothing may be kept when the network shall come to rest, not even by what was given up.
            for watch in self._paused.values():
                await self._insist(self._resume, http, [watch], last=True)

    async def _step(self, http: httpx.AsyncClient, watches: list[_Watch], most: int) -> None:
        gone = [watch for watch in watches if watch.may_be_over()]
        # Now and then one of those is asked about all the same.
        if gone and self.chance.random() < 0.95:
            watches[:] = [watch for watch in watches if watch not in gone]
            for watch in gone:
                self._forget_pause(watch)
        chance = self.chance.random()
        # What is hardly subscribed to notices little: the first come in bulk.
        few = len(watches) < most // 3
        if not watches or (len(watches) < most and chance < (0.6 if few else 0.4)):
            fresh = [self._draw() for _ in range(self.chance.choice([4, 8] if few else [1, 1, 1, 1, 1, 4]))]
            if await self._insist(self._subscribe, http, fresh):
                watches += fresh
            return
        watch = self.chance.choice(watches)
        if (0.4 <= chance < 0.55 and not few) or len(watches) >= most:
            watches.remove(watch)
            if await self._insist(self._unsubscribe, http, [watch]) is not None:
                self._paused.pop(watch.id, None)
            # Some ids come back later: their earlier life must not be seen in the next one.
            # Not those of a topic that keeps events: the past would be told to each life of the id.
            # Nor those of sequences: the checker judges an id as one or the other.
            if self.chance.random() < 0.3 and not TOPICS.get(watch.topic) and watch.sequence is None:
                self._left.append(watch.id)
        elif chance < 0.72:
            await self._pause_or_resume(http, watches)
        elif chance < 0.88:
            if watch.sequence is None:
                watch.filter = quotes.filter(self.chance)
            else:
                watch.sequence = _sequence(self.chance)
            watch.address = self.chance.choice(self._addresses)
            self._lease(watch)
            if not await self._insist(self._change, http, [watch]):
                watches.remove(watch)
        else:
            self._lease(watch)
            if not await self._insist(self._renew, http, [watch]):
                watches.remove(watch)

    async def _pause_or_resume(self, http: httpx.AsyncClient, watches: list[_Watch]) -> None:
        paused = [watch for watch in watches if watch.paused]
        if paused and (len(paused) >= _MOST_PAUSED or self.chance.random() < 0.5):
            watch = self.chance.choice(paused)
            if self.chance.random() < 0.5:
                watch.address = self.chance.choice(self._addresses)
                if not await self._insist(self._redirect, http, [watch], last=True):
                    watches.remove(watch)
                    return
            done = await self._insist(self._resume, http, [watch], last=True)
            watch.paused = False
            if done:
                self._paused.pop(watch.id, None)
        else:
            # One that ends soon is paused now and then: what is kept for it is dropped with it.
            others = [watch for watch in watches if not watch.paused]
            soon = asyncio.get_running_loop().time() + 3600
            lasting = [watch for watch in others if watch.until > soon]
            if not others:
                return
            watch = self.chance.choice(lasting if lasting and self.chance.random() < 0.9 else others)
            watch.paused = True
            self._paused[watch.id] = watch
            done = await self._insist(self._pause, http, [watch], last=True)
        if not done:
            watches.remove(watch)

    def _forget_pause(self, watch: _Watch) -> None:
        """Of one that has surely expired nothing is kept; of one that is only doubtful something may be."""
        if not watch.doubtful:
            self._paused.pop(watch.id, None)

    def _draw(self) -> _Watch:
        if self._left and self.chance.random() < 0.3:
            id = self._left.pop(0)
            self._again.add(id)
        else:
            self._count += 1
            id = f"{self.name}-{self._count}"
        topic = _topic(self.chance) if id not in self._again else "stocks.quotes"
        watch = _Watch(id, topic, quotes.filter(self.chance), self.chance.choice(self._addresses), None)
        if id not in self._again and self.chance.random() < _SEQUENCES:
            watch.topic, watch.filter, watch.sequence = STEPS, None, _sequence(self.chance)
        self._lease(watch)
        return watch

    def _lease(self, watch: _Watch) -> None:
        """Draw an expiry; the earliest that it can be is that of a request that is sent now."""
        watch.expires, watch.until = None, math.inf
        drawn = self.chance.random()
        if drawn < 0.5:
            # Short enough to be reached, or to be reached only by a clock that jumps.
            seconds = self.chance.randint(4, 20) if drawn < 0.25 else self.chance.randint(7200, 86_400)
            watch.expires = f"PT{seconds}S"
            watch.until = asyncio.get_running_loop().time() + seconds

    async def _insist(
        self, request: Any, http: httpx.AsyncClient, watches: list[_Watch], *, last: bool = False
    ) -> bool | None:
        """Repeat a request while its outcome is unknown; whether it was done in the end, None if given up.

        `last`: do not give up while there is any hope, since what is paused for ever leaves the verdict open.
        """
        pause, left = 0.1, _LAST_ATTEMPTS
        while True:
            answer: httpx.Response | None = await request(http, watches)
            if answer is not None:
                return answer.is_success
            for watch in watches:
                watch.doubtful = watch.doubtful or request == self._unsubscribe
            left -= 1
            if left == 0 if last else self.ending.is_set() or self.chance.random() < 0.1:
                return None
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)

    async def _subscribe(self, http: httpx.AsyncClient, watches: list[_Watch]) -> httpx.Response | None:
        bodies = [{"id": watch.id, "topic": watch.topic, **watch.body()} for watch in watches]
        operations = [("subscribe", self._operation("subscribe", watch)) for watch in watches]
        body: Any = bodies if len(bodies) > 1 else bodies[0]
        # 409: an earlier request under this id ended otherwise than it seemed
        return await self.ask(http, operations, "POST", "/v1/subscriptions", body, expected=[409])

    async def _change(self, http: httpx.AsyncClient, watches: list[_Watch]) -> httpx.Response | None:
        return await self._put(http, watches[0], "change")

    async def _redirect(self, http: httpx.AsyncClient, watches: list[_Watch]) -> httpx.Response | None:
        """Give a paused subscription another address, where what is kept for it goes."""
        return await self._put(http, watches[0], "redirect")

    async def _put(self, http: httpx.AsyncClient, watch: _Watch, counted: str) -> httpx.Response | None:
        operations = [(counted, self._operation("change", watch))]
        path = f"/v1/subscriptions/{watch.id}"
        over = watch.may_be_over()
        return await self.ask(http, operations, "PUT", path, watch.body(), expected=[404], over=over)

    async def _renew(self, http: httpx.AsyncClient, watches: list[_Watch]) -> httpx.Response | None:
        (watch,) = watches
        operation = self.recorder.operation("renew", subscription=watch.id, expires=watch.expires)
        path = f"/v1/subscriptions/{watch.id}/renew"
        body = {"expires": watch.expires}
        over = watch.may_be_over()
        return await self.ask(http, [("renew", operation)], "POST", path, body, expected=[404], over=over)

    async def _pause(self, http: httpx.AsyncClient, watches: list[_Watch]) -> httpx.Response | None:
        return await self._hold(http, watches[0], "pause")

    async def _resume(self, http: httpx.AsyncClient, watches: list[_Watch]) -> httpx.Response | None:
        return await self._hold(http, watches[0], "resume")

    async def _hold(
        self, http: httpx.AsyncClient, watch: _Watch, kind: Literal["pause", "resume"]
    ) -> httpx.Response | None:
        operation = self.recorder.operation(kind, subscription=watch.id)
        path = f"/v1/subscriptions/{watch.id}/{kind}"
        over = watch.may_be_over()
        return await self.ask(http, [(kind, operation)], "POST", path, expected=[404], over=over)

    async def _unsubscribe(self, http: httpx.AsyncClient, watches: list[_Watch]) -> httpx.Response | None:
        (watch,) = watches
        operation = self.recorder.operation("unsubscribe", subscription=watch.id)
        path = f"/v1/subscriptions/{watch.id}"
        over = watch.may_be_over()
        return await self.ask(http, [("unsubscribe", operation)], "DELETE", path, expected=[404], over=over)

    def _operation(self, kind: Any, watch: _Watch) -> Operation:
        return self.recorder.operation(
            kind,
            subscription=watch.id,
            topic=watch.topic,
            filter=watch.filter,
            sequence=watch.sequence,
            address=watch.address,
            recipient=watch.recipient,
            expires=watch.expires,
        )
