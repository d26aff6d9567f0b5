"""HTTP/2 to a third-party server, and to servers that offer it and break it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest
import trustme
from hypercorn.asyncio import serve
from hypercorn.config import Config

from edn.http import http2
from edn.http.client import HttpClient, header_lines
from edn.http.exchange import ExchangeFailed, HttpAnswer, Limits

HEADERS = header_lines([("content-type", "text/plain"), ("Webhook-Id", "msg_1")])
LIMITS = Limits(read=100_000, returned=50_000)

authority = trustme.CA()
certificate = authority.issue_cert("localhost")


def client(limits: Limits = LIMITS) -> HttpClient:
    contexts = [ssl.create_default_context() for _ in range(2)]
    for context in contexts:
        authority.configure_trust(context)
    return HttpClient(limits, connect_seconds=3.0, tls=contexts[0], http2=contexts[1])


class App:
    """An ASGI application that echoes, and records what it was sent."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[bytes, bytes]]] = []
        self.clients: set[Any] = set()
        self.together = self.most = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.requests.append((scope["http_version"], dict(scope["headers"])))
        self.clients.add(tuple(scope["client"]))
        self.together += 1
        self.most = max(self.most, self.together)
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        await self.gate.wait()
        self.together -= 1
        if scope["path"] == "/long":
            body = b"x" * 200_000
        status = 410 if scope["path"] == "/gone" else 200
        await send({"type": "http.response.start", "status": status, "headers": [(b"x-path", b"1")]})
        await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def hypercorn(app: App, alpn: list[str], port: int) -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        certificate.cert_chain_pems[0].write_to_path(f"{folder}/chain")
        certificate.private_key_pem.write_to_path(f"{folder}/key")
        async with _hypercorn(app, alpn, port, folder) as url:
            yield url


@asynccontextmanager
async def _hypercorn(app: App, alpn: list[str], port: int, folder: str) -> AsyncIterator[str]:
    config = Config()
    config.certfile, config.keyfile = f"{folder}/chain", f"{folder}/key"
    config.bind = [f"127.0.0.1:{port}"]
    config.alpn_protocols = alpn
    config.loglevel = "CRITICAL"
    stop = asyncio.Event()
    task = asyncio.create_task(serve(app, config, shutdown_trigger=stop.wait))  # type: ignore[arg-type]
    try:
        for _ in range(200):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                break
        yield f"https://localhost:{port}"
    finally:
        stop.set()
        await asyncio.wait([task], timeout=5)


def server_context(alpn: list[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(alpn)
    certificate.configure_cert(context)
    return context


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def post(sender: HttpClient, url: str, body: bytes = b"body", seconds: float = 5.0) -> HttpAnswer:
    return await sender.request("POST", url, body, HEADERS, seconds=seconds)


@pytest.mark.parametrize(("alpn", "version"), [(["h2", "http/1.1"], "2"), (["http/1.1"], "1.1")])
def test_a_host_gets_the_version_that_it_offers(alpn: list[str], version: str) -> None:
    async def main() -> None:
        app, sender = App(), client()
        async with hypercorn(app, alpn, free_port()) as url:
            for path, status in (("/a?b=c", 200), ("/gone", 410)):
                answer = await post(sender, url + path)
                assert (answer.status, answer.body) == (status, b"body")
                assert answer.headers[b"x-path"] == b"1"
            assert [one for one, _ in app.requests] == [version] * 2
            assert app.requests[0][1][b"webhook-id"] == b"msg_1"
            assert len(app.clients) == 1
            sender.close()

    asyncio.run(main())


def test_many_requests_share_one_connection_and_large_bodies_arrive() -> None:
    async def main() -> None:
        app, sender = App(), client()
        async with hypercorn(app, ["h2"], free_port()) as url:
            await post(sender, url)
            app.gate.clear()
            bodies = [bytes([65 + number]) * 3000 * number for number in range(1, 16)]
            posts = [asyncio.create_task(post(sender, url, body)) for body in bodies]
            for _ in range(1000):
                if app.most < len(bodies):
                    await asyncio.sleep(0.005)
            assert app.most == len(bodies)
            app.gate.set()
            answers = await asyncio.gather(*posts)
            assert [answer.body for answer in answers] == bodies
            assert len(app.clients) == 1
            # beyond the windows of flow control, which begin with 65,535 bytes
            large = await post(sender, url, b"y" * 300_000)
            assert (large.status, len(large.body)) == (200, LIMITS.returned)
            long = await post(sender, url + "/long")
            assert (long.status, len(long.body)) == (200, LIMITS.returned)
            assert (await post(sender, url)).body == b"body"  # the other streams are unharmed
            sender.close()

    asyncio.run(main())


def test_a_request_begins_at_once_on_a_shared_connection() -> None:
    async def main() -> None:
        app, sender = App(), client()
        async with hypercorn(app, ["h2"], free_port()) as url:
            ended: asyncio.Future[HttpAnswer | Exception] = asyncio.get_running_loop().create_future()
            assert not sender.begin("POST", url, b"1", HEADERS, seconds=5, on_end=ended.set_result)
            await post(sender, url)
            assert sender.begin("POST", url, b"at once", HEADERS, seconds=5, on_end=ended.set_result)
            answer = await ended
            assert isinstance(answer, HttpAnswer)
            assert answer.body == b"at once"
            sender.close()

    asyncio.run(main())


def test_a_slow_request_times_out_alone_and_a_cancelled_one_harms_nobody() -> None:
    async def main() -> None:
        app, sender = App(), client()
        async with hypercorn(app, ["h2"], free_port()) as url:
            await post(sender, url)
            app.gate.clear()
            slow = asyncio.create_task(post(sender, url, seconds=0.1))
            patient = asyncio.create_task(post(sender, url))
            cancelled = asyncio.create_task(post(sender, url))
            await asyncio.sleep(0.02)
            cancelled.cancel()
            with pytest.raises(ExchangeFailed, match=r"within 0\.1 s"):
                await slow
            app.gate.set()
            assert (await patient).body == b"body"
            assert len(app.clients) == 1
            sender.close()

    asyncio.run(main())


# -- hosts that offer HTTP/2 and break it -----------------------------------------------------------------

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def against(peer: Peer, work: Callable[[HttpClient, str], Awaitable[None]], limits: Limits = LIMITS) -> None:
    async def main() -> None:
        async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await peer(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        context = server_context(["h2", "http/1.1"])
        server = await asyncio.start_server(served, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        sender = client(limits)
        try:
            await work(sender, f"https://localhost:{port}/")
        finally:
            sender.close()
            server.close()

    asyncio.run(main())


async def talking(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    answer: Callable[[h2.connection.H2Connection, int], None],
) -> None:
    """Speak HTTP/2 properly up to the end of each request, then have `answer` act."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    connection.initiate_connection()
    writer.write(connection.data_to_send())
    while data := await reader.read(65536):
        for event in connection.receive_data(data):
            if isinstance(event, h2.events.StreamEnded) and event.stream_id:
                answer(connection, event.stream_id)
        writer.write(connection.data_to_send())


def plain(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nh1")


def is_http2(writer: asyncio.StreamWriter) -> bool:
    return bool(writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2")


def test_a_host_that_breaks_http2_gets_http1() -> None:
    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        if is_http2(writer):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n" * 3)
            await writer.drain()
        else:
            plain(writer)

    async def work(sender: HttpClient, url: str) -> None:
        with pytest.raises(ExchangeFailed, match="not HTTP/2"):
            await post(sender, url)
        assert (await post(sender, url)).body == b"h1"

    against(garbage, work)


def test_a_host_that_floods_with_frames_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "UNUSED_BYTES", 1000)

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        if not is_http2(writer):
            plain(writer)
            return
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.initiate_connection()
        writer.write(connection.data_to_send())
        for _ in range(100_000):
            writer.write(b"\x00\x00\x08\x06\x00\x00\x00\x00\x00" + b"pingping")
            await writer.drain()

    async def work(sender: HttpClient, url: str) -> None:
        with pytest.raises(ExchangeFailed, match="without an answer"):
            await post(sender, url)
        assert (await post(sender, url)).body == b"h1"

    against(flood, work, Limits(read=1000, returned=10))


def test_a_reset_ends_one_request_and_an_early_answer_is_an_answer() -> None:
    async def serve_three(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def answer(connection: h2.connection.H2Connection, stream: int) -> None:
            if stream == 1:
                connection.reset_stream(stream, 2)
            elif stream == 3:
                connection.send_headers(stream, [(":status", "200"), ("a", "b")])
                connection.reset_stream(stream, 0)
            else:
                connection.send_headers(stream, [(":status", "204")], end_stream=True)

        await talking(reader, writer, answer)

    async def work(sender: HttpClient, url: str) -> None:
        with pytest.raises(ExchangeFailed, match="reset the stream: error 2"):
            await post(sender, url)
        assert (await post(sender, url)).status == 200
        assert (await post(sender, url)).status == 204

    against(serve_three, work)


def test_requests_behind_a_goaway_are_repeated_on_a_new_connection() -> None:
    connections = 0

    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1

        def answer(connection: h2.connection.H2Connection, stream: int) -> None:
            if stream == 3:
                connection.close_connection(last_stream_id=1)
            else:
                connection.send_headers(stream, [(":status", "200")], end_stream=True)

        await talking(reader, writer, answer)

    async def work(sender: HttpClient, url: str) -> None:
        for _ in range(4):
            assert (await post(sender, url)).status == 200
        assert connections > 1

    against(leave, work)


def test_a_host_that_says_nothing_costs_the_time_and_the_connection() -> None:
    connections = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while await reader.read(65536):
            pass

    async def work(sender: HttpClient, url: str) -> None:
        for _ in range(2):
            with pytest.raises(ExchangeFailed, match=r"within 0\.1 s"):
                await post(sender, url, seconds=0.1)
        assert connections == 2

    against(silent, work)


def test_a_head_beyond_the_limit_and_a_wrong_status_fail_their_request_only() -> None:
    async def wrong(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def answer(connection: h2.connection.H2Connection, stream: int) -> None:
            status = "999" if stream == 1 else "200"
            connection.send_headers(stream, [(":status", status)], end_stream=True)

        await talking(reader, writer, answer)

    async def work(sender: HttpClient, url: str) -> None:
        with pytest.raises(ExchangeFailed, match="no valid status"):
            await post(sender, url)
        assert (await post(sender, url)).status == 200

    against(wrong, work)
