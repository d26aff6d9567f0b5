"""Servers, an unreliable network and a dispatcher's table, as plain data: the world of the routing tests.

A subscription passes through three steps that anything may come between: the server stores it, the dispatcher
widens its table by the answer, and from then on it is *active*. Snapshots are begun at one time and arrive at
another, in any order, or never. `wanted` says from the active subscriptions alone, rectangle by rectangle,
which events concern which servers; the table must say yes to at least those.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dispatcher.routing.table import RoutingTable
from edn.arrays import Bools, Floats
from edn.summary import Maximal, Summary

INF = float("inf")


@dataclass
class Stored:
    topic: int
    lo: Floats
    hi: Floats
    active: bool = False


@dataclass
class Answer:
    """What the server answered to a store, on its way to the dispatcher."""

    id: int
    epoch: int
    seq: int
    #: what this version replaces once it is active
    replaces: int | None = None


@dataclass
class Host:
    """One server."""

    epoch: int = 1
    seq: int = 0
    stored: dict[int, Stored] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    #: snapshots on their way: (epoch, seq, topic → bytes)
    snapshots: list[tuple[int, int, dict[int, bytes]]] = field(default_factory=list)


@dataclass
class World:
    make_table: type[RoutingTable]
    names: tuple[str, ...]
    router: str = "bitmap"
    cut: str = "waste"
    bloom: bool = False
    following: int = 0
    hosts: dict[str, Host] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hosts = {name: Host() for name in self.names}
        self.restart_dispatcher()

    # -- what happens to subscriptions -------------------------------------------------------------------

    def store(self, name: str, topic: int, lo: Floats, hi: Floats, replaces: int | None = None) -> int:
        host = self.hosts[name]
        self.following += 1
        host.seq += 1
        host.stored[self.following] = Stored(topic, lo, hi)
        host.answers.append(Answer(self.following, host.epoch, host.seq, replaces))
        return self.following

    def widen(self, name: str, which: int) -> None:
        """An answer arrives: the table is widened, then the subscription is active."""
        host = self.hosts[name]
        answer = host.answers.pop(which)
        stored = host.stored[answer.id]
        self.table.widen(
            name, stored.topic, stored.lo[None], stored.hi[None], epoch=answer.epoch, seq=answer.seq
        )
        stored.active = True
        if answer.replaces is not None:
            host.stored.pop(answer.replaces, None)

    def unsubscribe(self, name: str, id: int) -> None:
        del self.hosts[name].stored[id]

    def active(self, name: str) -> list[int]:
        return [id for id, stored in self.hosts[name].stored.items() if stored.active]

    # -- what happens to summaries -----------------------------------------------------------------------

    def begin_snapshot(self, name: str) -> None:
        host = self.hosts[name]
        topics: dict[int, list[Stored]] = {}
        for stored in host.stored.values():
            topics.setdefault(stored.topic, []).append(stored)
        made = {}
        for topic, held in topics.items():
            width = max(len(stored.lo) for stored in held)
            maximal = Maximal(width)
            for number, stored in enumerate(held):
                maximal.insert([number], stored.lo[None], stored.hi[None])
            made[topic] = Summary.build(*maximal.rects()).to_bytes()
        host.snapshots.append((host.epoch, host.seq, made))

    def deliver_snapshot(self, name: str, which: int) -> bool:
        epoch, seq, made = self.hosts[name].snapshots.pop(which)
        return self.table.accept(
            name, epoch, seq, {topic: Summary.from_bytes(data) for topic, data in made.items()}
        )

    # -- what happens to the parts -----------------------------------------------------------------------

    def restart_server(self, name: str) -> None:
        """Stores that were not answered come to nothing; snapshots on their way may still arrive."""
        host = self.hosts[name]
        host.epoch += 1
        for answer in host.answers:
            host.stored.pop(answer.id, None)
        host.answers.clear()

    def restart_dispatcher(self) -> None:
        """The table is empty again; snapshots and answers that the former life asked for are not taken."""
        self.table = self.make_table(router=self.router, cut=self.cut, bloom=self.bloom)
        for name in self.names:
            self.table.add(name)
            self.hosts[name].snapshots.clear()
            for answer in self.hosts[name].answers:
                self.hosts[name].stored.pop(answer.id, None)
            self.hosts[name].answers.clear()

    def replace_server(self, name: str) -> None:
        """It leaves the network and comes back with all that it holds: other columns, nothing known of it."""
        self.table.remove(name)
        self.table.add(name)
        self.hosts[name].snapshots.clear()

    # -- the question --------------------------------------------------------------------------------------

    def wanted(self, topic: int, points: Floats) -> Bools:
        """Columns in the order of the table's servers."""
        needed = np.zeros((len(points), len(self.table.servers)), dtype=np.bool_)
        for column, name in enumerate(self.table.servers):
            for stored in self.hosts[name].stored.values():
                if stored.active and stored.topic == topic:
                    inside = np.ones(len(points), dtype=np.bool_)
                    for j in range(len(stored.lo)):
                        x = points[:, j] if j < points.shape[1] else np.full(len(points), -INF)
                        inside &= (stored.lo[j] <= x) & (x <= stored.hi[j])
                    needed[:, column] |= inside
        return needed

    def check(self, topic: int, points: Floats) -> tuple[int, int]:
        """AssertionError on a lost event; else how many pairs were wanted and how many routed."""
        needed = self.wanted(topic, points)
        routed = self.table.route(topic, points)
        lost = needed & ~routed
        assert not lost.any(), f"{int(lost.sum())} events lost, the first {points[lost.any(axis=1)][0]}"
        return int(needed.sum()), int(routed.sum())
