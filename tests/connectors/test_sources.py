"""Sources over restarts, refusals and wrong settings; `test_connectors` has the short tests."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edn.client import Client
from tests.brokers import Broker, Mosquitto, Nats, running
from tests.connectors.probes import Message, new_probe, numbered, probe, watch
from tests.network import Network, Receiver, until
from tests.network.processes import free_port
from tests.postgres import Cluster

SERVERS = 1
pytestmark = pytest.mark.slow


def test_a_topic_that_is_missing_delays_its_messages_and_loses_none(
    client: Client, receiver: Receiver, nats_server: Broker
) -> None:
    place = new_probe(nats_server)
    client.create_topic(place.place, {"n": "integer"})
    client.create_source(place.place, place.source, id=place.place)
    client.delete_topic(place.place)
    place.publish(numbered(3))
    until("the refusal", lambda: client.source(place.place).state == "refused")
    assert "does not exist" in str(client.source(place.place).last_error)
    seen = watch(client, receiver, place.place)
    until("the events", lambda: len(seen()) == 3)
    assert until("no error", lambda: client.source(place.place)).rejected == 0


def test_an_unreachable_broker_is_reported_and_found_later(
    client: Client, receiver: Receiver, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topic = f"p{secrets.token_hex(4)}"
    seen = watch(client, receiver, topic)
    broker = Nats(tmp_path_factory.mktemp("late"))
    if Nats.find() is None:
        with running(Nats):
            pass
    place = probe(broker, topic)
    client.create_source(topic, place.source, id=topic)
    until("the error", lambda: "refused" in str(client.source(topic).last_error))
    broker.start()
    try:
        until("the missing stream", lambda: "does not exist" in str(client.source(topic).last_error))
        place.prepare()
        place.publish(numbered(2))
        until("the events", lambda: len(seen()) == 2)
    finally:
        broker.close()


def test_wrong_credentials_are_reported_without_the_password(client: Client) -> None:
    topic = f"p{secrets.token_hex(4)}"
    client.create_topic(topic, {"n": "integer"})
    with running(Nats, ["--user", "ann", "--pass", "right"]) as broker:
        shown = client.create_source(topic, broker.url("S", "ann:wr0ng@"), id=topic).url
        assert shown == broker.url("S", "ann:***@")
        until("the error", lambda: client.source(topic).last_error == "the broker refused the credentials")
        listed = client.sources()
        assert "wr0ng" not in repr(listed)
    client.delete_source(topic)


def test_a_source_survives_a_restart_and_its_url_is_sealed(
    network: Network, client: Client, receiver: Receiver, mosquitto: Broker
) -> None:
    place = new_probe(mosquitto)
    seen = watch(client, receiver, place.place)
    client.create_source(place.place, mosquitto.url(place.place, "ann:s3cret-w0rd@"), id=place.place)
    until("the source to run", lambda: client.source(place.place).state == "running")
    place.publish(numbered(5))
    until("the events", lambda: len(seen()) == 5)
    network.dispatcher.kill()
    place.publish(numbered(5, start=5))  # the broker queues them for the session
    network.restart_dispatcher()
    until("the events of the time between", lambda: len(seen()) == 10)
    assert seen() == [(f"m{n}", n) for n in range(10)]
    files = [path.read_bytes() for path in (network.folder / "dispatcher").glob("dispatcher.db*")]
    assert files
    assert not any(b"s3cret-w0rd" in content for content in files)


def test_a_shared_subscription_and_a_filter_are_consumed(
    client: Client, receiver: Receiver, mosquitto: Broker
) -> None:
    topic = f"p{secrets.token_hex(4)}"
    seen = watch(client, receiver, topic)
    for name in ("one", "two"):
        client.create_source(topic, mosquitto.url(f"$share/g/{topic}/+/t"), id=f"{topic}-{name}")
        until("the source to run", lambda: client.source(f"{topic}-{name}").state == "running")  # noqa: B023
    for n in range(10):
        probe(mosquitto, f"{topic}/x{n}/t").publish([Message(b'{"n": %d}' % n)])
    until("the events", lambda: len(seen()) == 10)
    assert sorted(n for _, n in seen()) == list(range(10))


def test_the_command_line_creates_lists_shows_and_deletes_a_source(
    network: Network, client: Client, tmp_path: Path
) -> None:
    client.create_topic("commands", {"n": "integer"})
    secret = tmp_path / "broker"
    secret.write_text(f"mqtt://ann:s3cret@127.0.0.1:{free_port()}/a/#\n")
    secret.chmod(0o600)

    def edn(*arguments: str) -> Any:
        command = [sys.executable, "-m", "edn.cli", "source", *arguments, "--url", network.url, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
        assert done.returncode == 0, done.stderr
        assert "s3cret" not in done.stdout
        return json.loads(done.stdout)

    edn("create", "commands", "--broker-file", str(secret), "--id", "commands")
    assert [one["id"] for one in edn("list") if one["topic"] == "commands"] == ["commands"]
    assert edn("show", "commands")["url"].startswith("mqtt://ann:***@")
    assert edn("delete", "commands") == {"deleted": "commands"}


def test_a_source_of_mosquitto_without_its_library_names_the_extra() -> None:
    """Without aiomqtt the message says what to install."""
    code = (
        "import asyncio, sys\n"
        "sys.modules['aiomqtt'] = None\n"
        "from edn.brokers.link import Link\n"
        "from edn.brokers.messages import BrokerFailed\n"
        "from edn.brokers.opening import open_consumer\n"
        "from edn.formats.broker_url import parse\n"
        "async def resolve(host): return ['127.0.0.1']\n"
        "try:\n"
        "    asyncio.run(open_consumer(Link(resolve), parse('mqtt://x/t', 'source'), 'n'))\n"
        "except BrokerFailed as failure: print(failure.reason)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "the library for mqtt is not installed here: pip install 'edn[mqtt]'"
    assert Mosquitto.scheme == "mqtt"


def test_a_quota_delays_a_source_and_loses_nothing(
    receiver: Receiver, nats_server: Broker, tmp_path: Path
) -> None:
    place = new_probe(nats_server)
    with contextlib.closing(Network(tmp_path, 1, locked=True)) as network:
        network.start()
        with Client(network.url, key=network.secret) as operator:
            key = operator.create_key("slow", ["admin"], quota={"events_per_second": 100}).key
        with Client(network.url, key=key) as client:
            seen = watch(client, receiver, place.place)
            place.publish(numbered(700))
            client.create_source(place.place, f"{place.source}?prefetch=100", id="slow")
            until("a refusal", lambda: client.source("slow").last_error, seconds=60)
            until("all events", lambda: len(seen()) >= 700, seconds=60)
            assert seen() == [(f"m{n}", n) for n in range(700)]
            assert client.source("slow").rejected == 0


def test_a_network_on_postgresql_continues_its_sources(
    receiver: Receiver, nats_server: Broker, postgres: Cluster, tmp_path: Path
) -> None:
    place = new_probe(nats_server)
    options = ["--database", postgres.url, "--database-schema", f"edn_{secrets.token_hex(4)}"]
    database = [*options, "--allow-single-database"]
    with contextlib.closing(Network(tmp_path, 1, database=database)) as network:
        network.start()
        with Client(network.url) as client:
            seen = watch(client, receiver, place.place)
            client.create_source(place.place, place.source, id="kept")
            place.publish(numbered(50))
            until("the first events", lambda: len(seen()) == 50)
            network.dispatcher.kill()
            place.publish(numbered(50, start=50))
            network.restart_dispatcher()
            until("the others", lambda: len(seen()) >= 100, seconds=60)
            assert seen() == [(f"m{n}", n) for n in range(100)]
            client.delete_source("kept")
