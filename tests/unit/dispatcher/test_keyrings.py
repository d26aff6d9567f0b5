"""Whose secret signs what: rings by owner and address, shown once, rotated through the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from dispatcher.store import directory, signing_keys
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log
from dispatcher.store.records import ControlRecord, Record
from dispatcher.store.sqlite.log import SqliteLog
from dispatcher.subscriptions import signing_rings
from dispatcher.subscriptions.service import SubscriptionRequest
from dispatcher.subscriptions.subtree import Subtree
from edn.errors import Conflict, NotFound
from edn.formats import webhooks

URL = "https://example.org/in"


def want(
    owner: str = "ann", url: str = URL, secret: str | None = None, tenant: str = ""
) -> SubscriptionRequest:
    nothing = cast(Any, None)  # filters play no part
    topic = Subtree(f"{tenant}/**" if tenant else "**")
    return SubscriptionRequest(
        id=None, owner=owner, topic=topic, filter=nothing, bound=nothing, url=url, recipient=None,
        expires=None, secret=secret,
    )  # fmt: skip


async def subscribe(log: Log, id: str, wanted: SubscriptionRequest, server: str = "s1") -> None:
    new = Subscription(id, 1, wanted.owner, 1, None, wanted.url, None, None, server, 1, ring=wanted.ring)
    await log.submit(lambda transaction: directory.insert(transaction.connection, new, frozenset()))


def run(path: Path, scenario: Callable[[Log], Awaitable[None]]) -> list[Record]:
    records: list[Record] = []

    async def main() -> None:
        log = SqliteLog(path, on_commit=records.extend)
        log.start()
        try:
            await scenario(log)
        finally:
            await log.stop()

    asyncio.run(main())
    return records


def test_an_owner_has_one_secret_for_an_address_and_is_shown_it_once(tmp_path: Path) -> None:
    async def scenario(log: Log) -> None:
        [first, twin, other], made = await signing_rings.assign(
            log, [want(), want(), want(url="https://example.org/else")]
        )
        assert first.ring == twin.ring != other.ring
        assert set(made) == {first.ring, other.ring}
        await subscribe(log, "a", first)
        [again], nothing = await signing_rings.assign(log, [want()])
        assert (again.ring, nothing) == (first.ring, {})
        [stranger], shown = await signing_rings.assign(log, [want("bob")])
        assert stranger.ring != first.ring
        assert shown[stranger.ring] not in made.values()
        [ring] = signing_keys.read(log._reader, [first.ring, ""])
        assert ring.current == made[first.ring]

    run(tmp_path, scenario)


def test_when_the_last_subscription_is_gone_the_next_gets_a_secret_that_somebody_knows(
    tmp_path: Path,
) -> None:
    async def scenario(log: Log) -> None:
        [first], made = await signing_rings.assign(log, [want()])
        await subscribe(log, "a", first)
        await log.submit(lambda transaction: directory.delete(transaction.connection, "a"))
        [second], shown = await signing_rings.assign(log, [want()])
        assert second.ring != first.ring
        assert shown[second.ring] != made[first.ring]

    run(tmp_path, scenario)


def test_whoever_brings_a_secret_gets_its_ring_and_is_not_shown_it(tmp_path: Path) -> None:
    mine, other = webhooks.new_secret(), webhooks.new_secret()

    async def scenario(log: Log) -> None:
        wanted = [want(secret=mine), want(secret=mine), want(secret=other), want()]
        [a, b, c, made_here], made = await signing_rings.assign(log, wanted)
        assert a.ring == b.ring
        assert len({a.ring, c.ring, made_here.ring}) == 3
        assert set(made) == {made_here.ring}
        [later], _ = await signing_rings.assign(log, [want(secret=mine)])
        assert later.ring == a.ring
        [mail, signed], _ = await signing_rings.assign(
            log, [want(url="mailto:ann@example.org"), want(url="mailto:ann@example.org", secret=mine)]
        )
        assert signing_keys.read(log._reader, [mail.ring]) == []
        assert signed.ring not in ("", a.ring)

    run(tmp_path, scenario)


def test_a_rotation_tells_every_server_that_signs_and_a_repeated_one_nobody(tmp_path: Path) -> None:
    new = webhooks.new_secret()

    async def scenario(log: Log) -> None:
        [first], made = await signing_rings.assign(log, [want()])
        for id, server in (("a", "s1"), ("b", "s2"), ("c", "s2")):
            await subscribe(log, id, first, server)
        await subscribe(log, "plain", want(url="mailto:ann@example.org"), "s3")
        rotated = await signing_rings.rotate(log, "b", new, 1_000_000)
        assert (rotated.ring.current, rotated.ring.previous) == (new, made[first.ring])
        assert rotated.subscriptions == 3
        again = await signing_rings.rotate(log, "a", new, 5_000_000)
        assert again.ring == rotated.ring
        with pytest.raises(NotFound):
            await signing_rings.rotate(log, "nobody", None, 1)
        with pytest.raises(Conflict, match="not signed"):
            await signing_rings.rotate(log, "plain", None, 1)

    told = [record for record in run(tmp_path, scenario) if isinstance(record, ControlRecord)]
    assert sorted(record.server for record in told) == ["s1", "s2"]
    assert {record.control.kind for record in told} == {"rotate"}
    assert all(record.control.rings[0].current == new for record in told)


def test_tenants_share_no_ring_whatever_they_name(tmp_path: Path) -> None:
    secret = webhooks.new_secret()

    async def scenario(log: Log) -> None:
        wanted = [
            want(tenant=tenant, secret=own) for tenant in ("", "acme", "evil") for own in (None, secret)
        ]
        rings, made = await signing_rings.assign(log, wanted)
        assert len({one.ring for one in rings}) == 6
        assert len(set(made.values())) == 3
        for number, one in enumerate(rings):
            await subscribe(log, f"s{number}", one)
        again, nothing = await signing_rings.assign(log, wanted)
        assert [one.ring for one in again] == [one.ring for one in rings]
        assert nothing == {}
        before = signing_keys.read(log._reader, {one.ring for one in rings if one.topic.tenant != "evil"})
        await signing_rings.rotate(log, "s4", None, 1)
        assert before == signing_keys.read(log._reader, {ring.id for ring in before})

    run(tmp_path, scenario)


@pytest.mark.parametrize("url", ["mailto:ann@example.org", "soap:?to=https%3A%2F%2Fexample.org", "other:x"])
def test_owners_have_messages_of_their_own_where_nothing_is_signed(tmp_path: Path, url: str) -> None:
    async def scenario(log: Log) -> None:
        wanted = [want("ann", url), want("ann", url), want("bob", url)]
        [ann, again, bob], made = await signing_rings.assign(log, wanted)
        assert ann.ring == again.ring != bob.ring
        assert made == {}
        [stream], _ = await signing_rings.assign(log, [want("ann", "stream:s1")])
        assert stream.ring == ""

    run(tmp_path, scenario)


def test_whatever_the_case_of_the_scheme_posts_are_signed(tmp_path: Path) -> None:
    async def scenario(log: Log) -> None:
        [loud], made = await signing_rings.assign(log, [want(url="HTTPS://example.org/in")])
        assert set(made) == {loud.ring}

    run(tmp_path, scenario)
