"""The lean HTTP client against a server that misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from edn.http.client import HttpClient, HttpConnection, header_lines, parse_url
from edn.http.exchange import ExchangeFailed, HttpAnswer, Limits

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def ok(body: bytes, extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n%s" % (len(body), extra, body)


async def request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return head, await reader.readexactly(length)


#: as the dispatcher calls servers
WHOLE = Limits(read=1 << 26, returned=1 << 26, is_strict=True)
HEADERS = header_lines([("authorization", "Bearer the secret"), ("content-type", "text/plain")])


async def post(
    client: HttpClient, url: str, body: bytes, *, seconds: float = 5.0, repeat: bool = True
) -> tuple[int, bytes]:
    answer = await client.request("POST", f"{url}/x", body, HEADERS, seconds=seconds, repeat=repeat)
    return answer.status, answer.body


def against(
    handler: Handler, work: Callable[[HttpClient, str], Awaitable[None]], *, limits: Limits = WHOLE
) -> None:
    """Call with a client and the address of a server."""

    async def at(url: str) -> None:
        client = HttpClient(limits, connect_seconds=3.0)
        try:
            await work(client, url)
        finally:
            client.close()

    serving(handler, at)


def serving(handler: Handler, work: Callable[[str], Awaitable[None]]) -> None:
    """Call with the address of a server."""

    async def main() -> None:
        async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await handler(reader, writer)
            except asyncio.IncompleteReadError:
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(served, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            await work(f"http://127.0.0.1:{port}/base")
        finally:
            server.close()
            await server.wait_closed()

    asyncio.run(main())


def test_requests_share_a_connection_and_carry_their_headers() -> None:
    connections = 0

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            head, body = await request(reader)
            assert head.startswith(b"POST /base/x HTTP/1.1\r\n")
            assert b"authorization: Bearer the secret\r\n" in head
            writer.write(ok(body[::-1]))

    async def work(client: HttpClient, url: str) -> None:
        for body in (b"abc", b"", b"x" * 100_000):
            assert await post(client, url, body) == (200, body[::-1])

    against(echo, work)
    assert connections == 1


@pytest.mark.parametrize("extra", [b"", b"Connection: close\r\n"])
def test_a_connection_that_was_closed_between_requests_is_opened_again(extra: bytes) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, body = await request(reader)
        writer.write(ok(body, extra))

    async def work(client: HttpClient, url: str) -> None:
        for body in (b"one", b"two", b"three"):
            assert await post(client, url, body) == (200, body)

    against(once, work)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "closed before the answer was complete"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "closed before the answer was complete"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "no valid content-length, status 200"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n", "no valid content-length"),
        (b"nonsense\r\n\r\n", "."),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, "."),
    ],
)
def test_an_answer_that_is_none_is_an_error(answer: bytes, says: str) -> None:
    async def bad(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(answer)

    async def work(client: HttpClient, url: str) -> None:
        with pytest.raises(ExchangeFailed, match=says):
            await post(client, url, b"body")

    against(bad, work)


def test_a_server_that_never_answers_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def work(client: HttpClient, url: str) -> None:
        with pytest.raises(ExchangeFailed, match=r"no complete answer within 0\.1 s"):
            await post(client, url, b"body", seconds=0.1)

    against(silent, work)


def test_nobody_listening_is_an_error_and_not_a_hang() -> None:
    async def main() -> None:
        with pytest.raises(ExchangeFailed):
            await post(HttpClient(WHOLE, connect_seconds=3.0), "http://127.0.0.1:9", b"")

    asyncio.run(main())


def test_a_request_that_was_given_up_leaves_no_answer_for_the_next_one() -> None:
    async def slow_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            _, body = await request(reader)
            if body == b"slow":
                await asyncio.sleep(0.2)
            writer.write(ok(body))

    async def work(client: HttpClient, url: str) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await post(client, url, b"slow")
        assert await post(client, url, b"next") == (200, b"next")

    against(slow_once, work)


def test_requests_at_the_same_time_have_a_connection_each_and_later_ones_use_those() -> None:
    connections = 0
    all_there = asyncio.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == 3:
            all_there.set()
        while True:
            _, body = await request(reader)
            await all_there.wait()
            writer.write(ok(body[::-1]))

    async def work(client: HttpClient, url: str) -> None:
        for _ in range(2):
            bodies = [b"abc", b"", b"x" * 100_000]
            answers = await asyncio.gather(*(post(client, url, body, repeat=False) for body in bodies))
            assert answers == [(200, body[::-1]) for body in bodies]

    against(echo, work)
    assert connections == 3


def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, body = await request(reader)
        writer.write(ok(body))

    async def work(client: HttpClient, url: str) -> None:
        for body in (b"one", b"two", b"three"):
            assert await post(client, url, body, repeat=False) == (200, body)
            await asyncio.sleep(0.05)  # its end arrives

    against(once, work)


def test_a_request_that_must_not_be_repeated_is_sent_once() -> None:
    got: list[bytes] = []

    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            _, body = await request(reader)
            got.append(body)
            if body == b"breaks":
                return
            writer.write(ok(body))

    async def work(client: HttpClient, url: str) -> None:
        assert await post(client, url, b"kept", repeat=False) == (200, b"kept")
        with pytest.raises(ExchangeFailed):
            await post(client, url, b"breaks", repeat=False)
        assert await post(client, url, b"goes on", repeat=False) == (200, b"goes on")

    against(breaks, work)
    assert got == [b"kept", b"breaks", b"goes on"]


class _ResetTransport:
    """uvloop's transport of a connection that was reset while it was idle."""

    def is_closing(self) -> bool:
        return False

    def writelines(self, _: object) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    def abort(self) -> None:
        pass


def test_an_idle_connection_that_was_reset_is_replaced() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, body = await request(reader)
        writer.write(ok(body))

    async def work(client: HttpClient, url: str) -> None:
        stale = HttpConnection(WHOLE)
        stale.connection_made(_ResetTransport())  # type: ignore[arg-type]  # a stand-in
        stale._is_reusable = True
        client._put_back(stale, parse_url(url).origin)
        assert await post(client, url, b"ok") == (200, b"ok")

    against(once, work)


def test_a_kept_connection_that_is_silent_until_the_deadline_is_not_tried_again() -> None:
    requests = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        while True:
            _, body = await request(reader)
            requests += 1
            if requests == 1:
                writer.write(ok(body))

    async def work(client: HttpClient, url: str) -> None:
        assert await post(client, url, b"one") == (200, b"one")
        with pytest.raises(ExchangeFailed, match="no complete answer"):
            await post(client, url, b"two", seconds=0.1)

    against(once, work)
    assert requests == 2


def test_a_longer_answer_is_cut_off_and_costs_its_connection() -> None:
    connections = 0

    async def long(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            _, body = await request(reader)
            writer.write(ok(body))

    async def work(client: HttpClient, url: str) -> None:
        for size in (100, 1000, 1001, 10):
            assert await post(client, url, b"y" * size) == (200, b"y" * min(size, 50))

    against(long, work, limits=Limits(read=1000, returned=50))
    assert connections == 2


def test_a_second_answer_changes_nothing_and_costs_the_connection() -> None:
    connections = 0

    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            _, body = await request(reader)
            writer.write(ok(body, b"x: 1\r\n") + ok(b"another", b"x: 2\r\ny: 2\r\n"))

    async def work(client: HttpClient, url: str) -> None:
        for body in (b"one", b"two"):
            answer = await client.request("POST", url, body, HEADERS, seconds=5.0)
            assert (answer.body, answer.headers) == (body, {b"content-length": b"3", b"x": b"1"})

    against(twice, work)
    assert connections == 2


def test_connections_go_to_the_resolved_address_and_keep_the_host_header() -> None:
    hosts: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, body = await request(reader)
            hosts.append(head.split(b"host: ")[1].split(b"\r\n")[0])
            writer.write(ok(body))

    async def work(client: HttpClient, url: str) -> None:
        async def resolve(host: str) -> list[str]:
            assert host == "sink.test"
            return ["127.0.0.2", "127.0.0.1"]  # nobody listens at the first

        named = url.replace("127.0.0.1", "sink.test")
        answer = await client.request("POST", named, b"hi", HEADERS, seconds=5.0, resolve=resolve)
        assert answer.body == b"hi"
        assert hosts == [parse_url(named).host.encode()]

    against(echo, work)


def test_no_more_idle_connections_are_kept_than_allowed() -> None:
    everybody = asyncio.Event()
    connections = 0

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == 5:
            everybody.set()
        while True:
            _, body = await request(reader)
            await everybody.wait()
            writer.write(ok(body))

    async def at(url: str) -> None:
        client = HttpClient(WHOLE, connect_seconds=3.0, most_idle=2)
        await asyncio.gather(*(post(client, url, b"x") for _ in range(5)))
        assert len(client._idle) == 2
        assert [len(idle) for idle in client._by_origin.values()] == [2]
        client.close()

    serving(echo, at)


@pytest.mark.parametrize(
    ("url", "origin", "host", "path"),
    [
        ("http://a", ("http", "a", 80), "a", "/"),
        ("https://A.b/x?y=1", ("https", "a.b", 443), "A.b", "/x?y=1"),
        ("http://[::1]:8080/p/", ("http", "::1", 8080), "[::1]:8080", "/p/"),
    ],
)
def test_a_url_has_an_origin_a_host_header_and_a_path(
    url: str, origin: tuple[str, str, int], host: str, path: str
) -> None:
    assert parse_url(url) == (origin, host, path)


@pytest.mark.parametrize(
    "url", ["", "ftp://a/", "http:///x", "http://a:99999/", "http://a b/", "http://a/\r\n"]
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError):
        parse_url(url)


# -- requests without a task --------------------------------------------------------------------------------


async def begun(client: HttpClient, url: str, *, seconds: float = 5.0) -> HttpAnswer | Exception | None:
    """Begin a request; returns its end, or None if there is no idle connection."""
    ended: asyncio.Future[HttpAnswer | Exception] = asyncio.get_running_loop().create_future()
    if not client.begin("POST", url, b"at once", HEADERS, seconds=seconds, on_end=ended.set_result):
        return None
    return await asyncio.wait_for(ended, 10)


def test_a_request_begins_at_once_on_an_idle_connection_only() -> None:
    connections = 0

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            _, body = await request(reader)
            writer.write(ok(body))

    async def work(client: HttpClient, url: str) -> None:
        assert await begun(client, url) is None
        assert await post(client, url, b"one") == (200, b"one")
        for _ in range(3):
            answer = await begun(client, url)
            assert isinstance(answer, HttpAnswer)
            assert (answer.status, answer.body) == (200, b"at once")
        assert await post(client, url, b"two") == (200, b"two")
        assert connections == 1

    against(echo, work)


def test_a_request_that_began_at_once_ends_once_whatever_the_server_does() -> None:
    ends = {
        b"": "was closed before the answer",
        b"garbage\r\n\r\n": "not HTTP",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf": "was closed before the answer",
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nwhole trailing": "",
    }
    for sent, reason in ends.items():

        async def serve(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes = sent
        ) -> None:
            await request(reader)
            writer.write(ok(b"first"))
            await request(reader)
            writer.write(sent)

        async def work(client: HttpClient, url: str, sent: bytes = sent, reason: str = reason) -> None:
            await post(client, url, b"one")
            result = await begun(client, url)
            if reason:
                assert isinstance(result, ExchangeFailed)
                assert reason in str(result)
                assert result.is_unanswered is (not sent)
            else:
                assert isinstance(result, HttpAnswer)
                assert result.body == b"whol"
            assert await begun(client, url) is None  # the connection is not used again

        against(serve, work)


def test_a_request_that_began_at_once_times_out_although_an_earlier_timer_was_longer() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(ok(b"first"))
        await request(reader)
        await reader.read()

    async def work(client: HttpClient, url: str) -> None:
        await post(client, url, b"one", seconds=60.0)
        result = await begun(client, url, seconds=0.05)
        assert isinstance(result, ExchangeFailed)
        assert "within 0.05 s" in str(result)

    against(serve, work)


def test_closing_the_client_ends_requests_that_began_at_once() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(ok(b"first"))
        await reader.read()

    async def work(client: HttpClient, url: str) -> None:
        await post(client, url, b"one")
        waiting = asyncio.create_task(begun(client, url))
        await asyncio.sleep(0)
        client.close()
        assert isinstance(await waiting, ExchangeFailed)

    against(serve, work)
