"""Headers, credentials, timeouts and retries of a sink's settings, at a real receiver."""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from deliverykit import EVENT, Receiver, asking, eventually, notifying, receiving, settings
from serverkit import Kit, activate, item

from edn.errors import CorruptMessage
from edn.formats import sink_settings
from edn.formats.sink_settings import (
    ApiKey,
    Basic,
    Bearer,
    Certificate,
    Credentials,
    Exponential,
    OAuth2,
    Retry,
    SinkSettings,
)
from edn_server.policies import RetryPolicy
from edn_server.sinks.base import Message
from edn_server.sinks.http import HttpSink
from edn_server.sinks.oauth import TokenAnswer, TokenFailed, Tokens
from edn_server.sinks.profile import Limiter, compile_profile
from edn_server.storage import versions
from edn_server.subscriptions.store import bind_filters


def with_credentials(credentials: Credentials | None, **given: Any) -> tuple[SinkSettings, dict[str, str]]:
    if credentials is None:
        return SinkSettings(**given).with_id(b""), {}
    text = sink_settings.encode_credentials(credentials)
    sink = SinkSettings(credentials=sink_settings.type_of(credentials), **given).with_id(text.encode())
    return sink, {sink.id: text}


def subscribe(kit: Kit, url: str, credentials: Credentials | None = None, rows: int = 1, **given: Any) -> str:
    sink, secrets = with_credentials(credentials, **given)
    kit.store(item("s", url=url, settings=sink), credentials=secrets)
    kit.frame(0, 1, activate(1, ("s", 1)))
    for row in range(rows):
        kit.frame(1 + row, 2 + row, events=[(2 + row, EVENT)])
    return f"/+{sink.id}/{url}"


STATIC: list[tuple[Credentials | None, dict[str, str]]] = [
    (None, {}),
    (Bearer("t0ken"), {"authorization": "Bearer t0ken"}),
    (Basic("ann", "pä:ss"), {"authorization": "Basic " + base64.b64encode("ann:pä:ss".encode()).decode()}),
    (ApiKey("X-Api-Key", "k y"), {"x-api-key": "k y"}),
]


@pytest.mark.parametrize(("credentials", "expected"), STATIC, ids=lambda one: type(one).__name__)
def test_headers_and_static_credentials_are_sent_with_every_post(
    kit: Kit, credentials: Credentials | None, expected: dict[str, str]
) -> None:
    async def main() -> None:
        async with receiving() as receiver:
            url = receiver.url("/")
            subscribe(kit, url, credentials, rows=3, headers={"x-environment": "test"})
            kit.reopen()  # they survive a restart
            async with notifying(kit) as notifier:
                await receiver.until(lambda: len(receiver.posts) == 3)
                await notifier.idle()
                # One more on the idle connection, which the fast path uses.
                applied = kit.frame(4, 5, events=[(5, EVENT)])
                notifier.announce(applied.rows, applied.addresses)
                await receiver.until(lambda: len(receiver.posts) == 4)
                await notifier.idle()
            for post in receiver.posts:
                assert post.headers["x-environment"] == "test"
                assert post.headers["webhook-id"]
                assert {name: post.headers[name] for name in expected} == expected

    asyncio.run(main())


def test_credentials_are_sealed_on_disk(kit: Kit, tmp_path: Path) -> None:
    subscribe(kit, "http://127.0.0.1:9/", Basic("ann", "a very secret password"))
    for file in (tmp_path / "data").iterdir():
        assert b"a very secret password" not in file.read_bytes()
    [stored] = versions.sinks(kit.db)
    assert stored.credentials is not None
    assert "a very secret password" in stored.credentials
    assert "secret" not in repr(stored)


def test_a_store_request_without_the_credentials_is_refused(kit: Kit) -> None:
    sink, _ = with_credentials(Bearer("x"))
    with pytest.raises(CorruptMessage, match="credentials"):
        kit.store(item("s", settings=sink))


def test_settings_that_nobody_uses_are_forgotten_at_the_start(kit: Kit) -> None:
    sink, secrets = with_credentials(Bearer("x"))
    kit.store(item("s", settings=sink), credentials=secrets)
    versions.end(kit.db, [0], 0)
    kit.db.execute("DELETE FROM versions")
    assert versions.sinks(kit.db) == []


def test_subscriptions_share_a_post_only_with_equal_settings(kit: Kit) -> None:
    one, two = (SinkSettings(headers={"x": value}).with_id(b"") for value in "ab")

    async def main() -> None:
        async with receiving() as receiver:
            url = receiver.url("/")
            kit.store(
                item("a", url=url, settings=one),
                item("b", url=url, settings=one),
                item("c", url=url, settings=two),
                item("d", url=url),
            )
            kit.frame(0, 1, activate(1, ("a", 1), ("b", 1), ("c", 1), ("d", 1)))
            kit.frame(1, 2, events=[(2, EVENT)])
            async with notifying(kit) as notifier:
                await receiver.until(lambda: len(receiver.posts) == 3)
                await notifier.idle()
            names = {
                post.headers.get("x"): [
                    one["subscription"] for one in post.body["notifications"][0]["matches"]
                ]
                for post in receiver.posts
            }
            assert names == {"a": ["a", "b"], "b": ["c"], None: ["d"]}

    asyncio.run(main())


def test_a_timeout_of_its_own_ends_an_attempt(kit: Kit) -> None:
    async def main() -> None:
        async with receiving() as receiver:
            receiver.held["/"] = asyncio.Event()
            subscribe(kit, receiver.url("/"), timeout=0.1)
            async with asking(kit) as (_, evidence):
                await receiver.until(lambda: len(receiver.posts) == 1)
                await eventually(lambda: bool(evidence.notifier.counters.failed))
                [first, *_] = await evidence.attempts("s")
                assert "within 0.1 s" in first["reason"]
                receiver.held["/"].set()

    asyncio.run(main())


def test_a_permanent_status_is_dead_at_once_and_others_go_on(kit: Kit) -> None:
    async def main() -> None:
        async with receiving() as receiver:
            receiver.answers["/"] = ["404 No\r\n"]
            subscribe(kit, receiver.url("/"), rows=3, retry=Retry(permanent=(404,)))
            async with asking(kit, retries=RetryPolicy(steps=(600.0,))) as (notifier, evidence):
                await receiver.until(lambda: len(receiver.posts) == 3)
                await notifier.idle()
                page, _ = await evidence.letters("s", None, 10)
                assert [one["attempts"] for one in page] == [1]

    asyncio.run(main())


def test_a_schedule_of_its_own_replaces_the_servers(kit: Kit) -> None:
    async def main() -> None:
        async with receiving() as receiver:
            receiver.answers["/"] = ["500 No\r\n"] * 2
            subscribe(kit, receiver.url("/"), retry=Retry(schedule=(0.1,), give_up=60.0))
            async with notifying(kit, retries=RetryPolicy(steps=(600.0,))) as notifier:
                await receiver.until(lambda: len(receiver.posts) == 3)
                await notifier.idle()

    asyncio.run(main())


def test_the_rate_of_an_ordered_address_is_kept(kit: Kit) -> None:
    async def main() -> None:
        async with receiving() as receiver:
            subscribe(kit, receiver.url("/"), rows=10, rate=20.0)
            loop = asyncio.get_running_loop()
            began = loop.time()
            async with notifying(kit) as notifier:
                await receiver.until(lambda: len(receiver.posts) == 10)
                await notifier.idle()
            assert loop.time() - began >= (10 - 3) / 20.0
            assert notifier.counters.failed == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Exponential(1, 2, 10), (1, 2, 4, 8, 10)),
        (Exponential(5, 1, 10), (5,)),
        (Exponential(3, 10, 3), (3,)),
        (Exponential(1, 1.5, 2), (1, 1.5, 2)),
    ],
)
def test_exponential_delays_end_with_the_longest(given: Exponential, expected: tuple[float, ...]) -> None:
    assert given.steps() == expected


def test_slow_growth_has_a_bounded_number_of_steps() -> None:
    steps = Exponential(0.1, 1.0001, 86_400).steps()
    assert len(steps) <= sink_settings.MAX_STEPS


def test_a_limiter_permits_its_rate_over_any_time() -> None:
    now = 0.0
    limiter = Limiter(10.0, lambda: now)
    taken = 0
    for _ in range(1000):
        if not limiter.take():
            taken += 1
        now += 0.01
    assert 100 <= taken <= 101


# -- OAuth 2 --------------------------------------------------------------------------------------------


@dataclass
class Endpoint:
    """A token endpoint that answers from a list, then with numbered tokens."""

    answers: list[bytes] = field(default_factory=list)
    expires_in: float = 3600.0
    asked: list[tuple[dict[str, str], dict[str, list[str]]]] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                _, *lines = head.decode().strip().split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
                body = await reader.readexactly(int(headers["content-length"]))
                self.asked.append((headers, parse_qs(body.decode())))
                answer = self.answers.pop(0) if self.answers else b""
                if not answer:
                    token = {"access_token": f"t{len(self.asked)}", "token_type": "bearer"}
                    answer = b"200 OK|" + json.dumps({**token, "expires_in": self.expires_in}).encode()
                status, _, content = answer.partition(b"|")
                writer.write(b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(content), content))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def issuing() -> AsyncIterator[Endpoint]:
    endpoint = Endpoint()
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0)
    endpoint.port = server.sockets[0].getsockname()[1]
    try:
        yield endpoint
    finally:
        server.close()


def client(endpoint: Endpoint, **given: Any) -> OAuth2:
    return OAuth2(f"http://127.0.0.1:{endpoint.port}/token", "id:1", "s&cret", **given)


def tokens_of(receiver: Receiver) -> list[str | None]:
    return [post.headers.get("authorization") for post in receiver.posts]


def test_a_token_is_fetched_once_and_again_before_it_expires(kit: Kit) -> None:
    async def main() -> None:
        async with receiving() as receiver, issuing() as endpoint:
            subscribe(kit, receiver.url("/"), client(endpoint, scope="a b", audience="hooks"), rows=5)
            async with notifying(kit) as notifier:
                await receiver.until(lambda: len(receiver.posts) == 5)
                await notifier.idle()
            assert tokens_of(receiver) == ["Bearer t1"] * 5
            [(headers, form)] = endpoint.asked
            pair = base64.b64decode(headers["authorization"].removeprefix("Basic ")).decode()
            assert pair == "id%3A1:s%26cret"
            assert form == {"grant_type": ["client_credentials"], "scope": ["a b"], "audience": ["hooks"]}

    asyncio.run(main())


def test_a_client_may_identify_itself_in_the_body(kit: Kit) -> None:
    async def main() -> None:
        async with receiving() as receiver, issuing() as endpoint:
            subscribe(kit, receiver.url("/"), client(endpoint, authentication="body"))
            async with notifying(kit) as notifier:
                await receiver.until(lambda: len(receiver.posts) == 1)
                await notifier.idle()
            [(headers, form)] = endpoint.asked
            assert "authorization" not in headers
            assert form["client_secret"] == ["s&cret"]

    asyncio.run(main())


def test_a_refused_token_is_fetched_anew_once(kit: Kit) -> None:
    async def main() -> None:
        async with receiving() as receiver, issuing() as endpoint:
            subscribe(kit, receiver.url("/"), client(endpoint), rows=2)
            async with notifying(kit) as notifier:
                await receiver.until(lambda: len(receiver.posts) == 2)
                await notifier.idle()
                receiver.answers["/"] = ["401 No\r\n"]  # by the fast path, on an idle connection
                applied = kit.frame(3, 4, events=[(4, EVENT)])
                notifier.announce(applied.rows, applied.addresses)
                await receiver.until(lambda: len(receiver.posts) == 4)
                await notifier.idle()
                assert tokens_of(receiver) == ["Bearer t1"] * 3 + ["Bearer t2"]
                assert notifier.counters.failed == 0
                assert receiver.posts[2].headers["webhook-id"] == receiver.posts[3].headers["webhook-id"]

    asyncio.run(main())


def test_a_sink_that_refuses_every_token_fails_and_asks_once_an_attempt(kit: Kit) -> None:
    async def main() -> None:
        async with receiving() as receiver, issuing() as endpoint:
            receiver.answers["/"] = ["401 No\r\n"] * 3
            subscribe(kit, receiver.url("/"), client(endpoint))
            async with notifying(kit, retries=RetryPolicy(steps=(0.01,))) as notifier:
                await receiver.until(lambda: len(receiver.posts) == 4)
                await notifier.idle()
                assert notifier.counters.failed == 3
            assert tokens_of(receiver) == [f"Bearer t{n}" for n in range(1, 5)]

    asyncio.run(main())


GARBAGE = [
    (b"500 No|oops", "answered 500"),
    (b"200 OK|not json", "must answer a JSON object"),
    (b"200 OK|{}", "access_token"),
    (b'200 OK|{"access_token": 5}', "access_token"),
    (b'200 OK|{"access_token": ""}', "access_token"),
    (b'200 OK|{"access_token": "a\\r\\nx-evil: 1"}', "access_token"),
    (b'200 OK|{"access_token": "t", "token_type": "mac"}', "token_type must be Bearer"),
    (b'401 No|{"error": "invalid_client"}', "answered 401"),
    (b"302 Found|", "answered 302"),
]


@pytest.mark.parametrize(("answer", "reason"), GARBAGE, ids=[reason for _, reason in GARBAGE])
def test_a_failing_token_endpoint_fails_the_attempt_and_says_so(kit: Kit, answer: bytes, reason: str) -> None:
    async def main() -> None:
        async with receiving() as receiver, issuing() as endpoint:
            endpoint.answers = [answer]
            subscribe(kit, receiver.url("/"), client(endpoint))
            kit.store(item("other", url=receiver.url("/other")))
            kit.frame(2, 3, activate(3, ("other", 1)))
            kit.frame(3, 4, events=[(4, EVENT)])
            async with asking(kit, retries=RetryPolicy(steps=(0.3,))) as (notifier, evidence):
                # The other address does not wait for it.
                await receiver.until(lambda: len(receiver.at("/other")) == 1)
                await receiver.until(lambda: len(receiver.at("/")) == 2)
                await notifier.idle()
                failed = (await evidence.attempts("s"))[-1]
                assert failed["outcome"] == "again"
                assert failed["status"] is None
                assert failed["reason"].startswith("no token: ")
                assert reason in failed["reason"]
                assert "s&cret" not in failed["reason"]

    asyncio.run(main())


def test_a_token_endpoint_passes_the_policy_of_sinks() -> None:
    async def main() -> None:
        sink = HttpSink(settings(allow_loopback_sinks=False))
        text = sink_settings.encode_credentials(OAuth2("https://127.0.0.1/token", "a", "b"))
        profile = compile_profile(SinkSettings(credentials="oauth2").with_id(b""), text, RetryPolicy())
        answer = await sink.send(Message("https://8.8.8.8/", "msg_1", 0, b"{}", profile=profile))
        await sink.close()
        assert answer.status is None
        assert "--allow-loopback-sinks" in (answer.reason or "")

    asyncio.run(main())


def test_concurrent_deliveries_wait_for_one_token_and_a_failure_is_not_cached() -> None:
    now, asked = 0.0, 0

    async def post(*_: Any) -> TokenAnswer:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        if asked == 1:
            return TokenAnswer(503, b"")
        return TokenAnswer(200, b'{"access_token": "t%d", "expires_in": 100}' % asked)

    async def main() -> None:
        nonlocal now
        tokens, identity = Tokens(post, lambda: now), OAuth2("https://x/", "a", "b")
        results = await asyncio.gather(
            *(tokens.get("id", identity, "") for _ in range(10)), return_exceptions=True
        )
        assert asked == 1
        assert all(isinstance(one, TokenFailed) for one in results)
        assert set(await asyncio.gather(*(tokens.get("id", identity, "") for _ in range(10)))) == {"t2"}
        now = 79.0
        assert await tokens.get("id", identity, "") == "t2"
        now = 80.0  # a fifth of its life before it expires
        assert await tokens.get("id", identity, "") == "t3"
        tokens.discard("id", "t2")  # an older one: the newer stays
        assert tokens.cached("id") == "t3"

    asyncio.run(main())


def test_missing_or_broken_credentials_fail_the_attempt() -> None:
    async def main() -> None:
        sink = HttpSink(settings())
        for text in (None, "{}", '{"type": "unknown"}'):
            profile = compile_profile(SinkSettings(credentials="bearer").with_id(b""), text, RetryPolicy())
            answer = await sink.send(Message("http://127.0.0.1:9/", "msg_1", 0, b"{}", profile=profile))
            assert "cannot be read" in (answer.reason or "")
        await sink.close()

    asyncio.run(main())


# -- client certificates --------------------------------------------------------------------------------


def issue(name: str, issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None) -> tuple[Any, Any]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer[0].subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    )
    return builder.sign(key if issuer is None else issuer[1], hashes.SHA256()), key


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    ca = issue("test authority", None)
    folder = tmp_path_factory.mktemp("tls")
    (folder / "ca.pem").write_text(pem(ca[0]))
    certificate, key = issue("localhost", ca)
    (folder / "server.pem").write_text(pem(certificate) + key_pem(key))
    return folder, ca


@contextmanager
def accepting(
    context: ssl.SSLContext, serve: Callable[[ssl.SSLSocket], None] = lambda _: None
) -> Iterator[int]:
    """A TLS server in threads, on the port that is yielded.

    Its sockets are closed when the context ends. A server in the test's event loop would leave connections
    whose end it has not seen yet to the garbage collector, which warns of them.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    threads = []

    def handle(connection: socket.socket) -> None:
        with suppress(OSError), connection, context.wrap_socket(connection, server_side=True) as secured:
            serve(secured)

    def accept() -> None:
        with suppress(OSError):  # of `shutdown`
            while True:
                threads.append(threading.Thread(target=handle, args=listener.accept()[:1]))
                threads[-1].start()

    threads.append(threading.Thread(target=accept))
    threads[0].start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(30)
        listener.close()


def test_a_client_certificate_is_presented_and_its_connections_are_its_own(
    kit: Kit, authority: tuple[Path, Any]
) -> None:
    folder, ca = authority
    mine = issue("subscriber one", ca)
    seen: list[str | None] = []

    def serve(connection: ssl.SSLSocket) -> None:
        peer: Any = connection.getpeercert()
        with connection.makefile("rb") as requests:
            while requests.readline():
                headers = dict(line.lower().split(b":", 1) for line in iter(requests.readline, b"\r\n"))
                requests.read(int(headers[b"content-length"]))
                seen.append(dict(one for [one] in peer["subject"])["commonName"] if peer else None)
                connection.sendall(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n")

    async def main(port: int) -> None:
        url = f"https://localhost:{port}/"
        given = Certificate(pem(mine[0]), key_pem(mine[1]))
        sink, secrets = with_credentials(given)
        kit.store(item("a", url=url, settings=sink), item("b", url=url), credentials=secrets)
        kit.frame(0, 1, activate(1, ("a", 1), ("b", 1)))
        for row in range(3):
            kit.frame(1 + row, 2 + row, events=[(2 + row, EVENT)])
        async with notifying(kit, sink_ca_file=folder / "ca.pem") as notifier:
            await eventually(lambda: len(seen) == 6)
            await notifier.idle()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "server.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    with accepting(context, serve) as port:
        asyncio.run(main(port))
    assert sorted(map(str, seen)) == ["None"] * 3 + ["subscriber one"] * 3


def test_a_sink_with_an_unknown_authority_is_refused_without_the_setting(
    kit: Kit, authority: tuple[Path, Any]
) -> None:
    folder, _ = authority

    async def main(port: int) -> None:
        sink = HttpSink(settings())
        answer = await sink.send(Message(f"https://localhost:{port}/", "msg_1", 0, b"{}"))
        await sink.close()
        assert "certificate verify failed" in (answer.reason or "")

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem")
    with accepting(context) as port:
        asyncio.run(main(port))


def test_settings_must_be_readable(kit: Kit) -> None:
    from serverkit import LOG, topic

    from edn import protocol

    broken = protocol.StoreItem("s", 1, "", "o", None, "http://127.0.0.1:9/", None, None, settings="{")
    with pytest.raises(CorruptMessage):
        bind_filters(protocol.Store(LOG, 1, topic(), [broken]))
