"""Where the dispatcher puts subscriptions: what it counts, what it learns, whom it believes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from dispatcher.config import Settings
from dispatcher.servers.placement import Candidate, Placer
from dispatcher.servers.registry import Server, ServerRegistry
from edn import protocol
from edn.errors import InvalidInput, Unavailable
from edn.model.rect import Rects
from edn.summary import Summary
from partitioning.online import POLICIES

TOPIC = 1


class AllReady(ServerRegistry):
    def ready(self) -> list[Server]:
        return list(self)


def placing(names: str, tmp_path: Path, **changes: object) -> tuple[Placer, ServerRegistry]:
    """At once by content, unless the test says otherwise."""
    given = {"placement_spread": 0, "load_factor": None, "placement_seed": 1} | changes
    members = AllReady(5.0)
    for name in names:
        members.add(Server(name, "http://127.0.0.1:1", "key", 1, 0))
    made = Placer(Settings(data=tmp_path, secret="s" * 16, **given), members)  # type: ignore[arg-type]  # by name
    return made, members


def rects(*sides: tuple[float, float]) -> Rects:
    lo, hi = zip(*sides, strict=True)
    return Rects(np.array([lo]), np.array([hi]), np.ones(1, dtype=np.bool_))


def wanted(*sides: tuple[float, float], topic: int = TOPIC, **more: object) -> Candidate:
    return Candidate(topic, rects(*sides), **more)  # type: ignore[arg-type]  # by name


def summary(*boxes: Sequence[tuple[float, float]]) -> Summary:
    low = [[lo for lo, _ in box] for box in boxes]
    return Summary.build(low, [[hi for _, hi in box] for box in boxes])


def register(made: Placer, members: ServerRegistry, name: str, *, location: Sequence[float] = ()) -> None:
    member = members.get(name)
    assert member is not None
    made.register(member, location, 1.0)


def loads(members: ServerRegistry) -> dict[str, int]:
    return {member.id: member.subscriptions for member in members}


def test_similar_subscriptions_meet_and_others_go_elsewhere(tmp_path: Path) -> None:
    made, members = placing("ab", tmp_path)
    [first] = made.place([wanted((0, 1))])
    [other] = made.place([wanted((8, 9))])
    assert {first, other} == {"a", "b"}
    assert made.place([wanted((0.5, 0.9)), wanted((8.2, 8.9)), wanted((0, 0.2))]) == [first, other, first]
    assert loads(members) == {first: 3, other: 2}


def test_topics_know_nothing_of_each_other(tmp_path: Path) -> None:
    made, _ = placing("ab", tmp_path)
    [first] = made.place([wanted((0, 1))])
    # The same rectangle in another space: the less loaded server.
    [second] = made.place([wanted((0, 1), topic=2)])
    assert {first, second} == {"a", "b"}


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"load_threshold": 3}, [3, 3]),
        # five on two servers, at most 1.2 × 2.5 each; a sixth could go to either
        ({"load_factor": 1.2}, [3, 3]),
        ({}, [6, 0]),
    ],
)
def test_limits_hold_within_one_array(tmp_path: Path, limits: dict[str, float], expected: list[int]) -> None:
    made, members = placing("ab", tmp_path, **limits)
    made.place([wanted((0, 10))] * 6)
    assert sorted(loads(members).values(), reverse=True) == expected


def test_what_ended_makes_room(tmp_path: Path) -> None:
    made, members = placing("ab", tmp_path, load_threshold=2)
    [first, *_] = made.place([wanted((0, 10))] * 4)
    made.remove_load(first)
    assert made.place([wanted((0, 10))]) == [first]
    assert set(loads(members).values()) == {2}


def test_without_a_ready_server_nothing_is_placed(tmp_path: Path) -> None:
    made, _ = placing("", tmp_path)
    with pytest.raises(Unavailable):
        made.place([wanted((0, 1))])


def test_a_filter_that_matches_nothing_goes_to_the_least_loaded(tmp_path: Path) -> None:
    made, members = placing("ab", tmp_path)
    [first] = made.place([wanted((0, 1))])
    nothing = Rects(np.empty((0, 1)), np.empty((0, 1)), np.empty(0, dtype=np.bool_))
    [second] = made.place([Candidate(TOPIC, nothing)])
    no_attributes = Rects(np.empty((1, 0)), np.empty((1, 0)), np.ones(1, dtype=np.bool_))
    made.place([Candidate(9, no_attributes)] * 2)
    assert second != first
    assert set(loads(members).values()) == {2}


def test_after_a_restart_the_summaries_tell_what_is_where(tmp_path: Path) -> None:
    made, members = placing("abc", tmp_path)
    for name, at in zip("abc", (0, 10, 20), strict=True):
        register(made, members, name)
        asyncio.run(made.learn(name, {TOPIC: summary([(at, at + 5)])}))
    assert made.place([wanted((21, 22)), wanted((1, 2)), wanted((11, 12))]) == ["c", "a", "b"]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_server_that_comes_with_nothing_hosts_what_comes_next(tmp_path: Path, policy: str) -> None:
    made, members = placing("a", tmp_path, placement=policy)
    made.place([wanted((0, 1))] * 3)
    members.add(Server("new", "http://127.0.0.1:1", "key", 1, 0))
    register(made, members, "new")
    asyncio.run(made.learn("new", {}))
    made.forget_server("a")
    members.remove("a")
    assert made.place([wanted((0, 1))]) == ["new"]


def test_what_is_placed_while_a_summary_is_awaited_is_not_forgotten(tmp_path: Path) -> None:
    made, members = placing("ab", tmp_path)
    register(made, members, "a")
    made.place([wanted((50, 60), suggested="a"), wanted((0, 10), suggested="b")])
    asyncio.run(made.learn("a", {TOPIC: summary([(80, 90)])}))
    assert made.place([wanted((82, 83)), wanted((52, 53)), wanted((1, 2))]) == ["a", "a", "b"]


def test_a_summary_that_nobody_awaited_does_not_undo_what_is_known_better(tmp_path: Path) -> None:
    made, _ = placing("ab", tmp_path)
    made.place([wanted((0, 10), suggested="a"), wanted((50, 60), suggested="b")])
    asyncio.run(made.learn("a", {}))  # read before the first was stored
    assert made.place([wanted((1, 2))]) == ["a"]


def test_a_server_where_most_has_ended_is_seen_anew(tmp_path: Path) -> None:
    made, _ = placing("ab", tmp_path)
    made.place([wanted((0, 10), suggested="a")] * 100 + [wanted((50, 60), suggested="b")] * 5)
    made.remove_load("a", 99)
    asyncio.run(made.learn("a", {TOPIC: summary([(4, 5)])}))
    # Nothing overlaps with it any more, so it goes to the less loaded: a has one, b five.
    assert made.place([wanted((0, 1))]) == ["a"]
    made.place([wanted((70, 80), suggested="a")] * 9)
    assert made.place([wanted((2, 3))]) == ["b"]


@pytest.mark.parametrize(
    ("suggested", "expected"), [("b", "b"), ("a", "a"), ("unknown", "a"), (None, "a"), ("full", "a")]
)
def test_a_suggestion_counts_while_its_server_is_there_and_below_the_limits(
    tmp_path: Path, suggested: str | None, expected: str
) -> None:
    made, members = placing("ab", tmp_path, load_threshold=10)
    full = Server("full", "http://127.0.0.1:1", "key", 1, 0, subscriptions=10)
    members.add(full)
    made.place([wanted((0, 10), suggested="a")])
    assert made.place([wanted((1, 2), suggested=suggested)]) == [expected]


def test_subscribers_come_to_the_server_near_them(tmp_path: Path) -> None:
    made, members = placing("ew", tmp_path)
    register(made, members, "e", location=[100.0, 0.0])
    register(made, members, "w", location=[0.0, 0.0])
    near = {"e": (98.0, 1.0), "w": (1.0, 2.0)}
    for name in "ewewwe":
        assert made.place([wanted((0, 1), location=near[name])]) == [name]
    with pytest.raises(InvalidInput, match="2 coordinates"):
        made.check_location([1.0])


@pytest.mark.parametrize(
    ("location", "distance", "message"),
    [
        ([1.0], 1.0, "must have 2 coordinates like that of a, got 1"),
        ([float("nan"), 1.0], 1.0, "finite coordinates"),
        ([0.0] * 9, 1.0, "at most 8"),
        ([], 0.0, "above 0"),
        ([], float("inf"), "finite"),
    ],
)
def test_a_place_that_cannot_be_is_refused(
    tmp_path: Path, location: list[float], distance: float, message: str
) -> None:
    made, members = placing("ab", tmp_path)
    register(made, members, "a", location=[1.0, 2.0])
    request = protocol.Register(
        "b", "http://127.0.0.1:1", "k" * 16, 1, {}, 0, location=location, distance=distance
    )
    with pytest.raises(InvalidInput, match=message):
        made.check_registration(request)


def test_the_traffic_policy_weighs_by_the_servers_distances(tmp_path: Path) -> None:
    made, members = placing("ab", tmp_path, placement="traffic")
    for name, distance in (("a", 10.0), ("b", 1.0)):
        member = members.get(name)
        assert member is not None
        made.register(member, (), distance)
    made.place([wanted((0, 8), suggested="a"), wanted((0, 2), suggested="b")])
    # a would be sent 2 more, ten times as far; b 8 more
    assert made.place([wanted((0, 10))]) == ["b"]


def test_only_what_is_new_is_told_to_the_servers(tmp_path: Path) -> None:
    made, _ = placing("ab", tmp_path, routing_rectangles=2)
    told = protocol.TopicInfo(TOPIC, "", "t", [("x", "number")], "bitmap")
    asyncio.run(made.learn("a", {TOPIC: summary([(0, 1)], [(5, 6)], [(9, 10)])}))
    assert made.hints([], incarnation=7, since=0).boxes == [], "of topics that servers do not choose for"
    first = made.hints([told], incarnation=7, since=0)
    [boxes] = first.boxes
    lo, hi = protocol.points_array(boxes.lo, boxes.width), protocol.points_array(boxes.hi, boxes.width)
    assert (boxes.topic, boxes.server, len(lo)) == (TOPIC, "a", 2)
    assert (lo.min(), hi.max()) == (0, 10)
    asyncio.run(made.learn("a", {TOPIC: summary([(0, 1)], [(5, 6)], [(9, 10)])}))
    asyncio.run(made.learn("b", {TOPIC: summary([(3, 4)])}))
    assert [one.server for one in made.hints([told], incarnation=7, since=first.version).boxes] == ["b"]
    later = made.hints([told], incarnation=7, since=first.version)
    asyncio.run(made.learn("b", {}))
    [gone] = made.hints([told], incarnation=7, since=later.version).boxes
    assert (gone.server, gone.lo) == ("b", b"")
    assert [peer.id for peer in later.peers] == ["a", "b"]


def test_a_topic_that_is_gone_leaves_nothing(tmp_path: Path) -> None:
    made, _ = placing("ab", tmp_path)
    asyncio.run(made.learn("a", {TOPIC: summary([(0, 1)])}))
    made.forget_topic(TOPIC)
    assert made.hints([], incarnation=1, since=0).boxes == []
