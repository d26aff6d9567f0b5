"""Routing entries, and bindings of names to servers and engines."""

from __future__ import annotations

import msgspec

from edn.api.fields import Always


class Route(msgspec.Struct, frozen=True):
    """Routes events of a topic to a server."""

    #: path of the topic
    name: str
    server: str
    #: every event is routed there: it has sent no summary yet, or the precision is 0
    everything: bool = False
    #: rectangles that events are compared with, including those of new subscriptions
    rectangles: int = 0
    #: maximal rectangles of the precise summary
    maximal: int = 0
    #: rectangles of the summary in use ÷ `maximal`
    precision: float | None = None
    #: memory of the entry
    bytes: int = 0
    subscriptions: int = 0
    #: (epoch, seq) of the summary
    revision: list[int] | None = None


class Binding(msgspec.Struct, frozen=True):
    """Servers and a matcher that are bound to the name of a topic or a subtree."""

    name: str
    #: servers that may host its subscriptions; None: any
    servers: list[str] | None = None
    #: engine of its topics; None: that of the enclosing subtree
    engine: str | None = None
    created: Always[str] = None
    #: subscriptions on other servers; a repartition moves them
    misplaced: int = 0


class Routes(msgspec.Struct, frozen=True):
    routes: list[Route]
    bindings: list[Binding]
