"""Wall clocks that jump by days, on real processes: nothing ends, is dropped or is disabled before its time.

The processes' wall clock is stepped by a file (`edn.runtime.clock`); the elapsed time is real.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.faults.wall_clock import VARIABLE, set_clock
from tests.network import Engine, Hook, Network, until

DAY = 86_400.0


class Clock:
    """The wall clock of all processes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        set_clock(file, 0.0)

    def step(self, network: Network, seconds: float) -> None:
        """Set it off by so much, and wait until every process has noticed."""
        set_clock(self.file, seconds)

        def noticed() -> bool:
            found = network.http.get("/v1/clock").json()
            seen = [found["suspect"], *(one["suspect"] for one in found["servers"])]
            return all((one is not None) == bool(seconds) for one in seen)

        until("all processes to notice the step", noticed)


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clock]:
    clock = Clock(tmp_path_factory.mktemp("clock") / "clock")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(clock.file))
        yield clock


@pytest.fixture(scope="module")
def shared(engine: Engine, tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> Iterator[Network]:
    network = engine.network(
        tmp_path_factory.mktemp("network"), 1, server_options=["--retry-steps", "0.1", "--batch-delay", "0.2"]
    )
    try:
        network.start()
        topic = {"attributes": {"n": "integer"}, "availability": 30 * DAY}
        assert network.http.put("/v1/topics/t", json=topic).status_code == 201
        yield network
    finally:
        network.close()


@pytest.fixture
def network(shared: Network, clock: Clock) -> Iterator[Network]:
    """The clocks are right before a test and after it."""
    yield shared
    clock.step(shared, 0.0)


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()
    yield hook
    hook.shutdown()
    hook.server_close()


def subscribe(network: Network, hook: Hook, id: str, *, past: bool = False, **fields: Any) -> None:
    """`past`: with the retained events."""
    body = {"id": id, "topic": "t", "sink": {"url": hook.url(f"/{id}")}, **fields}
    body |= {} if past else {"from": "now"}
    answer = network.http.post("/v1/subscriptions", json=body)
    assert answer.status_code == 201, answer.text


def publish(network: Network, id: str) -> None:
    answer = network.http.post("/v1/topics/t/events", json={"$id": id, "n": 1})
    assert answer.status_code == 202, answer.text


def told(hook: Hook, id: str) -> list[str]:
    bodies = [json.loads(body) for _, body in hook.at(f"/{id}", 200)]
    return [entry["event"]["id"] for body in bodies for entry in body["notifications"]]


def lives(network: Network, id: str) -> bool:
    return network.http.get(f"/v1/subscriptions/{id}").status_code == 200


def await_end(network: Network, id: str) -> None:
    until(f"the end of {id}", lambda: not lives(network, id), seconds=20)


def delivery(network: Network, id: str) -> dict[str, Any]:
    found: dict[str, Any] = network.http.get(f"/v1/subscriptions/{id}").json()["delivery"]
    return found


def test_a_clock_days_ahead_while_a_sink_fails_disables_nothing_and_buries_nothing(
    network: Network, hook: Hook, clock: Clock
) -> None:
    hook.status["/failing"] = 503
    subscribe(network, hook, "failing")
    publish(network, "first")
    until("attempts", lambda: len(hook.at("/failing")) >= 2)
    clock.step(network, 6 * DAY)
    tried = len(hook.at("/failing"))
    until("attempts by that clock", lambda: len(hook.at("/failing")) >= tried + 3)
    assert delivery(network, "failing")["state"] == "failing"
    clock.step(network, 0.0)
    publish(network, "second")
    tried = len(hook.at("/failing"))
    until("attempts by the right clock", lambda: len(hook.at("/failing")) >= tried + 2)
    assert delivery(network, "failing")["state"] == "failing"
    assert network.http.get("/v1/dead-letters").json()["dead_letters"] == []
    hook.status["/failing"] = 200
    until("both events", lambda: told(hook, "failing") == ["first", "second"])


def test_a_clock_500_days_ahead_ends_nothing_drops_nothing_and_stops_nothing(
    network: Network, hook: Hook, clock: Clock
) -> None:
    subscribe(network, hook, "lasting", expires="P400D")
    publish(network, "kept")
    clock.step(network, 500 * DAY)
    subscribe(network, hook, "brief", expires="PT1S")
    await_end(network, "brief")  # so expiries were looked for, and a second lasts a second
    assert lives(network, "lasting")
    subscribe(network, hook, "late", past=True)
    until("the retained event", lambda: "kept" in told(hook, "late"))
    clock.step(network, 0.0)
    subscribe(network, hook, "brief", expires="PT2S")
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    subscribe(network, hook, "soon", expires=soon)
    await_end(network, "brief")
    assert lives(network, "lasting")
    assert lives(network, "soon")
    publish(network, "after")
    for id in ("lasting", "soon", "late"):
        until(f"the event at {id}", lambda id=id: "after" in told(hook, id))


def test_a_process_that_starts_while_its_clock_is_wrong_ends_and_purges_nothing(
    network: Network, hook: Hook, clock: Clock
) -> None:
    hook.status["/stays"] = 503
    subscribe(network, hook, "stays", expires="P400D")
    publish(network, "old")
    until("an attempt", lambda: hook.at("/stays"))
    network.servers["s1"].kill()
    network.dispatcher.kill()
    set_clock(clock.file, 500 * DAY)
    network.servers["s1"].start()
    network.restart_dispatcher()
    network.await_servers("ready", "s1")
    clock.step(network, 500 * DAY)
    subscribe(network, hook, "short", expires="PT1S")
    await_end(network, "short")
    tried = len(hook.at("/stays"))
    until("attempts", lambda: len(hook.at("/stays")) >= tried + 2)
    assert lives(network, "stays")
    assert delivery(network, "stays")["state"] == "failing"
    answer = network.http.post("/v1/topics/t/events", json={"$id": "old", "n": 1})
    assert answer.json()["ids"] == ["old"], "its id is known, and it is not told twice"
    subscribe(network, hook, "later", past=True)
    until("the retained event", lambda: "old" in told(hook, "later"))
    clock.step(network, 0.0)
    hook.status["/stays"] = 200
    until("the event", lambda: told(hook, "stays") == ["old"])


@pytest.mark.parametrize("days", [-5, 5])
def test_notifications_go_out_while_the_clock_is_wrong(
    network: Network, hook: Hook, clock: Clock, days: int
) -> None:
    """With a batch delay: a clock that was set back held them for as long as it was set back."""
    id = f"batched{days}"
    subscribe(network, hook, id)
    publish(network, f"before {days}")
    clock.step(network, days * DAY)
    publish(network, f"during {days}")
    until("both events", lambda: told(hook, id) == [f"before {days}", f"during {days}"], seconds=10)
    signed = [int(head["webhook-timestamp"]) for head, _ in hook.at(f"/{id}")]
    real = datetime.now(UTC).timestamp()
    assert all(abs(one - real) < 300 for one in signed), "receivers refuse a timestamp of another day"


def test_an_operator_confirms_a_clock_and_a_time_that_falls_back_revives_nothing(
    network: Network, hook: Hook, clock: Clock
) -> None:
    hook.status["/aging"] = 503
    subscribe(network, hook, "aging")
    publish(network, "young")
    until("an attempt", lambda: hook.at("/aging"))
    subscribe(network, hook, "hour", expires="PT1H")
    clock.step(network, 6 * DAY)
    found = network.http.post("/v1/clock/confirm").json()
    assert found["suspect"] is None
    assert found["adopted"] == pytest.approx(6 * DAY, abs=60)
    assert found["servers"] == [{"id": "s1", "suspect": None, "failure": None}]
    await_end(network, "hour")
    tried = len(hook.at("/aging"))
    until("attempts", lambda: len(hook.at("/aging")) >= tried + 3)
    assert delivery(network, "aging")["state"] == "failing", "an age is not a matter of the clock"
    hook.status["/aging"] = 200
    # It was wrong after all.
    set_clock(clock.file, 0.0)
    assert network.http.post("/v1/clock/confirm").json()["suspect"] is None
    assert not lives(network, "hour")
    subscribe(network, hook, "hour", expires="PT2S")
    publish(network, "again")
    until("the event", lambda: told(hook, "hour") == ["again"])
    until("both events", lambda: told(hook, "aging") == ["young", "again"])
    await_end(network, "hour")
    answer = network.http.get("/v1/clock").json()
    written = datetime.fromisoformat(answer["time"])
    assert abs((written - datetime.now(UTC)).total_seconds()) < 60
