"""No address makes a server call its own neighbours: whatever is tried, no connection is begun."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from edn.errors import InvalidSink
from edn.http import sink_policy
from edn.http.sink_policy import check_url
from edn_server.config import Settings
from edn_server.sinks.base import Answer, Message
from edn_server.sinks.http import HttpSink
from edn_server.sinks.resolver import Resolver

#: hosts that lead to this machine, its network or its cloud's metadata
LITERALS = [
    # loopback and "this host", in every way of writing
    "127.0.0.1", "127.1", "127.0.1", "127.255.255.254", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1",
    "017700000001", "0", "0.0.0.0", "0x0", "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "localhost", "LOCALHOST.",
    "a.localhost", "ip6-localhost",
    # the cloud's metadata
    "169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "[fe80::1]",
    "[fd00:ec2::254]",
    # private networks
    "10.0.0.1", "10.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "198.18.0.1", "192.0.0.8", "[fc00::1]",
    "[fec0::1]",
    # IPv4 inside IPv6
    "[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "[::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b::7f00:1]",
    "[64:ff9b:1::7f00:1]", "[2002:a9fe:a9fe::]", "[2002:7f00:1::]", "[2001:0:a9fe:a9fe::1]",
    "[2001:db8::5efe:a9fe:a9fe]", "[2606:4700::5efe:7f00:1]",
    # nobody's, and everybody's
    "224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.51.100.1", "203.0.113.1", "192.88.99.1",
    "[ff02::1]", "[2001:db8::1]", "[100::1]",
]  # fmt: skip
#: what a name may resolve to: one forbidden address among them is enough
ANSWERS = [
    ["127.0.0.1"],
    ["169.254.169.254"],
    ["10.0.0.1"],
    ["::1"],
    ["fe80::1%eth0"],
    ["64:ff9b::a9fe:a9fe"],
    ["8.8.8.8", "127.0.0.1"],
    ["8.8.8.8", "2606:4700:4700::1111", "192.168.1.1"],
    ["0.0.0.0"],
    ["::ffff:169.254.169.254"],
]

Tried = list[tuple[Any, Any]]


#: what an operator may allow, and what that opens; nothing else of the tables above
ALLOWED = ("172.20.0.0/16", "fd12:3456::/32")
OPENED = [
    "172.20.0.1", "172.20.1", "0xac140001", "2886991873", "0254.024.0.1", "[::ffff:172.20.0.1]",
    "[fd12:3456::1]", "[fd12:3456:ffff::]",
]  # fmt: skip
#: beside it, or inside a form that leads elsewhere
CLOSED = [
    "172.19.255.255", "172.21.0.0", "[::172.20.0.1]", "[64:ff9b::ac14:1]", "[2002:ac14:1::]",
    "[2001:0:ac14:1::1]", "[fd12:3455:ffff::1]", "[fd12:3457::1]", "[fd11:3456::5efe:ac14:1]",
]  # fmt: skip


def settings(*, allow_loopback_sinks: bool, networks: tuple[str, ...] = ()) -> Settings:
    return Settings(
        id="s1",
        data=Path("/nowhere"),
        dispatcher=("http://127.0.0.1:1",),
        secret="a secret of the tests",
        allow_loopback_sinks=allow_loopback_sinks,
        allow_sink_networks=networks,
    )


def attempt(
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    resolve: Callable[[str], list[str]] | None = None,
    networks: tuple[str, ...] = (),
) -> tuple[Answer, Tried]:
    """One delivery, as it would be if the address had been taken; the connections that it began."""
    tried: Tried = []

    async def run() -> Answer:
        async def create_connection(_: Any, host: Any, port: Any, **__: Any) -> None:
            tried.append((host, port))
            raise OSError("not in a test")

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", create_connection, raising=False)

        async def lookup(name: str) -> tuple[list[str], float]:
            assert resolve is not None
            return resolve(name), 0.0

        resolver = Resolver(lookup=lookup)
        sink = HttpSink(settings(allow_loopback_sinks=False, networks=networks), resolver)
        try:
            return await sink.send(Message(url, "msg_1", 0, b"{}"))
        finally:
            await sink.close()
            await resolver.close()

    return asyncio.run(run()), tried


def test_the_table_is_long_enough() -> None:
    assert len(set(LITERALS)) + len(ANSWERS) >= 60


@pytest.mark.parametrize("scheme", ["https", "http"])
@pytest.mark.parametrize("host", LITERALS)
def test_no_literal_is_taken_and_none_is_connected_to(
    monkeypatch: pytest.MonkeyPatch, host: str, scheme: str
) -> None:
    url = f"{scheme}://{host}:8080/latest/meta-data/"
    with pytest.raises(InvalidSink):
        check_url(url)

    def resolve(name: str) -> list[str]:
        # As the system would: names of this machine are this machine.
        return ["127.0.0.1"]

    answer, tried = attempt(monkeypatch, url, resolve)
    assert answer.status is None
    assert tried == []


@pytest.mark.parametrize("addresses", ANSWERS, ids=",".join)
def test_no_name_leads_to_one(monkeypatch: pytest.MonkeyPatch, addresses: list[str]) -> None:
    def resolve(name: str) -> list[str]:
        return addresses

    answer, tried = attempt(monkeypatch, "https://innocent.example/hook", resolve)
    assert answer.status is None
    assert tried == []


NETWORKS = tuple(map(sink_policy.parse_network, ALLOWED))


@pytest.mark.parametrize("scheme", ["https", "http"])
@pytest.mark.parametrize("host", [*LITERALS, *CLOSED])
def test_an_allowed_network_opens_no_other_address(
    monkeypatch: pytest.MonkeyPatch, host: str, scheme: str
) -> None:
    url = f"{scheme}://{host}:8080/latest/meta-data/"
    with pytest.raises(InvalidSink):
        check_url(url, networks=NETWORKS)
    answer, tried = attempt(monkeypatch, url, lambda _: ["127.0.0.1"], ALLOWED)
    assert answer.status is None
    assert tried == []


@pytest.mark.parametrize("scheme", ["https", "http"])
@pytest.mark.parametrize("host", OPENED)
def test_an_address_in_an_allowed_network_is_called(
    monkeypatch: pytest.MonkeyPatch, host: str, scheme: str
) -> None:
    url = f"{scheme}://{host}:8080/hook"
    with pytest.raises(InvalidSink):
        check_url(url)
    check_url(url, networks=NETWORKS)
    check_url(f"cloudevents:?mode=binary&to={quote(url, safe='')}", networks=NETWORKS)
    answer, tried = attempt(monkeypatch, url, networks=ALLOWED)
    assert "not in a test" in (answer.reason or "")
    assert len(tried) == 1


@pytest.mark.parametrize(
    ("scheme", "addresses", "called"),
    [
        ("https", ["172.20.3.4"], True),
        ("http", ["172.20.3.4"], True),
        ("http", ["fd12:3456::9", "172.20.3.4"], True),
        ("https", ["172.20.3.4", "8.8.8.8"], True),
        # plain http leaves the network
        ("http", ["172.20.3.4", "8.8.8.8"], False),
        ("http", ["8.8.8.8"], False),
        ("https", ["172.20.3.4", "10.0.0.1"], False),
        ("http", ["172.20.3.4", "169.254.169.254"], False),
        ("https", ["172.20.3.4", "127.0.0.1"], False),
    ],
)
def test_a_name_must_lead_into_the_allowed_network(
    monkeypatch: pytest.MonkeyPatch, scheme: str, addresses: list[str], called: bool
) -> None:
    url = f"{scheme}://svc.internal/hook"
    check_url(url, networks=NETWORKS)
    answer, tried = attempt(monkeypatch, url, lambda _: addresses, ALLOWED)
    assert answer.status is None
    assert bool(tried) is called
    if not called:
        assert "svc.internal" in (answer.reason or "")


def test_a_name_that_leaves_the_allowed_network_is_refused_at_the_next_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([["172.20.3.4"], ["169.254.169.254"], ["172.20.3.4"]])
    tried = []
    for _ in range(3):
        _, called = attempt(monkeypatch, "http://svc.internal/", lambda _: next(answers), ALLOWED)
        tried.append([host for host, _ in called])
    assert tried == [["172.20.3.4"], [], ["172.20.3.4"]]


@given(address=st.ip_addresses(), network=st.ip_addresses(), length=st.integers(1, 128))
def test_a_network_opens_its_addresses_and_nothing_else(
    address: IPv4Address | IPv6Address, network: IPv4Address | IPv6Address, length: int
) -> None:
    bits = network.max_prefixlen
    given = ip_network((network, min(length, bits)), strict=False)
    kind = sink_policy.refusal(address)
    allowed = sink_policy.refusal(address, networks=[given])
    # an oracle by arithmetic, not by the module under test
    inside = address.version == given.version and (
        int(address) >> (bits - given.prefixlen) == int(given.network_address) >> (bits - given.prefixlen)
    )
    mapped = address.version == 6 and int(address) >> 32 == 0xFFFF
    if not inside and not mapped:
        assert allowed == kind
    elif inside and not mapped and not (address.is_multicast or address.is_unspecified):
        assert allowed is None


def test_a_network_in_the_loopback_range_opens_its_names() -> None:
    loopback = [sink_policy.parse_network("127.0.0.0/8")]
    check_url("http://localhost:8000/", networks=loopback)
    check_url("https://127.0.0.1/", networks=loopback)
    with pytest.raises(InvalidSink):
        check_url("https://[::1]/", networks=loopback)


@pytest.mark.parametrize(
    "text", ["10.0.0.1/8", "10.0.0.0/33", "nonsense", "0.0.0.0/0", "::/0", "10.0.0.0/8 172.16.0.0/12", "10"]
)
def test_a_wrong_network_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(ValidationError, match=r"must be networks such as 10\.0\.0\.0/8"):
        settings(allow_loopback_sinks=False, networks=(text,))


def test_a_cached_answer_is_checked_at_every_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cached answer is judged like a new one: the policy is asked at each attempt."""
    checked: list[str] = []
    refusal = sink_policy.refusal

    def check(address: Any, **options: Any) -> str | None:
        checked.append(str(address))
        return refusal(address, **options)

    monkeypatch.setattr(sink_policy, "refusal", check)

    async def run() -> list[Answer]:
        asked: list[str] = []

        async def lookup(name: str) -> tuple[list[str], float]:
            asked.append(name)
            return ["169.254.169.254"], 3600.0

        resolver = Resolver(lookup=lookup)
        sink = HttpSink(settings(allow_loopback_sinks=False), resolver)
        answers = [
            await sink.send(Message("https://innocent.example/hook", "msg_1", 0, b"{}")) for _ in range(3)
        ]
        await sink.close()
        await resolver.close()
        assert asked == ["innocent.example"]
        return answers

    assert [answer.status for answer in asyncio.run(run())] == [None] * 3
    assert checked == ["169.254.169.254"] * 3


def test_a_name_that_changes_its_mind_is_asked_once_and_the_checked_address_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DNS rebinding: public when it is checked, this machine when it is connected to."""
    asked: list[str] = []

    def resolve(name: str) -> list[str]:
        asked.append(name)
        address = "8.8.8.8" if len(asked) == 1 else "127.0.0.1"
        return [address]

    answer, tried = attempt(monkeypatch, "https://rebinding.example/hook", resolve)
    assert answer.status is None
    assert asked == ["rebinding.example"]
    assert tried == [("8.8.8.8", 443)]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_the_metadata_is_not_followed(status: int) -> None:
    calls: list[bytes] = []

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(
            b"HTTP/1.1 %d Found\r\nlocation: http://169.254.169.254/latest/\r\ncontent-length: 0\r\n\r\n"
            % status
        )
        await writer.drain()
        writer.close()

    async def run() -> tuple[Answer, list[str]]:
        server = await asyncio.start_server(redirect, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        create: Callable[..., Awaitable[Any]] = loop.create_connection
        tried: list[str] = []

        async def create_connection(factory: Any, host: str, *more: Any, **given: Any) -> Any:
            tried.append(host)
            return await create(factory, host, *more, **given)

        loop.create_connection = create_connection  # type: ignore[assignment, method-assign]  # to watch it
        sink = HttpSink(settings(allow_loopback_sinks=True))
        try:
            return await sink.send(Message(f"http://127.0.0.1:{port}/", "msg_1", 0, b"{}")), tried
        finally:
            await sink.close()
            server.close()
            await server.wait_closed()

    answer, tried = asyncio.run(run())
    assert answer.status == status
    assert len(calls) == 1
    assert tried == ["127.0.0.1"]
