"""Addresses: what goes in comes out, and nothing of one tenant is an address of another."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edn.model import namespace
from edn_server.storage import addresses
from edn_server.storage.addresses import address_of, ring_of, tenant_of, url_of

TENANTS = st.from_regex(r"[A-Za-z0-9_-]{0,64}", fullmatch=True)
RINGS = st.from_regex(r"([0-9a-f]{16})?", fullmatch=True)
URLS = st.builds(
    str.__add__,
    st.sampled_from(["http://h/", "https://h", "cloudevents:?to=", "soap:?to=", "mailto:a#b@", "x:/"]),
    st.text(max_size=30),
)


@given(TENANTS, URLS, RINGS)
def test_an_address_gives_back_what_it_is_made_of(tenant: str, url: str, ring: str) -> None:
    address = address_of(tenant, url, ring)
    assert (tenant_of(address), url_of(address), ring_of(address)) == (tenant, url, ring)
    assert addresses.is_sink(address)


@given(st.tuples(TENANTS, URLS, RINGS), st.tuples(TENANTS, URLS, RINGS))
def test_two_addresses_are_equal_only_if_everything_is(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    assert (address_of(*one) == address_of(*other)) == (one == other)


@pytest.mark.parametrize("tenant", ["", "acme", "hold", "stream"])
def test_a_stream_names_its_subscription_and_the_tenant_of_that(tenant: str) -> None:
    key = namespace.key_of(tenant, "s1")
    address = addresses.stream_of(key)
    assert not addresses.is_sink(address)
    assert (tenant_of(address), ring_of(address), url_of(address)) == (tenant, "", address)
    assert addresses.streaming(address) == key
    assert address_of(tenant, addresses.stream_of(key), "") == addresses.stream_of(key)


@pytest.mark.parametrize(("tenant", "ring"), [("a/b", ""), ("", "a/b"), ("hold:x", "")])
def test_a_tenant_or_a_ring_that_would_read_as_another_is_refused(tenant: str, ring: str) -> None:
    with pytest.raises(ValueError, match="must not hold"):
        address_of(tenant, "https://h/", ring)


def test_one_url_of_several_tenants_is_as_many_addresses() -> None:
    names = [
        address_of(tenant, "https://h/", ring)
        for tenant, ring in itertools.product(["", "a", "b"], ["", "1"])
    ]
    assert len(set(names)) == 6
