"""Lines and picking: what is cut out of a batch is what was put in, and merging loses nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher.store.records import ControlRecord, EventsRecord, Record, coalesce
from edn import protocol
from edn.formats.ndjson import cut, ends_of, split
from edn.protocol.gather import Picked, extent

bodies = st.lists(st.binary(max_size=20).map(lambda text: text.replace(b"\n", b" ")), max_size=12)


@settings(deadline=None)
@given(bodies)
def test_lines_are_cut_where_they_were_joined(texts: list[bytes]) -> None:
    lines = b"".join(text + b"\n" for text in texts)
    ends = ends_of(lines)
    assert split(lines) == texts
    assert [cut(lines, ends, place) for place in range(len(ends))] == texts


@settings(deadline=None)  # the first call of a kernel loads it
@given(st.lists(bodies, min_size=1, max_size=3), st.data())
def test_what_is_picked_is_what_a_filter_over_the_rows_gives(
    batches: list[list[bytes]], data: st.DataObject
) -> None:
    """From several batches, the first of which know one attribute less."""
    width = 2
    given, wanted, count, size = [], [], 0, 0
    for number, texts in enumerate(batches):
        narrow = number < len(batches) - 1
        many = len(texts)
        routed = np.array(data.draw(st.lists(st.booleans(), min_size=3 * many, max_size=3 * many)), np.bool_)
        chosen = routed.reshape(many, 3)[:, 1]
        points = np.arange(float(many * (width - narrow))).reshape(many, width - narrow)
        lines = b"".join(text + b"\n" for text in texts)
        first, stamps = 100 * number, np.arange(many) * 7
        given.append((chosen, first, number, stamps, points, lines, ends_of(lines)))
        some = extent(chosen, ends_of(lines))
        count, size = count + some[0], size + some[1]
        wanted += [
            (first + place, number, 7 * place, [*points[place], *([-np.inf] * narrow)], texts[place])
            for place in range(many)
            if chosen[place]
        ]
    picked = Picked(count, width, size)
    for batch in given:
        picked.take(*batch)
    assert [
        picked.offsets.tolist(),
        picked.times.tolist(),
        picked.stamps.tolist(),
        picked.points.tolist(),
        split(picked.lines.tobytes()),
    ] == [[row[column] for row in wanted] for column in range(5)]


def event(first: int, count: int = 1, *, topic: int = 1, time: int = 5, ids: bool = False) -> EventsRecord:
    names = [f"e{first + place}" for place in range(count)] if ids else []
    return EventsRecord(
        first, time, topic, names, np.full(count, first), b"{}\n" * count, np.full((count, 2), float(first))
    )


def test_neighbours_of_one_topic_and_time_become_one_record() -> None:
    control = ControlRecord(6, "s", protocol.Control(offset=6, time=5, kind="deactivate", ids=["a"]))
    given: list[Record] = [
        event(1, 2),
        event(3),
        event(4, topic=2),
        event(5),
        control,
        event(7),
        event(8, ids=True),
        event(9, ids=True),
        event(10, time=6, ids=True),
    ]
    merged = coalesce(given, limit=100)
    assert [(one.first, one.last) for one in merged] == [
        (1, 3),
        (4, 4),
        (5, 5),
        (6, 6),
        (7, 7),
        (8, 9),
        (10, 10),
    ]
    first = merged[0]
    assert isinstance(first, EventsRecord)
    assert first.stamps.tolist() == [1, 1, 3]
    assert first.points[:, 0].tolist() == [1, 1, 3]
    assert first.lines == b"{}\n" * 3
    both = merged[5]
    assert isinstance(both, EventsRecord)
    assert both.ids == ["e8", "e9"]


def test_merging_stops_at_the_limit() -> None:
    merged = coalesce([event(first) for first in range(1, 8)], limit=3)
    assert [(one.first, one.last) for one in merged] == [(1, 3), (4, 6), (7, 7)]
