"""Which sinks are taken: tables of URLs and of addresses."""

from __future__ import annotations

import ipaddress
from importlib.metadata import EntryPoint

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edn.errors import InvalidSink
from edn.http import sink_policy
from edn.http.sink_policy import address_allowed, check_url

TAKEN = [
    "https://example.com",
    "https://example.com/",
    "https://example.com:8443/hooks?a=b&c=%20",
    "https://EXAMPLE.com./x",
    "https://a_b.example.com/",
    "https://xn--bcher-kva.example/",
    "https://8.8.8.8/x",
    "https://[2606:4700:4700::1111]/x",
    "https://[64:ff9b::808:808]/x",
    "https://134744072/",  # 8.8.8.8 as one number
    "https://example.com:/x",
    "https://example.com/" + "a" * 2000,
]

REFUSED = [
    ("", "must begin with https://"),
    ("example.com/x", "must begin with https://"),
    ("ftp://example.com/", "must begin with https://"),
    ("file:///etc/passwd", "must begin with https://"),
    ("gopher://127.0.0.1/", "must begin with https://"),
    ("https://", "must name a host"),
    ("https:///x", "must name a host"),
    ("https://:443/x", "must name a host"),
    ("http://example.com/", "https://"),
    ("https://user@example.com/", "user name"),
    ("https://user:pass@example.com/", "user name"),
    ("https://@example.com/", "user name"),
    ("https://example.com/#x", "fragment"),
    ("https://example.com/#", "fragment"),
    ("https://example.com:0/", "from 1 to 65535, got 0"),
    ("https://example.com:65536/", "is invalid"),
    ("https://example.com:http/", "is invalid"),
    ("https://[::1/", "is invalid"),
    ("https://example.com/" + "a" * 2048, "at most 2048"),
    ("https://exa mple.com/", "percent-encode"),
    ("https://example.com/\n", "percent-encode"),
    ("https://example.com\\@127.0.0.1/", "percent-encode"),
    ("https://bücher.example/", "ASCII form"),
    ("https://-bad.example/", "must be a host name, got"),
    ("https://a..example/", "must be a host name, got"),
    ("https://" + "a" * 64 + ".example/", "must be a host name, got"),
    ("https://127.0.0.1%2f.example/", "'%'"),
    ("https://[fe80::1%25eth0]/", "'%'"),
    ("https://1.2.3.4.5/", "must be a name or an address, got"),
    ("https://256.1.1.1/", "must be a name or an address, got"),
    ("https://localhost/", "--allow-loopback-sinks"),
    ("https://LOCALHOST./", "--allow-loopback-sinks"),
    ("https://x.localhost/", "--allow-loopback-sinks"),
    ("http://localhost:8000/", "--allow-loopback-sinks"),
    ("https://ip6-localhost/", "--allow-loopback-sinks"),
    ("https://127.0.0.1/", "--allow-loopback-sinks"),
    ("https://127.0.0.1./", "--allow-loopback-sinks"),
    ("https://127.1/", "--allow-loopback-sinks"),
    ("https://2130706433/", "--allow-loopback-sinks"),
    ("https://0x7f000001/", "--allow-loopback-sinks"),
    ("https://0x7f.1/", "--allow-loopback-sinks"),
    ("https://0177.0.0.1/", "--allow-loopback-sinks"),
    ("https://[::1]/", "--allow-loopback-sinks"),
    ("https://[::ffff:127.0.0.1]/", "--allow-loopback-sinks"),
    ("https://[::127.0.0.1]/", "must be public or allowed by --allow-sink-network, got"),
    ("https://10.1.2.3/", "must be public or allowed by --allow-sink-network, got"),
    ("https://169.254.169.254/latest", "must be public or allowed by --allow-sink-network, got"),
    (
        "https://2852039166/latest",
        "must be public or allowed by --allow-sink-network, got",
    ),  # the same as one number
    ("https://[64:ff9b::a9fe:a9fe]/", "must be public or allowed by --allow-sink-network, got"),
    ("https://[2002:a9fe:a9fe::]/", "must be public or allowed by --allow-sink-network, got"),
    ("https://0/", "must be public or allowed by --allow-sink-network, got"),
    ("https://0.0.0.0/", "must be public or allowed by --allow-sink-network, got"),
]


@pytest.mark.parametrize("url", TAKEN)
def test_a_public_https_url_is_taken(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(("url", "message"), REFUSED)
def test_anything_else_is_refused_with_a_message_that_helps(url: str, message: str) -> None:
    with pytest.raises(InvalidSink) as caught:
        check_url(url)
    assert message in caught.value.detail


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/x",
        "http://localhost:9/",
        "http://[::1]:9/",
        "http://2130706433/",
        "https://a.localhost",
    ],
)
def test_loopback_is_taken_over_plain_http_when_the_network_allows_it(url: str) -> None:
    check_url(url, allow_loopback=True)


@pytest.mark.parametrize(
    "url", ["http://example.com/", "http://10.0.0.1/", "https://0.0.0.0/", "https://192.168.0.1/"]
)
def test_allowing_loopback_allows_nothing_else(url: str) -> None:
    with pytest.raises(InvalidSink):
        check_url(url, allow_loopback=True)


def test_plain_http_to_public_hosts_is_a_setting_of_its_own() -> None:
    check_url("http://example.com/", allow_http=True)
    with pytest.raises(InvalidSink):
        check_url("http://127.0.0.1/", allow_http=True)


ADDRESSES = [
    ("8.8.8.8", True),
    ("2606:4700:4700::1111", True),
    ("::ffff:8.8.8.8", True),
    ("64:ff9b::8.8.8.8", True),
    ("2002:808:808::1", True),
    ("10.0.0.1", False),
    ("172.16.0.1", False),
    ("192.168.1.1", False),
    ("100.64.0.1", False),
    ("169.254.169.254", False),
    ("0.0.0.0", False),
    ("224.0.0.1", False),
    ("239.255.255.255", False),
    ("255.255.255.255", False),
    ("240.0.0.1", False),
    ("198.18.0.1", False),
    ("192.0.2.1", False),
    ("192.0.0.8", False),
    ("127.0.0.1", False),
    ("::", False),
    ("::1", False),
    ("::ffff:10.0.0.1", False),
    ("::ffff:169.254.169.254", False),
    ("::127.0.0.1", False),
    ("::10.0.0.1", False),
    ("64:ff9b::a9fe:a9fe", False),
    ("64:ff9b:1::808:808", False),
    ("2002:a9fe:a9fe::", False),
    ("2002:7f00:1::", False),
    ("2001:0:a9fe:a9fe::", False),
    ("2001:4860::5efe:10.0.0.1", False),
    ("2001:db8::1", False),
    ("3fff::1", False),
    ("5f00::1", False),
    ("fc00::1", False),
    ("fe80::1", False),
    ("fe80::1%eth0", False),
    ("fec0::1", False),
    ("ff02::1", False),
    ("ff0e::1", False),
]


@pytest.mark.parametrize(("address", "allowed"), ADDRESSES)
def test_an_address_is_allowed_only_when_all_it_leads_to_is_public(address: str, allowed: bool) -> None:
    assert address_allowed(address) is allowed


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("127.0.0.1", True),
        ("127.255.0.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("2002:7f00:1::", False),
        ("::127.0.0.1", False),
    ],
)
def test_loopback_and_only_loopback_can_be_allowed(address: str, allowed: bool) -> None:
    assert address_allowed(address, allow_loopback=True) is allowed


@given(
    st.ip_addresses(v=4, network="10.0.0.0/8"), st.sampled_from(["::ffff:0:0", "::", "64:ff9b::", "2002::"])
)
def test_no_wrapping_makes_a_private_address_public(inner: ipaddress.IPv4Address, prefix: str) -> None:
    base = int(ipaddress.IPv6Address(prefix))
    shift = 80 if prefix == "2002::" else 0
    assert not address_allowed(ipaddress.IPv6Address(base | int(inner) << shift))


def test_schemes_that_nobody_has_are_looked_up_without_being_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def installed(group: str) -> list[EntryPoint]:
        asked.append(group)
        return []

    monkeypatch.setattr(sink_policy, "entry_points", installed)
    sink_policy._extensions.cache_clear()
    try:
        for number in range(100):
            with pytest.raises(InvalidSink, match=f"s{number}"):
                check_url(f"s{number}:42")
        assert asked == ["edn.sinks"]
        assert sink_policy._extensions.cache_info().currsize == 1
    finally:
        sink_policy._extensions.cache_clear()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.org/hooks/T0KEN?key=S3CRET", "https://example.org/… "),
        ("http://127.0.0.1:8080/T0KEN", "http://127.0.0.1:8080/… "),
        ("mailto:S3CRET@example.org", "mailto:…@example.org "),
        (
            "cloudevents:?mode=structured&to=https%3A%2F%2Fexample.org%2FT0KEN",
            "cloudevents:https://example.org/… ",
        ),
        ("soap:anything/T0KEN", "soap:… "),
        ("https://[S3CRET", "https:… "),
        ("", ":… "),
    ],
)
def test_a_sink_is_described_for_the_log_without_its_secrets(url: str, shown: str) -> None:
    described = sink_policy.redacted(url)
    assert described.startswith(shown)
    assert "T0KEN" not in described
    assert "S3CRET" not in described
    assert described != sink_policy.redacted(url + "x")
