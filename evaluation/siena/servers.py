"""The architectures: servers that process requests of clients and of each other.

| | interconnection | who learns of a subscription |
|---|---|---|
| `CentralServer` | one server | nobody else |
| `HierarchicalServer` | a tree with a root | the masters up to the root; all notifications go there, too |
| `PeerServer` | a tree of equals | every server |
| `PeerServer(advertised=True)` | a tree of equals | the servers towards advertisements that overlap it |
| `GenericServer` | any connected graph | every server, along the shortest paths from its origin |

A server never sends a notification back where it came from; the published text leaves that out. Other gaps
and errors of the text are named where the code differs from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evaluation.siena.kernel import Message, Process
from evaluation.siena.poset import Filtering
from evaluation.siena.requests import Forward, Table
from evaluation.siena.trace import Kind


class Server(Process):
    """A server. Identities in its tables are negative for clients: -1 - number of the process."""

    def __init__(self) -> None:
        self.table = Table()
        #: servers by site, and clients by identity
        self.peers: dict[int, Server] = {}
        self._clients: dict[int, Process] = {}

    def identity(self, process: Process) -> int:
        """Names a neighbour by its site and a client by a negative number."""
        if isinstance(process, Server):
            return process.site
        name = -1 - process.id
        self._clients[name] = process
        return name

    def process(self, message: Message, sender: Process) -> None:
        who = self.identity(sender)
        match message.kind:
            case "subscription":
                self.on_subscribe(who, message)
            case "unsubscription":
                self.on_unsubscribe(who, message)
            case "advertisement":
                self.on_advertise(who, message)
            case "unadvertisement":
                self.on_unadvertise(who, message)
            case "notification":
                self.on_notify(who, message)
            case _:
                self.on_other(who, message)

    def on_subscribe(self, who: int, message: Message) -> None:
        raise NotImplementedError

    def on_unsubscribe(self, who: int, message: Message) -> None:
        raise NotImplementedError

    def on_advertise(self, who: int, message: Message) -> None:
        """Drops advertisements, as all architectures but one do."""

    def on_unadvertise(self, who: int, message: Message) -> None:
        """Drops unadvertisements."""

    def on_notify(self, who: int, message: Message) -> None:
        raise NotImplementedError

    def on_other(self, who: int, message: Message) -> None:
        raise NotImplementedError

    def interested(self, values: Any) -> set[int]:
        return {who for entry in self.table.poset.matching(values) for who in entry.subscribers}

    def pass_on(self, receivers: Iterable[int], message: Message) -> None:
        """Sends a notification: to neighbours by site, then to clients by number."""
        for who in sorted(receivers, key=lambda who: (who < 0, abs(who))):
            self.simulator.send(message, self, self.peers[who] if who >= 0 else self._clients[who])

    def tell(self, kind: Kind, cause: Message, neighbour: int, content: Filtering) -> None:
        message = Message(kind=kind, content=content, service=cause.service)
        self.simulator.send(message, self, self.peers[neighbour])


class CentralServer(Server):
    def on_subscribe(self, who: int, message: Message) -> None:
        self.table.add(who, message.content)

    def on_unsubscribe(self, who: int, message: Message) -> None:
        self.table.remove(who, message.content)

    def on_notify(self, who: int, message: Message) -> None:
        self.pass_on(self.interested(message.content.values), message)


class HierarchicalServer(Server):
    """A server with a master, which it treats like a client treats a server.

    The published text forwards an unsubscription as it came, and sends the roots again that it uncovers. The
    master then also forgets subscriptions of other clients that the unsubscription covers. So this server
    cancels the roots that are gone. The older text cancels those too, but sends no uncovered roots again.
    `literal` and `resend=False` are these two readings; both lose notifications.
    """

    def __init__(self, *, literal: bool = False, resend: bool = True) -> None:
        super().__init__()
        #: the site of the master; None for the root
        self.master: int | None = None
        self._literal = literal
        self._resend = resend

    def on_subscribe(self, who: int, message: Message) -> None:
        entry = self.table.add(who, message.content)
        if entry is not None and not entry.successors and self.master is not None:
            self.tell("subscription", message, self.master, entry.filter)

    def on_unsubscribe(self, who: int, message: Message) -> None:
        before = {entry: entry.filter for entry in self.table.poset.roots}
        self.table.remove(who, message.content)
        after = self.table.poset.roots
        gone = [filter for entry, filter in before.items() if entry not in after]
        if self.master is None or not gone:
            return
        for filter in [message.content] if self._literal else gone:
            self.tell("unsubscription", message, self.master, filter)
        for entry in after if self._resend else ():
            if entry not in before:
                self.tell("subscription", message, self.master, entry.filter)

    def on_notify(self, who: int, message: Message) -> None:
        receivers = self.interested(message.content.values)
        if self.master is not None:
            receivers.add(self.master)
        self.pass_on(receivers - {who} if who >= 0 else receivers, message)


class PeerServer(Server):
    """A server of an acyclic graph of equals.

    With `advertised`, subscriptions are sent only towards neighbours whose advertisements overlap them, and a
    server drops notifications that their publisher has not advertised. An unadvertisement is a dropped
    connection: the neighbour that sent it forgets the subscriptions it had from here by itself. With
    `explicit` it is told.
    """

    def __init__(self, *, advertised: bool = False, explicit: bool = False) -> None:
        super().__init__()
        self.advertised = advertised
        self._explicit = explicit
        self.advertisements = Table()

    def connect(self, peer: PeerServer, cause: Message) -> None:
        """Accepts a new neighbour and sends it all roots; the graph must stay acyclic."""
        self.peers[peer.site] = peer
        if self.advertised:
            self._send(self.advertisements.settle(lambda _: self.peers), cause, "advertisement")
        self._settle(cause)

    def disconnect(self, site: int, cause: Message) -> None:
        """Forgets a neighbour and everything that it asked for."""
        del self.peers[site]
        gone = frozenset({site})
        for table in (self.advertisements, self.table):
            table.keep(site, lambda _: False)
        if self.advertised:
            forwards = self.advertisements.settle(lambda _: self.peers, silent=gone)
            self._send(forwards, cause, "advertisement")
        self._settle(cause, silent=gone)

    def on_subscribe(self, who: int, message: Message) -> None:
        if who >= 0 and self.advertised and not self._explicit and not self._told(who, message.content):
            return
        self.table.add(who, message.content)
        self._settle(message)

    def on_unsubscribe(self, who: int, message: Message) -> None:
        self.table.remove(who, message.content)
        self._settle(message)

    def on_advertise(self, who: int, message: Message) -> None:
        if self.advertised:
            self.advertisements.add(who, message.content)
            self._readvertise(who, message)

    def on_unadvertise(self, who: int, message: Message) -> None:
        if self.advertised:
            self.advertisements.remove(who, message.content)
            self._readvertise(who, message)

    def on_notify(self, who: int, message: Message) -> None:
        values = message.content.values
        if self.advertised and who < 0:
            entries = self.advertisements.poset.matching(values)
            if not any(who in entry.subscribers for entry in entries):
                return
        receivers = self.interested(values)
        self.pass_on(receivers - {who} if who >= 0 else receivers, message)

    def _readvertise(self, who: int, message: Message) -> None:
        forwards = self.advertisements.settle(lambda _: self.peers)
        self._send(forwards, message, "advertisement")
        if not self._explicit:
            for site in {forward.neighbour for forward in forwards if not forward.wanted}:
                self.table.keep(site, lambda filter, site=site: self._told(site, filter))  # type: ignore[misc]
        self._settle(message, silent=frozenset() if self._explicit else frozenset({who}))

    def _told(self, site: int, filter: Filtering) -> bool:
        """Tells whether a neighbour knows of an advertisement that overlaps a filter."""
        return any(
            site in entry.forwards and entry.filter.overlaps(filter) for entry in self.advertisements.poset
        )

    def _advertisers(self, filter: Filtering) -> set[int]:
        return {
            who
            for entry in self.advertisements.poset
            if entry.filter.overlaps(filter)
            for who in entry.subscribers
            if who in self.peers
        }

    def _settle(self, cause: Message, *, silent: frozenset[int] = frozenset()) -> None:
        towards = self._advertisers if self.advertised else lambda _: self.peers
        self._send(self.table.settle(towards, silent=silent), cause, "subscription")

    def _send(self, forwards: list[Forward], cause: Message, what: Kind) -> None:
        opposite: Kind = "unsubscription" if what == "subscription" else "unadvertisement"
        for forward in forwards:
            self.tell(what if forward.wanted else opposite, cause, forward.neighbour, forward.filter)
