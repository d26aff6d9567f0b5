"""Publishes around advertise and unadvertise calls: some order of the calls explains every outcome.

The guard is never told of changes, as if another dispatcher had made them: it must find them in the
transaction. The checker judges the recording; with the defect "check before the transaction" it objects.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from dispatcher.advertisements.guard import PublicationGuard
from edn.runtime.postgres.database import Database
from edn.tools.checker import Recorder, Report, check_recording
from tests.network import Network
from tests.store.test_advertising import Door, opened

ATTRIBUTES = {"n": "integer", "s": "string"}
#: advertisements that come and go, each for one value, so that one at most covers an event
VALUES = 8


async def churn(
    door: Door, recorder: Recorder, publishes: int, changes: int, seed: int, lasting: float
) -> None:
    chance = random.Random(seed)
    numbers = itertools.count()
    body = {"attributes": ATTRIBUTES, "advertising": "guard"}
    await door.ok("PUT", "/v1/topics/t", json=body)
    recorder.topic("t", ATTRIBUTES, advertising="guard")

    async def publish(count: int) -> None:
        for _ in range(count):
            event = {"$id": f"e{next(numbers)}", "n": chance.randrange(VALUES)}
            with recorder.operation("publish", topic="t", publisher="network", events=[event]) as operation:
                answer = await door.publish(event)
                record(operation, answer, event)
            await asyncio.sleep(chance.random() * 0.004)

    async def change(value: int, count: int) -> None:
        for round_ in range(count):
            id = f"a{value}.{round_}"
            declares = {"n": [value], "s": "any"}
            fields: dict[str, Any] = {"advertisement": id, "publisher": "network"}
            with recorder.operation("advertise", topic="t", declares=declares, **fields) as operation:
                operation.answered((await door.advertise(declares, id=id)).status_code)
            await asyncio.sleep(chance.random() * lasting)
            with recorder.operation("unadvertise", **fields) as operation:
                operation.answered((await door.http.delete(f"/v1/advertisements/{id}")).status_code)
            await asyncio.sleep(chance.random() * lasting / 2)

    work = [publish(publishes // 4) for _ in range(4)]
    await asyncio.gather(*work, *(change(value, changes // VALUES // 2) for value in range(VALUES)))


def record(operation: Any, answer: httpx.Response, event: dict[str, Any]) -> None:
    if answer.status_code == 422:
        assert answer.json()["title"] == "Unadvertised event", answer.text
        operation.fail(status=422, reason="unadvertised")
    elif answer.status_code == 202:
        operation.ok(ids=[event["$id"]])
    else:
        operation.unknown(status=answer.status_code)


def judge(
    place: Path | Database, folder: Path, publishes: int, changes: int, lasting: float = 0.02
) -> tuple[Report, int]:
    """Record a run and check it; `lasting`: seconds of an advertisement at most."""
    path = folder / "run.jsonl"

    async def main() -> int:
        async with opened(place) as door:
            door.parts.advertisements._on_change = lambda _: None
            with Recorder(path) as recorder:
                await churn(door, recorder, publishes, changes, 1, lasting)
            return door.parts.log.head

    accepted = asyncio.run(main())
    return check_recording(path), accepted


def test_some_order_explains_every_outcome(place: Path | Database, tmp_path: Path) -> None:
    report, accepted = judge(place, tmp_path, 200, 32)
    assert report.verdict == "holds", report.text()
    assert report.counts.guarded == 200
    assert 0 < accepted < 200


def test_a_check_before_the_transaction_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decide = PublicationGuard.decide

    def trusting(self: PublicationGuard, *arguments: Any) -> Any:
        return arguments[-1] if arguments[-1] is not None else decide(self, *arguments)

    monkeypatch.setattr(PublicationGuard, "decide", trusting)
    report, _ = judge(tmp_path, tmp_path, 200, 32)
    assert report.verdict == "violated"
    assert set(report.faults) <= {"unadvertised", "refused"}


@pytest.mark.slow
def test_10_000_publishes_around_200_changes(place: Path | Database, tmp_path: Path) -> None:
    report, accepted = judge(place, tmp_path, 10_000, 208, lasting=2.0)
    print(report.text(), f"{accepted} accepted")
    assert report.verdict == "holds", report.text()
    assert report.counts.guarded == 10_000


class Killed:
    """Publishes from threads while dispatchers are killed and started again."""

    def __init__(self, network: Network, recorder: Recorder) -> None:
        self.network = network
        self.recorder = recorder
        self.numbers = itertools.count()
        self.over = threading.Event()

    def call(self, client: httpx.Client, method: str, url: str, **more: Any) -> httpx.Response | None:
        try:
            return client.request(method, url, **more)
        except httpx.TransportError:
            time.sleep(0.05)
            return None

    def publish(self, count: int, seed: int) -> None:
        chance = random.Random(seed)
        with httpx.Client(timeout=10) as client:
            for _ in range(count):
                self.publish_one(client, chance.choice(self.network.urls), chance.randrange(VALUES))

    def publish_one(self, client: httpx.Client, url: str, value: int) -> None:
        event = {"$id": f"e{next(self.numbers)}", "n": value}
        with self.recorder.operation("publish", topic="t", publisher="p", events=[event]) as operation:
            answer = self.call(client, "POST", f"{url}/v1/topics/t/events", json=event)
            if answer is not None:
                record(operation, answer, event)

    def change(self, value: int, count: int) -> None:
        # At one dispatcher: when it answers again, no call of its former life is still carried out.
        urls = self.network.urls
        url, other = urls[value % len(urls)], urls[(value + 1) % len(urls)]
        with httpx.Client(timeout=10) as client:
            for round_ in range(count):
                id, declares = f"a{value}.{round_}", {"n": [value]}
                fields: dict[str, Any] = {"advertisement": id, "publisher": "p"}
                body = {"topic": "t", "advertisement": declares, "id": id}
                with self.recorder.operation(
                    "advertise", topic="t", declares=declares, **fields
                ) as operation:
                    answer = self.call(client, "POST", f"{url}/v1/advertisements", json=body)
                    if answer is not None:
                        operation.answered(answer.status_code)
                # At once: the other dispatcher may not have heard of the change, but must respect it.
                self.publish_one(client, other, value)
                time.sleep(0.05)
                done = False
                while not done:  # until it has certainly ended: a later one for this value must be alone
                    with self.recorder.operation("unadvertise", **fields) as operation:
                        answer = self.call(client, "DELETE", f"{url}/v1/advertisements/{id}")
                        if answer is not None and answer.status_code in (204, 404):
                            done = True
                            # A 404 after an unanswered call: it has ended, or never was.
                            operation.ok()
                self.publish_one(client, other, value)


@pytest.mark.slow
@pytest.mark.parametrize(("dispatchers", "defect"), [(1, ""), (2, ""), (2, "check-before-the-transaction")])
def test_10_000_publishes_around_200_changes_and_kills(
    request: pytest.FixtureRequest, tmp_path: Path, defect: str, dispatchers: int
) -> None:
    """One dispatcher on SQLite, or two that share a directory in PostgreSQL.

    The defect is none with one dispatcher: it checks with what it has answered so far, and that instant lies
    inside the publisher's request. With two, it checks with what it has heard of the other one.
    """
    database = request.getfixturevalue("postgres").network_options() if dispatchers > 1 else ()
    environment = {"EDN_TEST_DEFECT": defect} if defect else None
    network = Network(tmp_path, 0, dispatchers=dispatchers, database=database, environment=environment)
    network.start()
    path = tmp_path / "run.jsonl"
    try:
        body = {"attributes": ATTRIBUTES, "advertising": "guard"}
        assert network.http.put("/v1/topics/t", json=body).is_success
        with Recorder(path) as recorder:
            recorder.topic("t", ATTRIBUTES, advertising="guard")
            run = Killed(network, recorder)
            threads = [threading.Thread(target=run.publish, args=(2_500, seed)) for seed in range(4)]
            threads += [threading.Thread(target=run.change, args=(value, 13)) for value in range(VALUES)]
            for thread in threads:
                thread.start()
            kills = 0
            while any(thread.is_alive() for thread in threads):
                time.sleep(2)
                if kills < 4:
                    victim = network.dispatchers[kills % dispatchers]
                    victim.kill()
                    victim.start()
                    victim.await_ready()
                    kills += 1
            for thread in threads:
                thread.join()
    finally:
        network.close()
    report = check_recording(path)
    print(report.text(), f"{kills} kills")
    assert report.counts.guarded > 5_000
    assert report.verdict == ("violated" if defect else "holds"), report.text()
