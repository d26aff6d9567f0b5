"""A subscription to a subtree has a member for every topic that its filter fits, whatever comes first."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corekit import Core, core
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher.auth.caller import Caller
from dispatcher.auth.keys import Quota, Scope
from dispatcher.auth.quotas import Quotas, Room
from dispatcher.routing.topic_routes import PointSample
from dispatcher.store import directory
from dispatcher.store.records import ControlRecord
from dispatcher.subscriptions.installer import REQUESTS_AT_ONCE
from dispatcher.subscriptions.service import SubscriptionRequest
from dispatcher.subscriptions.subtree import Subtree
from edn import protocol
from edn.errors import Conflict, InvalidFilter, NotFound, Overloaded, Unavailable
from edn.model.filter import Filter
from edn.model.namespace import member_id
from edn.summary import Summary

Work = Callable[[Core], Coroutine[Any, Any, None]]


def run(folder: Path, work: Work, *servers: str) -> None:
    async def inside() -> None:
        async with core(folder, *servers) as made:
            await work(made)

    asyncio.run(inside())


def wanted(name: str, filter: Any, **more: Any) -> SubscriptionRequest:
    fields = {"id": None, "url": "http://h/", "recipient": None, "expires": None, **more}
    return SubscriptionRequest(
        owner="o", topic=Subtree(name), filter=Filter.parse(filter), bound=None, **fields
    )


def test_topics_that_are_there_and_those_that_come_later_are_joined(tmp_path: Path) -> None:
    async def work(made: Core) -> None:
        for name in ("stocks", "stocks.nyse", "bonds"):
            await made.put(name, "price")
        await made.subscribe("w", "stocks.**", "price > 1")
        assert set(made.members("w")) == {"stocks", "stocks.nyse"}
        await made.put("stocks.tokyo.quotes", "price", "volume")
        await made.put("stocksandbonds", "price")
        assert set(made.members("w")) == {"stocks", "stocks.nyse", "stocks.tokyo.quotes"}
        stored = {(server, item.id) for server, item in made.servers.items}
        assert stored == {(one.server, one.id) for one in made.members("w").values()}

    run(tmp_path, work)


def test_a_topic_and_its_members_begin_in_one_transaction(tmp_path: Path) -> None:
    """So no event can come before: what activates them is older than anything that the topic can take."""

    async def work(made: Core) -> None:
        await made.subscribe("w", "**")
        head = made.log.head
        await made.put("stocks", "price")
        [member] = made.members("w").values()
        assert made.controls(head) == [("activate", member.server, [member.id])]
        assert made.log.head == head + 1

    run(tmp_path, work)


def test_without_a_server_for_its_members_there_is_no_topic(tmp_path: Path) -> None:
    async def work(made: Core) -> None:
        await made.subscribe("w", "**")
        made.servers.away = {"s1", "s2"}
        with pytest.raises(Unavailable, match="offline"):
            await made.put("stocks", "price")
        with pytest.raises(NotFound):
            made.topics.get("stocks")
        assert made.log._reader.execute("SELECT count(*) FROM topics").fetchone() == (0,)
        assert [member.subscriptions for member in made.network.members] == [0, 0]
        made.servers.away = set()
        await made.put("stocks", "price")
        assert set(made.members("w")) == {"stocks"}

    run(tmp_path, work)


def test_a_topic_that_the_filter_does_not_fit_is_left_out_until_it_has_evolved(tmp_path: Path) -> None:
    async def work(made: Core) -> None:
        await made.put("stocks.nyse", "price")
        await made.put("stocks.news", "length")
        whole = await made.subscribe("w", "stocks.**", "price > 1")
        assert set(made.members("w")) == {"stocks.nyse"}
        [left] = await made.subscriptions.left_out(whole)
        assert (left.topic.name, "price" in left.reason) == ("stocks.news", True)
        await made.put("stocks.news", "length", "price")
        assert set(made.members("w")) == {"stocks.nyse", "stocks.news"}
        assert await made.subscriptions.left_out(whole) == []
        with pytest.raises(Conflict, match='subscription "w" uses it'):
            await made.put("stocks.news", "length")

    run(tmp_path, work)


def test_a_filter_that_fits_nothing_there_is_waits_only_where_there_is_nothing(tmp_path: Path) -> None:
    async def work(made: Core) -> None:
        await made.subscribe("w", "stocks.**", "price > 1")
        await made.put("stocks.news", "length")
        assert made.members("w") == {}
        await made.put("stocks.nyse", "price")
        assert set(made.members("w")) == {"stocks.nyse"}

    run(tmp_path, work)


def test_a_topic_that_goes_takes_its_member_and_nothing_else(tmp_path: Path) -> None:
    async def work(made: Core) -> None:
        await made.put("a.b", "price")
        await made.put("a.c", "price")
        await made.subscribe("w", "a.**")
        await made.subscribe("own", "a.b")
        with pytest.raises(Conflict, match="has 1 subscription: end it first"):
            await made.subtree_sync.delete("a.b", cascade=False)
        await made.subscriptions.delete("own")
        await made.subtree_sync.delete("a.b", cascade=False)
        assert set(made.members("w")) == {"a.c"}
        assert (await made.subscriptions.get("w")).subtree == "a.**"
        ends = [record for record in await made.log.read(0, 1 << 30) if "deactivate" in repr(record)]
        assert "SourceCancelling" not in repr(ends[-1])  # the subscription goes on: nobody is told of an end

    run(tmp_path, work)


def test_all_of_it_is_renewed_paused_resumed_and_ended_in_one_transaction(tmp_path: Path) -> None:
    async def work(made: Core) -> None:
        for name in ("a.b", "a.c", "a.d"):
            await made.put(name, "price")
        await made.subscribe("w", "a.**")
        ids = {one.id for one in made.members("w").values()}
        later = made.log.now() + 3_600_000_000

        def told(after: int, kind: str) -> set[str]:
            return {id for found, _, named in made.controls(after) if found == kind for id in named}

        head = made.log.head
        await made.subscriptions.renew("w", later)
        assert told(head, "renew") == ids
        assert {one.expires for one in made.members("w").values()} == {later}
        head = made.log.head
        assert (await made.subscriptions.pause("w", True)).paused
        assert told(head, "pause") == ids
        await made.put("a.e", "price")  # whoever joins a paused one is paused
        assert made.members("w")["a.e"].paused
        ids.add(made.members("w")["a.e"].id)
        head = made.log.head
        await made.subscriptions.pause("w", False)
        assert told(head, "resume") == ids
        head = made.log.head
        await made.subscriptions.delete("w")
        assert told(head, "deactivate") == ids
        ends = [r for r in await made.log.read(head, 1 << 30) if "SourceCancelling" in repr(r)]
        assert len(ends) == 1  # of all members one tells the sink, if it wants to be told
        assert made.members("w") == {}
        assert [member.subscriptions for member in made.network.members] == [0, 0]
        with pytest.raises(NotFound):
            await made.subscriptions.get("w")

    run(tmp_path, work)


def test_a_changed_filter_changes_ends_and_begins_members(tmp_path: Path) -> None:
    async def work(made: Core) -> None:
        await made.put("a.both", "price", "volume")
        await made.put("a.price", "price")
        await made.put("a.volume", "volume")
        await made.subscribe("w", "a.**", "price > 1")
        before = made.members("w")
        assert set(before) == {"a.both", "a.price"}
        head = made.log.head
        changed = await made.subscriptions.change("w", wanted("a.**", "volume > 1"))
        after = made.members("w")
        assert set(after) == {"a.both", "a.volume"}
        assert after["a.both"].version > before["a.both"].version
        assert after["a.both"].filter == changed.filter == Filter.parse("volume > 1").to_json()
        kinds = {kind: ids for kind, _, ids in made.controls(head)}
        assert kinds == {
            "deactivate": [before["a.price"].id],
            "change": [after["a.both"].id],
            "activate": [after["a.volume"].id],
        }
        with pytest.raises(Conflict, match="cannot change"):
            await made.subscriptions.change("w", wanted("**", None))

    run(tmp_path, work)


def test_a_subscription_that_expires_leaves_nothing_and_gets_no_new_topics(tmp_path: Path) -> None:
    async def work(made: Core) -> None:
        await made.put("a.b", "price")
        await made.subscribe("w", "a.**", expires=made.log.now() + 1_000_000)
        clock = made.log.clock
        made.log.clock = lambda: clock() + 10
        await made.put("a.c", "price")
        assert set(made.members("w")) == {"a.b"}
        await made.subscribe("w", "a.**")  # under the same id, before anybody has swept
        assert set(made.members("w")) == {"a.b", "a.c"}
        await made.subscriptions.delete("w")
        await made.subscribe("w", "a.**", expires=made.log.now() + 1_000_000)
        made.log.clock = lambda: clock() + 20
        await made.subscriptions.end_expired()
        assert made.log._reader.execute("SELECT count(*) FROM subscriptions").fetchone() == (0,)
        assert [member.subscriptions for member in made.network.members] == [0, 0]

    run(tmp_path, work)


def test_a_stream_has_an_address_of_its_own_on_every_topic(tmp_path: Path) -> None:
    async def work(made: Core) -> None:
        await made.put("a", "price")
        await made.put("a.b", "price")
        await made.subscribe("w", "a.**", url="stream:w")
        assert {one.url for one in made.members("w").values()} == {
            f"stream:{member_id('w', made.topics.get(name).uid)}" for name in ("a", "a.b")
        }

    run(tmp_path, work)


def test_what_there_is_outlives_a_restart(tmp_path: Path) -> None:
    async def before(made: Core) -> None:
        await made.put("a.b", "price")
        await made.subscribe("w", "a.**", "price > 1")

    async def after(made: Core) -> None:
        assert set(made.members("w")) == {"a.b"}
        assert (await made.subscriptions.get("w")).subtree == "a.**"
        await made.put("a.c", "price")
        assert set(made.members("w")) == {"a.b", "a.c"}

    run(tmp_path, before)
    run(tmp_path, after)


def test_a_crash_between_an_evolution_and_its_joining_is_made_good_at_the_start(tmp_path: Path) -> None:
    async def before(made: Core) -> None:
        await made.put("a.b", "volume")
        await made.put("c", "price")
        await made.subscribe("w", "**", "price > 1")
        # The first of the two steps, and no second.
        draft = await made.topics.draft("a.b", {"volume": "number", "price": "number"}, None)
        await made.topics.put(draft, None)
        assert set(made.members("w")) == {"c"}

    async def after(made: Core) -> None:
        await made.subtree_sync.sync()
        assert set(made.members("w")) == {"a.b", "c"}

    run(tmp_path, before)
    run(tmp_path, after)


COVERED: list[tuple[str, Any, str, Any, bool]] = [
    # what is cancelled by → what is there → whether it goes
    ("a.**", "price > 1", "a.**", "price > 2", True),
    ("a.**", "price > 2", "a.**", "price > 1", False),
    ("**", "price > 1", "a.**", "price > 2", True),
    ("a.b.**", "price > 1", "a.**", "price > 2", False),
    ("a.**", None, "a.b", "price > 2", True),
    ("a.**", "price > 1", "a.b", "price > 2", True),
    ("a.**", "volume > 1", "a.b", "price > 2", False),
    ("a.b", "price > 1", "a.**", "price > 2", False),
    ("a.b", "price > 1", "a.b", "price > 2", True),
    ("a.**", None, "a.z.**", "price > 2", True),
    ("a.**", "price > 1", "a.z.**", "price > 1", True),
    ("a.**", "price > 1", "a.z.**", "price > 2", False),  # no topic tells what either of them means
]


@pytest.mark.parametrize(("by", "filter", "to", "other", "goes"), COVERED)
def test_unsubscribing_by_a_covering_filter_reaches_down(
    tmp_path: Path, by: str, filter: Any, to: str, other: Any, goes: bool
) -> None:
    async def work(made: Core) -> None:
        for name in ("a", "a.b", "c"):
            await made.put(name, "price")
        await made.subscribe("w", to, other)
        place = Subtree(by) if "**" in by else made.topics.get(by)
        ended = await made.subscriptions.delete_covered(place, "o", Filter.parse(filter))
        assert ended == (["w"] if goes else [])
        (left,) = made.log._reader.execute("SELECT count(*) FROM subscriptions").fetchone()
        assert (left == 0) == goes

    run(tmp_path, work)


def test_listings_show_the_whole_once_and_members_only_to_those_who_ask(tmp_path: Path) -> None:
    async def work(made: Core) -> None:
        for name in ("a", "a.b", "c"):
            await made.put(name, "price")
        await made.subscribe("plain", "a.b")
        await made.subscribe("w", "a.**")
        await made.subscribe("all", "**")
        await made.subscribe("other", "c")

        async def listed(**given: Any) -> list[str]:
            """Through pages of one, so that cursors are right, too."""
            found: list[str] = []
            cursor: str | None = None
            while True:
                page, cursor = await made.subscriptions.page(limit=1, cursor=cursor, **given)
                found += [one.id for one in page]
                if cursor is None:
                    return found

        b = made.topics.get("a.b")
        assert await listed() == ["plain", "w", "all", "other"]
        assert await listed(topic=b) == ["plain", "w", "all"]
        assert await listed(topic=Subtree("a.**")) == ["plain", "w"]
        assert await listed(topic=Subtree("**")) == ["plain", "w", "all", "other"]
        assert await listed(tenant="") == ["plain", "w", "all", "other"]
        assert await listed(tenant="somebody") == []
        members = ["plain", member_id("w", b.uid), member_id("all", b.uid)]
        assert await listed(topic=b, members=True) == members
        assert len(await listed(members=True)) == 2 + 2 + 3

    run(tmp_path, work)


def test_tenants_do_not_hear_of_each_other(tmp_path: Path) -> None:
    async def work(made: Core) -> None:
        await made.put("a", "price", tenant="his")
        await made.put("a", "price", tenant="hers")
        await made.put("a", "price")
        await made.subscribe("w", "hers/**")
        await made.subscribe("operator", "**")
        await made.put("b", "price", tenant="hers")
        await made.put("b", "price", tenant="his")
        for id, tenant, count in (("w", "hers", 2), ("operator", "", 1)):
            found = [made.topics.by_uid(one.topic) for one in directory.members(made.log._reader, id)]
            assert len(found) == count
            assert {topic.tenant for topic in found if topic is not None} == {tenant}

    run(tmp_path, work)


# -- whatever happens, in whatever order ----------------------------------------------------------------

NAMES = ["a", "a.b", "a.b.c", "a.c", "d"]
PLACES = ["**", "a.**", "a.b.**", "d.**"]
ATTRIBUTES = ["x", "y"]
STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(NAMES), st.sets(st.sampled_from(ATTRIBUTES))),
    st.tuples(st.just("drop"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("subscribe"), st.sampled_from(PLACES), st.sampled_from([None, *ATTRIBUTES])),
    st.tuples(st.just("change"), st.sampled_from(PLACES), st.sampled_from([None, *ATTRIBUTES])),
    st.tuples(st.just("end"), st.sampled_from(PLACES), st.none()),
    st.tuples(st.just("pause"), st.sampled_from(PLACES), st.booleans()),
)


class Model:
    """The same by brute force: topics with attributes, subscriptions that use one of them, or none."""

    def __init__(self) -> None:
        self.topics: dict[str, set[str]] = {}
        self.wholes: dict[str, str | None] = {}
        self.paused: set[str] = set()

    def members(self, place: str) -> set[str]:
        root = place.split(".")[:-1]
        return {
            name
            for name, has in self.topics.items()
            if name.split(".")[: len(root)] == root
            if self.wholes[place] is None or self.wholes[place] in has
        }


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEPS, max_size=14))
def test_members_are_always_those_that_they_should_be(steps: list[tuple[str, str, Any]]) -> None:
    async def work(made: Core) -> None:
        model = Model()
        for step, name, value in steps:
            used = {model.wholes[p] for p in model.wholes if name in model.members(p)} - {None}
            if step == "put":
                if name in model.topics and used - value:
                    with pytest.raises(Conflict):
                        await made.put(name, *sorted(value))
                    continue
                await made.put(name, *sorted(value))
                model.topics[name] = set(value)
            elif step == "drop" and name in model.topics:
                await made.subtree_sync.delete(name, cascade=False)
                del model.topics[name]
            elif step == "subscribe" and name not in model.wholes:
                await made.subscribe(_id(name), name, value and f"{value} > 1")
                model.wholes[name] = value
            elif step == "change" and name in model.wholes:
                await made.subscriptions.change(_id(name), wanted(name, value and f"{value} > 1"))
                model.wholes[name] = value
            elif step == "pause" and name in model.wholes:
                await made.subscriptions.pause(_id(name), value)
                (model.paused.add if value else model.paused.discard)(name)
            elif step == "end" and name in model.wholes:
                await made.subscriptions.delete(_id(name))
                del model.wholes[name]
                model.paused.discard(name)
            for place, filter in model.wholes.items():
                members = made.members(_id(place))
                assert set(members) == model.members(place), (step, name, value, place)
                text = Filter.parse(filter and f"{filter} > 1").to_json()
                assert all(one.filter == text for one in members.values())
                assert all(one.paused == (place in model.paused) for one in members.values())
            hosted = sum(member.subscriptions for member in made.network.members)
            assert hosted == sum(len(model.members(place)) for place in model.wholes)

    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), work)


def _id(place: str) -> str:
    return "w" + place.replace("*", "").replace(".", "-")


def test_a_filter_that_fits_no_topic_is_refused(tmp_path: Path) -> None:
    from dispatcher.subscriptions.subtree import check_fits

    async def work(made: Core) -> None:
        await made.put("a.b", "volume")
        place = Subtree("a.**")
        with pytest.raises(InvalidFilter, match=r"none of the topics .*\(1\); a\.b: .*price"):
            check_fits(Filter.parse("price > 1"), place, made.topics.below(place.path))
        await made.put("a.c", "volume")
        with pytest.raises(InvalidFilter, match=r"none of the topics .*\(2\)"):
            check_fits(Filter.parse("price > 1"), place, made.topics.below(place.path))
        check_fits(Filter.parse("price > 1"), Subtree("z.**"), [])
        check_fits(Filter.parse("volume > 1"), place, made.topics.below(place.path))

    run(tmp_path, work)


async def appended(made: Core, head: int) -> None:
    async with asyncio.timeout(30):
        while made.log.head == head:  # noqa: ASYNC110 - the log has no event for it
            await asyncio.sleep(0.01)


def test_members_are_stored_a_few_at_a_time(tmp_path: Path) -> None:
    """A server has few messages of one call at a time, and others come in between."""

    async def work(made: Core) -> None:
        for number in range(90):
            await made.put(f"t{number}", "price")
        under_way: Counter[str] = Counter()
        most: Counter[str] = Counter()
        others = 0
        store = made.servers.store

        async def slow(server: str, request: protocol.Store) -> protocol.Stored:
            under_way[server] += 1
            most[server] = max(most[server], under_way[server])
            await asyncio.sleep(0)
            under_way[server] -= 1
            return await store(server, request)

        made.network.calls.store = slow  # type: ignore[method-assign]  # the stub of this test

        async def other() -> None:
            nonlocal others
            while len(made.servers.items) < 90:
                others += 1
                await asyncio.sleep(0)

        await asyncio.gather(made.subscribe("w", "**", "price > 1"), other())
        assert len(made.members("w")) == 90
        assert set(most.values()) == {REQUESTS_AT_ONCE}
        assert others >= 5

    run(tmp_path, work)


@pytest.mark.parametrize("gone", ["away", "cancelled"])
def test_members_that_were_stored_for_nothing_are_ended(tmp_path: Path, gone: str) -> None:
    """After a failure nothing more is sent, and all that may be stored ends in the log."""

    async def work(made: Core) -> None:
        for number in range(90):
            await made.put(f"t{number}", "price")
        store = made.servers.store
        reached = asyncio.Event()

        async def failing(server: str, request: protocol.Store) -> protocol.Stored:
            if len(made.servers.items) >= 10:
                reached.set()
                if gone == "away":
                    raise Unavailable("no answer in time", retry_after=1)
                await asyncio.sleep(60)
            return await store(server, request)

        made.network.calls.store = failing  # type: ignore[method-assign]  # the stub of this test
        head = made.log.head
        call = asyncio.create_task(made.subscribe("w", "**"))
        await asyncio.wait_for(reached.wait(), 30)
        if gone == "cancelled":
            call.cancel()
        with pytest.raises((Unavailable, asyncio.CancelledError)):
            await call
        stored = {(server, item.id, item.version) for server, item in made.servers.items}
        assert 10 <= len(stored) < 90
        await appended(made, head)
        ended = {
            (record.server, id, version)
            for record in await made.log.read(head, 1 << 30)
            if isinstance(record, ControlRecord) and record.control.kind == "deactivate"
            for id, version in record.control.versions
        }
        assert stored <= ended
        assert made.members("w") == {}
        assert [member.subscriptions for member in made.network.members] == [0, 0]

    run(tmp_path, work)


def test_a_cancelled_creation_of_a_topic_discards_its_stored_members(tmp_path: Path) -> None:
    async def work(made: Core) -> None:
        await made.subscribe("w", "**")
        store, stored = made.network.calls.store, asyncio.Event()

        async def slow(server: str, request: protocol.Store) -> protocol.Stored:
            await store(server, request)
            stored.set()
            await asyncio.sleep(60)
            raise AssertionError("the request was not cancelled")

        made.network.calls.store = slow  # type: ignore[method-assign]  # the stub of this test
        head = made.log.head
        call = asyncio.create_task(made.put("t", "price"))
        await asyncio.wait_for(stored.wait(), 30)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await appended(made, head)
        [(kind, _, ids)] = made.controls(head)
        assert (kind, ids) == ("deactivate", [item.id for _, item in made.servers.items])
        assert [member.subscriptions for member in made.network.members] == [0, 0]
        assert made.topics.all() == []

    run(tmp_path, work)


def test_an_end_that_the_log_did_not_take_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatcher.subscriptions.installer.RETRY_SECONDS", 0.01)

    async def work(made: Core) -> None:
        await made.put("t", "price")
        submit, refusals = made.log.submit, 3

        async def full(operation: Any) -> Any:
            nonlocal refusals
            refusals -= 1
            if refusals >= 0:
                raise Unavailable("the disk is full", retry_after=1)
            return await submit(operation)

        made.log.submit = full  # type: ignore[method-assign, assignment]  # a disk that recovers
        with pytest.raises(Unavailable, match="disk"):
            await made.subscribe("w", "**")
        head = made.log.head
        await appended(made, head)
        [(kind, _, ids)] = made.controls(head)
        assert (kind, ids) == ("deactivate", [item.id for _, item in made.servers.items])

    run(tmp_path, work)


def test_what_a_topic_leaves_on_the_dispatcher_goes_with_it(tmp_path: Path) -> None:
    async def work(made: Core) -> None:
        await made.put("t", "price")
        await made.subscribe("w", "t", "price > 1")
        uid = made.topics.get("t").uid
        table, placing, counters = made.network.table, made.network.placing, made.network.counters
        table._samples[uid] = PointSample(2, size=8, of_batch=8)
        counters.count_routed(uid, np.zeros((1, 2)), np.zeros((1, 2), dtype=np.bool_), 0.0)
        for server in ("s1", "s2"):
            rects = Summary.build(np.zeros((1, 2)), np.ones((1, 2)))
            assert await table.accept_in_slices(server, 1, 5, {uid: rects})
            await placing.learn(server, {uid: rects})
        await made.subtree_sync.delete("t", cascade=True)
        assert uid not in table._samples
        assert uid not in counters.samples
        assert uid not in placing._policies
        # A server that lags still gets what was published before; then its next summary lacks the topic.
        assert uid in table.describe("s1").topics
        for server in ("s1", "s2"):
            assert await table.accept_in_slices(server, 1, 6, {})
            for _ in range(2):
                await placing.learn(server, {})
        assert uid not in table.describe("s1").topics
        assert uid not in table._columns.topics
        assert placing._cuts == {"s1": {}, "s2": {}}

    run(tmp_path, work)


def room(members: int) -> Room:
    caller = Caller("k", "ann", "", frozenset({Scope.ADMIN}), Quota(members=members))
    return Quotas().room(caller)


def test_members_have_a_limit_that_is_asked_before_anything_is_stored(tmp_path: Path) -> None:
    async def work(made: Core) -> None:
        for number in range(6):
            await made.put(f"t{number}", "price")
        with pytest.raises(
            Overloaded,
            match="0 members of subtree subscriptions and 6 more would exceed this key's quota of 5",
        ):
            await made.subscriptions.create([wanted("**", None)], room(5))
        assert made.servers.items == []
        assert [member.subscriptions for member in made.network.members] == [0, 0]
        await made.subscriptions.create([wanted("**", None)], room(6))
        with pytest.raises(Overloaded, match="6 members of subtree subscriptions and 1 more"):
            await made.put("t6", "price", room=room(6))
        with pytest.raises(NotFound):
            made.topics.get("t6")
        await made.put("t6", "price", room=room(7))

    run(tmp_path, work)


def test_members_of_two_calls_at_the_same_time_are_counted_together(tmp_path: Path) -> None:
    async def work(made: Core) -> None:
        for number in range(6):
            await made.put(f"t{number}", "price")
        outcomes = await asyncio.gather(
            *(made.subscriptions.create([wanted("**", None)], room(11)) for _ in range(3)),
            return_exceptions=True,
        )
        assert sum(isinstance(one, Overloaded) for one in outcomes) == 2

    run(tmp_path, work)
