"""Which rows of an address are posted together, decided once and kept.

A courier that finds several rows waiting sends them in one POST, up to the limits of a batch. Which ones is
written down before the first attempt, under the id of the first, of which the webhook-id is made: so an
attempt after a crash is of the same rows, although more may wait by then. A row that is sent alone costs no
record: the courier knows which it tried, and after a restart it takes all that may have been for such.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edn_server.outbox.bodies import enclose
from edn_server.policies import Batching
from edn_server.storage import outbox
from edn_server.storage.interface import Connection
from edn_server.storage.outbox import Row
from edn_server.storage.writer import Job


@dataclass(frozen=True, slots=True)
class DeliveryBatch:
    """The rows of one POST, and its body."""

    rows: tuple[Row, ...]
    body: bytes
    #: the trace context that all of its events share; empty if they share none
    trace: str = ""

    @property
    def id(self) -> int:
        return self.rows[0].id

    @property
    def created(self) -> int:
        return self.rows[0].created

    @property
    def events(self) -> int:
        return sum(row.events for row in self.rows)

    @property
    def places(self) -> list[tuple[int, int | None]]:
        """(id, batch) of its rows, to settle them."""
        return [(row.id, row.batch) for row in self.rows]


def pack(
    db: Connection,
    rows: Sequence[Row],
    batching: Batching,
    entries: Callable[[Connection, Row], tuple[bytes, str]],
    alone: Callable[[Row], bool],
) -> tuple[DeliveryBatch, bool]:
    """The next POST of rows that begin with an address's oldest, and whether it must be written down.

    `entries` gives what a row adds to a body, and its trace context; `alone` tells which may have been sent
    by themselves before. What was decided before is found again.
    """
    first = rows[0]
    if first.batch is None:
        return DeliveryBatch((first,), first.body), False
    members = outbox.find_parcel(db, first.id)
    if members is not None:
        return _parcel(members, [entries(db, row) for row in members]), False
    taken: list[Row] = []
    parts: list[tuple[bytes, str]] = []
    events = size = 0
    for row in rows:
        if taken and (row.batch is None or alone(row) or events + row.events > batching.events):
            break
        try:
            part = entries(db, row)
        except Exception:
            if not taken:
                raise
            break  # its error counts for this row alone, in an attempt of its own
        if taken and size + len(part[0]) > batching.bytes:
            break
        taken.append(row)
        parts.append(part)
        events += row.events
        size += len(part[0])
        if alone(row):
            break
    return _parcel(taken, parts), len(taken) > 1


def _parcel(rows: Sequence[Row], parts: Sequence[tuple[bytes, str]]) -> DeliveryBatch:
    traces = {trace for _, trace in parts}
    return DeliveryBatch(
        tuple(rows), enclose([part for part, _ in parts]), traces.pop() if len(traces) == 1 else ""
    )


class Keep(Job[None]):
    """Write down which rows a parcel is made of."""

    def __init__(self, parcel: DeliveryBatch) -> None:
        self._parcel = parcel

    def work(self, db: Connection) -> None:
        outbox.store_parcel(db, [row.id for row in self._parcel.rows])
