"""A saturated network, on which capacity and self-tuning are measured.

The router is of the published kind (`rtree`), so that routing costs about as much as published. Publishers
are held while a server is too far behind, so the throughput is that of the bottleneck. Counted are the events
that have passed the whole network: published events minus the lag of the slowest server.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from edn.tools.bench.network import bodies_of, filled, request_of
from edn.tools.bench.plain import ask, connect
from edn.tools.bench.report import Progress
from edn.tools.bench.workloads import Workload

#: measured precisions
GRID = tuple(round(step / 10, 1) for step in range(11))
BATCH = 10
CONNECTIONS = 24
#: allowed lag of a server in records: small, so that queues do not distort the throughput
LAG_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Size of the network under test."""

    servers: int
    #: per server
    subscriptions: int
    dimensions: int = 8
    router: str
    #: seconds between two readings of the self-tuner
    interval: float


@dataclass(frozen=True, slots=True)
class Passed:
    """Result of one measurement."""

    #: events per second through the whole network
    throughput: float
    #: copies sent ÷ (events × servers)
    hit_ratio: float
    #: share of a core that the dispatcher got while it needed one; None if unknown
    core: float | None


class Publisher(threading.Thread):
    """Publishes `requests` as fast as answers arrive, until it is stopped."""

    def __init__(self, url: str, requests: list[bytes]) -> None:
        super().__init__(name="publisher", daemon=True)
        self._url = url
        self.requests = requests
        self._stopping = threading.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._publish())
        except (OSError, EOFError, RuntimeError) as error:
            self._failure = error

    def stop(self) -> None:
        self._stopping.set()
        self.join(30)

    def check(self) -> None:
        if self._failure is not None:
            raise RuntimeError("the publisher failed") from self._failure

    async def _publish(self) -> None:
        await asyncio.gather(*(self._connection(number) for number in range(CONNECTIONS)))

    async def _connection(self, number: int) -> None:
        reader, writer = await connect(self._url)
        while not self._stopping.is_set():
            number += CONNECTIONS
            status, _, answer = await ask(reader, writer, self.requests[number % len(self.requests)])
            if status == 429:
                await asyncio.sleep(0.1)
            elif status != 202:
                raise RuntimeError(f"{status} to a batch: {answer.decode()[:200]}")
        writer.close()


class Saturated:
    """A running network and its publisher."""

    def __init__(self, size: Size, publisher: Publisher, http: httpx.Client) -> None:
        self.size = size
        self._publisher = publisher
        self._http = http

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        self._publisher.check()
        answer: dict[str, Any] = self._http.request(method, path, json=body).raise_for_status().json()
        return answer

    def events(self, workload: Workload, seed: int) -> None:
        """Changes the published events."""
        self._publisher.requests = requests_of(workload, seed)

    def link(self, bytes_per_second: float | None) -> None:
        self._call("PUT", "/v1/link", {"bytes_per_second": bytes_per_second, "lag_limit": LAG_LIMIT})

    def tune(self, mode: str, precision: float | None = None) -> None:
        body = {"mode": mode} if precision is None else {"mode": mode, "precision": precision}
        self._call("PUT", "/v1/tuning", body)

    def tuning(self) -> dict[str, Any]:
        return self._call("GET", "/v1/tuning")

    def survey(self) -> dict[str, Any]:
        """Returns the model's curve over all precisions, with its current parameters."""
        return self._call("POST", "/v1/tuning/survey")

    def _counted(self) -> tuple[float, int, int]:
        found = self._call("GET", "/v1/servers")
        now = time.perf_counter()
        behind = max((server["lag"] or 0 for server in found["servers"]), default=0)
        copies = int(self._call("GET", "/v1/link")["copies"])
        return now, int(found["published"]) - behind, copies

    def watch(self, seconds: float) -> Passed:
        """Measures for some seconds."""
        began, events, copies = self._counted()
        time.sleep(seconds)  # the length of the measurement
        ended, events_then, copies_then = self._counted()
        passed = max(1, events_then - events)
        parameters = self.tuning()["parameters"]
        return Passed(
            throughput=passed / (ended - began),
            hit_ratio=(copies_then - copies) / (passed * self.size.servers),
            core=parameters["core"] if parameters else None,
        )

    def at(self, precision: float, *, settle: float, seconds: float) -> Passed:
        """Measures a fixed precision."""
        self.tune("fixed", precision)
        time.sleep(settle)  # until the queues of the former precision are empty
        return self.watch(seconds)

    def sweep(
        self, rounds: int, seconds: float, progress: Progress, what: str = ""
    ) -> dict[float, list[Passed]]:
        """Measures each fixed precision, in rounds of all of them."""
        seen: dict[float, list[Passed]] = {at: [] for at in GRID}
        for number in range(rounds):
            for at in GRID:
                progress.say(f"{what}round {number + 1} of {rounds}, precision {at:g}")
                seen[at].append(self.at(at, settle=min(1.5, seconds), seconds=seconds))
        return seen


def requests_of(workload: Workload, seed: int) -> list[bytes]:
    # The subscriptions' own seed would make events the corners of rectangles.
    rng = np.random.default_rng([seed, 1])
    return [request_of(body) for body in bodies_of(workload.points(rng, BATCH) for _ in range(200))]


@contextmanager
def saturated(size: Size, workload: Workload, *, seed: int, progress: Progress) -> Iterator[Saturated]:
    """Runs a network with its subscriptions, all summarised, and a publisher."""
    environment = {
        "EDN_ROUTER": size.router,
        "EDN_TUNING": "fixed",
        "EDN_TUNING_SECONDS": str(size.interval),
        "EDN_LAG_LIMIT": str(LAG_LIMIT),
        "EDN_PLACEMENT": "least-loaded",
    }
    rng = np.random.default_rng(seed)
    with (
        filled(size.servers, size.subscriptions, size.dimensions, rng, progress, **environment) as running,
        httpx.Client(base_url=running.url, timeout=120, trust_env=False) as http,
    ):
        publisher = Publisher(running.url, requests_of(workload, seed))
        publisher.start()
        try:
            yield Saturated(size, publisher, http)
        finally:
            publisher.stop()
