"""Finds the servers of events, by the servers' summaries cut to a precision.

Theory of operation
-------------------
The table may be too wide, never too narrow: too wide costs traffic, too narrow loses events. Hence:

- A server without an accepted snapshot gets all events.
- A *widening* (the rectangles of a subscription that a server has just stored) takes effect at once. It
  stays, even if the summary covers it, until a snapshot is accepted whose (epoch, seq) is not smaller than
  its own: that snapshot was begun after the store, so it contains the subscription or its end.
- A snapshot that is older than the accepted one is refused. An accepted snapshot replaces the summaries; the
  widenings that it need not contain stay.
- After a restart the table is empty, without widenings. So its owner passes only snapshots that it has
  requested since.
- The precision changes only how a summary is cut. A cut contains the summary, and widenings are never cut.

`route` takes no lock. It reads one immutable object per topic, which is replaced by one assignment, and so
are the columns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from dispatcher.routing.topic_routes import (
    CutOptions,
    Instant,
    PointSample,
    RebuildPart,
    TableRebuild,
    TopicRoutes,
    TopicRouting,
    Widenings,
)
from edn.arrays import Bools, Floats, Ints
from edn.runtime.ownership import any_thread, owned
from edn.summary import Bundle, Router, Summary, new_router

#: origin of a rectangle: a cut summary, or a subscription that no snapshot contains yet
RouteReason = Literal["summary", "widening"]

#: ways to cut a summary
CUTS = ("waste", "weighted", "level")

#: sample of recent events per topic for weighted cuts, how many of them one batch may replace, and the
#: smallest sample in use
SAMPLE = 2048
SAMPLE_OF_BATCH = 128
SAMPLE_LEAST = 512
#: seconds for which accepting a snapshot may block the event loop
SLICE_SECONDS = 0.005


class ServerRouting(msgspec.Struct, frozen=True):
    server: str
    #: 0 is "route everything"
    precision: float
    #: accepted snapshot; None before the first
    epoch: int | None
    seq: int | None
    #: whether it gets all events: no snapshot was accepted, or the precision is 0
    everything: bool
    topics: dict[int, TopicRouting]
    #: events routed to it, and events tested for it (a field of the REST interface)
    routed: int
    asked: int


@dataclass(slots=True)
class _Server:
    #: row in the array of counters
    row: int
    accepted: Instant | None = None
    topics: dict[int, TopicRoutes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Bundles:
    """All servers' rectangles of one topic, separated by how often they change."""

    cuts: Bundle
    packed: Bundle
    tails: Bundle


@dataclass(frozen=True, slots=True)
class _Columns:
    """The servers in the order of the columns, and the bundles for that order."""

    servers: tuple[str, ...]
    everything: Bools
    rows: Ints
    topics: dict[int, _Bundles]


@owned("loop")
class RoutingTable:
    def __init__(
        self, *, router: str = "bitmap", precision: float = 1.0, cut: str = "waste", bloom: bool = False
    ) -> None:
        if cut not in CUTS:
            raise ValueError(f"cut must be one of {', '.join(CUTS)}, got {cut!r}")
        self._router: Router = new_router(router)
        self._precision = _checked(precision)
        self._options = CutOptions(cut, bloom)
        self._servers: dict[str, _Server] = {}
        self._samples: dict[int, PointSample] = {}
        #: one row per server ever added: events routed, events tested
        self._counts: Ints = np.zeros((8, 2), dtype=np.int64)
        self._rows: dict[str, int] = {}
        self._columns = _Columns((), np.empty(0, dtype=np.bool_), np.empty(0, dtype=np.int64), {})
        #: called after every change of what is routed to whom
        self.on_change: Callable[[], None] = lambda: None

    @property
    def servers(self) -> tuple[str, ...]:
        """The columns of `route`."""
        return self._columns.servers

    # -- servers ----------------------------------------------------------------------------------------

    def add(self, server: str) -> None:
        """Add a server, which gets all events until its first snapshot. No effect if it exists."""
        if server in self._servers:
            return
        row = self._rows.setdefault(server, len(self._rows))
        if row == len(self._counts):
            self._counts = np.vstack([self._counts, np.zeros_like(self._counts)])
        self._servers[server] = _Server(row)
        self._renew_columns()

    def remove(self, server: str) -> None:
        """Remove a server, but not its counters."""
        del self._servers[server]
        self._renew_columns()

    # -- summaries and widenings ------------------------------------------------------------------------

    def widen(
        self, server: str, topic: int, lo: npt.ArrayLike, hi: npt.ArrayLike, *, epoch: int, seq: int
    ) -> None:
        """Route events inside rectangles (n, d) to a server, until a snapshot contains them."""
        low, high = np.array(lo, dtype=np.float64), np.array(hi, dtype=np.float64)
        if low.ndim != 2 or low.shape != high.shape:
            raise ValueError(f"bounds must have one shape (n, d), got {low.shape} and {high.shape}")
        if not (low <= high).all():
            raise ValueError("lower bounds must not exceed upper bounds or be NaN")
        held = self._servers[server]
        if len(low):
            routes = held.topics.setdefault(topic, TopicRoutes())
            at = np.array([[epoch, seq]], dtype=np.int64).repeat(len(low), axis=0)
            packed = routes.widen(self._router, Widenings(at, low, high))
            self._renew_widenings(topic, packed)
            self.on_change()

    def accept(self, server: str, epoch: int, seq: int, summaries: Mapping[int, Summary]) -> bool:
        """Accept a snapshot, topic → summary; other topics have no subscriptions on the server.

        Return False, without a change, if it is older than the accepted one.
        """
        if self._is_old(server, epoch, seq):
            return False
        for _ in self._accept(server, (epoch, seq), summaries):
            pass
        return True

    async def accept_in_slices(
        self, server: str, epoch: int, seq: int, summaries: Mapping[int, Summary]
    ) -> bool:
        """Accept a snapshot like `accept`, and yield to the event loop between slices of topics.

        Each topic is replaced at once, and a topic that is not replaced yet has its former summary and its
        widenings, so no state in between is too narrow. One call per server at a time. Return False also if
        the server was removed meanwhile.
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
        held = self._servers[server]
        for topic in held.topics.keys() | summaries.keys():
            routes = held.topics.setdefault(topic, TopicRoutes())
            routes.replace_summary(self._router, summaries.get(topic), at)
            routes.recut(self._router, self._precision, self._options, self._sample(topic))
            if routes.empty:
                del held.topics[topic]
            self._renew_topic(topic)
            yield topic
        first = held.accepted is None
        held.accepted = at
        # Last: the server gets all events until every topic is in place.
        if first:
            self._renew_flags()
        self.on_change()

    def forget_topic(self, topic: int) -> None:
        """Forget the sample of a deleted topic.

        The rectangles stay until a snapshot lacks them, because a server that lags must still get the events
        from before the deletion.
        """
        self._samples.pop(topic, None)

    def set_precision(self, precision: float) -> None:
        """Cut summaries of n rectangles to max(1, ceil(precision × n)); precision 0 routes everything."""
        rebuild = self.plan(precision)
        rebuild.run()
        self.apply(rebuild)

    def plan(self, precision: float) -> TableRebuild:
        """Plan a rebuild at another precision: call its `run` in a thread, then `apply`."""
        _checked(precision)
        parts = [
            RebuildPart(server, column, topic, routes.summary, self._sample(topic))
            for column, (server, held) in enumerate(self._servers.items())
            for topic, routes in held.topics.items()
            if routes.summary is not None and precision > 0
        ]
        return TableRebuild(precision, self.servers, parts, self._router, self._options)

    def is_current(self, rebuild: TableRebuild) -> bool:
        """Return whether the table still has the servers and summaries of a rebuild."""
        held = {
            (server, topic): routes.summary
            for server, one in self._servers.items()
            for topic, routes in one.topics.items()
            if routes.summary is not None and rebuild.precision > 0
        }
        planned = rebuild.covers()
        return rebuild.servers == self.servers and (
            planned.keys() == held.keys() and all(planned[key][0] is summary for key, summary in held.items())
        )

    def apply(self, rebuild: TableRebuild) -> None:
        if not rebuild.done:
            raise ValueError("the rebuild has not run")
        current, planned = self.is_current(rebuild), rebuild.covers()
        self._precision = rebuild.precision
        for server, held in self._servers.items():
            for topic, routes in held.topics.items():
                summary, cover = planned.get((server, topic), (None, None))
                if summary is not None and summary is routes.summary:
                    routes.cut = cover
                elif rebuild.precision > 0:
                    # Rare: the summary was replaced while the rebuild ran.
                    routes.recut(self._router, rebuild.precision, self._options, self._sample(topic))
        if not current:
            self._renew_columns()
            return
        for topic, cuts in rebuild.bundles.items():
            former = self._columns.topics[topic]
            self._columns.topics[topic] = _Bundles(cuts, former.packed, former.tails)
        self._renew_flags()
        self.on_change()

    # -- routing ----------------------------------------------------------------------------------------

    @any_thread
    def route(self, topic: int, points: Floats) -> Bools:
        """Return which events (rows) go to which servers (columns). May run in another thread."""
        columns = self._columns
        out = _marked(columns, topic, points)
        if self._options.cut == "weighted" and len(points):
            sample = self._samples.get(topic)
            if sample is None or sample.width != points.shape[1]:
                sample = PointSample(points.shape[1], size=SAMPLE, of_batch=SAMPLE_OF_BATCH)
                self._samples[topic] = sample
            sample.add(points)
        counts = self._counts
        counts[columns.rows, 0] += out.sum(axis=0)
        counts[columns.rows, 1] += len(points)
        return out

    def route_to(self, server: str, topic: int, points: Floats) -> Bools:
        """Return which events go to one server, without counting or sampling them.

        For events that were counted when they were published, and are read from disk. Bundles skip pairs that
        are marked already, so marking all other columns before restricts the test to this server.
        """
        columns = self._columns
        if server not in columns.servers:
            return np.ones(len(points), dtype=np.bool_)
        column = columns.servers.index(server)
        out = np.ones((len(points), len(columns.servers)), dtype=np.bool_)
        out[:, column] = columns.everything[column]
        _mark(columns, topic, points, out)
        return np.ascontiguousarray(out[:, column])

    def would_route(self, topic: int, points: Floats, rebuild: TableRebuild | None = None) -> Bools:
        """Route like `route`, without counting; with a rebuild, as if it were in force."""
        if rebuild is None or rebuild.servers != self.servers:
            return _marked(self._columns, topic, points)
        columns = replace(self._columns, everything=self._everything(rebuild.precision))
        bundles, cuts = columns.topics.get(topic), rebuild.bundles.get(topic)
        if bundles is not None:
            fresh = replace(bundles, cuts=cuts if cuts is not None else self._router.bundle([]))
            columns = replace(columns, topics={topic: fresh})
        return _marked(columns, topic, points)

    def gets_everything(self, server: str) -> bool:
        """Return whether all events are routed to a server."""
        return self._gets_everything(self._servers[server])

    def rectangles(self, server: str, topic: int) -> Iterator[tuple[RouteReason, Floats, Floats]]:
        """Yield the rectangles that route a topic's events to a server, by reason."""
        held = self._servers[server]
        routes = held.topics.get(topic)
        if self._gets_everything(held) or routes is None:
            return
        if routes.cut is not None:
            yield "summary", routes.cut.lo, routes.cut.hi
        for layer in routes.layers:
            yield "widening", layer.widenings.lo, layer.widenings.hi

    def describe(self, server: str) -> ServerRouting:
        held = self._servers[server]
        epoch, seq = held.accepted if held.accepted is not None else (None, None)
        return ServerRouting(
            server=server,
            precision=self._precision,
            epoch=epoch,
            seq=seq,
            everything=self._gets_everything(held),
            topics={topic: routes.describe() for topic, routes in held.topics.items()},
            routed=int(self._counts[held.row, 0]),
            asked=int(self._counts[held.row, 1]),
        )

    # -- columns and bundles ----------------------------------------------------------------------------

    def _sample(self, topic: int) -> Floats | None:
        sample = self._samples.get(topic)
        return None if sample is None or sample.seen < SAMPLE_LEAST else sample.points()

    def _routes(self, topic: int) -> Iterator[tuple[int, TopicRoutes]]:
        for column, held in enumerate(self._servers.values()):
            routes = held.topics.get(topic)
            if routes is not None:
                yield column, routes

    def _packed(self, topic: int) -> Bundle:
        return self._router.bundle(
            [(column, layer.cover) for column, routes in self._routes(topic) for layer in routes.packed]
        )

    def _tails(self, topic: int) -> Bundle:
        tails = ((column, routes.tail) for column, routes in self._routes(topic))
        return self._router.bundle([(column, tail.cover) for column, tail in tails if tail is not None])

    def _bundles(self, topic: int) -> _Bundles:
        cuts = ((column, routes.cut) for column, routes in self._routes(topic))
        return _Bundles(
            self._router.bundle([(column, cut) for column, cut in cuts if cut is not None]),
            self._packed(topic),
            self._tails(topic),
        )

    def _renew_topic(self, topic: int) -> None:
        if any(True for _ in self._routes(topic)):
            self._columns.topics[topic] = self._bundles(topic)
        else:
            self._columns.topics.pop(topic, None)

    def _renew_widenings(self, topic: int, packed: bool) -> None:
        """Renew only the widenings of a topic, which must be cheap: it happens for every subscription."""
        former = self._columns.topics.get(topic)
        if former is None:
            self._renew_topic(topic)
            return
        self._columns.topics[topic] = _Bundles(
            former.cuts, self._packed(topic) if packed else former.packed, self._tails(topic)
        )

    def _renew_flags(self) -> None:
        self._columns = replace(self._columns, everything=self._everything(self._precision))

    def _renew_columns(self) -> None:
        """Renew columns and all bundles at once, after a change of the servers."""
        topics = {topic for held in self._servers.values() for topic in held.topics}
        fresh = {topic: self._bundles(topic) for topic in topics}
        rows = np.array([held.row for held in self._servers.values()], dtype=np.int64)
        self._columns = _Columns(tuple(self._servers), self._everything(self._precision), rows, fresh)
        self.on_change()

    def _everything(self, precision: float) -> Bools:
        return np.array(
            [held.accepted is None or precision == 0 for held in self._servers.values()], dtype=np.bool_
        )

    def _gets_everything(self, held: _Server) -> bool:
        return held.accepted is None or self._precision == 0


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
        raise ValueError(f"precision must be from 0 (route everything) to 1 (precise), got {precision}")
    return precision
