"""Connections to brokers: certificates, names, the policy for addresses, and what a broker may not do."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import trustme

from edn.brokers.link import Link
from edn.brokers.messages import BrokerFailed, Outgoing
from edn.brokers.opening import open_consumer, open_publisher
from edn.formats import broker_url
from edn.formats.broker_url import parse
from tests.brokers import Broker, Mosquitto, Nats, running
from tests.connectors.probes import probe
from tests.network.processes import free_port


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("authority")
    made = trustme.CA()
    leaf = made.issue_cert("broker.example.org")
    files = {name: folder / name for name in ("ca", "cert", "key")}
    made.cert_pem.write_to_path(files["ca"])
    leaf.private_key_pem.write_to_path(files["key"])
    for place, blob in enumerate(leaf.cert_chain_pems):
        blob.write_to_path(files["cert"], append=place > 0)
    return files


@pytest.fixture(scope="module", params=["nats", "mqtt"])
def secured(request: pytest.FixtureRequest, authority: dict[str, Path]) -> Iterator[Broker]:
    """A broker that accepts TLS only, with a certificate of broker.example.org."""
    cert, key = authority["cert"], authority["key"]
    if request.param == "nats":
        with running(Nats, ["--tls", "--tlscert", str(cert), "--tlskey", str(key)]) as broker:
            yield broker
    else:
        options = [f"certfile {cert}", f"keyfile {key}", "allow_anonymous true"]
        with running(Mosquitto, options) as broker:
            yield broker


async def on_this_machine(host: str) -> Sequence[str]:
    return ["127.0.0.1"]


def attempt(url: str, link: Link) -> str | None:
    """Open a publisher; return the reason if it fails."""

    async def work() -> str | None:
        try:
            publisher = await open_publisher(link, parse(url, "sink"))
        except BrokerFailed as failure:
            return failure.reason
        await publisher.close()
        return None

    return asyncio.run(work())


def url_of(broker: Broker, host: str) -> str:
    scheme = {"nats": "tls", "mqtt": "mqtts"}[broker.scheme]
    return f"{scheme}://{host}:{broker.port}/x"


def test_a_certificate_must_be_that_of_the_name_in_the_url(
    secured: Broker, authority: dict[str, Path]
) -> None:
    link = Link(on_this_machine, allow_loopback=True, ca_file=authority["ca"])
    assert attempt(url_of(secured, "broker.example.org"), link) is None
    for host in ("other.example.org", "127.0.0.1"):
        assert "certificate verify failed" in str(attempt(url_of(secured, host), link)), host
    unknown = Link(on_this_machine, allow_loopback=True)
    assert "certificate verify failed" in str(attempt(url_of(secured, "broker.example.org"), unknown))


def test_a_url_with_tls_refuses_a_server_without_it(nats_server: Broker) -> None:
    reason = attempt(f"tls://127.0.0.1:{nats_server.port}/x", Link(on_this_machine, allow_loopback=True))
    assert reason == "the server does not offer TLS"


@pytest.mark.parametrize("scheme", ["amqp", "mqtt", "nats"])
@pytest.mark.parametrize(
    ("addresses", "reason"),
    [
        (["127.0.0.1"], "must not be a loopback address"),
        (["10.1.2.3"], "must be public"),
        (["93.184.216.34", "169.254.169.254"], "must be public"),
        (["::ffff:10.0.0.1"], "must be public"),
    ],
)
def test_a_name_that_resolves_to_a_forbidden_address_is_not_connected_to(
    scheme: str, addresses: list[str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(host: str) -> Sequence[str]:
        return addresses

    def connect(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was connected to")

    monkeypatch.setattr(asyncio, "open_connection", connect)
    place = "?queue=q" if scheme == "amqp" else "x"
    assert reason in str(attempt(f"{scheme}://broker.example.org/{place}", Link(resolve)))


@pytest.mark.parametrize(
    ("url", "addresses", "reason"),
    [
        ("amqp://broker.example.org/?queue=q", ["10.1.2.3"], None),
        ("amqps://broker.example.org/?queue=q", ["10.1.2.3"], None),
        ("amqp://10.1.2.3/?queue=q", [], None),
        ("amqp://broker.example.org/?queue=q", ["10.2.0.1"], "must be public"),
        ("amqp://broker.example.org/?queue=q", ["93.184.216.34"], "plain amqp is allowed inside"),
        ("amqps://broker.example.org/?queue=q", ["93.184.216.34"], None),
        ("nats://broker.example.org/x", ["10.1.2.3", "169.254.169.254"], "must be public"),
    ],
)
def test_brokers_of_an_allowed_network_may_be_connected_to_in_plain(
    url: str, addresses: list[str], reason: str | None
) -> None:
    async def resolve(host: str) -> Sequence[str]:
        return addresses

    link = Link(resolve, networks=(ipaddress.ip_network("10.1.0.0/16"),))
    parsed = broker_url.parse(url, "source")
    if reason is None:
        assert asyncio.run(link.addresses(parsed)) == (addresses or ["10.1.2.3"])
        return
    with pytest.raises(BrokerFailed, match=reason):
        asyncio.run(link.addresses(parsed))


@pytest.mark.parametrize("scheme", ["amqp", "mqtt", "nats"])
def test_a_port_where_nobody_listens_is_reported_at_once(scheme: str) -> None:
    place = "?queue=q" if scheme == "amqp" else "x"
    url = f"{scheme}://127.0.0.1:{free_port()}/{place}"
    link = Link(on_this_machine, allow_loopback=True)
    assert "refused" in str(attempt(url, link)).lower()


@pytest.mark.parametrize("scheme", ["amqp", "mqtt", "nats"])
def test_a_host_that_speaks_another_protocol_is_reported(scheme: str) -> None:
    async def work() -> str:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        place = "?queue=q" if scheme == "amqp" else "x"
        try:
            await open_publisher(
                Link(on_this_machine, allow_loopback=True),
                parse(f"{scheme}://127.0.0.1:{port}/{place}", "sink"),
            )
        except BrokerFailed as failure:
            return failure.reason
        finally:
            server.close()
        return ""

    assert asyncio.run(work())


def test_a_message_above_the_brokers_limit_is_refused_for_ever(nats_server: Broker) -> None:
    place = probe(nats_server, "large")
    place.prepare()
    url = parse(place.sink, "sink")

    async def work() -> BrokerFailed:
        publisher = await open_publisher(Link(on_this_machine, allow_loopback=True), url)
        try:
            await publisher.publish(url, Outgoing("i", b"x" * (2 << 20), "text/plain", 0), 5)
        except BrokerFailed as failure:
            return failure
        finally:
            await publisher.close()
        raise AssertionError("it was accepted")

    failure = asyncio.run(work())
    assert failure.is_permanent
    assert "must have at most 1048576 bytes" in failure.reason


def test_a_consumer_holds_no_more_than_its_prefetch(mosquitto: Broker) -> None:
    """The broker sends the rest after acknowledgements."""
    place = probe(mosquitto, "held")
    url = parse(f"{place.source}?prefetch=10", "source")

    async def work() -> tuple[int, int]:
        link = Link(on_this_machine, allow_loopback=True)
        consumer = await open_consumer(link, url, "edn-held")
        sink = parse(place.sink, "sink")
        publisher = await open_publisher(link, sink)
        for n in range(25):
            await publisher.publish(sink, Outgoing(f"m{n}", b"{}", "application/json", 0), 5)
        first = await consumer.receive(100, 1)
        while more := await consumer.receive(100, 0.3):
            first += more
        held = len(first)
        await consumer.acknowledge(first)
        while len(first) < 25:
            part = await consumer.receive(100, 2)
            assert part, "the rest did not come"
            first += part
            await consumer.acknowledge(part)
        await publisher.close()
        await consumer.close()
        return held, len(first)

    assert asyncio.run(work()) == (10, 25)
