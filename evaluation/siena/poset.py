"""A partially ordered set of filters, ordered by covering.

A filter's *successors* cover it and its *predecessors* are covered by it, immediate ones only. *Roots* have
no successor. The set stores for each filter the identities that asked for it (`subscribers`) and the
neighbours it was sent to (`forwards`).

Both searches walk down from the roots: an insertion follows the filters that cover the new one, a
notification follows the filters that match it. What lies below a filter that fails is never tested.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, Protocol


class Filtering(Protocol):
    """A filter of `edn.model`, or anything else that compares alike."""

    def covers(self, other: Any, /) -> bool: ...

    def overlaps(self, other: Any, /) -> bool: ...

    def matches(self, values: Any, /) -> bool: ...


class Entry:
    """A filter of the set."""

    __slots__ = ("below", "filter", "forwards", "number", "subscribers", "successors")

    def __init__(self, filter: Filtering, number: int) -> None:
        self.filter = filter
        self.number = number
        self.successors: set[Entry] = set()
        self.below: set[Entry] = set()
        #: insertion-ordered, so that runs are repeatable
        self.subscribers: dict[Any, None] = {}
        self.forwards: set[Any] = set()

    def __hash__(self) -> int:
        """Numbers entries, so that sets of them have the same order in every run."""
        return self.number


class Poset:
    def __init__(self) -> None:
        #: insertion-ordered
        self._entries: dict[Entry, None] = {}
        self._numbers = count()
        #: comparisons of a notification with a filter, for measurements
        self.tests = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries))

    @property
    def roots(self) -> list[Entry]:
        return [entry for entry in self._entries if not entry.successors]

    def covering(self, filter: Filtering) -> list[Entry]:
        """Returns all entries that cover a filter, from the roots downwards."""
        return self._walk_down(lambda entry: entry.filter.covers(filter))

    def matching(self, values: Any) -> list[Entry]:
        """Returns all entries that match a notification, from the roots downwards."""
        found = []
        queue = deque(self.roots)
        seen = set(queue)
        while queue:
            entry = queue.popleft()
            self.tests += 1
            if not entry.filter.matches(values):
                continue
            found.append(entry)
            for below in entry.below:
                if below not in seen:
                    seen.add(below)
                    queue.append(below)
        return found

    def covered(self, filter: Filtering) -> list[Entry]:
        """Returns all entries that a filter covers; what lies below one of them needs no test."""
        found: dict[Entry, None] = {}
        tested: set[Entry] = set()
        queue = deque(self.roots)
        while queue:
            entry = queue.popleft()
            if entry in found or entry in tested:
                continue
            if filter.covers(entry.filter):
                for one in self._with_below(entry):
                    found[one] = None
            else:
                tested.add(entry)
                queue.extend(entry.below)
        return list(found)

    def insert(self, filter: Filtering) -> tuple[Entry, bool]:
        """Returns the entry of a filter, and whether it is new."""
        above = self.covering(filter)
        for entry in above:
            if filter.covers(entry.filter):
                return entry, False
        inside = set(above)
        successors = {entry for entry in above if not entry.below & inside}
        under = set(self.covered(filter))
        predecessors = {entry for entry in under if not entry.successors & under}
        new = Entry(filter, next(self._numbers))
        for entry in successors:
            entry.below -= predecessors
            entry.below.add(new)
        for entry in predecessors:
            entry.successors -= successors
            entry.successors.add(new)
        new.successors, new.below = successors, predecessors
        self._entries[new] = None
        return new, True

    def remove(self, entry: Entry) -> None:
        del self._entries[entry]
        for above in entry.successors:
            above.below.discard(entry)
        for below in entry.below:
            below.successors.discard(entry)
        for above in entry.successors:
            for below in entry.below:
                # Unless another way leads down, the neighbours are immediate now.
                if below not in self._with_below(above):
                    above.below.add(below)
                    below.successors.add(above)

    def from_roots(self) -> list[Entry]:
        """Returns all entries, each after all of its successors."""
        waiting = {entry: len(entry.successors) for entry in self._entries}
        queue = deque(entry for entry, above in waiting.items() if not above)
        found = []
        while queue:
            entry = queue.popleft()
            found.append(entry)
            for below in entry.below:
                waiting[below] -= 1
                if not waiting[below]:
                    queue.append(below)
        return found

    def check(self) -> None:
        """Asserts that the links are the immediate relations, by comparing all pairs. For tests."""
        entries = list(self._entries)
        for entry in entries:
            above = {one for one in entries if one is not entry and one.filter.covers(entry.filter)}
            nearest = {one for one in above if not any(one.filter.covers(x.filter) for x in above - {one})}
            assert entry.successors == nearest, "successors are wrong"
            assert entry.below == {one for one in entries if entry in one.successors}, "links differ"

    def _walk_down(self, holds: Callable[[Entry], bool]) -> list[Entry]:
        found: dict[Entry, None] = {}
        failed: set[Entry] = set()
        queue = deque(self.roots)
        while queue:
            entry = queue.popleft()
            if entry in found or entry in failed:
                continue
            if holds(entry):
                found[entry] = None
                queue.extend(entry.below)
            else:
                failed.add(entry)
        return list(found)

    def _with_below(self, entry: Entry) -> Iterable[Entry]:
        found = {entry: None}
        queue = deque([entry])
        while queue:
            for below in queue.popleft().below:
                if below not in found:
                    found[below] = None
                    queue.append(below)
        return found
