"""Sites, links and trees: the wide-area network below the simulated servers.

A link is symmetric and has a latency, a time per bit and a cost; capacity is infinite, so there is no
congestion. Messages between sites without a link take the cheapest path.

`transit_stub` draws graphs of the Transit-Stub model: transit sites, connected with each other, and three
stubs of eight sites at each of them, 25 sites per transit site. Sites lie in the plane. A link's latency is
its length and its cost that length, rounded. The published graphs had link costs such as 31, 45 and 25
between transit sites, and 3, 8 and 16 to stubs; their other parameters are not given. The first sites are
the transit sites, so that site 0 is at the top of the tree.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from edn.errors import InvalidInput

#: sites per transit site: itself, and three stubs of eight sites
STUBS, STUB_SITES = 3, 8
CLUSTER = 1 + STUBS * STUB_SITES
#: mean number of links per site beyond a tree, as the density of GT-ITM's example graphs
_EXTRA = 0.8


class Link(NamedTuple):
    cost: int
    latency: float
    time_per_bit: float = 0.0


class Tree(NamedTuple):
    """A spanning tree: the parent of each site, -1 for the root, and the sites from the root downwards."""

    parent: list[int]
    order: list[int]

    def neighbours(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.parent]
        for site, above in enumerate(self.parent):
            if above >= 0:
                found[site].append(above)
                found[above].append(site)
        return [sorted(near) for near in found]

    def depths(self) -> list[int]:
        depth = [0] * len(self.parent)
        for site in self.order[1:]:
            depth[site] = depth[self.parent[site]] + 1
        return depth


class Network:
    def __init__(
        self,
        sites: int,
        links: Iterable[tuple[int, int, Link]],
        places: Sequence[tuple[float, float]] | None = None,
    ) -> None:
        """`places` are positions for drawings."""
        if sites < 1:
            raise InvalidInput(f"sites must be 1 or more, got {sites}")
        self.sites = sites
        self.links: list[tuple[int, int, Link]] = []
        self.near: list[dict[int, Link]] = [{} for _ in range(sites)]
        for one, other, link in links:
            if not (0 <= one < sites and 0 <= other < sites) or one == other:
                raise InvalidInput(
                    f"a link must join two of the sites s0 to s{sites - 1}, got s{one} - s{other}"
                )
            if link.cost < 0 or link.latency < 0:
                raise InvalidInput(f"cost and latency of a link must be 0 or more, got {link.cost}")
            self.links.append((one, other, link))
            self.near[one][other] = self.near[other][one] = link
        self.places = list(places) if places is not None else [(0.0, 0.0)] * sites
        self._paths: dict[int, tuple[list[int], list[float], list[int]]] = {}
        unreached = [site for site, cost in enumerate(self._cheapest(0)[0]) if cost < 0]
        if unreached:
            raise InvalidInput(
                f"the network must be connected, got site s{unreached[0]} without a path to s0"
            )

    def transmission(self, source: int, destination: int, length: float = 0.0) -> tuple[int, float]:
        """Returns cost and time of a message between two sites."""
        if source == destination:
            return 0, 0.0
        link = self.near[source].get(destination)
        if link is not None:
            return link.cost, link.latency + length * link.time_per_bit
        costs, latencies, _ = self._cheapest(source)
        return costs[destination], latencies[destination]

    def costs_from(self, source: int) -> tuple[list[int], list[float]]:
        """Returns cost and time of a message from a site to each site."""
        found = [self.transmission(source, site) for site in range(self.sites)]
        return [cost for cost, _ in found], [time for _, time in found]

    @cached_property
    def spanning_tree(self) -> Tree:
        """The minimal spanning tree, rooted at site 0."""
        order, parent = [0], [-1] * self.sites
        reached = {0}
        fringe = [(link.cost, link.latency, 0, other) for other, link in self.near[0].items()]
        heapq.heapify(fringe)
        while fringe:
            _, _, above, site = heapq.heappop(fringe)
            if site in reached:
                continue
            reached.add(site)
            order.append(site)
            parent[site] = above
            for other, link in self.near[site].items():
                if other not in reached:
                    heapq.heappush(fringe, (link.cost, link.latency, site, other))
        return Tree(parent, order)

    @cached_property
    def path_tree(self) -> Tree:
        """The tree of the cheapest paths to site 0, the other meaning of a minimal tree with a root."""
        costs, latencies, parent = self._cheapest(0)
        # By latency among equal costs: free links would otherwise put a site before its parent.
        return Tree(parent, sorted(range(self.sites), key=lambda site: (costs[site], latencies[site])))

    def _cheapest(self, source: int) -> tuple[list[int], list[float], list[int]]:
        """Returns cost (-1 if unreachable), latency and parent of the cheapest path to each site."""
        if source in self._paths:
            return self._paths[source]
        cost, latency = [-1] * self.sites, [0.0] * self.sites
        parent = [-1] * self.sites
        fringe: list[tuple[int, float, int, int]] = [(0, 0.0, -1, source)]
        while fringe:
            so_far, time, above, site = heapq.heappop(fringe)
            if cost[site] >= 0:
                continue
            cost[site], latency[site], parent[site] = so_far, time, above
            for other, link in self.near[site].items():
                if cost[other] < 0:
                    heapq.heappush(fringe, (so_far + link.cost, time + link.latency, site, other))
        self._paths[source] = cost, latency, parent
        return self._paths[source]


def transit_stub(sites: int, seed: int | Sequence[int]) -> Network:
    """Draws a Transit-Stub graph; stubs are smaller where `sites` is not a multiple of 25."""
    if sites < 1:
        raise InvalidInput(f"sites must be 1 or more, got {sites}")
    rng = np.random.default_rng(seed)
    transits = max(1, -(-sites // CLUSTER))
    # The same density of transit sites whatever their number.
    side = 30.0 * transits**0.5
    centres = rng.random((transits, 2)) * side
    stubs: list[list[int]] = []
    homes: list[int] = []
    places = [tuple(place) for place in centres.tolist()]
    rest = sites - transits
    for number in range(transits * STUBS):
        size = rest // (transits * STUBS) + (number < rest % (transits * STUBS))
        if not size:
            continue
        home = number // STUBS
        turn = 2 * np.pi * (number % STUBS + rng.random() * 0.6) / STUBS
        middle = centres[home] + 9.0 * np.array([np.cos(turn), np.sin(turn)])
        stubs.append(list(range(len(places), len(places) + size)))
        homes.append(home)
        places += [tuple(place) for place in (middle + rng.uniform(-5.0, 5.0, (size, 2))).tolist()]
    spots = np.array(places)
    pairs = _connected(list(range(transits)), spots, rng)
    for stub, home in zip(stubs, homes, strict=True):
        pairs += _connected(stub, spots, rng)
        gate = min(stub, key=lambda site: float(np.hypot(*(spots[site] - spots[home]))))
        pairs.append((home, gate))
    links = []
    for one, other in pairs:
        length = float(np.hypot(*(spots[one] - spots[other])))
        links.append((one, other, Link(max(1, round(length)), max(0.5, length))))
    return Network(sites, links, [(float(x), float(y)) for x, y in places])


def _connected(members: list[int], spots: np.ndarray, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Joins each member to the nearest of a few earlier ones, then adds random links."""
    pairs: list[tuple[int, int]] = []
    for turn in range(1, len(members)):
        drawn = rng.choice(turn, size=min(turn, 3), replace=False)
        nearest = min(drawn, key=lambda at: float(np.hypot(*(spots[members[at]] - spots[members[turn]]))))
        pairs.append((members[int(nearest)], members[turn]))
    if len(members) > 2:
        known = set(pairs)
        for _ in range(round(_EXTRA * len(members))):
            one, other = sorted(int(members[at]) for at in rng.choice(len(members), size=2, replace=False))
            if (one, other) not in known and (other, one) not in known:
                known.add((one, other))
                pairs.append((one, other))
    return pairs
