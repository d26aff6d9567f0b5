"""A subscription that moves from server to server: what each of the two does for it, and what is heard."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from serverkit import LOG, Kit, activate, control, item

from edn import protocol
from edn_server.handover import departures as departing
from edn_server.handover.arrivals import FinishArrivals, StoreBuffered
from edn_server.handover.departures import ReportDepartures
from edn_server.ingest.control_records import FollowLog
from edn_server.outbox import cleanup
from edn_server.storage import addresses
from edn_server.storage.writer import Call
from edn_server.subscriptions.view import RegistryView

EVENT = {"symbol": "GE", "price": 31.0}
OTHER = "log-b"
URL = "http://127.0.0.1:9/s"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Kit, Kit]]:
    """The server that `s` is on, and the one that it goes to; both joined the log at its offset 1."""
    kits = Kit(tmp_path / "a"), Kit(tmp_path / "b")
    for kit in kits:
        kit.frame(0, 1, control(1, "join", incarnation=1))
    yield kits
    for kit in kits:
        kit.close()


def departed(kit: Kit, *versions: tuple[str, int], forget: list[str] | None = None) -> protocol.Departed:
    request = protocol.Departures(list(versions), forget or [])
    return kit.writer.submit(ReportDepartures(kit.registry, request)).result(30)[0]


def arrive(kit: Kit, *versions: tuple[str, int]) -> None:
    request = protocol.Arrivals(list(versions))
    job = FinishArrivals(kit.registry, request, lambda *_: None, lambda: 0, lambda fed: None)
    kit.writer.submit(job).result(30)


def hand_over(source: Kit, destination: Kit, id: str, version: int) -> None:
    """What the dispatcher does, page by page."""
    position = 0
    while True:
        question = protocol.BufferedQuery(id, position)
        page = source.writer.submit(Call(lambda db, q=question: departing.buffered_page(db, q))).result(30)
        page = protocol.msgspec.structs.replace(page, version=version)
        destination._batch = max(destination._batch, destination._newest_batch()) + 1
        job = StoreBuffered(destination.registry, destination._batch, page, lambda *_: None)
        taken = destination.writer.submit(job).result(30)
        if taken.unknown or (page.final and taken.position >= page.upto):
            break
        position = taken.position
    departed(source, forget=[id])


def deliver(kit: Kit) -> list[tuple[str, str]]:
    """Take everything that may go out; (subscription, event) in order."""
    return [(subscription, event) for subscription, event, _ in deliver_to(kit)]


def deliver_to(kit: Kit) -> list[tuple[str, str, str]]:
    """The same, with the address of each."""
    rows = [row for row in kit.rows() if row.address]
    heard = [
        (match["subscription"], entry["event"]["id"], addresses.url_of(row.address))
        for row in rows
        for entry in kit.body(row)["notifications"]
        for match in entry["matches"]
    ]
    kit.writer.submit(cleanup.Settle([(row.id, row.frame_id) for row in rows])).result(30)
    return heard


def began(kit: Kit) -> None:
    kit.store(item("s", url=URL))
    kit.frame(1, 2, activate(2, ("s", 1)))


def coming(version: int = 2) -> protocol.StoreItem:
    return protocol.msgspec.structs.replace(item("s", version=version, url=URL), arriving=True)


def move(offset: int, version: int = 2) -> protocol.Control:
    return control(offset, "move", versions=[("s", version)])


def test_the_old_server_matches_up_to_the_record_and_the_new_one_after_it(pair: tuple[Kit, Kit]) -> None:
    here, there = pair
    began(here)
    there.store(coming())
    events = [(3, EVENT), (6, EVENT)]
    here.frame(2, 6, move(4), events=events)
    there.frame(1, 6, move(5), events=events)
    assert departed(here, ("s", 2)) == protocol.Departed(ended=["s"], keeping=[], delivered=[])
    assert deliver(there) == []
    assert deliver(here) == [("s", "e3")]
    assert departed(here, ("s", 2)).delivered == ["s"]
    arrive(there, ("s", 2))
    arrive(there, ("s", 2))  # once more changes nothing
    assert deliver(there) == [("s", "e6")]
    there.frame(6, 7, events=[(7, EVENT)])
    assert deliver(there) == [("s", "e7")]
    here.collect()
    assert here.count("versions") == 0
    assert there.count("replays") == 0


def test_until_every_log_has_ended_it_nothing_is_said_to_have_left(pair: tuple[Kit, Kit]) -> None:
    here, _ = pair
    for log in (LOG, OTHER):
        here.writer.submit(FollowLog(here.registry, log, 1, shared=True)).result(30)
    here.frame(0, 1, control(1, "join", incarnation=1, shared=True), log=OTHER)
    began(here)
    here.frame(1, 2, activate(2, ("s", 1)), log=OTHER)
    here.frame(2, 3, move(3))
    assert departed(here, ("s", 2)) == protocol.Departed([], [], [])
    here.frame(2, 4, move(4), log=OTHER, events=[(3, EVENT)])
    assert departed(here, ("s", 2)) == protocol.Departed(["s"], [], [])
    assert deliver(here) == [("s", "e3")]
    assert departed(here, ("s", 2)).delivered == ["s"]


def test_rows_of_others_at_its_address_that_came_later_are_not_waited_for(pair: tuple[Kit, Kit]) -> None:
    here, _ = pair
    began(here)
    here.store(item("other", url=URL))
    here.frame(2, 4, activate(3, ("other", 1)), move(4))
    here.frame(4, 5, events=[(5, EVENT)])
    assert departed(here, ("s", 2)).delivered == ["s"]
    assert deliver(here) == [("other", "e5")]


def test_what_is_awaited_is_awaited_after_a_restart(pair: tuple[Kit, Kit]) -> None:
    _, there = pair
    there.store(coming())
    there.reopen()
    there.frame(1, 3, move(2), events=[(3, EVENT)])
    assert deliver(there) == []
    there.reopen()
    arrive(there, ("s", 2))
    assert deliver(there) == [("s", "e3")]


def test_a_store_for_nothing_leaves_nothing(pair: tuple[Kit, Kit]) -> None:
    _, there = pair
    there.store(coming())
    there.frame(1, 2, control(2, "deactivate", versions=[("s", 2)]))
    there.collect()
    assert there.count("versions") == 0
    assert there.count("replays") == 0
    there.store(coming(3))
    there.frame(2, 3, control(3, "join", incarnation=2))  # its dispatcher crashed before the record
    there.collect()
    assert there.count("versions") == 0
    assert there.count("replays") == 0


def test_a_dispatcher_that_will_not_come_back_is_not_waited_for(pair: tuple[Kit, Kit]) -> None:
    _, there = pair
    there.writer.submit(FollowLog(there.registry, LOG, 1)).result(30)
    there.store(coming())
    there.frame(1, 3, move(2), events=[(3, EVENT)])
    there.writer.submit(FollowLog(there.registry, OTHER, 1)).result(30)
    assert deliver(there) == [("s", "e3")]


def test_an_address_that_fails_for_long_keeps_the_rows_of_those_who_live_elsewhere(
    pair: tuple[Kit, Kit],
) -> None:
    from edn_server.delivery import cleanup as ended

    here, _ = pair
    began(here)
    here.frame(2, 4, move(4), events=[(3, EVENT)])
    assert ended.find(here.db, URL, RegistryView(here.registry)) == []
    here.reopen()
    assert ended.find(here.db, URL, RegistryView(here.registry)) == []


def changed_between_move_and_hand_over(here: Kit, there: Kit, *, kept: int) -> None:
    """Pause `s`, buffer events for it, move it, and change it on its new server."""
    began(here)
    here.frame(2, 3, control(3, "pause", ids=["s"]))
    events = [(offset, EVENT) for offset in range(4, 4 + kept)]
    for offset, event in events:
        here.frame(offset - 1, offset, events=[(offset, event)])
    last = 3 + kept
    there.store(coming())
    here.frame(last, last + 1, move(last + 1))
    there.frame(1, last + 2, move(last + 2), control(last + 2, "pause", ids=["s"]))
    there.store(item("s", version=3, url=URL + "/changed"))
    there.frame(last + 2, last + 3, control(last + 3, "change", versions=[("s", 3)]))


def page_of(kit: Kit, position: int) -> protocol.BufferedPage:
    question = protocol.BufferedQuery("s", position)
    page = kit.writer.submit(Call(lambda db: departing.buffered_page(db, question))).result(30)
    return protocol.msgspec.structs.replace(page, version=2)


def take(kit: Kit, page: protocol.BufferedPage) -> protocol.Accepted:
    kit._batch = max(kit._batch, kit._newest_batch()) + 1
    return kit.writer.submit(StoreBuffered(kit.registry, kit._batch, page, lambda *_: None)).result(30)


def test_a_repeated_page_adds_nothing_after_a_change_between_move_and_hand_over(
    pair: tuple[Kit, Kit],
) -> None:
    here, there = pair
    changed_between_move_and_hand_over(here, there, kept=1)
    page = page_of(here, 0)
    assert [take(there, page).position for _ in range(2)] == [1, 1]
    there.reopen()
    assert take(there, page).position == 1
    assert there.told() == [("s", "e4")]


def test_a_hand_over_of_several_pages_ends_after_a_change_and_delivers_each_event_once(
    pair: tuple[Kit, Kit], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departing, "PAGE_BYTES", 1)  # each page holds one row
    here, there = pair
    changed_between_move_and_hand_over(here, there, kept=3)
    positions = [0]
    while len(positions) < 10:
        page = page_of(here, positions[-1])
        positions.append(take(there, page).position)
        if page.final and positions[-1] >= page.upto:
            break
    assert positions == [0, 1, 2, 3]
    departed(here, ("s", 2), forget=["s"])
    arrive(there, ("s", 2))
    there.frame(9, 10, control(10, "resume", ids=["s"]))
    assert deliver_to(there) == [("s", f"e{offset}", URL + "/changed") for offset in (4, 5, 6)]


# -- anything, in any order -----------------------------------------------------------------------------


@dataclass
class World:
    """One subscription, two servers, one log; and, beside them, what its subscriber must hear, and where."""

    kits: list[Kit]
    at: int = 0
    version: int = 1
    offset: int = 1
    url: str = URL
    paused: bool = False
    ended: bool = False
    #: it has moved, and the server that it comes from is not done
    unsettled: bool = False
    #: (event, where) in order
    heard: list[tuple[str, str]] = field(default_factory=list)
    #: what is due, and where it may be heard; what is kept until it is resumed
    due: list[tuple[str, list[str]]] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    #: the places of what was kept once: it may be told to a later address, too
    late: list[list[str]] = field(default_factory=list)
    #: what a server that is behind has not read yet, if one is
    behind: int | None = None
    unread: list[tuple[int, int, list[protocol.Control], list[tuple[int, Any]]]] = field(default_factory=list)

    def tell(self, *controls: tuple[int, protocol.Control], event: int | None = None) -> None:
        upto = max([offset.offset for _, offset in controls] + ([event] if event else []))
        for place, kit in enumerate(self.kits):
            own = [each for where, each in controls if where == place]
            events = [(event, EVENT)] if event else []
            if place == self.behind:
                self.unread.append((self.offset, upto, own, events))
            else:
                kit.frame(self.offset, upto, *own, events=events)
        self.offset = upto

    def lag_here(self) -> None:
        if self.behind is None:
            self.behind = self.at

    def lag_there(self) -> None:
        if self.behind is None:
            self.behind = 1 - self.at

    def catch_up(self) -> None:
        if self.behind is not None:
            for after, upto, controls, events in self.unread:
                self.kits[self.behind].frame(after, upto, *controls, events=events)
        self.behind, self.unread = None, []

    def event(self) -> None:
        self.tell(event=self.offset + 1)
        if self.paused:
            self.kept.append(f"e{self.offset}")
        elif not self.ended:
            self.due.append((f"e{self.offset}", [self.url]))

    def pause(self) -> None:
        if self.ended:
            return
        kind: protocol.Kind = "resume" if self.paused else "pause"
        self.paused = not self.paused
        self.tell((self.at, control(self.offset + 1, kind, ids=["s"])))
        self.late += [[self.url] for _ in self.kept]
        self.due += zip(self.kept, self.late[len(self.late) - len(self.kept) :], strict=True)
        self.kept = []

    def end(self) -> None:
        """Of what is due nothing is lost by it; what is kept goes."""
        if not self.ended:
            self.tell((self.at, control(self.offset + 1, "deactivate", ids=["s"])))
            self.ended, self.paused, self.kept = True, False, []

    def change(self) -> None:
        if self.ended:
            return
        self.version += 1
        self.url = f"{URL}/{self.version}"
        self.kits[self.at].store(item("s", version=self.version, url=self.url))
        self.tell((self.at, control(self.offset + 1, "change", versions=[("s", self.version)])))
        for places in self.late:
            places.append(self.url)

    def move(self) -> None:
        if self.unsettled or self.ended:
            return
        self.version += 1
        there = 1 - self.at
        self.kits[there].store(protocol.msgspec.structs.replace(coming(self.version), url=self.url))
        controls = [
            (self.at, move(self.offset + 1, self.version)),
            (there, move(self.offset + 2, self.version)),
        ]
        if self.paused:
            controls.append((there, control(self.offset + 3, "pause", ids=["s"])))
        self.at, self.unsettled, self.moved = there, True, self.version
        self.tell(*controls)

    def settle(self) -> None:
        if not self.unsettled:
            return
        source, destination = self.kits[1 - self.at], self.kits[self.at]
        answer = departed(source, ("s", self.moved))
        assert answer.ended == ["s"] or (self.behind == 1 - self.at and self.unread)
        if answer.keeping:
            hand_over(source, destination, "s", self.moved)
        if answer.delivered:
            arrive(destination, ("s", self.moved))
            self.unsettled = False

    def deliver(self, place: int) -> None:
        self.heard += [(event, url) for _, event, url in deliver_to(self.kits[place])]

    def deliver_here(self) -> None:
        self.deliver(self.at)

    def deliver_there(self) -> None:
        self.deliver(1 - self.at)

    def restart(self) -> None:
        for kit in self.kits:
            kit.collect()
            kit.reopen()

    def right_so_far(self) -> bool:
        return len(self.heard) <= len(self.due) and all(
            event == name and url in places
            for (event, url), (name, places) in zip(self.heard, self.due, strict=False)
        )


STEPS = st.lists(
    st.sampled_from(
        [
            *("event", "pause", "change", "end", "move", "settle", "restart"),
            *("deliver_here", "deliver_there", "lag_here", "lag_there", "catch_up"),
        ]
    ),
    max_size=30,
)


@settings(max_examples=80, deadline=None)
@given(STEPS)
@example(["move", "event", "change", "event", "end", "restart"])
@example(["move", "event", "pause", "event", "end", "restart"])
@example(["pause", "event", "move", "pause", "pause", "event", "end", "settle"])
@example(["pause", "event", "move", "settle", "pause", "event", "pause", "end"])
@example(["pause", "event", "move", "end", "settle"])
@example(["pause", "event", "lag_there", "move", "settle", "catch_up", "deliver_here"])
def test_whatever_happens_everything_is_heard_once_and_in_order(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kits = [Kit(Path(folder) / "a"), Kit(Path(folder) / "b")]
        for kit in kits:
            kit.frame(0, 1, control(1, "join", incarnation=1))
        world = World(kits)
        kits[0].store(item("s", url=URL))
        world.tell((0, activate(2, ("s", 1))))
        for step in steps:
            getattr(world, step)()
            assert world.right_so_far(), (world.heard, world.due)
        world.catch_up()
        if world.paused:
            world.pause()
        world.deliver_there()
        world.settle()
        world.deliver_here()
        assert world.right_so_far(), (world.heard, world.due)
        assert len(world.heard) == len(world.due), (world.heard, world.due)
        assert not world.unsettled
        world.restart()
        living = [0, 0]
        living[world.at] = 0 if world.ended else 1
        assert [kit.count("versions") for kit in kits] == living
        assert [kit.count(table) for kit in kits for table in ("outbox", "events", "replays", "pauses")] == [
            0
        ] * 8
        for kit in kits:
            kit.close()
