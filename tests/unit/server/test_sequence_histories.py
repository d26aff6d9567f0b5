"""Random histories of two servers: frames, restarts, failed transactions and migrations of sequences.

The events of one log are given to both servers, each at its own pace. Subscriptions migrate between them as
the dispatcher does it. Whatever happens, the sequences notified by both together are those of the oracle,
each once. Planted defects show that the test would notice.
"""

from __future__ import annotations

import functools
import random
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from edn import protocol
from edn.model.sequence import Sequence, Step, Watch, encode
from edn_server.handover import progress
from edn_server.handover.arrivals import FinishArrivals
from edn_server.handover.departures import ReportDepartures
from edn_server.storage.writer import Call
from tests.faults import defects
from tests.oracle.sequences import Happened, completions
from tests.unit.server.serverkit import Kit, control, item, segment, topic

SCHEMA = {"symbol": "string", "price": "number"}
SYMBOLS = "abc"
KEYS = 4


@dataclass
class Hosted:
    """A subscription, and the server that hosts it."""

    id: str
    written: dict[str, Any]
    host: int
    version: int = 1
    #: offset of the move, while its migration is unfinished
    moving: int | None = None
    #: offsets of migrations and restarts on its server
    disturbed: list[int] = field(default_factory=list)

    def stored(self) -> dict[str, Any]:
        steps = []
        for step in self.written["sequence"]:
            unless = step.get("unless")
            watch = None if unless is None else Watch(1, unless["filter"])
            steps.append(Step(1, step["filter"], step.get("times", 1), watch))
        return encode(Sequence(steps, by=self.written.get("by", [])))


class World:
    def __init__(self, path: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.kits = [Kit(path / "one"), Kit(path / "two")]
        #: frames that a server has not applied: (after, upto, controls, events)
        self.waiting: list[list[tuple[int, int, list[Any], list[Any]]]] = [[], []]
        self.applied = [0, 0]
        self.head = 0
        self.events: list[tuple[int, dict[str, Any]]] = []
        self.hosted = [
            Hosted(f"s{number}", self._sequence(), self.chance.randrange(2)) for number in range(12)
        ]
        for one in self.hosted:
            self.kits[one.host].store(item(one.id, one.stored()), info=topic())
        for server in range(2):
            names = [(one.id, 1) for one in self.hosted if one.host == server]
            self._append([(server, control(1, "activate", versions=names))] if names else [])

    def _sequence(self) -> dict[str, Any]:
        def part() -> dict[str, Any]:
            return {"topic": "quotes", "filter": {"symbol": self.chance.choice(SYMBOLS)}}

        steps = [part() for _ in range(self.chance.randint(2, 3))]
        for step in steps[1:]:
            if self.chance.random() < 0.3:
                step["times"] = 2
            if self.chance.random() < 0.3:
                step["unless"] = part()
        return {"sequence": steps, **({"by": ["price"]} if self.chance.random() < 0.6 else {})}

    def close(self) -> None:
        for kit in self.kits:
            kit.close()

    # -- the log ----------------------------------------------------------------------------------------

    def _append(self, controls: list[tuple[int, Any]], events: int = 0) -> None:
        """Append control records, each for a server, and then events, for both."""
        after = self.head
        placed: list[list[Any]] = [[], []]
        for server, one in controls:
            self.head += 1
            placed[server].append(protocol.msgspec.structs.replace(one, offset=self.head))
        fresh = []
        for _ in range(events):
            self.head += 1
            values: dict[str, Any] = {"symbol": self.chance.choice(SYMBOLS)}
            if self.chance.random() < 0.9:
                values["price"] = self.chance.randrange(KEYS)
            fresh.append((self.head, values))
        self.events += fresh
        if self.head > after:
            for server in range(2):
                self.waiting[server].append((after, self.head, placed[server], fresh))

    def _apply(self, server: int) -> None:
        if not self.waiting[server]:
            return
        after, upto, controls, events = self.waiting[server].pop(0)
        segments = [segment(events)] if events else []
        self.kits[server].frame(after, upto, *controls, segments=segments)
        self.applied[server] = upto

    # -- what happens -----------------------------------------------------------------------------------

    def step(self) -> None:
        drawn = self.chance.random()
        if drawn < 0.35:
            self._append([], self.chance.randint(1, 15))
        elif drawn < 0.75:
            self._apply(self.chance.randrange(2))
        elif drawn < 0.80:
            server = self.chance.randrange(2)
            self.kits[server].reopen()
            for one in self.hosted:
                if one.host == server:
                    one.disturbed.append(self.applied[server])
        elif drawn < 0.84:
            self._fail(self.chance.randrange(2))
        elif drawn < 0.92:
            self._move(self.chance.choice(self.hosted))
        else:
            self._complete_moves()

    def _fail(self, server: int) -> None:
        """Apply a frame in a transaction that fails; it is sent again later."""
        if not self.waiting[server]:
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("edn_server.storage.logs.advance", _raise)
            after, upto, controls, events = self.waiting[server][0]
            with pytest.raises(OSError, match="planted"):
                self.kits[server].frame(after, upto, *controls, segments=[segment(events)] if events else [])

    def _move(self, one: Hosted) -> None:
        if one.moving is not None:
            return
        old, new = one.host, 1 - one.host
        one.version += 1
        arriving = item(one.id, one.stored(), version=one.version)
        self.kits[new].store(protocol.msgspec.structs.replace(arriving, arriving=True), info=topic())
        record = control(0, "move", versions=[(one.id, one.version)])
        self._append([(old, record), (new, record)])
        one.host, one.moving = new, self.head
        one.disturbed.append(self.head)

    def _complete_moves(self) -> None:
        for one in self.hosted:
            new, old = one.host, 1 - one.host
            # The new server may hear of the hand-over before it has read the record of the move.
            if one.moving is None or self.applied[old] < one.moving - 1:
                continue
            source, destination = self.kits[old], self.kits[new]
            asked = protocol.Departures([(one.id, one.version)])
            departed, _ = source.writer.submit(ReportDepartures(source.registry, asked)).result(30)
            if one.id not in departed.ended:
                continue
            if one.id in departed.monitored:
                self._hand_over(source, destination, one)
            if self.applied[new] < one.moving:
                continue
            request = protocol.Arrivals([(one.id, one.version)])
            job = FinishArrivals(
                destination.registry,
                request,
                lambda *_: None,
                functools.partial(_next_frame, destination),
                lambda fed: None,
            )
            destination.writer.submit(job).result(30)
            one.moving = None

    def _hand_over(self, source: Kit, destination: Kit, one: Hosted) -> None:
        position = 0
        while True:
            question = protocol.ProgressQuery(one.id, one.version, position)
            page = source.writer.submit(
                Call(functools.partial(progress.progress_page, question=question))
            ).result(30)
            taken = destination.writer.submit(
                progress.StoreProgress(destination.registry, _next_frame(destination), page, lambda fed: None)
            ).result(30)
            if taken.unknown or (page.final and taken.position >= page.upto):
                break
            position = taken.position
        if self.chance.random() < 0.8:  # otherwise the answer was lost, and all of it is repeated
            forget = protocol.Departures([], forget=[one.id])
            source.writer.submit(ReportDepartures(source.registry, forget)).result(30)

    def finish(self) -> None:
        while any(self.waiting):
            for server in range(2):
                self._apply(server)
        for _ in range(3):
            self._complete_moves()
        assert all(one.moving is None for one in self.hosted)

    # -- the result -------------------------------------------------------------------------------------

    def wanted(self) -> list[tuple[str, tuple[str, ...]]]:
        happened = [Happened("quotes", values, offset) for offset, values in self.events]
        names = [f"e{offset}" for offset, _ in self.events]
        return sorted(
            (one.id, tuple(names[index] for index in found))
            for one in self.hosted
            for found in completions(one.written, {"quotes": SCHEMA}, happened)
        )

    def told(self) -> list[tuple[str, tuple[str, ...]]]:
        return sorted(
            (match["subscription"], tuple(event["id"] for event in entry["events"]))
            for kit in self.kits
            for row in kit.rows()
            for entry in kit.body(row)["notifications"]
            for match in entry["matches"]
        )

    def disturbed(self) -> int:
        """The number of complete sequences with a migration or restart between first and last event."""
        by_id = {one.id: one.disturbed for one in self.hosted}
        return sum(
            any(int(events[0][1:]) <= offset < int(events[-1][1:]) for offset in by_id[id])
            for id, events in self.wanted()
        )


def _raise(*given: Any) -> None:
    raise OSError("planted")


def _next_frame(kit: Kit) -> int:
    kit._batch = max(kit._batch, kit._newest_batch()) + 1
    return kit._batch


def run(path: Path, seed: int, steps: int) -> World:
    world = World(path, seed)
    try:
        for _ in range(steps):
            world.step()
        world.finish()
        for kit in world.kits:
            assert kit.count("candidates") == 0
    except BaseException:
        world.close()
        raise
    return world


@pytest.mark.parametrize("seed", [1, 2])
def test_sequences_are_notified_once_whatever_happens(tmp_path: Path, seed: int) -> None:
    world = run(tmp_path, seed, 250)
    try:
        assert world.told() == world.wanted()
        assert len(world.wanted()) > 200
        assert world.disturbed() > 10
    finally:
        world.close()


@pytest.mark.slow
def test_five_thousand_sequences(tmp_path: Path) -> None:
    complete = disturbed = 0
    for seed in range(100, 103):
        world = run(tmp_path / str(seed), seed, 1200)
        try:
            assert world.told() == world.wanted(), seed
            complete += len(world.wanted())
            disturbed += world.disturbed()
        finally:
            world.close()
    print(f"{complete} sequences complete, {disturbed} of them with a migration or restart in between")
    assert complete >= 5_000
    assert disturbed >= 200


def _progress_before_commit(patch: pytest.MonkeyPatch) -> None:
    """Change the half matches in memory before the transaction has committed."""
    from edn_server.sequences.feed import Feed

    write = Feed.write

    def early(self: Any, db: Any) -> None:
        write(self, db)
        self.apply()

    patch.setattr(Feed, "write", early)


def _planted(name: str, patch: pytest.MonkeyPatch) -> None:
    from edn_server.sequences.feed import Feed
    from edn_server.storage.sequences import rows

    if name == "progress-before-commit":
        _progress_before_commit(patch)
        return
    # Registered for the end of the test: a defect is planted for the rest of a process.
    for owner, attribute in ((rows, "half_matches"), (rows, "handed_rows"), (Feed, "feed")):
        patch.setattr(owner, attribute, getattr(owner, attribute))
    defects.plant([name])


@pytest.mark.parametrize(
    "name",
    ["half-matches-forgotten", "half-matches-left", "candidates-fed-twice", "progress-before-commit"],
)
def test_a_planted_defect_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    _planted(name, monkeypatch)
    try:
        world = run(tmp_path, 1, 250)
    except sqlite3.IntegrityError:
        return  # memory and database disagree about a half match
    try:
        assert world.told() != world.wanted()
    finally:
        world.close()
