"""The consent of sinks: what counts as one, that nothing is posted without it, and no more than it allows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from deliverykit import Post, Receiver, eventually, fill, notifying, run, settings
from serverkit import Kit

from edn.errors import InvalidSink
from edn.formats.cloudevents import SinkAddress
from edn_server.policies import Batching
from edn_server.sinks import consent
from edn_server.sinks.base import Answer
from edn_server.sinks.cloudevents import CloudEventsSink
from edn_server.sinks.consent import Consents, Granted, Withheld, read, read_rate
from edn_server.storage.addresses import address_of

ORIGIN = "edn.example.org"
CALLBACK = "https://edn.example.org"
ALLOWED = f"200 OK\r\nwebhook-allowed-origin: {ORIGIN}\r\nwebhook-allowed-rate: *\r\n"
SILENT = "200 OK\r\nallow: POST\r\n"


@pytest.mark.parametrize(
    ("status", "origin", "rate", "said"),
    [
        (200, "*", "*", Granted(None)),
        (200, ORIGIN, "120", Granted(120)),
        (204, "EDN.Example.org", "1", Granted(1)),
        (200, "*", None, Granted(6000)),  # as many as were asked for
        (200, None, "*", "without WebHook-Allowed-Origin"),
        (204, None, None, "it answered 204 without"),
        (405, None, None, "it answered 405 without"),
        (302, "*", "*", "instead of 2xx"),
        (500, ORIGIN, "*", "instead of 2xx"),
        (200, "example.org", "*", 'it allows only "example.org" to post'),
        (200, "*, edn.example.org", "*", "it allows"),
        (200, "", "*", 'it allows only ""'),
        (200, "*", "0", "a positive integer or"),
        (200, "*", "-1", "a positive integer or"),
        (200, "*", "1.5", "a positive integer or"),
        (200, "*", "many", "a positive integer or"),
        (200, "*", "9999999999", "a positive integer or"),
        (None, None, None, "the name does not resolve"),
    ],
)
def test_what_counts_as_consent(status: int | None, origin: str | None, rate: str | None, said: Any) -> None:
    allowed = {"webhook-allowed-origin": origin, "webhook-allowed-rate": rate}
    answer = Answer(
        status,
        reason="the name does not resolve" if status is None else None,
        allowed={name: value for name, value in allowed.items() if value is not None},
    )
    found = read(answer, ORIGIN, 6000)
    if isinstance(said, Granted):
        assert found == said
    else:
        assert isinstance(found, Withheld)
        assert said in found.reason
        # Later only from a sink that has said nothing of it, but said something.
        assert found.later == (status is not None and "it answered" in found.reason)


def test_a_rate_is_a_number_or_all() -> None:
    assert (read_rate("", 7), read_rate("12", 7), read_rate("*", 7)) == (
        Granted(7),
        Granted(12),
        Granted(None),
    )


def stored(kit: Kit) -> dict[str, consent.Consent]:
    with contextlib.closing(kit.folder.connect(read_only=True)) as db:
        return consent.load(db)


class Clock:
    """Goes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def consenting(kit: Kit, clock: Clock | None = None, **changes: Any) -> AsyncIterator[Consents]:
    async def submit(job: Any) -> None:
        await asyncio.wrap_future(kit.writer.submit(job))

    granted: list[str] = []
    found = stored(kit)
    changes = {"webhook_origin": ORIGIN, **changes}
    made = Consents(
        settings(**changes),
        key="0" * 32,
        found=found,
        submit=submit,
        servers=lambda: 3,
        on_granted=granted.append,
        **({} if clock is None else {"monotonic": clock}),
    )
    made.granted = granted  # type: ignore[attr-defined]  # what was heard, for the tests
    try:
        yield made
    finally:
        await made.close()


def questions(posts: list[Post]) -> list[Post]:
    return [post for post in posts if "webhook-request-rate" in post.headers]


def told(posts: list[Post]) -> list[str]:
    return [post.headers["ce-id"] for post in posts if "ce-id" in post.headers]


def address(receiver: Receiver, path: str, *, asked: bool = True) -> str:
    return SinkAddress("binary", receiver.url(path), asked).url()


def stored_at(receiver: Receiver, path: str, *, asked: bool = True) -> str:
    return address_of("", address(receiver, path, asked=asked), "")


def test_a_sink_is_asked_once_and_by_those_who_must(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        receiver.answers["/a"] = [ALLOWED]
        async with consenting(kit, webhook_rate=90) as consents:
            await consents.ensure(
                [("", address(receiver, "/a")), ("", address(receiver, "/free", asked=False))]
            )
            await consents.ensure([("", address(receiver, "/a")), ("", receiver.url("/plain"))])
            assert consents.state_of(stored_at(receiver, "/a")) == "granted"
            assert consents.state_of(stored_at(receiver, "/free", asked=False)) is None
        [asked] = receiver.posts
        assert (asked.path, asked.raw) == ("/a", b"")
        assert asked.headers["webhook-request-origin"] == ORIGIN
        assert asked.headers["webhook-request-rate"] == "90"
        assert "webhook-request-callback" not in asked.headers
        # Whoever reads the same folder later knows.
        async with consenting(kit) as again:
            await again.ensure([("", address(receiver, "/a"))])
        assert len(receiver.posts) == 1
        # It consented to that name, and to no other.
        async with consenting(kit, webhook_origin="another.example.org") as renamed:
            with pytest.raises(InvalidSink):
                await renamed.ensure([("", address(receiver, "/a"))])
        assert len(receiver.posts) == 2

    run(scenario)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (SILENT, "without WebHook-Allowed-Origin"),
        ("405 No\r\n", "it answered 405"),
        ("302 Elsewhere\r\nlocation: /b\r\nwebhook-allowed-origin: *\r\n", "it answered 302"),
        ("200 OK\r\nwebhook-allowed-origin: somebody.else\r\n", "somebody.else"),
    ],
)
def test_a_sink_that_does_not_consent_is_an_error_that_says_so(kit: Kit, answer: str, says: str) -> None:
    async def scenario(receiver: Receiver) -> None:
        receiver.answers["/a"] = [answer]
        async with consenting(kit) as consents:
            with pytest.raises(InvalidSink, match="did not consent") as refused:
                await consents.ensure([("", address(receiver, "/a"))])
            assert says in refused.value.detail
            assert receiver.url("/a") in refused.value.detail
            assert not consents.any
        assert [post.path for post in receiver.posts] == ["/a"]  # nothing was followed

    run(scenario)


def test_an_address_that_may_not_be_called_is_not_asked(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        async with consenting(kit, allow_loopback_sinks=False) as consents:
            with pytest.raises(InvalidSink, match="loopback"):
                await consents.ensure([("", address(receiver, "/a"))])
        assert receiver.posts == []

    run(scenario)


def test_nothing_is_posted_before_the_sink_consents_later(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, address(receiver, "/a"), rows=3)
        receiver.answers["/a"] = [SILENT] * 4
        async with consenting(kit, webhook_callback=CALLBACK) as consents:
            await consents.ensure([("", address(receiver, "/a"))])
            assert consents.state_of(stored_at(receiver, "/a")) == "awaiting"
            further = {"cloudevents": lambda given: CloudEventsSink(given, consents)}
            async with notifying(kit, further) as notifier:
                await receiver.until(lambda: len(questions(receiver.posts)) == 4)
                assert told(receiver.posts) == []
                [waiting] = notifier.waiting
                assert notifier.health(waiting).state == "failing"
                assert "awaiting" in (notifier.health(waiting).reason or "")
                url = urlsplit(receiver.posts[0].headers["webhook-request-callback"])
                assert f"{url.scheme}://{url.netloc}{url.path}" == f"{CALLBACK}/cloudevents/consent/s1"
                [token] = parse_qs(url.query)["token"]
                for wrong in ("", "x", token[:-1], token + "="):
                    assert not await consents.consented(wrong, "")
                with pytest.raises(InvalidSink):
                    await consents.consented(token, "some")
                receiver.held["/a"] = asyncio.Event()  # what is asked again is not answered any more
                assert await consents.consented(token, "*")
                assert consents.granted == [receiver.url("/a")]  # type: ignore[attr-defined]
                receiver.held.pop("/a").set()
                await notifier.idle()
            assert consents.state_of(stored_at(receiver, "/a")) == "granted"
        assert told(receiver.posts) == ["e2", "e3", "e4"]
        posted = [post for post in receiver.posts if "ce-id" in post.headers]
        assert {post.headers["webhook-request-origin"] for post in posted} == {"edn"}

    run(scenario)


def test_no_more_is_posted_than_the_sink_allows(kit: Kit) -> None:
    """Sixty a minute for three servers are one POST every three seconds of each."""

    async def scenario(receiver: Receiver) -> None:
        fill(kit, address(receiver, "/a"), rows=4)
        receiver.answers["/a"] = ["200 OK\r\nwebhook-allowed-origin: *\r\nwebhook-allowed-rate: 60\r\n"]
        clock = Clock()
        async with consenting(kit, clock) as consents:
            further = {"cloudevents": lambda given: CloudEventsSink(given, consents)}
            # All four in one parcel: it stops in the middle and goes on there.
            async with notifying(kit, further, batching=Batching(events=4)) as notifier:
                for count in range(1, 5):
                    await eventually(lambda count=count: len(told(receiver.posts)) == count)
                    for early in (0.0, 2.9):
                        clock.now += early
                        assert consents.pause(receiver.url("/a")) == pytest.approx(3.0 - early)
                    [waiting] = notifier.waiting or [""]
                    if waiting:
                        notifier.hurry(waiting)
                    assert len(told(receiver.posts)) == count
                    clock.now += 0.2
                    if waiting:
                        notifier.hurry(waiting)
                await notifier.idle()
                assert notifier.failing == 0
                assert notifier.counters.failed == 0
        assert told(receiver.posts) == ["e2", "e3", "e4", "e5"]
        assert len(questions(receiver.posts)) == 1

    run(scenario)


def test_a_sink_that_nobody_names_any_more_is_forgotten(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        receiver.answers["/a"] = [ALLOWED, SILENT]
        async with consenting(kit) as consents:
            await consents.ensure([("", address(receiver, "/a"))])
            await consents.forget([])
            assert consents.any  # it was asked just now: the subscription is about to come
            url = receiver.url("/a")
            consents._known[url] = consent.Consent("granted", None, 0, ORIGIN)
            await consents.forget([address_of("acme", address(receiver, "/a"), "ring")])
            assert consents.any
            await consents.forget([stored_at(receiver, "/b"), address_of("", receiver.url("/a"), "")])
            assert not consents.any
            with pytest.raises(InvalidSink):
                await consents.ensure([("", address(receiver, "/a"))])
        assert stored(kit) == {}

    run(scenario)
