"""Summaries cut to another precision beside the running table, and put into it at once.

Cutting takes long (a tenth of a second for ten thousand rectangles of eight attributes), so it is planned
on the event loop, done in a thread, and applied on the event loop again, where it only replaces references.
Summaries are immutable; one that was replaced meanwhile is cut anew when the plan is applied.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from dispatcher.routing.topic_routes import How, cut_of
from edn.arrays import Floats
from edn.summary import Bundle, Cover, Router, Summary


@dataclass(slots=True)
class Piece:
    """One server's summary of one topic."""

    server: str
    column: int
    topic: int
    summary: Summary
    sample: Floats | None
    cover: Cover | None = None


@dataclass(slots=True)
class Recut:
    """Everything that the table holds, at another precision. Made by `RoutingTable.plan`."""

    precision: float
    #: the table's columns when it was planned
    servers: tuple[str, ...]
    pieces: list[Piece]
    router: Router
    how: How
    bundles: dict[int, Bundle] = field(default_factory=dict)
    done: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def work(self) -> None:
        """Cut. In any thread, and once however often it is called."""
        with self._lock:
            if self.done:
                return
            for piece in self.pieces:
                piece.cover = cut_of(piece.summary, self.router, self.precision, self.how, piece.sample)
            for topic in {piece.topic for piece in self.pieces}:
                self.bundles[topic] = self.router.bundle(
                    [
                        (piece.column, piece.cover)
                        for piece in self.pieces
                        if piece.topic == topic and piece.cover is not None
                    ]
                )
            self.done = True

    def covers(self) -> dict[tuple[str, int], tuple[Summary, Cover | None]]:
        """(server, topic) → the summary that was cut, and the cut."""
        return {(piece.server, piece.topic): (piece.summary, piece.cover) for piece in self.pieces}
