"""Memory of the servers, and other tenants' calls, while wide topics are created and deleted.

One locked network of two servers and two tenants. The key of the noisy tenant has quotas so large that
nothing is refused; the default limits would refuse most of it.

1. Cycles: create topics of many string attributes, subscribe to each on one attribute, delete them. The
   resident memory of the servers after each cycle may not grow over the second half of the cycles.
2. Subtrees: many such topics at once, and several subscriptions to `**`, which have a member per topic.
   Another client requests its own topic meanwhile. Its 99th percentile may be at most twice that alone, or
   50 ms more. Then all of it is deleted. This is done twice: the first time warms up allocators and caches;
   after the second, memory must be within a tenth of that after the first.
3. Limits: the same topics and subscriptions of a tenant with the default limits, from another process. Most
   are refused. Another tenant's 99th percentile may be at most twice that while the same noise goes to
   another network on this machine: that control excludes the cost of the noise for the machine's cores.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from statistics import mean
from typing import Any, TypeVar

import httpx
import psutil

from edn.tools.bench.histogram import percentile
from edn.tools.bench.network import NOWHERE, Running, bearer, names_of, network
from edn.tools.bench.noisy_peer import TopicNoise, make_topics
from edn.tools.bench.report import Progress, facts

T = TypeVar("T")

#: seconds after which servers have released the memory of deleted topics
SETTLED = 12.0
#: allowed growth of memory: after the subtrees, and from one half of the later cycles to the next
RETURNED = 0.10
GROWN = 0.03
#: seconds by which others' calls may be slower
MORE = 0.05
#: concurrent calls
AT_ONCE = 8
#: calls from which on a 99th percentile is meaningful
LEAST_CALLS = 200


@dataclass(frozen=True, slots=True)
class Topics:
    #: resident bytes of all servers after each cycle
    cycles: list[int]
    topics: int
    attributes: int
    subtrees: int
    #: seconds of each subscription to `**`
    subscribing: list[float]
    #: resident bytes of all servers: initially; before the second round, with its subscriptions, and after
    #: their deletion
    first: int
    before: int
    during: int
    after: int
    #: seconds: 99th percentile of another client's calls; and their number beside the subtrees
    alone: float
    beside: float
    calls: int
    #: answers to a tenant with the default limits, by status
    answered: dict[str, int]
    #: seconds, p50 and p99 of another tenant's calls: alone, with the noise on another network, beside it
    limited_alone: tuple[float, float]
    limited_elsewhere: tuple[float, float]
    limited_beside: tuple[float, float]

    @property
    def growth(self) -> float:
        """Relative growth of memory over the second half of the cycles."""
        late = self.cycles[len(self.cycles) // 2 :]
        half = len(late) // 2
        if not half:
            return 0.0
        return mean(late[half:]) / mean(late[:half]) - 1

    @property
    def returned(self) -> bool:
        return self.after <= self.before * (1 + RETURNED)

    @property
    def prompt(self) -> bool:
        """Whether others were served in time; too few calls have no 99th percentile."""
        return self.calls < LEAST_CALLS or self.beside <= max(2 * self.alone, self.alone + MORE)

    @property
    def limited(self) -> bool:
        """Whether the default limits keep others' calls within twice their time with the noise elsewhere."""
        return self.calls < LEAST_CALLS or self.limited_beside[1] <= 2 * self.limited_elsewhere[1]


def _mb(*sizes: int) -> str:
    return " ".join(f"{one / 1e6:.0f}" for one in sizes)


def _ms(*seconds: float) -> str:
    return "/".join(f"{one * 1000:.1f}" for one in seconds)


show = facts(
    "Topics created and deleted",
    ("memory after each cycle, MB", lambda r: _mb(*r.cycles)),
    ("growth over the second half", lambda r: f"{r.growth:+.1%} (bound {GROWN:.0%})"),
    ("subtrees", "{r.subtrees} over {r.topics} topics of {r.attributes} attributes"),
    ("subscribing to one, s", lambda r: " ".join(f"{one:.1f}" for one in r.subscribing)),
    (
        "memory initially; before, with them, after, MB",
        lambda r: f"{_mb(r.first)}; {_mb(r.before, r.during, r.after)} (bound +{RETURNED:.0%})",
    ),
    (
        "another's calls alone/beside, p99 ms",
        lambda r: f"{_ms(r.alone, r.beside)} (bound 2×, or {MORE * 1000:.0f} more)",
    ),
    (
        "default limits: answers",
        lambda r: ", ".join(f"{count} × {status}" for status, count in sorted(r.answered.items())),
    ),
    ("another's calls alone, p50/p99 ms", lambda r: _ms(*r.limited_alone)),
    ("… with the noise elsewhere", lambda r: _ms(*r.limited_elsewhere)),
    ("… beside the noise", lambda r: f"{_ms(*r.limited_beside)} (bound 2× elsewhere)"),
)


def right(outcome: Topics) -> bool:
    return outcome.growth <= GROWN and outcome.returned and outcome.prompt and outcome.limited


async def run(
    *,
    cycles: int,
    per_cycle: int,
    topics: int,
    attributes: int,
    subtrees: int,
    progress: Progress,
    settled: float = SETTLED,
) -> Topics:
    wide = {"attributes": dict.fromkeys(names_of(attributes), "string")}
    sink = {"url": f"{NOWHERE}/nobody"}
    limits = dict.fromkeys(("topics", "attributes", "members"), 1 << 40)
    sizes: list[int] = []
    beside: list[float] = []
    taken: list[float] = []
    with network(2, ["--locked"]) as running:
        url, (_, servers) = running.url, running.roles()
        noisy, quiet = await _tenants(running, limits)
        async with bearer(url, noisy) as http:
            for cycle in range(cycles):
                progress.say(f"cycle {cycle + 1} of {cycles}")
                names = [f"cycle.t{number}" for number in range(per_cycle)]
                await _each(http, "PUT", [f"/v1/topics/{name}" for name in names], wide)
                for name in names:
                    body = {"topic": name, "filter": {"a7": {"contains": "x"}}, "sink": sink}
                    (await http.post("/v1/subscriptions", json=body)).raise_for_status()
                await _each(http, "DELETE", [f"/v1/topics/{name}?cascade=true" for name in names])
                await asyncio.sleep(settled / 2)
                sizes.append(_resident(servers))
            await asyncio.sleep(settled)
            rests = [_resident(servers)]
            progress.say("another client alone")
            alone, _ = await _while(url, quiet, asyncio.sleep(settled))
            names = [f"many.t{number}" for number in range(topics)]
            for turn in ("first", "second"):
                progress.say(f"{topics} topics, {turn} time")
                await _each(http, "PUT", [f"/v1/topics/{name}" for name in names], wide)
                progress.say(f"{subtrees} subscriptions to their subtree, {turn} time")
                calls, ids = await _while(url, quiet, _subscribe(http, subtrees, sink, taken))
                beside += calls
                during = _resident(servers)
                progress.say(f"deleting them, {turn} time")
                await _each(http, "DELETE", [f"/v1/subscriptions/{id}" for id in ids])
                await _each(http, "DELETE", [f"/v1/topics/{name}?cascade=true" for name in names])
                await asyncio.sleep(2 * settled)
                rests.append(_resident(servers))
    progress.say("a tenant with the default limits")
    answered, times = await _with_limits(topics, attributes, subtrees, settled)
    return Topics(
        sizes,
        topics,
        attributes,
        subtrees,
        taken,
        *(rests[0], rests[1], during, rests[2]),
        percentile(alone, 99),
        percentile(beside, 99),
        len(beside),
        answered,
        *((percentile(one, 50), percentile(one, 99)) for one in times),
    )


async def _with_limits(
    topics: int, attributes: int, subtrees: int, settled: float
) -> tuple[dict[str, int], list[list[float]]]:
    """Returns the answers to the noise, and the seconds of another's calls: alone, elsewhere, beside."""
    with network(2, ["--locked"]) as near, network(2, ["--locked"]) as far:
        noisy, quiet = await _tenants(near, {})
        noisy_far, _ = await _tenants(far, {})
        await _while(near.url, quiet, asyncio.sleep(settled / 4))  # warms up
        times = [(await _while(near.url, quiet, asyncio.sleep(settled)))[0]]
        for url, key in ((far.url, noisy_far), (near.url, noisy)):
            noise = TopicNoise(url, key, topics, attributes, subtrees, AT_ONCE)
            taken, answered = await _while(near.url, quiet, asyncio.to_thread(make_topics, noise))
            times.append(taken)
    return answered, times


async def _subscribe(
    http: httpx.AsyncClient, subtrees: int, sink: dict[str, str], taken: list[float]
) -> list[str]:
    """Subscribes to the subtree and returns the ids."""
    ids: list[str] = []
    for _ in range(subtrees):
        began = time.perf_counter()
        answer = await http.post("/v1/subscriptions", json={"topic": "many.**", "sink": sink})
        ids.append(answer.raise_for_status().json()["id"])
        taken.append(time.perf_counter() - began)
    return ids


async def _tenants(running: Running, limits: dict[str, int]) -> tuple[str, str]:
    """Creates the keys of the noisy tenant and of the quiet one, and the topic of the latter."""
    noisy, quiet = await running.key("noisy", limits), await running.key("quiet", limits)
    async with bearer(running.url, quiet) as other:
        (await other.put("/v1/topics/quiet", json={"attributes": {"x": "number"}})).raise_for_status()
    return noisy, quiet


async def _each(http: httpx.AsyncClient, method: str, paths: list[str], body: Any = None) -> None:
    """Calls all paths, a few at the same time."""
    waiting = list(reversed(paths))

    async def work() -> None:
        while waiting:
            answer = await http.request(method, waiting.pop(), json=body)
            answer.raise_for_status()

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


async def _while(url: str, key: str, work: Coroutine[Any, Any, T]) -> tuple[list[float], T]:
    """Returns the seconds of another client's calls during some work, and the result of the work."""
    times: list[float] = []
    doing = asyncio.ensure_future(work)
    async with bearer(url, key) as http:
        while not doing.done():
            began = time.perf_counter()
            (await http.get("/v1/topics/quiet")).raise_for_status()
            (await http.post("/v1/topics/quiet/events", json={"x": 1})).raise_for_status()
            times.append(time.perf_counter() - began)
            await asyncio.sleep(0.02)
    return times, await doing


def _resident(servers: list[psutil.Process]) -> int:
    return sum(server.memory_info().rss for server in servers)
