"""Servers of a graph with cycles: reverse path forwarding with distance vectors.

Every message carries the site of the server that its request entered at, its *origin*, and the length of
its way since. A server accepts a message only from the neighbour that is next on the shortest known path to
that origin, and learns paths from the messages themselves. The length of a link is its latency, so the
first copy arrives over the shortest path.

The published rule drops copies at the receiver. This server also remembers the distances that such copies
had: a neighbour with a shorter way to an origin than through this server is not below it, and needs no copy
of that origin's messages. Once every server has announced itself (`setup`), a message crosses a link at
most once.

Subscriptions of different origins are kept apart: filters are pruned by covering filters *of the same
origin* only. Equation (1) prunes across origins. That loses notifications: a server that already passed f
on for one origin says nothing about a second one, whose tree leads to other servers. `shared=True` shows
it.
"""

from __future__ import annotations

from dataclasses import replace

from evaluation.siena.kernel import Message
from evaluation.siena.poset import Filtering
from evaluation.siena.requests import Table
from evaluation.siena.servers import Server
from evaluation.siena.trace import Kind

#: the key of the only table if origins share one
_ALL = -1


class GenericServer(Server):
    def __init__(self, *, shared: bool = False) -> None:
        super().__init__()
        self._shared = shared
        self._tables: dict[int, Table] = {}
        #: by origin: the next hop and its distance
        self._next: dict[int, tuple[int, float]] = {}
        #: by origin and neighbour: the neighbour's own distance
        self._heard: dict[tuple[int, int], float] = {}
        self._origins: dict[int, None] = {}

    def initialize(self) -> None:
        setup = Message(kind="setup", content=None, origin=self.site)
        self._flood(setup, -1)

    def process(self, message: Message, sender: object) -> None:
        if not isinstance(sender, Server):
            message = replace(message, origin=self.site, distance=0.0)
            super().process(message, sender)  # type: ignore[arg-type]
            return
        link = self.simulator.network.near[self.site][sender.site].latency
        self._heard[message.origin, sender.site] = message.distance
        arrived = replace(message, distance=message.distance + link)
        if self._accepts(arrived, sender.site):
            super().process(arrived, sender)

    def on_other(self, who: int, message: Message) -> None:
        self._flood(message, who)

    def on_subscribe(self, who: int, message: Message) -> None:
        self._table(message.origin).add(who, message.content)
        self._origins[message.origin] = None
        self._settle(message)

    def on_unsubscribe(self, who: int, message: Message) -> None:
        self._table(message.origin).remove(who, message.content)
        self._settle(message)

    def on_notify(self, who: int, message: Message) -> None:
        receivers = {
            one
            for table in self._tables.values()
            for entry in table.poset.matching(message.content.values)
            for one in entry.subscribers
        }
        below = self._below(message.origin)
        self.pass_on({one for one in receivers if one < 0 or (one in below and one != who)}, message)

    def _table(self, origin: int) -> Table:
        return self._tables.setdefault(_ALL if self._shared else origin, Table())

    def _accepts(self, message: Message, sender: int) -> bool:
        if message.origin == self.site:
            return False
        hop, distance = self._next.get(message.origin, (sender, message.distance))
        if hop != sender and distance <= message.distance:
            return False
        self._next[message.origin] = sender, min(distance, message.distance)
        return True

    def _below(self, origin: int) -> set[int]:
        """Returns the neighbours whose shortest path to an origin may lead through this server."""
        distance = 0.0 if origin == self.site else self._next[origin][1]
        near = self.simulator.network.near[self.site]
        found = set()
        for site in self.peers:
            heard = self._heard.get((origin, site))
            if heard is None or heard >= distance + near[site].latency:
                found.add(site)
        return found

    def _towards(self, filter: Filtering, origin: int) -> set[int]:
        if not self._shared:
            return self._below(origin)
        return set().union(*(self._below(one) for one in self._origins))

    def _settle(self, cause: Message) -> None:
        table = self._table(cause.origin)
        for forward in table.settle(lambda filter: self._towards(filter, cause.origin)):
            kind: Kind = "subscription" if forward.wanted else "unsubscription"
            message = replace(cause, kind=kind, content=forward.filter)
            self.simulator.send(message, self, self.peers[forward.neighbour])

    def _flood(self, message: Message, who: int) -> None:
        for site in sorted(self._below(message.origin) - {who}):
            self.simulator.send(message, self, self.peers[site])
