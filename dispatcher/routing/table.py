"""Which servers an event concerns: every server's summary, cut to its precision, ready to be asked in
batches.

Theory of operation
-------------------
The table may be too wide, never too narrow: too wide costs traffic, too narrow loses events. Hence:

- A server without an accepted snapshot gets everything.
- A *widening* (the rectangles of a subscription that the server has just stored) counts at once. It is
  remembered, even where the summary covers it already, until a snapshot is accepted whose (epoch, seq) is not
  below its own: such a snapshot was begun after the store, so it contains the subscription or its end.
- A snapshot that is older than an accepted one is refused. One that is accepted replaces the summaries, and
  the widenings that it need not contain are laid on top of it.
- After a restart the table is empty and has forgotten widenings, so its owner passes on only those snapshots
  that it has asked for since.
- Precision changes only how a summary is cut. A cut contains the summary, and widenings are never cut.

Readers take no lock. What `route` reads of a topic is one immutable object, replaced by one assignment, and
so are the columns. All other methods are for one thread, the event loop's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from dispatcher.routing.point_sample import Recent
from dispatcher.routing.rebuild import Piece, Recut
from dispatcher.routing.topic_routes import Holding, How, Instant, TopicRouting, Widenings
from edn.arrays import Bools, Floats, Ints
from edn.summary import Bundle, Router, Summary, new_router

#: a rectangle of a summary that was cut, or of a subscription that no summary contains yet
Why = Literal["summary", "widening"]

#: how a summary may be cut
CUTS = ("waste", "weighted", "level")

#: recent events kept a topic for weighted cuts, how many of them one batch may replace, and the least
#: useful number
RECENT = 2048
RECENT_OF_BATCH = 128
RECENT_LEAST = 512
#: seconds for which taking a snapshot may hold up the event loop
SLICE_SECONDS = 0.005


class ServerRouting(msgspec.Struct, frozen=True):
    """Describes the routes to one server."""

    server: str
    #: 0 is "route everything"
    precision: float
    #: of the accepted snapshot; None before the first
    epoch: int | None
    seq: int | None
    #: no summary is asked: there is none yet, or the precision is 0
    everything: bool
    topics: dict[int, TopicRouting]
    #: events that were routed to it, and events that were asked about while it was there
    routed: int
    asked: int


@dataclass(slots=True)
class _Server:
    precision: float
    #: row in the table of counters
    row: int
    accepted: Instant | None = None
    topics: dict[int, Holding] = field(default_factory=dict)

    @property
    def everything(self) -> bool:
        return self.accepted is None or self.precision == 0


@dataclass(frozen=True, slots=True)
class _Bundles:
    """All servers' rectangles of one topic, apart by how often they change."""

    cuts: Bundle
    packed: Bundle
    tails: Bundle


@dataclass(frozen=True, slots=True)
class _Columns:
    """The servers in the order of the columns, and the topics' bundles for exactly that order."""

    servers: tuple[str, ...]
    everything: Bools
    rows: Ints
    topics: dict[int, _Bundles]


class RoutingTable:
    def __init__(
        self, *, router: str = "bitmap", precision: float = 1.0, cut: str = "waste", bloom: bool = False
    ) -> None:
        if cut not in CUTS:
            raise ValueError(f"no cut is called {cut!r}; there are {', '.join(CUTS)}")
        self._router: Router = new_router(router)
        self._precision = _checked(precision)
        self._how = How(cut, bloom)
        self._servers: dict[str, _Server] = {}
        self._recent: dict[int, Recent] = {}
        #: a row for each name ever added: events routed, events asked about
        self._counts: Ints = np.zeros((8, 2), dtype=np.int64)
        self._rows: dict[str, int] = {}
        self._columns = _Columns((), np.empty(0, dtype=np.bool_), np.empty(0, dtype=np.int64), {})

    @property
    def servers(self) -> tuple[str, ...]:
        """The columns of `route`."""
        return self._columns.servers

    # -- the set of servers -----------------------------------------------------------------------------

    def add(self, server: str) -> None:
        """A server of which nothing is known gets everything. One that is there already stays as it is."""
        if server in self._servers:
            return
        row = self._rows.setdefault(server, len(self._rows))
        if row == len(self._counts):
            self._counts = np.vstack([self._counts, np.zeros_like(self._counts)])
        self._servers[server] = _Server(self._precision, row)
        self._renew_columns()

    def remove(self, server: str) -> None:
        """Forget all that is known of a server, but what was counted."""
        del self._servers[server]
        self._renew_columns()

    # -- what they want ---------------------------------------------------------------------------------

    def widen(
        self, server: str, topic: int, lo: npt.ArrayLike, hi: npt.ArrayLike, *, epoch: int, seq: int
    ) -> None:
        """Route these rectangles (n, d) to the server from now on, until a snapshot contains them."""
        low, high = np.array(lo, dtype=np.float64), np.array(hi, dtype=np.float64)
        if low.ndim != 2 or low.shape != high.shape:
            raise ValueError(f"bounds of shapes {low.shape} and {high.shape}")
        if not (low <= high).all():
            raise ValueError("a lower bound is above its upper one, or NaN")
        held = self._servers[server]
        if len(low):
            holding = held.topics.setdefault(topic, Holding())
            at = np.array([[epoch, seq]], dtype=np.int64).repeat(len(low), axis=0)
            packed = holding.widen(self._router, Widenings(at, low, high))
            self._renew_widenings(topic, packed)

    def accept(self, server: str, epoch: int, seq: int, summaries: Mapping[int, Summary]) -> bool:
        """Take a snapshot: topic → summary; a topic that it lacks has no subscriptions there.

        False, and nothing changes, when it is older than one that was accepted before.
        """
        if self._is_old(server, epoch, seq):
            return False
        for _ in self._accept(server, (epoch, seq), summaries):
            pass
        return True

    async def accept_in_slices(
        self, server: str, epoch: int, seq: int, summaries: Mapping[int, Summary]
    ) -> bool:
        """Take a snapshot as `accept` does, with the event loop free after each slice of topics.

        A topic is replaced whole, and each state in between is wide enough: a topic that is not replaced yet
        has its former summary and its widenings. One call per server at a time. False also when the server
        was removed meanwhile.
        """
        if self._is_old(server, epoch, seq):
            return False
        held, began = self._servers[server], time.monotonic()
        for _ in self._accept(server, (epoch, seq), summaries):
            if time.monotonic() - began > SLICE_SECONDS:
                await asyncio.sleep(0)
                began = time.monotonic()
                if self._servers.get(server) is not held:
                    return False
        return True

    def _is_old(self, server: str, epoch: int, seq: int) -> bool:
        accepted = self._servers[server].accepted
        return accepted is not None and (epoch, seq) < accepted

    def _accept(self, server: str, at: Instant, summaries: Mapping[int, Summary]) -> Iterator[int]:
        """Replace one topic after the other."""
        held = self._servers[server]
        for topic in held.topics.keys() | summaries.keys():
            holding = held.topics.setdefault(topic, Holding())
            holding.rebase(self._router, summaries.get(topic), partial(self._outlives, at=at))
            holding.cut_to(self._router, held.precision, self._how, self._sample(topic))
            if holding.empty:
                del held.topics[topic]
            self._renew_topic(topic)
            yield topic
        first = held.accepted is None
        held.accepted = at
        # Last: until the topics are in place, everything goes there.
        if first:
            self._renew_flags()

    def forget_topic(self, topic: int) -> None:
        """Forget the recent events of a deleted topic.

        The rectangles stay until a snapshot lacks them: a server that lags must still get the events that
        were published before the deletion.
        """
        self._recent.pop(topic, None)

    def set_precision(self, precision: float, server: str | None = None) -> None:
        """0 routes everything; else a summary of n rectangles is cut to max(1, ceil(precision × n)) of them.

        Without a server it holds for all, and for those that come.
        """
        _checked(precision)
        if server is None:
            self._precision = precision
        chosen = list(self._servers.values()) if server is None else [self._servers[server]]
        touched: set[int] = set()
        for held in chosen:
            held.precision = precision
            for topic, holding in held.topics.items():
                if precision > 0:
                    holding.cut_to(self._router, precision, self._how, self._sample(topic))
                    touched.add(topic)
        for topic in touched:
            self._renew_topic(topic)
        self._renew_flags()

    def plan(self, precision: float) -> Recut:
        """Everything at another precision, to be cut beside the table: `Recut.work`, then `apply`."""
        _checked(precision)
        pieces = [
            Piece(server, column, topic, holding.summary, self._sample(topic))
            for column, (server, held) in enumerate(self._servers.items())
            for topic, holding in held.topics.items()
            if holding.summary is not None and precision > 0
        ]
        return Recut(precision, self.servers, pieces, self._router, self._how)

    def current(self, recut: Recut) -> bool:
        """Whether the table still holds what a plan was made of."""
        held = {
            (server, topic): holding.summary
            for server, one in self._servers.items()
            for topic, holding in one.topics.items()
            if holding.summary is not None and recut.precision > 0
        }
        planned = recut.covers()
        return recut.servers == self.servers and (
            planned.keys() == held.keys() and all(planned[key][0] is summary for key, summary in held.items())
        )

    def apply(self, recut: Recut) -> None:
        """Put a plan that was worked off in force, for all servers and those that come."""
        if not recut.done:
            raise ValueError("a plan that was not worked off")
        if not self.current(recut):
            # Rare: a summary came while this was being cut. What fits is taken, the rest is cut here.
            planned = recut.covers()
            for server, held in self._servers.items():
                held.precision = recut.precision
                for topic, holding in held.topics.items():
                    summary, cover = planned.get((server, topic), (None, None))
                    if summary is not None and summary is holding.summary:
                        holding.cut = cover
                    elif recut.precision > 0:
                        holding.cut_to(self._router, recut.precision, self._how, self._sample(topic))
            self._precision = recut.precision
            self._renew_columns()
            return
        self._precision = recut.precision
        for held in self._servers.values():
            held.precision = recut.precision
        for piece in recut.pieces:
            self._servers[piece.server].topics[piece.topic].cut = piece.cover
        for topic, cuts in recut.bundles.items():
            former = self._columns.topics[topic]
            self._columns.topics[topic] = _Bundles(cuts, former.packed, former.tails)
        self._renew_flags()

    # -- the question -----------------------------------------------------------------------------------

    def route(self, topic: int, points: Floats) -> Bools:
        """Which events (rows) concern which servers (columns). May run in another thread than the rest."""
        columns = self._columns
        out = _marked(columns, topic, points)
        if self._how.cut == "weighted" and len(points):
            recent = self._recent.get(topic)
            if recent is None or recent.width != points.shape[1]:
                self._recent[topic] = recent = Recent(points.shape[1], size=RECENT, of_batch=RECENT_OF_BATCH)
            recent.add(points)
        counts = self._counts
        counts[columns.rows, 0] += out.sum(axis=0)
        counts[columns.rows, 1] += len(points)
        return out

    def route_to(self, server: str, topic: int, points: Floats) -> Bools:
        """Mark the events that concern one server; nothing is counted, and nothing enters the sample.

        For events that were routed and counted when they were published, and are read again. Asks only that
        server's rectangles: bundles skip what is marked already, so all other columns are marked before.
        """
        columns = self._columns
        if server not in columns.servers:
            return np.ones(len(points), dtype=np.bool_)
        column = columns.servers.index(server)
        out = np.ones((len(points), len(columns.servers)), dtype=np.bool_)
        out[:, column] = columns.everything[column]
        _mark(columns, topic, points, out)
        return np.ascontiguousarray(out[:, column])

    def would_route(self, topic: int, points: Floats, recut: Recut | None = None) -> Bools:
        """The same of events that nobody published: nothing is counted. With a plan, as if in force."""
        if recut is None or recut.servers != self.servers:
            return _marked(self._columns, topic, points)
        everything = [held.accepted is None or recut.precision == 0 for held in self._servers.values()]
        columns = replace(self._columns, everything=np.array(everything, dtype=np.bool_))
        bundles, cuts = columns.topics.get(topic), recut.bundles.get(topic)
        if bundles is not None:
            fresh = replace(bundles, cuts=cuts if cuts is not None else self._router.bundle([]))
            columns = replace(columns, topics={topic: fresh})
        return _marked(columns, topic, points)

    def rectangles(self, server: str, topic: int) -> Iterator[tuple[Why, Floats, Floats]]:
        """What routes events of a topic to a server, in parts: why, and the bounds of the rectangles."""
        held = self._servers[server]
        holding = held.topics.get(topic)
        if held.everything or holding is None:
            return
        if holding.cut is not None:
            yield "summary", holding.cut.lo, holding.cut.hi
        for layer in holding.layers:
            yield "widening", layer.widenings.lo, layer.widenings.hi

    def describe(self, server: str) -> ServerRouting:
        held = self._servers[server]
        epoch, seq = held.accepted if held.accepted is not None else (None, None)
        return ServerRouting(
            server=server,
            precision=held.precision,
            epoch=epoch,
            seq=seq,
            everything=held.everything,
            topics={topic: holding.describe() for topic, holding in held.topics.items()},
            routed=int(self._counts[held.row, 0]),
            asked=int(self._counts[held.row, 1]),
        )

    # -- inside -----------------------------------------------------------------------------------------

    def _outlives(self, widenings: Widenings, at: Instant) -> Bools:
        """Mark the widenings that a snapshot begun at that instant need not contain."""
        return widenings.later_than(at)

    def _sample(self, topic: int) -> Floats | None:
        recent = self._recent.get(topic)
        if recent is None or recent.seen < RECENT_LEAST:
            return None
        return recent.points()

    def _holdings(self, topic: int) -> Iterator[tuple[int, Holding]]:
        for column, held in enumerate(self._servers.values()):
            holding = held.topics.get(topic)
            if holding is not None:
                yield column, holding

    def _cuts(self, topic: int) -> Bundle:
        cuts = ((column, holding.cut) for column, holding in self._holdings(topic))
        return self._router.bundle([(column, cut) for column, cut in cuts if cut is not None])

    def _packed(self, topic: int) -> Bundle:
        return self._router.bundle(
            [(column, layer.cover) for column, holding in self._holdings(topic) for layer in holding.packed]
        )

    def _tails(self, topic: int) -> Bundle:
        tails = ((column, holding.tail) for column, holding in self._holdings(topic))
        return self._router.bundle([(column, tail.cover) for column, tail in tails if tail is not None])

    def _renew_topic(self, topic: int) -> None:
        if any(True for _ in self._holdings(topic)):
            fresh = _Bundles(self._cuts(topic), self._packed(topic), self._tails(topic))
            self._columns.topics[topic] = fresh
        else:
            self._columns.topics.pop(topic, None)

    def _renew_widenings(self, topic: int, packed: bool) -> None:
        """The same when only widenings changed, which must be cheap: every subscription comes this way."""
        former = self._columns.topics.get(topic)
        if former is None:
            self._renew_topic(topic)
            return
        self._columns.topics[topic] = _Bundles(
            former.cuts, self._packed(topic) if packed else former.packed, self._tails(topic)
        )

    def _renew_flags(self) -> None:
        former = self._columns
        self._columns = _Columns(former.servers, self._everything(), former.rows, former.topics)

    def _renew_columns(self) -> None:
        """After a change of the servers: other columns, so other bundles, and all of them at once."""
        topics = {topic for held in self._servers.values() for topic in held.topics}
        fresh = {
            topic: _Bundles(self._cuts(topic), self._packed(topic), self._tails(topic)) for topic in topics
        }
        rows = np.array([held.row for held in self._servers.values()], dtype=np.int64)
        self._columns = _Columns(tuple(self._servers), self._everything(), rows, fresh)

    def _everything(self) -> Bools:
        return np.array([held.everything for held in self._servers.values()], dtype=np.bool_)


def _marked(columns: _Columns, topic: int, points: Floats) -> Bools:
    out = np.empty((len(points), len(columns.servers)), dtype=np.bool_)
    out[:] = columns.everything
    _mark(columns, topic, points, out)
    return out


def _mark(columns: _Columns, topic: int, points: Floats, out: Bools) -> None:
    bundles = columns.topics.get(topic)
    if bundles is not None:
        bundles.cuts.mark(points, out)
        bundles.packed.mark(points, out)
        bundles.tails.mark(points, out)


def _checked(precision: float) -> float:
    if not 0.0 <= precision <= 1.0:
        raise ValueError(f"a precision of {precision}; it must be from 0 (route everything) to 1 (precise)")
    return precision
