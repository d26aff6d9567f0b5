"""Binds stored filters and sequences to the schemas of their topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dispatcher.store.topic_rows import Topic
from edn.errors import NotFound
from edn.model.filter import BoundFilter, Filter
from edn.model.rect import Rects
from edn.model.sequence import BoundSequence, decode, is_sequence
from edn.model.sequence import Sequence as SequenceForm

Bound = BoundFilter | BoundSequence


def read_condition(stored: Any) -> Filter | SequenceForm:
    """Returns the filter or the sequence of a row of the directory."""
    return decode(stored) if is_sequence(stored) else Filter.parse(stored)


def further_topics(stored: Any, by_uid: Callable[[int], Topic | None]) -> tuple[Topic, ...]:
    """Returns the topics of a sequence besides that of its first step; raises `NotFound`."""
    if not is_sequence(stored):
        return ()
    found = []
    for uid in decode(stored).topics[1:]:
        topic = by_uid(uid)
        if topic is None:
            raise NotFound("a topic of the sequence does not exist any more")
        found.append(topic)
    return tuple(found)


def bind_stored(stored: Any, topic: Topic, further: Sequence[Topic]) -> Bound:
    """Binds the filter or the sequence of a row of the directory."""
    if not is_sequence(stored):
        return Filter.parse(stored).bind(topic.schema)
    return decode(stored).bind({one.uid: one.schema for one in (topic, *further)})


def rects_on(bound: Bound, topic: int) -> Rects:
    """Returns the rectangles on one of the topics."""
    return bound.rects_of(topic) if isinstance(bound, BoundSequence) else bound.rects()


def attributes_on(bound: Bound, topic: int) -> frozenset[str]:
    """Returns the attributes of one of the topics that must not change."""
    return bound.attributes_of(topic) if isinstance(bound, BoundSequence) else bound.attributes


def further_attributes(bound: Bound) -> Mapping[int, frozenset[str]]:
    """Returns the attributes on the topics besides that of the first step."""
    if not isinstance(bound, BoundSequence):
        return {}
    return {uid: bound.attributes_of(uid) for uid in bound.sequence.topics[1:]}
