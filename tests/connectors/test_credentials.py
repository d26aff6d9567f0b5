"""Brokers that require a user, a token or a certificate, and where the credentials of a sink are stored."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nats
import pytest
import trustme

from edn.brokers.link import Link
from edn.brokers.messages import BrokerFailed, Outgoing
from edn.brokers.opening import open_publisher
from edn.formats.broker_url import parse, with_credentials
from edn.formats.sink_settings import Certificate
from tests.brokers import Broker, Mosquitto, Nats, RabbitMQ, program, running
from tests.network import Network, until
from tests.network.processes import free_port

SERVERS = 1
SERVER_OPTIONS = ["--retry-steps", "0.2"]
USER = "ann"
#: with characters that a URL must escape
PASSWORD = "s3cr:t/Pa@ss w\u00f6rd"
TOKEN = "t0ken-of-nats-4711"


@pytest.fixture(scope="module")
def locked_mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    file = tmp_path_factory.mktemp("mosquitto") / "passwords"
    tool = program("mosquitto_passwd", "bin")
    if tool is None or Mosquitto.find() is None:
        with running(Mosquitto):  # skips, or fails in CI
            raise AssertionError("mosquitto_passwd is not installed")
    subprocess.run([tool, "-b", "-c", str(file), USER, PASSWORD], check=True, capture_output=True)
    file.chmod(0o600)
    with running(Mosquitto, ["allow_anonymous false", f"password_file {file}"]) as broker:
        yield broker


@pytest.fixture(scope="module")
def locked_nats() -> Iterator[Broker]:
    with running(Nats, ["--user", USER, "--pass", PASSWORD]) as broker:
        yield broker


@pytest.fixture(scope="module")
def token_nats() -> Iterator[Broker]:
    with running(Nats, ["--auth", TOKEN]) as broker:
        yield broker


def userinfo(text: str = f"{quote(USER)}:{quote(PASSWORD, safe='')}") -> str:
    return f"{text}@"


def subscribe(network: Network, topic: str, sink: dict[str, Any]) -> dict[str, Any]:
    network.http.put(f"/v1/topics/{topic}", json={"attributes": {"n": "integer"}}).raise_for_status()
    answer = network.http.post("/v1/subscriptions", json={"topic": topic, "id": topic, "sink": sink})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()["sink"]
    return found


def outcomes(network: Network, topic: str) -> list[tuple[str, str]]:
    found = network.http.get(f"/v1/subscriptions/{topic}/attempts").json()["attempts"]
    return [(one["outcome"], one["reason"] or "") for one in found]


def publish(network: Network, topic: str) -> None:
    network.http.post(f"/v1/topics/{topic}/events", json={"n": 1}).raise_for_status()


def delivered(network: Network, topic: str) -> None:
    """Publish an event and wait until the broker has confirmed it."""
    before = len(outcomes(network, topic))
    publish(network, topic)
    found = until("an attempt", lambda: outcomes(network, topic)[: -before or None])
    assert {one for one, _ in found} == {"delivered"}, found


def new_stream(broker: Broker, **login: str) -> str:
    """A stream of NATS; its name is also its subject."""
    name = f"p{secrets.token_hex(4)}"

    async def work() -> None:
        client = await nats.connect(broker.url(), **login)
        await client.jetstream().add_stream(name=name, subjects=[name])
        await client.close()

    asyncio.run(work())
    return name


def assert_nowhere(folder: Path, *texts: str) -> None:
    """No file below the folder contains one of the texts, as they are or as URLs write them."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"dispatcher.db", "server.db"} <= {path.name for path in files}
    for path in files:
        content = path.read_bytes()
        for text in texts:
            for form in (text, quote(text), quote(text, safe="")):
                assert form.encode() not in content, (path, form)


def test_a_password_in_the_url_is_delivered_with_and_is_in_no_file(
    network: Network, locked_mosquitto: Broker, locked_nats: Broker, token_nats: Broker, tmp_path: Path
) -> None:
    login = {"user": USER, "password": PASSWORD}
    cases = [
        (locked_mosquitto, f"p{secrets.token_hex(4)}", userinfo(), "basic"),
        (locked_nats, new_stream(locked_nats, **login), userinfo(), "basic"),
        (token_nats, new_stream(token_nats, token=TOKEN), userinfo(TOKEN), "bearer"),
    ]
    for broker, place, given, kind in cases:
        for format in ("json", "cloudevents-structured"):
            topic = f"{place}-{format}"
            shown = subscribe(network, topic, {"url": broker.url(place, given), "format": format})
            assert (shown["url"], shown["credentials"]) == (broker.url(place), {"type": kind})
            delivered(network, topic)
        # The shown sink, sent back, keeps the credentials; a repeated request is recognised.
        sink = {"url": shown["url"], "credentials": shown["credentials"], "rate": 50}
        changed = network.http.put(f"/v1/subscriptions/{topic}", json={"sink": sink})
        assert changed.status_code == 200, changed.text
        delivered(network, topic)
        # Without credentials the broker refuses it, and the reason is shown.
        sink = {"url": shown["url"]}
        assert network.http.put(f"/v1/subscriptions/{topic}", json={"sink": sink}).status_code == 200
        publish(network, topic)
        refused = until("a refusal", lambda topic=topic: [r for _, r in outcomes(network, topic) if r])
        assert "refused the credentials" in refused[0]
        for other in (topic, f"{place}-json"):
            answer = network.http.get(f"/v1/subscriptions/{other}").text
            assert not any(secret in answer for secret in (TOKEN, "s3cr"))
        found = network.http.get("/v1/subscriptions", params={"search": given[:9]}).json()
        assert found["subscriptions"] == []
    command = [sys.executable, "-m", "edn.cli", "export", str(tmp_path / "all.jsonl"), "--url", network.url]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert "s3cr" not in (tmp_path / "all.jsonl").read_text()
    assert_nowhere(network.folder, PASSWORD, TOKEN)


def test_the_same_request_again_is_the_same_subscription(network: Network, locked_nats: Broker) -> None:
    topic = f"p{secrets.token_hex(4)}"
    url = locked_nats.url(topic, userinfo())
    subscribe(network, topic, {"url": url})
    body: dict[str, Any] = {"topic": topic, "id": topic, "sink": {"url": url}}
    assert network.http.post("/v1/subscriptions", json=body).status_code == 200
    body["sink"] = {
        "url": locked_nats.url(topic),
        "credentials": {"type": "basic", "user": USER, "password": PASSWORD},
    }
    assert network.http.post("/v1/subscriptions", json=body).status_code == 200
    body["sink"]["url"] = locked_nats.url(topic, userinfo("ann:other"))
    del body["sink"]["credentials"]
    assert network.http.post("/v1/subscriptions", json=body).status_code == 409


REFUSED = [
    ("nats://a:b@127.0.0.1/s", {"type": "basic", "user": "a", "password": "b"}, "together with sink.credent"),
    ("nats://127.0.0.1/s", {"type": "api_key", "header": "x", "value": "y"}, "basic, bearer or certificate"),
    ("amqp://127.0.0.1/?queue=q", {"type": "bearer", "token": "y"}, "basic or certificate, got bearer"),
    ("mqtt://127.0.0.1/s", {"type": "certificate", "certificate": "x", "key": "y"}, "an mqtts:// sink"),
]


@pytest.mark.parametrize(("url", "credentials", "reason"), REFUSED, ids=[one[2] for one in REFUSED])
def test_credentials_that_a_broker_cannot_use_are_refused(
    network: Network, url: str, credentials: dict[str, str], reason: str
) -> None:
    network.http.put("/v1/topics/bad", json={"attributes": {"n": "integer"}}).raise_for_status()
    sink = {"url": url, "credentials": credentials}
    answer = network.http.post("/v1/subscriptions", json={"topic": "bad", "sink": sink})
    assert answer.status_code == 422
    assert reason in answer.json()["detail"]


# -- TLS and client certificates ------------------------------------------------------------------------


class Authority:
    """An authority with a certificate of broker.example.org, and one of the client `ann`."""

    def __init__(self, folder: Path) -> None:
        self._made = trustme.CA()
        leaf = self._made.issue_cert("broker.example.org")
        self.ca, self.cert, self.key = (folder / name for name in ("ca", "cert", "key"))
        self._made.cert_pem.write_to_path(self.ca)
        leaf.private_key_pem.write_to_path(self.key)
        self.cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))

    def client(self, name: str) -> Certificate:
        made = self._made.issue_cert(name, common_name=name)
        chain = b"".join(blob.bytes() for blob in made.cert_chain_pems).decode()
        return Certificate(chain, made.private_key_pem.bytes().decode())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


async def on_this_machine(host: str) -> Sequence[str]:
    return ["127.0.0.1"]


def send(authority: Authority, url: str, certificate: Certificate | None) -> str:
    """Publish one message; return the reason if it fails."""

    async def work() -> str:
        link = Link(on_this_machine, allow_loopback=True, ca_file=authority.ca)
        parsed = parse(url, "sink")
        if certificate is not None:
            parsed = with_credentials(parsed, certificate)
        try:
            publisher = await open_publisher(link, parsed)
            try:
                await publisher.publish(parsed, Outgoing("i", b"{}", "application/json", 0), 5)
            finally:
                await publisher.close()
        except BrokerFailed as failure:
            return failure.reason
        return ""

    return asyncio.run(work())


def mosquitto_with_certificates(authority: Authority, folder: Path) -> list[str]:
    (folder / "acl").write_text("user ann\ntopic readwrite #\n")
    (folder / "acl").chmod(0o600)
    return [
        f"certfile {authority.cert}", f"keyfile {authority.key}", f"cafile {authority.ca}",
        "require_certificate true", "use_identity_as_username true", f"acl_file {folder / 'acl'}",
    ]  # fmt: skip


def nats_with_certificates(authority: Authority, folder: Path) -> list[str]:
    config = folder / "nats.conf"
    # NATS maps a name in the certificate.
    config.write_text(
        f'tls {{ cert_file: "{authority.cert}", key_file: "{authority.key}", ca_file: "{authority.ca}", '
        "verify_and_map: true }\n"
        "authorization { users = [ { user: ann } ] }\n"
    )
    return ["-c", str(config)]


@pytest.mark.parametrize(
    ("kind", "options", "path"),
    [(Mosquitto, mosquitto_with_certificates, "t"), (Nats, nats_with_certificates, "s")],
)
def test_a_client_certificate_is_the_identity_at_the_broker(
    authority: Authority,
    kind: type[Broker],
    options: Callable[[Authority, Path], list[str]],
    path: str,
    tmp_path: Path,
) -> None:
    with running(kind, options(authority, tmp_path)) as broker:
        scheme = {"mqtt": "mqtts", "nats": "tls"}[broker.scheme]
        url = f"{scheme}://broker.example.org:{broker.port}/{path}"
        accepted = send(authority, url, authority.client("ann"))
        # This stream does not exist, but the broker has accepted the connection and the publish.
        assert accepted in ("", 'no stream of the broker stores the subject "s"')
        assert send(authority, url, authority.client("eve"))
        assert send(authority, url, None)


class RabbitWithCertificates(RabbitMQ):
    plugins = ("rabbitmq_auth_mechanism_ssl",)


@pytest.fixture(scope="module")
def secured_rabbit(authority: Authority) -> Iterator[tuple[Broker, int]]:
    """RabbitMQ with TLS for a user, or for a client certificate (EXTERNAL); with its port for TLS."""
    port = free_port()
    options = [
        f"listeners.ssl.1 = 127.0.0.1:{port}",
        f"ssl_options.cacertfile = {authority.ca}",
        f"ssl_options.certfile = {authority.cert}",
        f"ssl_options.keyfile = {authority.key}",
        "ssl_options.verify = verify_peer",
        "ssl_options.fail_if_no_peer_cert = false",
        "auth_mechanisms.1 = PLAIN",
        "auth_mechanisms.2 = EXTERNAL",
        "ssl_cert_login_from = common_name",
        f"default_user = {USER}",
        "default_pass = secret-of-rabbit",
    ]
    with running(RabbitWithCertificates, options) as broker:
        yield broker, port


@pytest.mark.slow
def test_rabbitmq_over_tls_knows_a_user_by_password_or_by_certificate(
    authority: Authority, secured_rabbit: tuple[Broker, int]
) -> None:
    _, port = secured_rabbit

    def url(user: str = "", host: str = "broker.example.org") -> str:
        return f"amqps://{user}{host}:{port}/%2F?queue=none&mandatory=false"

    assert send(authority, url("ann:secret-of-rabbit@"), None) == ""
    assert send(authority, url(), authority.client("ann")) == ""
    assert "refused the credentials" in send(authority, url("ann:wrong@"), None)
    assert "refused the credentials" in send(authority, url(), None)  # guest does not exist
    assert "refused the credentials" in send(authority, url(), authority.client("eve"))
    # The certificate of the broker must be that of the name, of a trusted authority.
    assert "certificate verify failed" in send(authority, url("ann:secret-of-rabbit@", "127.0.0.1"), None)
