"""Delivery batches: the rows of one POST, chosen once.

Rows of an address that wait together are posted together, up to the limits of a batch. Which rows those are
is stored before the first attempt, under the id of the first row, which also makes the webhook-id. So every
attempt, also after a crash, has the same rows, although more may wait by then. A batch of one row needs no
record: the notifier remembers the rows that it tried, and after a restart sends alone every row that may
have been tried alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edn_server.outbox.bodies import Part, enclose
from edn_server.policies import Batching
from edn_server.storage import outbox
from edn_server.storage.interface import Connection
from edn_server.storage.outbox import Row
from edn_server.storage.writer import Job


@dataclass(slots=True)
class DeliveryBatch:
    """The rows of one POST, and its body."""

    rows: Sequence[Row]
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
        return sum([row.events for row in self.rows])

    @property
    def places(self) -> list[tuple[int, int | None]]:
        """(id, batch) of its rows, to settle them."""
        return [(row.id, row.frame_id) for row in self.rows]


def form(
    rows: Sequence[Row],
    batching: Batching,
    compose: Callable[[Row], Part | None],
    is_alone: Callable[[Row], bool],
) -> DeliveryBatch | None:
    """Form the next batch of rows that begin with an address's oldest.

    `compose` returns the share of a row in the body, or None if it cannot; `is_alone` says which rows may
    have been sent alone before. Returns None if the first row cannot be composed.
    """
    first = rows[0]
    if first.frame_id is None:
        return DeliveryBatch((first,), first.body)
    taken: list[Row] = []
    parts: list[Part] = []
    events = size = 0
    for row in rows:
        alone = is_alone(row)
        if taken and (row.frame_id is None or alone or events + row.events > batching.events):
            break
        try:
            part = compose(row)
        except Exception:
            if not taken:
                raise
            break  # the error counts for this row, in an attempt of its own
        if part is None or (taken and size + len(part.entries) > batching.bytes):
            break
        taken.append(row)
        parts.append(part)
        events += row.events
        size += len(part.entries)
        if alone:
            break
    return _enclose(taken, parts) if taken else None


def load(
    db: Connection,
    rows: Sequence[Row],
    batching: Batching,
    compose: Callable[[Connection, Row], Part],
    is_alone: Callable[[Row], bool],
) -> tuple[DeliveryBatch, bool]:
    """Load the recorded batch of an address's oldest row, or form one that must be recorded (True)."""
    members = None if rows[0].frame_id is None else outbox.find_batch(db, rows[0].id)
    if members is not None:
        return _enclose(members, [compose(db, row) for row in members]), False
    batch = form(rows, batching, lambda row: compose(db, row), is_alone)
    assert batch is not None
    return batch, len(batch.rows) > 1


def _enclose(rows: Sequence[Row], parts: Sequence[Part]) -> DeliveryBatch:
    traces = {part.trace for part in parts}
    return DeliveryBatch(
        rows, enclose([part.entries for part in parts]), traces.pop() if len(traces) == 1 else ""
    )


class Record(Job[None]):
    """Stores which rows batches consist of."""

    def __init__(self, batches: Sequence[DeliveryBatch]) -> None:
        self._batches = batches

    def work(self, db: Connection) -> None:
        outbox.store_batches(db, ([row.id for row in batch.rows] for batch in self._batches))
