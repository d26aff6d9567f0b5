"""A quiet tenant's notifications and calls, alone and beside a noisy tenant.

Two locked networks of two servers run side by side. The quiet tenant is in both, the noisy one only in the
second, which is new for each case. Rounds alternate between the calm network and the beset one, so a slow
moment of the machine affects both. The quiet tenant has quick sinks, and one that answers after 1.2 seconds.
Sinks and noise are processes of their own.

    hanging     600 new addresses per round that accept and never answer
    unresolved  100 new names per round, while the name server is silent (a socket of this machine)
    contains    60 filters of 900 `contains` each, and an event of 1 MB again and again
    xpath       the same in XPath, with as many `contains` as an expression may have
    topics      1,500 topics of 256 attributes, and ten subscriptions to `**`

The bound: the quiet tenant's 99th percentile beside the noise is at most twice that alone, or 50 ms more. The
median of the rounds counts, so that a slow moment of the machine does not. If the network refuses a part of
the noise (by a quota, for example), the result says so.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import httpx

from edn.errors import InvalidInput
from edn.tools.bench.histogram import percentile
from edn.tools.bench.network import Running, bearer, names_of, network
from edn.tools.bench.noisy_peer import Arrivals, Noise, start_peer
from edn.tools.bench.report import Progress, rows, run_pairs

TOPIC = "quiet"
QUICK_SINKS = 8
CASES = ("hanging", "unresolved", "contains", "xpath", "topics")


@dataclass(frozen=True, slots=True)
class Sizes:
    addresses: int = 600
    names: int = 100
    filters: int = 60
    predicates: int = 900
    #: the most that the limit of an XPath allows
    xpath_predicates: int = 70
    event_bytes: int = 1_000_000
    topics: int = 1500
    attributes: int = 256
    subtrees: int = 10


QUICK = Sizes(
    addresses=30,
    names=10,
    filters=3,
    predicates=20,
    xpath_predicates=20,
    event_bytes=10_000,
    topics=10,
    attributes=20,
    subtrees=2,
)


#: seconds in a round by kind: arrival at `quick` sinks and at the `slow` one, and `calls`
Times = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Compared:
    """Milliseconds alone and beside the noise: medians of the rounds' percentiles."""

    alone_p50: float
    alone_p99: float
    beside_p50: float
    beside_p99: float
    #: limit of `beside_p99`
    bound: float

    @classmethod
    def of(cls, alone: Sequence[Sequence[float]], beside: Sequence[Sequence[float]]) -> Compared:
        first, last = (
            [median(percentile(one, at) for one in rounds) * 1000 for at in (50, 99)]
            for rounds in (alone, beside)
        )
        return cls(first[0], first[1], last[0], last[1], bound=max(2 * first[1], first[1] + 50))

    @property
    def holds(self) -> bool:
        return self.beside_p99 <= self.bound

    def __str__(self) -> str:
        if not self.bound:
            return ""
        return f"{self.alone_p50:.0f}/{self.alone_p99:.0f} → {self.beside_p50:.0f}/{self.beside_p99:.0f}"


@dataclass(frozen=True, slots=True)
class Outcome:
    case: str
    quick: Compared
    slow: Compared
    calls: Compared
    #: unsuccessful answers to the noisy tenant, status → count
    refused: dict[str, int]
    #: why the case could not be measured; empty if it could
    failure: str = ""
    #: with `--quick` the times are not judged
    tiny: bool = False

    @property
    def holds(self) -> bool:
        return not self.failure and all(one.holds for one in (self.quick, self.slow, self.calls))

    def refusals(self) -> str:
        refused = [f"{count} × {status}" for status, count in self.refused.items()]
        return "" if self.failure else ", ".join(refused)

    def verdict(self) -> str:
        return f"no: {self.failure}" if self.failure else "yes" if self.holds else "no"


show = rows(
    "A quiet tenant, alone → beside noise",
    ("noise", "{r.case}"),
    ("quick sinks, p50/p99 ms", "{r.quick}"),
    ("slow sink", "{r.slow}"),
    ("calls", "{r.calls}"),
    ("within the bound", lambda r: r.verdict()),
    ("noise refused", lambda r: r.refusals()),
)


def right(outcomes: list[Outcome]) -> bool:
    return all(outcome.holds or (outcome.tiny and not outcome.failure) for outcome in outcomes)


async def run(
    *, case: Sequence[str] | None, events: int, rate: float, pairs: int, quick: bool, progress: Progress
) -> list[Outcome]:
    cases = case or CASES
    unknown = [one for one in cases if one not in CASES]
    if unknown:
        raise InvalidInput(f"--case must be one of {', '.join(CASES)}, got {unknown[0]}")
    if quick:
        events, rate, pairs = 5, 20.0, 1
    sizes = QUICK if quick else Sizes()
    outcomes = []
    with start_peer("sinks") as sinks, _silent_name_server() as nameserver, _network(nameserver) as calm:
        arrivals = Arrivals(sinks)
        for one in cases:
            with _network(nameserver) as beset:
                networks = {"calm": calm, "beset": beset}
                outcomes.append(
                    await _Case(one, sizes, arrivals, networks, events, rate).run(pairs, progress)
                )
    return outcomes


def _network(nameserver: str) -> AbstractContextManager[Running]:
    return network(2, ["--locked"], EDN_SERVER_NAMESERVERS=nameserver)


@contextmanager
def _silent_name_server() -> Iterator[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{silent.getsockname()[1]}"


@dataclass(slots=True)
class _Case:
    """One kind of noise."""

    name: str
    sizes: Sizes
    arrivals: Arrivals
    networks: dict[str, Running]
    events: int
    rate: float
    refused: Counter[str] = field(default_factory=Counter)

    async def run(self, pairs: int, progress: Progress) -> Outcome:
        tiny, what = self.sizes is QUICK, f"{self.name}: "
        async with self._quiet("calm") as calm, self._quiet("beset") as beset, self._noisy() as noisy:

            async def alone(round: int) -> Times:
                return await self._round("calm", calm, round)

            async def beside_noise(round: int) -> Times:
                async with self._noise(noisy, round) if round else nullcontext():
                    return await self._round("beset", beset, round)

            try:
                found = await run_pairs(pairs, alone, beside_noise, progress, what)
            except (TimeoutError, httpx.HTTPError) as error:
                nothing = Compared(0, 0, 0, 0, 0)
                failure = f"{type(error).__name__}: {error}"[:200]
                return Outcome(self.name, nothing, nothing, nothing, self.refused, failure, tiny)
        quick, slow, calls = (
            Compared.of(*([one[kind] for one in rounds] for rounds in found))
            for kind in ("quick", "slow", "calls")
        )
        return Outcome(self.name, quick, slow, calls, self.refused, tiny=tiny)

    # -- the quiet tenant -------------------------------------------------------------------------------

    @asynccontextmanager
    async def _quiet(self, side: str) -> AsyncIterator[httpx.AsyncClient]:
        async with self._tenant(side, f"quiet-{self.name}") as http:
            (await http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"x": "number"}})).raise_for_status()
            wanted = [
                {"topic": TOPIC, "sink": {"url": self.arrivals.url + path}} for path in self._paths(side)
            ]
            (await http.post("/v1/subscriptions", json=wanted)).raise_for_status()
            yield http

    def _paths(self, side: str) -> list[str]:
        quick = [f"/quick/{self.name}/{side}/{number}" for number in range(QUICK_SINKS)]
        return [*quick, f"/slow-1.2/{self.name}/{side}"]

    @asynccontextmanager
    async def _tenant(self, side: str, tenant: str) -> AsyncIterator[httpx.AsyncClient]:
        """Opens a client with an admin key of a tenant."""
        running = self.networks[side]
        async with bearer(running.url, await running.key(tenant), 120) as http:
            yield http

    async def _round(self, side: str, http: httpx.AsyncClient, round: int) -> Times:
        times: Times = {"quick": [], "slow": [], "calls": []}
        found = await self.arrivals.round(
            http,
            TOPIC,
            self._paths(side),
            self.events,
            self.rate,
            f"{self.name}-{round}-{side}",
            times["calls"],
        )
        for path, seconds in found.items():
            times["slow" if path.startswith("/slow") else "quick"] += seconds
        return times

    # -- the noisy one ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def _noisy(self) -> AsyncIterator[httpx.AsyncClient]:
        """Opens a client of the noisy tenant, and creates what all rounds share."""
        async with self._tenant("beset", "noisy") as http:
            sizes = self.sizes
            if self.name in ("contains", "xpath"):
                engine = {"engine": "xpath"} if self.name == "xpath" else {}
                await self._call(
                    http, "PUT", "/v1/topics/noise", {"attributes": {"text": "string"}, **engine}
                )
                await self._subscribe(http, [self._filter(number) for number in range(sizes.filters)])
            elif self.name == "topics":
                attributes = dict.fromkeys(names_of(sizes.attributes), "string")
                for number in range(sizes.topics):
                    await self._call(http, "PUT", f"/v1/topics/n{number}", {"attributes": attributes})
            yield http

    def _filter(self, number: int) -> dict[str, Any]:
        if self.name == "xpath":
            tests = [f"contains(text,'e {number}{place}')" for place in range(self.sizes.xpath_predicates)]
            chosen: dict[str, Any] = {"$xpath": " or ".join(tests)}
        else:
            literals = [f"needle {number} {place}" for place in range(self.sizes.predicates)]
            chosen = {"$any": [{"text": {"contains": one}} for one in literals]}
        return {
            "topic": "noise",
            "filter": chosen,
            "sink": {"url": f"{self.arrivals.url}/quick/noise/{self.name}/{number}"},
        }

    @asynccontextmanager
    async def _noise(self, http: httpx.AsyncClient, round: int) -> AsyncIterator[None]:
        """Makes noise while a round is measured."""
        sizes = self.sizes
        if self.name == "topics":
            urls = [f"{self.arrivals.url}/quick/noise/{round}/{number}" for number in range(sizes.subtrees)]
            bodies = [{"topic": "**", "sink": {"url": url}} for url in urls]
            calls = [self._call(http, "POST", "/v1/subscriptions", body) for body in bodies]
            subscribing = asyncio.gather(*calls)
            try:
                yield
            finally:
                await subscribing
            return
        event: dict[str, object] = {"text": "needle " * (sizes.event_bytes // 7)}
        topic = "noise"
        if self.name in ("hanging", "unresolved"):
            # A topic per round: hanging deliveries of former rounds get no new events.
            topic, event = f"noise{round}", {"x": round}
            await self._call(http, "PUT", f"/v1/topics/{topic}", {"attributes": {"x": "number"}})
            if self.name == "hanging":
                urls = [f"{self.arrivals.url}/never/{round}/{number}" for number in range(sizes.addresses)]
            else:
                urls = [f"https://n{number}.round{round}.example.net/" for number in range(sizes.names)]
            await self._subscribe(http, [{"topic": topic, "sink": {"url": url}} for url in urls])
        noise = Noise(
            url=str(http.base_url),
            key=http.headers["authorization"].removeprefix("Bearer "),
            path=f"/v1/topics/{topic}/events",
            body=event,
            rate=2.0,
        )
        with start_peer("noise", noise):
            yield

    async def _subscribe(self, http: httpx.AsyncClient, wanted: list[dict[str, Any]]) -> None:
        for begin in range(0, len(wanted), 20):
            await self._call(http, "POST", "/v1/subscriptions", wanted[begin : begin + 20])

    async def _call(self, http: httpx.AsyncClient, method: str, path: str, body: Any) -> None:
        try:
            answer = await http.request(method, path, json=body)
            status = str(answer.status_code) if answer.status_code >= 300 else ""
        except httpx.HTTPError as error:
            status = type(error).__name__
        if status:
            self.refused[status] += 1
