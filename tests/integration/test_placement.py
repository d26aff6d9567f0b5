"""Subscriptions that are brought to any server live where the placement policy wants them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.scenario import publish, settle
from tests.network import Engine, Network, Receiver, until

TOPIC = "regions"
#: as wide as a region is; regions are as far apart
WIDTH = 10


@pytest.fixture(scope="module", params=[4, pytest.param(10, marks=pytest.mark.slow)])
def regions(
    request: pytest.FixtureRequest,
    engine: Engine,
    tmp_path_factory: pytest.TempPathFactory,
    receiver: Receiver,
) -> Iterator[tuple[Network, dict[int, str]]]:
    """A network, and which server has which region: one each, as nothing overlaps."""
    options = ["--placement", "rtree", "--placement-spread", "0", "--load-factor", "0"]
    running = engine.network(tmp_path_factory.mktemp("network"), request.param, dispatcher_options=options)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("EDN_EXCHANGE_SECONDS", "0.2")
            running.start()
        running.http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"x": "number"}})
        made = [
            running.http.post("/v1/subscriptions", json=wanted(receiver, region, whole=True)).json()
            for region in range(request.param)
        ]
        yield running, {region: one["server"] for region, one in enumerate(made)}
    finally:
        running.close()


def wanted(receiver: Receiver, region: int, *, whole: bool = False, **more: Any) -> dict[str, Any]:
    begin = 2 * WIDTH * region
    side = [begin, begin + WIDTH] if whole else [begin + 4, begin + 5]
    return {
        "topic": TOPIC,
        "filter": {"x": {"between": side}},
        "sink": {"url": receiver.address("place")},
        **more,
    }


def door(network: Network, name: str) -> httpx.Client:
    return httpx.Client(base_url=network.servers[name].url, timeout=30)


def test_a_subscription_brought_to_any_server_ends_where_its_region_is(
    regions: tuple[Network, dict[int, str]], receiver: Receiver
) -> None:
    network, hosts = regions
    assert sorted(hosts.values()) == sorted(network.servers)
    for number, name in enumerate(network.servers):
        region = (number + 1) % len(hosts)
        with door(network, name) as http:
            answer = http.post("/v1/subscriptions", json=wanted(receiver, region, id=f"at-{name}"))
        assert answer.status_code == 201, answer.text
        assert answer.json()["server"] == hosts[region]
        assert answer.headers["location"] == f"/v1/subscriptions/at-{name}"
        read = network.http.get(f"/v1/subscriptions/at-{name}").json()
        assert {part: read[part] for part in answer.json()} == answer.json()
    ids = publish(network.http, TOPIC, [{"x": 2 * WIDTH * region + 4.5} for region in hosts])
    settle(network)
    # Each event for the one that has the whole region, and the one in the middle of it.
    receiver.await_quiet(2 * len(ids))
    arrived = {subscription for delivery in receiver.deliveries() for subscription, _ in delivery.pairs()}
    assert {f"at-{name}" for name in network.servers} < arrived


def test_a_server_reads_changes_and_ends_subscriptions_of_all(
    regions: tuple[Network, dict[int, str]], receiver: Receiver
) -> None:
    network, hosts = regions
    made = network.http.post("/v1/subscriptions", json=wanted(receiver, 1, id="elsewhere", location=[1, 2.5]))
    assert made.json()["location"] == [1, 2.5]
    other = next(name for name in network.servers if name != hosts[1])
    with door(network, other) as http:
        assert http.get("/v1/subscriptions/elsewhere").json()["server"] == hosts[1]
        changed = {name: part for name, part in wanted(receiver, 2).items() if name != "topic"}
        assert http.put("/v1/subscriptions/elsewhere", json=changed).json()["server"] == hosts[1]
        renewed = http.post("/v1/subscriptions/elsewhere/renew", json={"expires": "PT1H"})
        assert renewed.json()["expires"] is not None
        assert http.delete("/v1/subscriptions/elsewhere").status_code == 204
        assert http.get("/v1/subscriptions/elsewhere").status_code == 404
        assert len(http.get("/v1/subscriptions", params={"topic": TOPIC}).json()["subscriptions"]) >= len(
            hosts
        )


def test_what_is_wrong_is_said_alike_at_every_door(
    regions: tuple[Network, dict[int, str]], receiver: Receiver
) -> None:
    network, _ = regions
    good = wanted(receiver, 0)
    bodies: list[Any] = [
        good | {"filter": "x > "},
        good | {"topic": "unknown"},
        good | {"sink": {"url": "ftp://example.com"}},
        [good, good | {"filter": {"y": 1}}],
        good | {"nonsense": 1},
        {"sink": good["sink"]},
        good | {"location": []},
        good | {"location": ["north"]},
        7,
    ]
    with door(network, "s2") as http:
        for body in bodies:
            here, there = (
                http.post("/v1/subscriptions", json=body),
                network.http.post("/v1/subscriptions", json=body),
            )
            assert 400 <= here.status_code < 500
            assert (here.status_code, here.json()) == (there.status_code, there.json())
            assert here.headers["content-type"] == "application/problem+json"


def test_while_the_dispatcher_is_down_nothing_is_taken_and_afterwards_regions_are_known(
    regions: tuple[Network, dict[int, str]], receiver: Receiver
) -> None:
    network, hosts = regions
    network.dispatcher.kill()
    with door(network, "s1") as http:
        refused = http.post("/v1/subscriptions", json=wanted(receiver, 1, id="too-early"))
        assert refused.status_code == 503, refused.text
        assert int(refused.headers["retry-after"]) >= 1
        network.restart_dispatcher()
        network.await_servers("ready", *network.servers)
        assert http.get("/v1/subscriptions/too-early").status_code == 404

        def summarised() -> bool:
            held = [network.http.get(f"/v1/servers/{name}/summary").json() for name in network.servers]
            return not any(one["everything"] for one in held)

        until("the summaries of all servers", summarised)
        # The dispatcher knows again what is where, from the servers' summaries alone.
        for region, host in hosts.items():
            answer = network.http.post("/v1/subscriptions", json=wanted(receiver, region))
            assert answer.json()["server"] == host
