"""The table of a server: who asked for which filters, and which neighbours know of them.

One table serves subscriptions, another one advertisements. `Table.settle` computes for every filter f which
neighbours must know of it, equation (1) of the published algorithm:

    forwards(f) = neighbours(f) - NST(f) - union of forwards(f') over all f' that cover f

A neighbour is in NST(f), not on any spanning tree, if nobody else asks for f. The result is the list of
messages that turn what the neighbours know into that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from evaluation.siena.poset import Entry, Filtering, Poset


class Forward(NamedTuple):
    """A message to a neighbour: it is asked for a filter, or no longer asked for it."""

    neighbour: Any
    filter: Filtering
    wanted: bool


class Table:
    def __init__(self) -> None:
        self.poset = Poset()
        #: what each neighbour was asked for by entries that are gone
        self._gone: list[tuple[Filtering, set[Any]]] = []

    def add(self, who: Any, filter: Filtering) -> Entry | None:
        """Adds a request; returns its entry if it is new, None if it changed nothing or exists already."""
        above = self.poset.covering(filter)
        if any(who in entry.subscribers for entry in above):
            return None
        entry, is_new = self.poset.insert(filter)
        for below in self.poset.covered(filter):
            if below is not entry:
                self._drop(who, below)
        entry.subscribers[who] = None
        return entry if is_new else None

    def remove(self, who: Any, filter: Filtering) -> None:
        """Removes somebody from all filters that `filter` covers."""
        for entry in self.poset.covered(filter):
            self._drop(who, entry)

    def keep(self, who: Any, relevant: Callable[[Filtering], bool]) -> None:
        """Removes somebody from all filters that are not relevant."""
        for entry in self.poset:
            if who in entry.subscribers and not relevant(entry.filter):
                self._drop(who, entry)

    def settle(
        self, neighbours: Callable[[Filtering], Iterable[Any]], *, silent: frozenset[Any] = frozenset()
    ) -> list[Forward]:
        """Brings `forwards` up to date; returns the messages, cancellations first.

        A `silent` neighbour is sent no cancellation, because it knows already.
        """
        wanted: dict[Entry, set[Any]] = {}
        known: dict[Entry, set[Any]] = {}
        for entry in self.poset.from_roots():
            covered = set().union(*(wanted[above] | known[above] for above in entry.successors))
            known[entry] = covered
            wanted[entry] = {
                one
                for one in neighbours(entry.filter)
                if one not in covered and any(who != one for who in entry.subscribers)
            }
        cancelled = []
        for filter, forwards in self._gone:
            covered = set().union(*(some for entry, some in wanted.items() if entry.filter.covers(filter)))
            cancelled += [Forward(one, filter, False) for one in forwards - covered - silent]
        asked = []
        for entry, some in wanted.items():
            # A neighbour that gets a covering filter drops this one by itself.
            lost = entry.forwards - some - known[entry] - silent
            cancelled += [Forward(one, entry.filter, False) for one in lost]
            asked += [Forward(one, entry.filter, True) for one in some - entry.forwards]
            entry.forwards = some
        self._gone = []
        return sorted(cancelled, key=_neighbour) + sorted(asked, key=_neighbour)

    def _drop(self, who: Any, entry: Entry) -> None:
        if who in entry.subscribers:
            del entry.subscribers[who]
            if not entry.subscribers:
                self.poset.remove(entry)
                if entry.forwards:
                    self._gone.append((entry.filter, entry.forwards))


def _neighbour(forward: Forward) -> Any:
    return forward.neighbour
