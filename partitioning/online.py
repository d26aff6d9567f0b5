"""Online placement: the server that a new subscription goes to.

A policy is asked with the candidates' loads and the subscription's rectangle, and answers with a server. It
is told of summaries as they come (`summarise`), and takes its own decisions into account at once, so that
an array of subscriptions is spread by the same rule as single ones, whatever the summaries' age. One policy
object serves one topic: rectangles of different topics lie in different spaces.

| policy | the server |
|---|---|
| `random` | any |
| `least-loaded` | with the fewest subscriptions |
| `rtree` | owning the rectangle that shares the largest volume with the new one |
| `kmeans` | whose mean centre is nearest |
| `traffic` | that would be sent least more, weighted by its distance |

`Limits` exclude servers first. Where all are excluded, the least loaded of all is taken: refusing a
subscription is not the placement's business. Equal answers go to the less loaded server, and by chance
between equal loads. Until a server has a few subscriptions of the topic, the less loaded of such servers
goes before content: with nothing placed whoever got the first would attract the rest.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from edn.arrays import Floats
from edn.errors import InvalidInput
from partitioning.placement import Limits, Loads, Place, Placement, Settings, Side, least_loaded
from partitioning.similarity import KMeans, LeastTraffic, RTree

__all__ = [
    "KMeans",
    "LeastLoaded",
    "LeastTraffic",
    "Limits",
    "Placement",
    "RTree",
    "Random",
    "Settings",
    "new_placement",
    "warm",
]


class Random:
    """Any server below the limits: the published baseline."""

    def __init__(self, rng: random.Random | None = None, settings: Settings | None = None) -> None:
        self._rng = rng or random.Random()
        self._settings = settings or Settings()

    def place(self, loads: Loads, lo: Side = None, hi: Side = None, *, location: Place = None) -> str:
        return self._rng.choice(self._settings.limits.candidates(loads))

    def suggest(self, loads: Loads, lo: Floats, hi: Floats, *, location: Place = None) -> str | None:
        return None

    def placed(self, server: str, lo: Side = None, hi: Side = None, *, location: Place = None) -> None:
        pass

    def summarise(self, server: str, lo: Floats, hi: Floats) -> None:
        pass

    def forget(self, server: str) -> None:
        pass


class LeastLoaded(Random):
    """The server with the fewest subscriptions; of equals, one by chance."""

    def place(self, loads: Loads, lo: Side = None, hi: Side = None, *, location: Place = None) -> str:
        return self._rng.choice(least_loaded(loads, sorted(loads)))


POLICIES: dict[str, Callable[[random.Random | None, Settings | None], Placement]] = {
    "random": Random,
    "least-loaded": LeastLoaded,
    "rtree": RTree,
    "kmeans": KMeans,
    "traffic": LeastTraffic,
}


def new_placement(
    name: str, *, settings: Settings | None = None, rng: random.Random | None = None
) -> Placement:
    try:
        return POLICIES[name](rng, settings)
    except KeyError:
        known = ", ".join(sorted(POLICIES))
        raise InvalidInput(f'no placement policy "{name}"; known are {known}') from None


def warm() -> None:
    """Compile, or load, what the policies use, so that the first placement of a service is as quick as the
    rest.
    """
    for name in POLICIES:
        placement = new_placement(name, settings=Settings(spread=0))
        for _ in range(2):
            placement.place({"a": 0, "b": 0}, np.zeros(2), np.ones(2))
        placement.summarise("a", np.zeros((1, 2)), np.ones((1, 2)))


if __name__ == "__main__":  # `make setup` compiles the kernels by it
    warm()
