"""A topic's advertisements, of all publishers, in the form of `edn.summary.overlap`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dispatcher.advertisements.guard import BoundCache
from dispatcher.store import advertisement_rows, topic_rows
from dispatcher.store.advertisement_rows import Advertisement as Row
from dispatcher.store.interface import Connection
from edn.arrays import Bools, Ints
from edn.model.filter import Filter
from edn.model.filter.advertisement import BoundAdvertisement
from edn.model.schema import Schema
from edn.summary.overlap import MAYBE, NONE, Fields, Footprints, relate, relate_one


@dataclass(frozen=True, slots=True)
class TopicFields:
    """All advertisements of a topic at one revision."""

    schema: Schema
    revision: int
    #: network time at which the first of them expires
    until: float
    rows: list[Row]
    bound: list[BoundAdvertisement]
    fields: Fields

    @classmethod
    def load(cls, connection: Connection, uid: int, now: int, cache: BoundCache) -> TopicFields | None:
        """Compile the advertisements that a connection sees; None if the topic does not exist."""
        # First, so that the revision is never newer than the rows.
        state = topic_rows.state_of(connection, uid)
        topic = topic_rows.find_by_uid(connection, uid)
        if state is None or topic is None:
            return None
        rows = advertisement_rows.of_topic(connection, uid, now)
        bound = [cache.get(row, topic.schema) for row in rows]
        until = min((row.expires for row in rows if row.expires is not None), default=math.inf)
        fields = Fields.of([one.sides for one in bound], topic.schema.width)
        return cls(topic.schema, state.advertised, until, rows, bound, fields)

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, chosen: Sequence[int]) -> TopicFields:
        """Return some of the advertisements."""
        return TopicFields(
            self.schema,
            self.revision,
            self.until,
            [self.rows[place] for place in chosen],
            [self.bound[place] for place in chosen],
            Fields(np.ascontiguousarray(self.fields.starts[list(chosen)]), self.fields.values),
        )

    def witnesses(self, filters: Footprints, chosen: Ints, texts: Sequence[Filter]) -> Ints:
        """Return for each chosen filter an advertisement that overlaps it, -1 if none does.

        `texts`: the chosen filters, which are compared exactly where the kernel cannot tell.
        """
        found, how = relate(filters, chosen, self.fields)
        found[how == NONE] = -1
        for place in np.flatnonzero(how == MAYBE).tolist():
            found[place] = self._exact(filters, int(chosen[place]), texts[place])
        return found

    def _exact(self, filters: Footprints, place: int, filter: Filter) -> int:
        bound = filter.bind(self.schema)
        for row in np.flatnonzero(relate_one(filters, place, self.fields)).tolist():
            if self.bound[row].overlaps(bound):
                return int(row)
        return -1

    def overlapping(self, row: int, filters: Footprints, alive: Bools) -> int:
        """Count the filters that may match an event of one advertisement."""
        chosen = np.flatnonzero(alive)
        return int(np.count_nonzero(relate(filters, chosen, self.only([row]).fields)[1]))
