"""Routing entries, and bindings of names to servers and matchers."""

from __future__ import annotations

import msgspec

from edn.api.fields import Always


class Route(msgspec.Struct, frozen=True):
    """Routes events of a topic to a server."""

    #: path of the topic
    name: str
    server: str
    #: every event goes there: it has sent no summary yet, or the precision is 0
    everything: bool = False
    #: rectangles that events are compared with, those of new subscriptions among them
    rectangles: int = 0
    #: maximal rectangles of the precise summary
    maximal: int = 0
    #: rectangles of the summary in use ÷ `maximal`
    precision: float | None = None
    #: memory that it needs
    bytes: int = 0
    subscriptions: int = 0
    #: (epoch, seq) of the summary, which grows with each that is accepted
    revision: list[int] | None = None


class Binding(msgspec.Struct, frozen=True):
    """Servers and a matcher that are bound to the name of a topic or a subtree."""

    name: str
    #: that may host its subscriptions; None: any
    servers: list[str] | None = None
    #: that topics inherit; None: they inherit it from further up
    engine: str | None = None
    created: Always[str] = None
    #: subscriptions on other servers; a repartition moves them
    misplaced: int = 0


class Routes(msgspec.Struct, frozen=True):
    routes: list[Route]
    bindings: list[Binding]
