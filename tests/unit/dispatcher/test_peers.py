"""Who may take events, who carries out changes, who is waited for: leases, on a clock of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from dispatcher.api.leader_proxy import LeaderProxy
from dispatcher.config import Settings
from dispatcher.replication.lease import ATTEMPTS, Peers, _is_refusal
from dispatcher.services import Services
from dispatcher.store import change_feed
from dispatcher.store.change_feed import Kind
from dispatcher.store.interface import Transaction
from edn import protocol
from edn.errors import Conflict, Unavailable

LEASE = 6.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Side:
    """A dispatcher that hears only what a test tells it."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.network = Services(Settings(data=folder, secret="s" * 16, peers=("http://other",)))
        self.log = self.network.log
        self.peers = Peers(self.log, self.network.calls, self.network.tasks, ["http://other"], None, clock)
        [self.other] = self.peers._peers  # the test stands for the network between them

    def hears(self, answer: protocol.PeerPage, asked: float) -> None:
        self.other.log = answer.log
        self.peers._answered(self.other, answer, asked)

    def fails(self, error: Exception) -> None:
        self.peers._failed(self.other, error)


def page(log: str, *, granted: bool = True, ready: bool = True, sees: str = "") -> protocol.PeerPage:
    return protocol.PeerPage(log, 1, 0, 0, granted, ready, sees)


def refusal() -> Exception:
    error = httpx.ConnectError("All connection attempts failed")
    error.__cause__ = ConnectionRefusedError(111, "refused")
    return error


def run(folder: Path, work: Callable[[Side, Clock], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        clock = Clock()
        side = Side(folder, clock)
        side.log.start()
        try:
            await work(side, clock)
        finally:
            await side.network.stop()

    asyncio.run(whole())


async def level(side: Side, clock: Clock, other: str = "z") -> None:
    """Both have all that the other has."""
    answer = await side.peers.answer(protocol.PeerPoll(other, 1, side.log.touched, side.log.id))
    assert answer.granted
    side.hears(page(other, sees=side.log.id), clock.now)
    assert side.peers.accepting()


def test_nothing_is_taken_before_both_have_all_of_each_other(tmp_path: Path) -> None:
    async def work(side: Side, clock: Clock) -> None:
        assert not side.peers.accepting()
        side.hears(page("z", granted=False), clock.now)
        assert not side.peers.accepting()
        side.hears(page("z"), clock.now)
        assert not side.peers.accepting()  # the other one has not asked yet
        await level(side, clock)

    run(tmp_path, work)


def test_alone_it_starts_with_what_it_has(tmp_path: Path) -> None:
    async def work(side: Side, clock: Clock) -> None:
        side.fails(refusal())
        assert side.peers.accepting()
        assert side.peers.leads()

    run(tmp_path, work)


def test_a_lease_ends_earlier_for_who_got_it_than_for_who_gave_it(tmp_path: Path) -> None:
    async def work(side: Side, clock: Clock) -> None:
        await level(side, clock)
        clock.now += LEASE - 0.5
        # It may have hung itself: what the other did meanwhile is not known.
        assert not side.peers.accepting()
        assert [one.log for one in side.peers._counting()] == ["z"]
        clock.now += 1.0
        assert not side.peers.accepting()
        assert not list(side.peers._counting())
        side.hears(page("z"), clock.now)
        assert side.peers.accepting()

    run(tmp_path, work)


def test_one_that_was_left_out_waits_until_it_is_granted_again(tmp_path: Path) -> None:
    async def work(side: Side, clock: Clock) -> None:
        await level(side, clock)
        clock.now += 2 * LEASE
        side.hears(page("z", granted=False), clock.now)
        assert not side.peers.accepting()
        side.hears(page("z"), clock.now)
        assert side.peers.accepting()

    run(tmp_path, work)


def test_the_return_of_another_one_stops_nothing(tmp_path: Path) -> None:
    async def work(side: Side, clock: Clock) -> None:
        await level(side, clock)
        side.fails(refusal())
        assert side.peers.accepting()
        side.hears(page("z", granted=False, ready=False), clock.now)
        assert side.peers.accepting()

    run(tmp_path, work)


def test_silence_means_death_only_after_questions_in_vain_and_a_lease(tmp_path: Path) -> None:
    async def work(side: Side, clock: Clock) -> None:
        await level(side, clock)
        clock.now += 2 * LEASE
        for _ in range(ATTEMPTS - 1):
            side.fails(httpx.ReadTimeout("slow"))
            assert not side.peers.accepting()
        side.fails(httpx.ReadTimeout("slow"))
        assert side.peers.accepting()

    run(tmp_path, work)


def test_one_that_answers_badly_is_not_dead(tmp_path: Path) -> None:
    async def work(side: Side, clock: Clock) -> None:
        await level(side, clock)
        for _ in range(2 * ATTEMPTS):
            clock.now += LEASE
            side.fails(Unavailable("500"))
        assert not side.peers.accepting()

    run(tmp_path, work)


@pytest.mark.parametrize(
    ("other", "leads"), [("", True), ("g" * 32, True), ("!", False)], ids=["none", "greater", "smaller"]
)
def test_the_smallest_log_leads(other: str, leads: bool, tmp_path: Path) -> None:
    async def work(side: Side, clock: Clock) -> None:
        if other:
            await level(side, clock, other)
        else:
            side.fails(refusal())
        assert side.peers.leads() == leads
        assert (await side.peers.turn()) == (None if leads else "http://other")

    run(tmp_path, work)


def test_it_carries_out_nothing_while_the_other_sees_another_leader(tmp_path: Path) -> None:
    async def work(side: Side, clock: Clock) -> None:
        await level(side, clock)
        await side.peers.answer(protocol.PeerPoll("z", 1, side.log.touched, "z"))
        assert not side.peers.leads()
        await side.peers.answer(protocol.PeerPoll("z", 1, side.log.touched, side.log.id))
        assert side.peers.leads()

    run(tmp_path, work)


def test_a_change_is_answered_when_all_who_are_granted_have_it(tmp_path: Path) -> None:
    async def work(side: Side, clock: Clock) -> None:
        await level(side, clock)

        def operation(transaction: Transaction) -> None:
            change_feed.note(transaction, Kind.SERVER, "s1")

        await side.log.submit(operation)
        waiting = asyncio.create_task(side.peers.settled())
        told = await side.peers.answer(protocol.PeerPoll("z", 1, 0, side.log.id))
        assert (told.upto, told.granted, waiting.done()) == (side.log.touched, True, False)
        await side.peers.answer(protocol.PeerPoll("z", 1, told.upto, side.log.id))
        await asyncio.wait_for(waiting, 5)

    run(tmp_path, work)


def test_all_know_the_same_only_after_a_return_and_a_change(tmp_path: Path) -> None:
    async def work(side: Side, clock: Clock) -> None:
        back = asyncio.create_task(side.peers.level())
        await asyncio.sleep(0.15)
        assert not back.done()  # it has heard of nobody yet
        await level(side, clock)
        await asyncio.wait_for(back, 5)
        await side.log.submit(lambda transaction: change_feed.note(transaction, Kind.SERVER, "s1"))
        known = asyncio.create_task(side.peers.level())
        await asyncio.sleep(0.15)
        assert not known.done()  # the other one has yet to take it over
        await side.peers.answer(protocol.PeerPoll("z", 1, side.log.touched, side.log.id))
        await asyncio.wait_for(known, 5)

    run(tmp_path, work)


@pytest.mark.parametrize("how", ["gone", "silent"])
def test_who_is_gone_or_silent_for_a_lease_is_not_waited_for(how: str, tmp_path: Path) -> None:
    async def work(side: Side, clock: Clock) -> None:
        await level(side, clock)
        await side.log.submit(lambda transaction: change_feed.note(transaction, Kind.SERVER, "s1"))
        waiting = asyncio.create_task(side.peers.settled())
        await asyncio.sleep(0)
        assert not waiting.done()
        if how == "gone":
            side.fails(refusal())
        else:
            clock.now += LEASE + 0.1
        await asyncio.wait_for(waiting, 5)
        # It is behind, and knows so from its next question on.
        answer = await side.peers.answer(protocol.PeerPoll("z", 1, 0, ""))
        assert not answer.granted
        answer = await side.peers.answer(protocol.PeerPoll("z", 1, answer.upto, ""))
        assert answer.granted

    run(tmp_path, work)


def test_one_that_was_away_longer_than_ends_are_remembered_is_refused(tmp_path: Path) -> None:
    async def work(side: Side, clock: Clock) -> None:
        def ended_long_ago(transaction: Transaction) -> None:
            change_feed.note(transaction, Kind.SERVER, "s1")
            change_feed.note(transaction, Kind.SUBSCRIPTION, "a", gone=1, version=1, server="s1")

        await side.log.submit(ended_long_ago)
        await side.log.submit(change_feed.forget)
        with pytest.raises(Conflict, match="empty data folder"):
            await side.peers.answer(protocol.PeerPoll("z", 1, 1, ""))
        assert (await side.peers.answer(protocol.PeerPoll("z", 1, 0, ""))).upto == 1
        assert side.log.touched == 2

    run(tmp_path, work)


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (refusal(), True),
        (httpx.ConnectError("no route"), False),
        (httpx.ReadTimeout("slow"), False),
        (ExceptionGroup("both", [ConnectionRefusedError(), ConnectionRefusedError()]), True),
        (ExceptionGroup("one", [ConnectionRefusedError(), TimeoutError()]), False),
    ],
)
def test_only_a_refused_connection_says_that_a_process_is_gone(error: Exception, refused: bool) -> None:
    assert _is_refusal(error) == refused


@pytest.mark.parametrize(
    ("method", "path", "concerned"),
    [
        ("PUT", "/v1/topics/a.b", True),
        ("DELETE", "/v1/topics/a.b", True),
        ("GET", "/v1/topics/a.b", False),
        ("POST", "/v1/subscriptions", True),
        ("DELETE", "/v1/subscriptions", True),
        ("GET", "/v1/subscriptions", False),
        ("PUT", "/v1/subscriptions/x", True),
        ("POST", "/v1/subscriptions/x/rotate-secret", True),
        ("POST", "/v1/subscriptions/x/enable", False),
        ("POST", "/internal/subscribe", True),
        ("PUT", "/v1/tuning", False),
    ],
)
def test_calls_that_change_what_all_share_go_to_the_leader(method: str, path: str, concerned: bool) -> None:
    assert LeaderProxy.handles({"type": "http", "method": method, "path": path}) == concerned
