"""Two dispatchers on one database: one of them runs a source; nobody reads a password in the tables."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import psycopg
import pytest
from psycopg import sql

from edn.client import Client, ClientError
from tests.brokers import Broker
from tests.connectors.probes import new_probe, numbered, watch
from tests.network import Network, Receiver, until
from tests.postgres import Cluster

SERVERS = 1
DISPATCHERS = 2
pytestmark = pytest.mark.slow
PART, PARTS = 50, 40


def test_a_source_of_a_killed_dispatcher_continues_at_the_other_without_a_loss(
    network: Network, receiver: Receiver, nats_server: Broker
) -> None:
    place = new_probe(nats_server)
    clients = [Client(url) for url in network.urls]
    seen = watch(clients[0], receiver, place.place)
    clients[0].create_source(place.place, f"{place.source}?prefetch=100", id="kept")
    pairs: Counter[tuple[str, str]] = Counter()

    def states() -> list[str]:
        """What each dispatcher says of the source; "" if it does not answer."""
        found = []
        for client, process in zip(clients, network.dispatchers, strict=True):
            try:
                found.append(client.source("kept").state if process.alive() else "")
            except ClientError:
                found.append("")
        pairs[found[0], found[1]] += 1
        return found

    def runner() -> int | None:
        found = states()
        return found.index("running") if sorted(found) == ["elsewhere", "running"] else None

    first: Any = until("one dispatcher to run it", lambda: [] if runner() is None else [runner()])[0]

    def publish() -> None:
        for part in range(PARTS):
            place.publish(numbered(PART, start=part * PART))

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        until("some events", lambda: len(seen()) > 3 * PART)
        network.dispatchers[first].kill()
        killed_after = len(seen())
        until("the other to run it", lambda: states()[1 - first] == "running", seconds=60)
    finally:
        publisher.join()
    until("all events", lambda: len({id for id, _ in seen()}) == PART * PARTS, seconds=120)
    assert killed_after < PART * PARTS, "it was killed too late to show anything"

    # Every message is one event: a POST that was repeated has the same webhook-id.
    for pair, hooks in receiver.webhook_ids().items():
        assert len(hooks) == 1, pair
    events = {event for _, event in receiver.webhook_ids()}
    assert {f"m{n}" for n in range(PART * PARTS)} <= events
    assert {n for _, n in seen()} == set(range(PART * PARTS))

    # The one that returns leaves the source where it is.
    network.dispatchers[first].start()
    network.dispatchers[first].await_ready()
    until("both to agree", lambda: runner() == 1 - first, seconds=60)
    place.publish(numbered(5, start=PART * PARTS))
    until("the last events", lambda: (f"m{PART * PARTS + 4}", PART * PARTS + 4) in seen())
    assert pairs["running", "running"] == 0, pairs
    print(f"killed after {killed_after} of {PART * PARTS} events; states {dict(pairs)}")
    for client in clients:
        client.close()


def test_no_table_has_the_password_of_a_broker_in_clear(
    network: Network, nats_server: Broker, postgres: Cluster
) -> None:
    place = new_probe(nats_server)
    secret = "s3cret-of-the-tables"
    with Client(network.urls[0]) as client:
        client.create_topic(place.place, {"n": "integer"})
        for kind, url in (("sink", place.sink), ("source", place.source)):
            given = url.replace("://", f"://ann:{secret}-{kind}@")
            if kind == "sink":
                client.subscribe(place.place, url=given, id=place.place)
            else:
                client.create_source(place.place, given, id=place.place)
        client.publish(place.place, {"n": 1})
        until("an attempt", lambda: client.attempts(place.place))
    searched = 0
    with psycopg.connect(postgres.url) as connection:
        tables = connection.execute(
            "SELECT table_schema, table_name FROM information_schema.tables "
            "WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        for table in tables:
            for (row,) in connection.execute(
                sql.SQL("SELECT one::text FROM {} AS one").format(sql.Identifier(*table))
            ):
                searched += 1
                # Binary columns are written as hexadecimal digits.
                assert secret not in row, table
                assert secret.encode().hex() not in row, table
    assert searched > 10, tables
