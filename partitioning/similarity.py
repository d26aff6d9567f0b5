"""Placement policies by content, which put similar subscriptions on one server.

They know the rectangles that a server reported last, and the subscriptions placed there since. That is
advisory.
"""

from __future__ import annotations

import random

import numpy as np

from edn.arrays import Bools, Floats, Ints
from edn.errors import InvalidInput
from partitioning.boxes import BoxTable
from partitioning.placement import Loads, Place, Placement, Settings, Side, least_loaded
from partitioning.space import GrowingSpace

#: radius of a location, as a share of the widest range of the servers' locations
REACH = 0.125


class _ByContent(Placement):
    """Common part of the policies: limits, initial spread, locations, ties.

    A location becomes the first dimensions of the space, with a small side around it. The columns of the
    filter follow, because their number may grow.
    """

    def __init__(self, rng: random.Random | None = None, settings: Settings | None = None) -> None:
        self._rng = rng or random.Random()
        self._settings = settings or Settings()
        places = [np.asarray(place, dtype=np.float64) for place in self._settings.affinity.values()]
        if len({len(place) for place in places}) > 1:
            raise InvalidInput("locations of servers must have the same number of coordinates")
        #: server → number of known subscriptions or rectangles
        self._known: dict[str, int] = {}
        self._places = np.stack(places) if places else np.empty((0, 0))
        #: servers with a location but no known subscription
        self._seeded = set(self._settings.affinity)
        for server, place in self._settings.affinity.items():
            self._replace(server, *self._located(np.empty(0), np.empty(0), place))

    def place(self, loads: Loads, lo: Side = None, hi: Side = None, *, location: Place = None) -> str:
        candidates = self._settings.limits.candidates(loads)
        if lo is None or hi is None:
            return self._rng.choice(least_loaded(loads, candidates))
        low, high = self._located(*_bounding(lo, hi), location)
        chosen, _ = self._choose(candidates, loads, low, high)
        self._take(chosen, low, high)
        return chosen

    def suggest(self, loads: Loads, lo: Floats, hi: Floats, *, location: Place = None) -> str | None:
        low, high = self._located(*_bounding(lo, hi), location)
        chosen, by_content = self._choose(self._settings.limits.candidates(loads), loads, low, high)
        return chosen if by_content else None

    def _choose(self, candidates: list[str], loads: Loads, low: Floats, high: Floats) -> tuple[str, bool]:
        """Return the server, and whether content decided."""
        fresh = [server for server in candidates if self._known.get(server, 0) < self._settings.spread]
        if fresh and not self._seeded.intersection(fresh):
            return self._rng.choice(least_loaded(loads, fresh)), False
        costs, similar = self._costs(candidates, low, high)
        best = np.flatnonzero(costs == costs.min())
        if len(best) == 1:
            return candidates[best[0]], bool(similar[best[0]])
        ties = [candidates[place] for place in best]
        if self._settings.ties == "least-loaded":
            ties = least_loaded(loads, ties)
        return self._rng.choice(ties), bool(similar[best[0]])

    def placed(self, server: str, lo: Side = None, hi: Side = None, *, location: Place = None) -> None:
        if lo is not None and hi is not None:
            self._take(server, *self._located(*_bounding(lo, hi), location))

    def _take(self, server: str, low: Floats, high: Floats) -> None:
        self._known[server] = self._known.get(server, 0) + 1
        if server in self._seeded:
            self._seeded.discard(server)
            self._replace(server, low, high)
        else:
            self._add(server, low, high)

    def summarise(self, server: str, lo: Floats, hi: Floats) -> None:
        if not len(lo):
            self.forget(server)
            return
        self._seeded.discard(server)
        n = self._known[server] = len(lo)
        place = self._settings.affinity.get(server)
        low, high = self._located(np.empty(0), np.empty(0), place)
        lows, highs = np.repeat(low[None], n, axis=0), np.repeat(high[None], n, axis=0)
        self._replace_all(server, np.hstack([lows, lo]), np.hstack([highs, hi]))

    def forget(self, server: str) -> None:
        self._known.pop(server, None)
        self._replace_all(server, np.empty((0, 0)), np.empty((0, 0)))
        if server in self._settings.affinity:
            self._seeded.add(server)
            self._replace(server, *self._located(np.empty(0), np.empty(0), self._settings.affinity[server]))

    def _located(self, lo: Floats, hi: Floats, location: Place) -> tuple[Floats, Floats]:
        dimensions = self._places.shape[1]
        if not dimensions:
            return lo, hi
        if location is None:
            return (
                np.concatenate([np.full(dimensions, -np.inf), lo]),
                np.concatenate([np.full(dimensions, np.inf), hi]),
            )
        place = np.asarray(location, dtype=np.float64)
        if place.shape != (dimensions,) or not np.isfinite(place).all():
            raise InvalidInput(f"location must be {dimensions} finite coordinates, got {place.tolist()}")
        # All coordinates of a location have the same unit, so one radius is enough.
        reach = REACH * (float(np.ptp(self._places, axis=0).max()) or 1.0)
        return np.concatenate([place - reach, lo]), np.concatenate([place + reach, hi])

    def _replace(self, server: str, low: Floats, high: Floats) -> None:
        self._replace_all(server, low[None], high[None])

    def _replace_all(self, server: str, lo: Floats, hi: Floats) -> None:
        raise NotImplementedError

    def _add(self, server: str, low: Floats, high: Floats) -> None:
        raise NotImplementedError

    def _costs(self, candidates: list[str], low: Floats, high: Floats) -> tuple[Floats, Bools]:
        """Return the cost of each candidate, and whether it has anything similar. Equal costs are ties."""
        raise NotImplementedError


class RTree(_ByContent):
    """Chooses the server with the rectangle of largest overlap; without any overlap the least loaded."""

    def __init__(self, rng: random.Random | None = None, settings: Settings | None = None) -> None:
        self._table = BoxTable((settings or Settings()).bound)
        super().__init__(rng, settings)

    def _replace_all(self, server: str, lo: Floats, hi: Floats) -> None:
        self._table.replace(server, lo, hi)

    def _add(self, server: str, low: Floats, high: Floats) -> None:
        self._table.add(server, low, high)

    def _costs(self, candidates: list[str], low: Floats, high: Floats) -> tuple[Floats, Bools]:
        numbers = [self._table.number(server) for server in candidates]
        overlaps, _ = self._table.overlaps(low, high)
        return -overlaps[numbers], overlaps[numbers] > 0


class LeastTraffic(RTree):
    """Chooses the server whose traffic grows least: the volume outside its best rectangle × its distance."""

    def _costs(self, candidates: list[str], low: Floats, high: Floats) -> tuple[Floats, Bools]:
        numbers = [self._table.number(server) for server in candidates]
        overlaps, own = self._table.overlaps(low, high)
        distances = [self._settings.distances.get(server, 1.0) for server in candidates]
        added: Floats = np.maximum(own - overlaps[numbers], 0.0) * np.array(distances)
        return added, overlaps[numbers] > 0


class KMeans(_ByContent):
    """Chooses the server with the nearest mean centre of its subscriptions.

    Dimensions are scaled by the range of the bounds seen; an unconstrained side is centred in it.
    """

    def __init__(self, rng: random.Random | None = None, settings: Settings | None = None) -> None:
        self._seen = GrowingSpace()
        self._numbers: dict[str, int] = {}
        #: by number of the server: mean centre, and number of centres; -1: nothing is known
        self._means: Floats = np.empty((0, 0))
        self._counts: Ints = np.empty(0, dtype=np.int64)
        super().__init__(rng, settings)

    def _replace_all(self, server: str, lo: Floats, hi: Floats) -> None:
        number = self._number(server)
        if not len(lo):
            self._counts[number] = -1
            return
        centres = self._centres(lo, hi)
        self._means[number] = centres.mean(axis=0)
        # The first subscription replaces the location.
        self._counts[number] = 0 if server in self._seeded else len(lo)

    def _add(self, server: str, low: Floats, high: Floats) -> None:
        centre = self._centres(low[None], high[None])[0]
        number = self._number(server)
        count = max(0, int(self._counts[number]))
        self._means[number] += (centre - self._means[number]) / (count + 1)
        self._counts[number] = count + 1

    def _costs(self, candidates: list[str], low: Floats, high: Floats) -> tuple[Floats, Bools]:
        self._seen.see(low[None], high[None])
        centre = self._centres(low[None], high[None])[0]
        numbers = [self._number(server) for server in candidates]
        space = self._seen.space
        away = (self._means[numbers] - centre) / (space.top - space.base)
        costs: Floats = np.einsum("ij,ij->i", away, away)
        known = self._counts[numbers] >= 0
        costs[~known] = np.inf
        return costs, known

    def _centres(self, lo: Floats, hi: Floats) -> Floats:
        """Return centres in all dimensions seen so far, and extend the means to them."""
        self._seen.see(lo, hi)
        space = self._seen.space
        more = space.dimensions - lo.shape[1]
        if more:
            lo = np.hstack([lo, np.full((len(lo), more), -np.inf)])
            hi = np.hstack([hi, np.full((len(hi), more), np.inf)])
        low, high = space.clamp(lo, hi)
        if self._means.shape[1] < space.dimensions:
            middle = (space.base + space.top)[self._means.shape[1] :] / 2
            self._means = np.hstack([self._means, np.tile(middle, (len(self._means), 1))])
        centres: Floats = (low + high) / 2
        return centres

    def _number(self, server: str) -> int:
        number = self._numbers.setdefault(server, len(self._numbers))
        if number == len(self._counts):
            self._means = np.vstack([self._means, np.zeros((1, self._means.shape[1]))])
            self._counts = np.append(self._counts, -1)
        return number


def _bounding(lo: Floats, hi: Floats) -> tuple[Floats, Floats]:
    lo, hi = np.asarray(lo, dtype=np.float64), np.asarray(hi, dtype=np.float64)
    return (lo, hi) if lo.ndim == 1 else (lo.min(axis=0), hi.max(axis=0))
