"""A network on TLS, of real processes: https, mutual certificates, and a renewal while publishers work."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import trustme
from cryptography import x509
from websockets.sync.client import connect

from edn.client import Client, UnreachableError
from tests.network import Engine, Hook, Network, Process, until
from tests.network.processes import free_port

TOPIC = "quotes"
AUTHORITY = trustme.CA()


class Files:
    """The certificate of the processes, and the one of a client."""

    def __init__(self, folder: Path) -> None:
        self.ca, self.cert, self.key = (folder / name for name in ("ca.pem", "cert.pem", "key.pem"))
        self.client_cert, self.client_key = folder / "client.pem", folder / "client-key.pem"
        AUTHORITY.cert_pem.write_to_path(self.ca)
        self.renew()
        self._write(AUTHORITY.issue_cert("client"), self.client_cert, self.client_key)

    @staticmethod
    def _write(made: trustme.LeafCert, cert: Path, key: Path) -> None:
        key.touch(mode=0o600)
        key.write_bytes(made.private_key_pem.bytes())
        cert.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))

    def renew(self) -> int:
        """Replace the processes' certificate, the key first; return the serial number."""
        self._write(AUTHORITY.issue_cert("127.0.0.1", "localhost"), self.cert, self.key)
        return x509.load_pem_x509_certificate(self.cert.read_bytes()).serial_number

    @property
    def options(self) -> list[str]:
        return ["--tls-cert", str(self.cert), "--tls-key", str(self.key), "--tls-ca", str(self.ca)]

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.client_cert, self.client_key)
        return context

    def serial(self, url: str) -> int:
        """The serial number of the certificate that a new connection gets."""
        parts = urlsplit(url)
        with contextlib.closing(
            self.context().wrap_socket(
                socket.create_connection((parts.hostname, parts.port)), server_hostname=parts.hostname
            )
        ) as connection:
            presented = connection.getpeercert(binary_form=True)
        assert presented is not None
        return x509.load_der_x509_certificate(presented).serial_number


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def network(engine: Engine, files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    running = engine.network(
        tmp_path_factory.mktemp("network"), 1, tls=files.options, verify=files.context(), locked=True
    )
    try:
        running.start()
        answer = running.http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"n": "integer"}})
        assert answer.status_code == 201, answer.text
        yield running
    except AssertionError:
        print(running.report())
        raise
    finally:
        running.close()


def edn(network: Network, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "EDN_URL": network.url, "EDN_KEY": network.secret, **variables}
    return subprocess.run(
        [sys.executable, "-m", "edn.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )


def publish(network: Network, n: int) -> None:
    answer = network.http.post(f"/v1/topics/{TOPIC}/events", json={"n": n})
    assert answer.status_code == 202, answer.text


def test_events_reach_subscribers_over_https(network: Network, files: Files) -> None:
    assert network.url.startswith("https://")
    server = network.servers["s1"].url
    assert server.startswith("https://")
    with (
        Hook() as hook,
        Client(
            network.url,
            key=network.secret,
            tls_ca=files.ca,
            tls_cert=files.client_cert,
            tls_key=files.client_key,
        ) as client,
    ):
        # At the server's port, which forwards to the dispatcher.
        body = {"id": "hooked", "topic": TOPIC, "sink": {"url": hook.url("/hook")}}
        answer = network.http.post(f"{server}/v1/subscriptions", json=body)
        assert answer.status_code == 201, answer.text
        client.subscribe(TOPIC, id="read")
        publish(network, 1)
        [(_, posted)] = until("a notification", lambda: hook.at("/hook"))
        assert json.loads(posted)["notifications"][0]["event"]["attributes"]["n"] == 1
        # Server-sent events, from the server through the dispatcher.
        assert next(client.stream("read")).event.attributes["n"] == 1
        assert client.health().ready
        for id in ("hooked", "read"):
            client.unsubscribe(id)


def test_a_caller_without_a_certificate_is_refused(network: Network, files: Files) -> None:
    anonymous = ssl.create_default_context(cafile=str(files.ca))
    for url in (network.url, network.servers["s1"].url):
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/livez", verify=anonymous)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url.replace('https:', 'http:')}/livez")
    with Client(network.url, tls_ca=files.ca) as client, pytest.raises(UnreachableError) as caught:
        client.topics()
    assert "client certificate" in str(caught.value)
    assert "give --tls-cert and --tls-key" in str(caught.value)


@pytest.mark.slow
def test_the_command_line_uses_the_files_of_a_context(network: Network, files: Files, tmp_path: Path) -> None:
    config = {"EDN_CONFIG": str(tmp_path)}
    given = [
        "--tls-ca",
        str(files.ca),
        "--tls-cert",
        str(files.client_cert),
        "--tls-key",
        str(files.client_key),
    ]
    made = edn(network, "context", "set", "secure", "--url", network.url, *given, **config)
    assert made.returncode == 0, made.stderr
    status = edn(network, "status", "--json", **config)
    assert status.returncode == 0, status.stderr
    assert network.url in status.stdout
    explicit = edn(network, *given, "topic", "list", EDN_CONFIG=str(tmp_path / "empty"))
    assert explicit.returncode == 0, explicit.stderr
    distrusting = edn(network, "status", EDN_CONFIG=str(tmp_path / "empty"))
    assert distrusting.returncode == 3
    [line] = distrusting.stderr.splitlines()
    assert "its certificate is not accepted" in line
    assert "name its certificate authority with --tls-ca" in line


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_speaks_with_it(network: Network, files: Files) -> None:
    command = ["curl", "-sS", "--cacert", str(files.ca), f"{network.url}/readyz"]
    assert subprocess.run(command, capture_output=True, timeout=30).returncode != 0
    certificate = ["--cert", str(files.client_cert), "--key", str(files.client_key)]
    done = subprocess.run([*command, *certificate], capture_output=True, text=True, timeout=30)
    assert json.loads(done.stdout) == {"status": "ready", "servers": 1}, done.stderr


def test_a_renewal_while_a_publisher_works_fails_no_request(network: Network, files: Files) -> None:
    stop = threading.Event()
    failures: list[object] = []
    counts = {"kept": 0, "fresh": 0}

    def work(kind: str) -> None:
        """Publish over one connection, or over a new one per request."""
        headers = {"authorization": f"Bearer {network.secret}"}
        context = files.context()
        kept = httpx.Client(verify=context, headers=headers, timeout=30)
        while not stop.is_set():
            client = kept if kind == "kept" else httpx.Client(verify=context, headers=headers, timeout=30)
            try:
                answer = client.post(f"{network.url}/v1/topics/{TOPIC}/events", json={"n": 2})
                if answer.status_code != 202:
                    failures.append(answer.text)
                counts[kind] += 1
            except httpx.HTTPError as error:
                failures.append(error)
            if client is not kept:
                client.close()
        kept.close()

    with Hook() as hook:
        body = {"id": "during", "topic": TOPIC, "sink": {"url": hook.url("/during")}}
        assert network.http.post("/v1/subscriptions", json=body).status_code == 201
        workers = [threading.Thread(target=work, args=(kind,)) for kind in counts]
        for worker in workers:
            worker.start()
        urls = [network.url, network.servers["s1"].url]
        try:
            for _ in range(2):
                until("some traffic", lambda: min(counts.values()) > 5)
                renewed = files.renew()
                until(
                    "the renewed certificates",
                    lambda new=renewed: all(files.serial(url) == new for url in urls),
                )
                counts.update(kept=0, fresh=0)
            until("more traffic", lambda: min(counts.values()) > 5)
        finally:
            stop.set()
            for worker in workers:
                worker.join()
        assert failures == []
        seen = len(hook.at("/during"))
        publish(network, 3)
        until("a notification after it", lambda: len(hook.at("/during")) > seen)
        assert network.http.delete("/v1/subscriptions/during").status_code == 204


@pytest.mark.slow
def test_a_server_that_the_dispatcher_does_not_trust_stays_outside(
    network: Network, files: Files, tmp_path: Path
) -> None:
    """An expired certificate, another authority, another name: each is one line in the log."""
    foreign = trustme.CA()
    for name, made, reason in (
        ("foreign", foreign.issue_cert("127.0.0.1"), "one of its --tls-ca?"),
        ("elsewhere", AUTHORITY.issue_cert("other.example"), "IP address mismatch"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        Files._write(made, folder / "cert.pem", folder / "key.pem")
        store = ["--data", str(folder / "data"), "--port", "0", "--host", "127.0.0.1"]
        secret = ["--secret-file", str(network.folder / "secret"), "--dispatcher", network.url]
        tls = [
            "--tls-cert",
            str(folder / "cert.pem"),
            "--tls-key",
            str(folder / "key.pem"),
            "--tls-ca",
            str(files.ca),
        ]
        process = Process(name, ["edn_server", "--id", name, *store, *secret, *tls], folder)
        process.start()
        try:
            process.await_ready()
            where = process if name == "foreign" else network.dispatcher
            until(f"{reason} in the log", lambda where=where, reason=reason: reason in where.tail(200))
            assert network.states().get(name) != "ready"
        finally:
            process.stop()


@pytest.mark.slow
def test_a_server_with_an_expired_certificate_is_named_to_a_client(tmp_path: Path) -> None:
    soon = AUTHORITY.issue_cert("127.0.0.1", not_after=datetime.now(UTC) - timedelta(minutes=1))
    listener = socket.create_server(("127.0.0.1", 0))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    soon.configure_cert(context)

    def accept() -> None:
        connection, _ = listener.accept()
        with contextlib.suppress(ssl.SSLError, OSError):
            context.wrap_socket(connection, server_side=True)

    threading.Thread(target=accept, daemon=True).start()
    AUTHORITY.cert_pem.write_to_path(tmp_path / "ca.pem")
    url = f"https://127.0.0.1:{listener.getsockname()[1]}"
    with Client(url, tls_ca=tmp_path / "ca.pem") as client, pytest.raises(UnreachableError) as caught:
        client.topics()
    assert (
        str(caught.value) == f"cannot reach {url}: its certificate is not accepted: certificate has expired"
    )
    listener.close()


@pytest.mark.slow
def test_edn_up_makes_certificates_and_serves_https(tmp_path: Path) -> None:
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "edn.cli",
        "up",
        "--tls",
        "--json-ready",
        "--with-stdin",
        "--servers",
        "2",
    ]
    command += ["--port", str(port), "--data", str(tmp_path / "data")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    try:
        ready = json.loads(process.stdout.readline())
        assert ready["url"] == f"https://127.0.0.1:{port}"
        context = ssl.create_default_context(cafile=ready["tls_ca"])
        with httpx.Client(base_url=ready["url"], verify=context) as http, Hook() as hook:
            http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"n": "integer"}}).raise_for_status()
            sink = {"topic": TOPIC, "sink": {"url": hook.url("/hook")}}
            http.post("/v1/subscriptions", json=sink).raise_for_status()
            http.post(f"/v1/topics/{TOPIC}/events", json={"n": 1}).raise_for_status()
            until("a notification", lambda: hook.at("/hook"))
            # A WebSocket: another protocol takes over the connection.
            http.post("/v1/subscriptions", json={"topic": TOPIC, "id": "read"}).raise_for_status()
            address = f"wss://127.0.0.1:{port}/v1/subscriptions/read/events"
            with connect(address, ssl=context, open_timeout=30, proxy=None) as messages:
                http.post(f"/v1/topics/{TOPIC}/events", json={"n": 2}).raise_for_status()
                assert json.loads(messages.recv(30))["data"]["event"]["attributes"] == {"n": 2}
            page = http.get("/", headers={"host": f"localhost:{port}"})
            assert page.status_code == 200
            assert "http://" not in page.text.replace("http://www.w3.org", "")
            # Clients need no certificate, the network's own paths do, at the dispatcher and at the servers.
            secret = (tmp_path / "data" / "secret").read_text().strip()
            headers = {"authorization": f"Bearer {secret}"}
            for url in (ready["url"], ready["servers"][0]["url"]):
                for path in ("/internal/stats", "/%69nternal/stats", "/internal/secrets?x"):
                    refused = http.get(f"{url}{path}", headers=headers)
                    assert (refused.status_code, refused.json()["title"]) == (403, "Forbidden"), refused.text
    finally:
        process.stdin.close()
        assert process.wait(60) == 0
        process.stdout.close()
        assert process.stderr
        process.stderr.close()
