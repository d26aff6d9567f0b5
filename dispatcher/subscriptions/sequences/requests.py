"""Reads the sequences of requests: resolves the topics of their steps, and binds their filters."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dispatcher.store.topic_rows import Topic
from dispatcher.subscriptions.sequences.binding import Bound
from dispatcher.subscriptions.subtree import Subtree
from edn.errors import EdnError, InvalidInput
from edn.model.filter import Filter
from edn.model.sequence import Sequence
from edn.model.sequence.form import TopicRef, Written, parse, topic_names

#: members of a request that only a sequence has
_MEMBERS = ("by", "within", "settle")


@dataclass(frozen=True, slots=True)
class Condition:
    """The filter or the sequence of a subscription, with its topics."""

    topic: Topic | Subtree
    filter: Filter | Sequence
    #: None for a subtree
    bound: Bound | None
    #: topics of a sequence besides that of its first step
    further: tuple[Topic, ...]


def check_no_members(body: Any, prefix: str) -> None:
    """Raise `InvalidInput` if a request without a sequence has members of one."""
    for name in _MEMBERS:
        if getattr(body, name) is not None:
            raise InvalidInput(f"{name} must be given with a sequence only", pointer=f"{prefix}/{name}")


async def read_sequence(written: Written, find: Callable[[str], Awaitable[Topic]]) -> Condition:
    """Read a sequence; `find` returns a topic of the caller's tenant, or raises `NotFound`."""
    topics: dict[str, Topic] = {}
    for pointer, name in topic_names(written):
        if name not in topics:
            try:
                topics[name] = await find(name)
            except EdnError as error:
                error.pointer = pointer
                raise
    sequence = parse(written, lambda name: TopicRef(topics[name].uid, topics[name].schema))
    by_uid = {topic.uid: topic for topic in topics.values()}
    first, *others = sequence.topics
    bound = sequence.bind({uid: topic.schema for uid, topic in by_uid.items()})
    return Condition(by_uid[first], sequence, bound, tuple(by_uid[uid] for uid in others))


@contextlib.contextmanager
def prefixed(prefix: str) -> Iterator[None]:
    """Put the place of one of several subscriptions before the pointers of errors."""
    try:
        yield
    except EdnError as error:
        error.pointer = prefix + (error.pointer or "")
        raise
