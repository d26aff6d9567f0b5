"""Signatures as a receiver's own library verifies them: before, during and after a rotation."""

from __future__ import annotations

import asyncio
import base64
import os

import pytest
from deliverykit import EVENT, Receiver, notifying, run
from serverkit import Kit, activate, control, item
from standardwebhooks import Webhook, WebhookVerificationError

from edn.errors import InvalidSink
from edn.formats import webhooks
from edn.formats.webhooks import KeyRing
from edn.runtime import clock


def verifies(secret: str, post: object) -> bool:
    try:
        Webhook(secret).verify(post.raw, post.headers)  # type: ignore[attr-defined]  # a Post
    except WebhookVerificationError:
        return False
    return True


def test_every_delivery_verifies_before_during_and_after_a_rotation(kit: Kit) -> None:
    old, new = webhooks.new_secret(), webhooks.new_secret()
    ring = KeyRing("ring1", old)

    async def scenario(receiver: Receiver) -> None:
        kit.store(item("s", url=receiver.url("/a"), ring="ring1"), rings=[ring])
        kit.frame(0, 2, activate(1, ("s", 1)), events=[(2, EVENT)])
        now = int(clock.now() * 1e6)
        during = ring.rotated(new, now + 3_600_000_000)
        after = KeyRing("ring1", during.current, during.previous, now - 1, during.version + 1)
        async with notifying(kit) as notifier:
            await notifier.idle()
            for offset, rotated in ((3, during), (5, after)):
                rotate = control(offset, "rotate", rings=[rotated])
                events = [(offset + 1, EVENT)]
                applied = await asyncio.to_thread(kit.frame, offset - 1, offset + 1, rotate, events=events)
                notifier.announce(applied.rows, applied.addresses)
                await notifier.idle()
        before, both, done = receiver.posts
        assert [verifies(old, post) for post in (before, both, done)] == [True, True, False]
        assert [verifies(new, post) for post in (before, both, done)] == [False, True, True]
        assert len(both.headers["webhook-signature"].split(" ")) == 2

    run(scenario)
    kit.reopen()
    # An older copy that comes late, with a store that was on its way, does not bring the old secret back.
    kit.store(item("t", url="http://127.0.0.1:9/a", ring="ring1"), rings=[ring])
    assert kit.registry.rings["ring1"].current == new
    kit.reopen()
    assert kit.registry.rings["ring1"].current == new


def test_a_repeated_attempt_is_signed_anew_for_its_own_second(kit: Kit) -> None:
    secret = webhooks.new_secret()

    async def scenario(receiver: Receiver) -> None:
        kit.store(item("s", url=receiver.url("/a"), ring="r"), rings=[KeyRing("r", secret)])
        kit.frame(0, 2, activate(1, ("s", 1)), events=[(2, EVENT)])
        receiver.answers["/a"] = ["500 No\r\n"] * 2
        async with notifying(kit) as notifier:
            await notifier.idle()
        assert len(receiver.posts) == 3
        assert all(verifies(secret, post) for post in receiver.posts)
        assert len({post.headers["webhook-id"] for post in receiver.posts}) == 1

    run(scenario)


def test_subscriptions_of_one_url_merge_only_if_one_secret_verifies_them(kit: Kit) -> None:
    first, second = webhooks.new_secret(), webhooks.new_secret()

    async def scenario(receiver: Receiver) -> None:
        url = receiver.url("/a")
        kit.store(
            item("a1", url=url, ring="r1"),
            item("a2", url=url, ring="r1"),
            item("b", url=url, ring="r2"),
            item("c", url=url),
            rings=[KeyRing("r1", first), KeyRing("r2", second)],
        )
        kit.frame(0, 2, activate(1, *((id, 1) for id in ("a1", "a2", "b", "c"))), events=[(2, EVENT)])
        async with notifying(kit) as notifier:
            await notifier.idle()
        told = {
            tuple(match["subscription"] for match in post.body["notifications"][0]["matches"]): post
            for post in receiver.posts
        }
        assert set(told) == {("a1", "a2"), ("b",), ("c",)}
        assert [verifies(first, told["a1", "a2"]), verifies(second, told["a1", "a2"])] == [True, False]
        assert [verifies(first, told["b",]), verifies(second, told["b",])] == [False, True]
        assert "webhook-signature" not in told["c",].headers
        assert {post.path for post in receiver.posts} == {"/a"}

    run(scenario)


def test_a_secret_is_never_shown_by_accident() -> None:
    secret = webhooks.new_secret()
    ring = KeyRing("r", secret, secret)
    assert secret not in repr(ring)
    assert secret not in repr([ring.rotated(secret, 5)])
    assert secret not in webhooks.fingerprint(secret)


def encoded(size: int) -> str:
    return "whsec_" + base64.b64encode(os.urandom(size)).decode()


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "secret",
        encoded(23),
        encoded(65),
        encoded(32).removeprefix("whsec_"),
        "whsec_!" + "A" * 43,
    ],
    ids=["empty", "prefix only", "plain", "23 bytes", "65 bytes", "no prefix", "no base64"],
)
def test_what_is_no_secret_is_refused_without_repeating_it(secret: str) -> None:
    with pytest.raises(InvalidSink) as refused:
        webhooks.check_secret(secret)
    assert len(secret) < 10 or secret not in refused.value.detail


@pytest.mark.parametrize("size", [24, 32, 64])
def test_what_is_one_is_taken(size: int) -> None:
    webhooks.check_secret(encoded(size))
