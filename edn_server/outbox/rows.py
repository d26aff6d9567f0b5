"""Groups matches into rows of the outbox.

A row has the events of one address and, for each event, the versions that matched. It is written before the
first attempt and never changes, nor do the rows of one POST (`batches`): so every attempt has the same body
under the same webhook-id. Matches share a row only if they share the address, and with it the tenant and the
signing key (`storage.addresses`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt

from edn_server.storage.outbox import EVENT_BYTES, HEADER, NewRow
from edn_server.subscriptions.topic_index import Flags, Int32s, Int64s

#: most events, and most estimated bytes, of a row
ROW_EVENTS = 500
ROW_BYTES = 1 << 20
#: bytes that a match adds to a body, about
MATCH_BYTES = 64


def group(
    places: Int64s,
    numbers: Int32s,
    queues: Int32s,
    sizes: Int64s,
    alone: Collection[int] = (),
) -> Iterator[tuple[int, NewRow]]:
    """Yield (queue, row) for matches given in the order of places: (place, number, number's queue).

    `sizes` are those of payloads by place; `alone`: queues whose rows have one event each.
    """
    if not len(places):
        return
    order = np.argsort(_compact(queues), kind="stable")
    places, numbers, queues = places[order], numbers[order], queues[order]
    queue_changes = _changes(queues)
    new_queue = np.flatnonzero(queue_changes)
    new_event = np.flatnonzero(queue_changes | _changes(places))
    counts = np.diff(new_event, append=len(places))
    event_places = places[new_event]
    weights = sizes[event_places] + EVENT_BYTES + counts * MATCH_BYTES
    # The first event of each queue, as an index into the events of all of them.
    firsts = np.searchsorted(new_event, new_queue)
    lasts = np.append(firsts[1:], len(new_event))
    fits = (lasts - firsts <= ROW_EVENTS) & (np.add.reduceat(weights, firsts) <= ROW_BYTES)
    if alone:
        fits &= ~np.isin(queues[new_queue], list(alone))
    # Whole arrays become bytes once; a row is cut out of them.
    place_bytes, count_bytes, number_bytes = (
        part.astype("<i4", copy=False).tobytes() for part in (event_places, counts, numbers)
    )
    ends = np.append(new_event, len(places)).tolist()
    for queue, first, last, fit in zip(
        queues[new_queue].tolist(), firsts.tolist(), lasts.tolist(), fits.tolist(), strict=True
    ):
        most = 1 if alone and queue in alone else ROW_EVENTS
        for begin, end in ((first, last),) if fit else _pieces(weights, first, last, most):
            low, high = ends[begin], ends[end]
            yield (
                queue,
                NewRow(
                    end - begin,
                    HEADER.pack(end - begin, high - low)
                    + place_bytes[4 * begin : 4 * end]
                    + count_bytes[4 * begin : 4 * end]
                    + number_bytes[4 * low : 4 * high],
                ),
            )


def _changes(values: Int32s | Int64s) -> Flags:
    """Return where a value differs from the one before it; the first one does."""
    changes = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes


def _compact(queues: Int32s) -> npt.NDArray[np.integer]:
    """Return the ranks of the queues, in sixteen bits if they fit: numpy sorts those by radix."""
    present = np.zeros(int(queues.max()) + 1, dtype=np.bool_)
    present[queues] = True
    ranks = np.cumsum(present) - 1
    narrow = ranks.astype(np.uint16) if ranks[-1] < 1 << 16 else ranks
    compact: npt.NDArray[np.integer] = narrow[queues]
    return compact


def _pieces(weights: Int64s, first: int, last: int, most: int) -> Iterator[tuple[int, int]]:
    """Split the events of one queue into rows within the limits; a row has at least one event."""
    while first < last:
        end = min(last, first + most)
        total = np.cumsum(weights[first:end])
        if total[-1] > ROW_BYTES:
            end = first + max(1, int(np.searchsorted(total, ROW_BYTES, "right")))
        yield first, end
        first = end
