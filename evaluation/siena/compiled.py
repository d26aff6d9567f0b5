"""Runs the published scenarios, which have one kind of event, in compiled code.

With one filter, a server's table is a bit per neighbour and a count of its own clients, and the copies of a
notification at one site are one action. Once no party is left and no message of interest is under way,
interest cannot change any more: what a publication costs depends on its site only, and is added without
simulating it. Everything else happens action by action, in the order of `evaluation.siena.exact`, so both
give equal sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from edn.arrays import Floats, Ints
from edn.errors import InvalidInput
from edn.index.compilation import on_first_use
from evaluation.siena.network import Network, Tree
from evaluation.siena.scenario import Architecture, Population

TYPES = ("subscription", "unsubscription", "advertisement", "unadvertisement", "notification")
_SUB, _UNSUB, _ADV, _UNADV, _NOTE = range(5)
#: actions; those from _FAR on are messages between sites
_TIMER, _START, _OWN_ADV, _OWN_UNADV, _OWN_NOTE, _OWN_SUB, _OWN_UNSUB, _DELIVER = range(8)
_FAR = 8
_CODES: dict[str, int] = {"ce": 0, "hs": 1, "as": 2, "aa": 3}


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums of one run. Costs and messages are by type, in the order of `TYPES`."""

    cost: Ints
    messages: Ints
    requests: Ints
    site_cost: Ints
    #: services with messages between sites
    crossing_services: int
    deliveries: int
    finished_parties: int

    @property
    def total(self) -> int:
        return int(self.cost.sum())

    @property
    def per_service(self) -> float:
        return self.total / int(self.requests.sum())

    @property
    def per_crossing_service(self) -> float:
        return self.total / max(1, self.crossing_services)

    @property
    def per_subscription(self) -> float:
        """Cost of subscriptions and unsubscriptions per subscription."""
        return int(self.cost[_SUB] + self.cost[_UNSUB]) / max(1, int(self.requests[_SUB]))

    @property
    def per_notification(self) -> float:
        return int(self.cost[_NOTE]) / max(1, int(self.requests[_NOTE]))

    @property
    def unevenness(self) -> float:
        """Standard deviation of the cost per site, divided by its mean."""
        mean = float(self.site_cost.mean())
        return float(self.site_cost.std()) / mean if mean else 0.0


def simulate(
    network: Network,
    architecture: Architecture,
    population: Population,
    *,
    tree: Tree | None = None,
    centre: int = 0,
) -> Totals:
    """Runs a scenario to its end."""
    if architecture not in _CODES:
        raise InvalidInput(f"architecture must be one of {', '.join(_CODES)}, got {architecture}")
    tree = tree or network.spanning_tree
    scenario = population.scenario
    start, near, cost, latency, back = _edges(network, tree)
    up = np.full(network.sites, -1, dtype=np.int64)
    for site, above in enumerate(tree.parent):
        if above >= 0:
            up[site] = start[site] + int(np.searchsorted(near[start[site] : start[site + 1]], above))
    if architecture == "ce":
        costs, latencies = network.costs_from(centre)
    else:
        costs, latencies = [0] * network.sites, [0.0] * network.sites
    first_party = np.searchsorted(population.party_sites, np.arange(network.sites + 1)).astype(np.int64)
    sums = _run(
        _CODES[architecture], start, near, cost, latency, back, up, centre,
        np.array(costs, dtype=np.int64), np.array(latencies),
        population.object_sites.astype(np.int64), np.ascontiguousarray(population.delays),
        scenario.object_cycles, population.party_sites.astype(np.int64), population.starts, first_party,
        scenario.party_cycles, scenario.notifications, scenario.ends_parties, scenario.explicit,
        scenario.pauses,
    )  # fmt: skip
    by_type, messages, requests, site_cost, quiet, others = sums
    _add_quiet(quiet, tree, network, by_type, messages, site_cost, _CODES[architecture], centre)
    return Totals(by_type, messages, requests, site_cost, int(others[0]), int(others[1]), int(others[2]))


def _edges(network: Network, tree: Tree) -> tuple[Ints, Ints, Ints, Floats, Ints]:
    """Returns the tree's links in both directions, by site: first link, neighbour, cost, latency, reverse."""
    near = tree.neighbours()
    start = np.concatenate([[0], np.cumsum([len(some) for some in near])]).astype(np.int64)
    flat = [(site, other) for site, some in enumerate(near) for other in some]
    number = {pair: at for at, pair in enumerate(flat)}
    links = [network.near[site][other] for site, other in flat]
    return (
        start,
        np.array([other for _, other in flat], dtype=np.int64),
        np.array([link.cost for link in links], dtype=np.int64),
        np.array([link.latency for link in links], dtype=np.float64),
        np.array([number[other, site] for site, other in flat], dtype=np.int64),
    )


def _add_quiet(
    quiet: Ints,
    tree: Tree,
    network: Network,
    by_type: Ints,
    messages: Ints,
    site_cost: Ints,
    code: int,
    centre: int,
) -> None:
    """Adds publications that nobody waited for: up to the root, or to the central server."""
    if code == 1:
        flow = quiet.copy()
        for site in reversed(tree.order[1:]):
            above = tree.parent[site]
            cost = int(flow[site]) * network.near[site][above].cost
            by_type[_NOTE] += cost
            messages[_NOTE] += flow[site]
            site_cost[site] += cost
            site_cost[above] += cost
            flow[above] += flow[site]
    elif code == 0:
        costs, _ = network.costs_from(centre)
        for site in range(network.sites):
            if site != centre:
                by_type[_NOTE] += int(quiet[site]) * costs[site]
                messages[_NOTE] += quiet[site]
                site_cost[site] += int(quiet[site]) * costs[site]
                site_cost[centre] += int(quiet[site]) * costs[site]


@on_first_use
def _run(
    code: int, start: Ints, near: Ints, edge_cost: Ints, edge_latency: Floats, back: Ints, up: Ints,
    centre: int, path_cost: Ints, path_latency: Floats, object_site: Ints, delays: Floats,
    object_cycles: int, party_site: Ints, starts: Floats, first_party: Ints, party_cycles: int, wanted: int,
    ends_parties: bool, explicit: bool, pauses: bool,
) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:  # fmt: skip
    sites = len(start) - 1
    objects, parties = len(object_site), len(party_site)
    published_by_each = delays.shape[1]
    cycle = published_by_each // object_cycles if objects else 1
    cost = np.zeros(5, dtype=np.int64)
    messages = np.zeros(5, dtype=np.int64)
    requests = np.zeros(5, dtype=np.int64)
    site_cost = np.zeros(sites, dtype=np.int64)
    quiet = np.zeros(sites, dtype=np.int64)
    # Of the neighbour at an edge: whether it asked here, and whether it was asked from here.
    asked = np.zeros(len(near), dtype=np.bool_)
    forwarded = np.zeros(len(near), dtype=np.bool_)
    advertised = np.zeros(len(near), dtype=np.bool_)
    announced = np.zeros(len(near), dtype=np.bool_)
    askers = np.zeros(sites, dtype=np.int64)
    advertisers = np.zeros(sites, dtype=np.int64)
    own_askers = np.zeros(sites, dtype=np.int64)
    own_advertisers = np.zeros(sites, dtype=np.int64)
    in_table = np.zeros(parties, dtype=np.bool_)
    waiting = np.zeros(parties, dtype=np.bool_)
    missing = np.full(parties, wanted, dtype=np.int64)
    cycles_left = np.full(parties, party_cycles, dtype=np.int64)
    published = np.zeros(objects, dtype=np.int64)
    pausing = np.zeros(objects, dtype=np.bool_)
    # Of the central server: when it had the first subscription and the last unsubscription of a party.
    known_from = np.full(parties, np.inf)
    known_to = np.full(parties, np.inf)
    most_requests = objects * (published_by_each + 2 * object_cycles) + parties * (2 * party_cycles + 2)
    crossing = np.zeros(1 + most_requests, dtype=np.bool_)
    #: the same of publications that were not simulated
    quiet_crossing = 0
    service = 0
    deliveries = 0
    finished = 0
    bits = 0
    #: subscriptions and unsubscriptions in the list
    busy = 0
    number = 0
    actions = [(0.0, 0, 0, 0, 0, 0.0)]
    actions.pop()

    for one in range(objects):
        service += 1
        requests[_ADV] += 1
        heappush(actions, (0.0, number, _OWN_ADV, one, service, 0.0))
        heappush(actions, (delays[one, 0], number + 1, _TIMER, one, 0, 0.0))
        number += 2
    for party in range(parties):
        heappush(actions, (starts[party], number, _START, party, 0, 0.0))
        number += 1

    ending = False
    clock = 0.0
    while True:
        if not actions:
            if ending or not ends_parties:
                break
            ending = True
            for party in range(parties):
                if waiting[party]:
                    waiting[party] = False
                    service += 1
                    requests[_UNSUB] += 1
                    heappush(actions, (clock, number, _OWN_UNSUB, party, service, 0.0))
                    number += 1
                    busy += 1
            if not actions:
                break
        clock, _, kind, index, request, since = heappop(actions)

        # Of the site at work: whether to settle its subscriptions or advertisements, and the quiet neighbour.
        site = -1
        settles = False
        readvertises = False
        silent = -1
        note_from = -2

        if kind == _TIMER and pausing[index]:
            pausing[index] = False
            service += 1
            requests[_ADV] += 1
            heappush(actions, (clock, number, _OWN_ADV, index, service, 0.0))
            heappush(actions, (clock + delays[index, published[index]], number + 1, _TIMER, index, 0, 0.0))
            number += 2
        elif kind == _TIMER and published[index] == published_by_each:
            continue
        elif kind == _TIMER and code != 3 and not pauses and finished == parties and busy == 0 and bits == 0:
            for one in range(objects):
                rest = published_by_each - published[one]
                if rest == 0:
                    continue
                ends = object_cycles - published[one] // cycle
                begins = ends - 1
                requests[_NOTE] += rest
                requests[_ADV] += begins
                requests[_UNADV] += ends
                place = object_site[one]
                quiet[place] += rest
                published[one] = published_by_each
                if code == 1 and up[place] >= 0:
                    quiet_crossing += rest
                elif code == 0 and place != centre:
                    quiet_crossing += rest + begins + ends
                    cost[_ADV] += begins * path_cost[place]
                    cost[_UNADV] += ends * path_cost[place]
                    messages[_ADV] += begins
                    messages[_UNADV] += ends
                    site_cost[place] += (begins + ends) * path_cost[place]
                    site_cost[centre] += (begins + ends) * path_cost[place]
            continue
        elif kind == _TIMER:
            one = index
            service += 1
            requests[_NOTE] += 1
            published[one] += 1
            if finished == parties and busy == 0 and bits == 0:
                quiet[object_site[one]] += 1
                if code == 1:
                    quiet_crossing += up[object_site[one]] >= 0
                elif code == 0:
                    quiet_crossing += object_site[one] != centre
            else:
                heappush(actions, (clock, number, _OWN_NOTE, object_site[one], service, 0.0))
                number += 1
            last = published[one] == published_by_each
            if published[one] % cycle == 0:
                service += 1
                requests[_UNADV] += 1
                heappush(actions, (clock, number, _OWN_UNADV, one, service, 0.0))
                number += 1
                pausing[one] = pauses and not last
                if not last and not pauses:
                    service += 1
                    requests[_ADV] += 1
                    heappush(actions, (clock, number, _OWN_ADV, one, service, 0.0))
                    number += 1
            if not last:
                heappush(actions, (clock + delays[one, published[one]], number, _TIMER, one, 0, 0.0))
                number += 1
        elif kind == _START:
            waiting[index] = True
            service += 1
            requests[_SUB] += 1
            heappush(actions, (clock, number, _OWN_SUB, index, service, 0.0))
            number += 1
            busy += 1
        elif kind in (_OWN_ADV, _OWN_UNADV):
            site = object_site[index]
            step = 1 if kind == _OWN_ADV else -1
            if code == 0:
                which = _ADV if step > 0 else _UNADV
                if site != centre:
                    cost[which] += path_cost[site]
                    messages[which] += 1
                    site_cost[site] += path_cost[site]
                    site_cost[centre] += path_cost[site]
                    crossing[request] = True
            elif code == 3:
                own_advertisers[site] += step
                readvertises = True
        elif kind == _OWN_NOTE:
            site = index
            if code == 0:
                # The way to the central server; `since` would be its arrival.
                if site != centre:
                    cost[_NOTE] += path_cost[site]
                    messages[_NOTE] += 1
                    site_cost[site] += path_cost[site]
                    site_cost[centre] += path_cost[site]
                    crossing[request] = True
                heappush(actions, (clock + path_latency[site], number, _FAR + _NOTE, centre, request, 0.0))
                number += 1
            else:
                note_from = -1
        elif kind in (_OWN_SUB, _OWN_UNSUB):
            busy -= 1
            site = party_site[index]
            which = _SUB if kind == _OWN_SUB else _UNSUB
            if code == 0:
                if site != centre:
                    cost[which] += path_cost[site]
                    messages[which] += 1
                    site_cost[site] += path_cost[site]
                    site_cost[centre] += path_cost[site]
                    crossing[request] = True
                # Between two cycles both arrive at once; the server's table stays as it is.
                if which == _SUB and known_from[index] == np.inf:
                    known_from[index] = clock + path_latency[site]
                    heappush(actions, (known_from[index], number, _FAR + _SUB, index, request, 0.0))
                    number += 1
                    busy += 1
                elif which == _UNSUB and not waiting[index]:
                    known_to[index] = clock + path_latency[site]
                    heappush(actions, (known_to[index], number, _FAR + _UNSUB, index, request, 0.0))
                    number += 1
                    busy += 1
            else:
                in_table[index] = which == _SUB
                own_askers[site] += 1 if which == _SUB else -1
                settles = True
        elif kind == _DELIVER:
            for party in range(first_party[index], first_party[index + 1]):
                if code == 0:
                    if not known_from[party] <= since < known_to[party]:
                        continue
                elif not in_table[party]:
                    continue
                deliveries += 1
                if not waiting[party]:
                    continue
                missing[party] -= 1
                if missing[party]:
                    continue
                missing[party] = wanted
                cycles_left[party] -= 1
                service += 1
                requests[_UNSUB] += 1
                heappush(actions, (clock, number, _OWN_UNSUB, party, service, 0.0))
                number += 1
                busy += 1
                if cycles_left[party]:
                    service += 1
                    requests[_SUB] += 1
                    heappush(actions, (clock, number, _OWN_SUB, party, service, 0.0))
                    number += 1
                    busy += 1
                else:
                    waiting[party] = False
                    finished += 1
        elif code == 0:
            if kind == _FAR + _SUB:
                busy -= 1
                own_askers[party_site[index]] += 1
            elif kind == _FAR + _UNSUB:
                busy -= 1
                own_askers[party_site[index]] -= 1
            else:
                for other in range(sites):
                    if own_askers[other] == 0:
                        continue
                    if other != centre:
                        spent = path_cost[other] * own_askers[other]
                        cost[_NOTE] += spent
                        messages[_NOTE] += own_askers[other]
                        site_cost[other] += spent
                        site_cost[centre] += spent
                        crossing[request] = True
                    heappush(actions, (clock + path_latency[other], number, _DELIVER, other, request, clock))
                    number += 1
        else:
            # A message over an edge: `index` is the edge from the receiver back to the sender.
            site = near[back[index]]
            which = kind - _FAR
            if which == _NOTE:
                note_from = index
            elif which in (_SUB, _UNSUB):
                busy -= 1
                asks = which == _SUB
                if asks and code == 3 and not explicit and not announced[index]:
                    pass
                elif asked[index] != asks:
                    asked[index] = asks
                    askers[site] += 1 if asks else -1
                    bits += 1 if asks else -1
                    settles = True
            else:
                offers = which == _ADV
                if advertised[index] != offers:
                    advertised[index] = offers
                    advertisers[site] += 1 if offers else -1
                    if not explicit:
                        silent = index
                    readvertises = True

        if note_from > -2:
            for edge in range(start[site], start[site + 1]):
                if edge != note_from and (asked[edge] or (code == 1 and edge == up[site])):
                    cost[_NOTE] += edge_cost[edge]
                    messages[_NOTE] += 1
                    site_cost[site] += edge_cost[edge]
                    site_cost[near[edge]] += edge_cost[edge]
                    crossing[request] = True
                    arrival = clock + edge_latency[edge]
                    heappush(actions, (arrival, number, _FAR + _NOTE, back[edge], request, 0.0))
                    number += 1
            if own_askers[site]:
                heappush(actions, (clock, number, _DELIVER, site, request, 0.0))
                number += 1

        if readvertises:
            for edge in range(start[site], start[site + 1]):
                offers = own_advertisers[site] + advertisers[site] - (1 if advertised[edge] else 0) > 0
                if offers == announced[edge]:
                    continue
                announced[edge] = offers
                which = _ADV if offers else _UNADV
                cost[which] += edge_cost[edge]
                messages[which] += 1
                site_cost[site] += edge_cost[edge]
                site_cost[near[edge]] += edge_cost[edge]
                crossing[request] = True
                heappush(
                    actions, (clock + edge_latency[edge], number, _FAR + which, back[edge], request, 0.0)
                )
                number += 1
                if not offers and not explicit and asked[edge]:
                    asked[edge] = False
                    askers[site] -= 1
                    bits -= 1
            settles = True

        if settles:
            for edge in range(start[site], start[site + 1]):
                if code == 1 and edge != up[site]:
                    continue
                asks = own_askers[site] + askers[site] - (1 if asked[edge] else 0) > 0
                if code == 3 and not advertised[edge]:
                    asks = False
                if asks == forwarded[edge]:
                    continue
                forwarded[edge] = asks
                if not asks and edge == silent:
                    continue
                which = _SUB if asks else _UNSUB
                cost[which] += edge_cost[edge]
                messages[which] += 1
                site_cost[site] += edge_cost[edge]
                site_cost[near[edge]] += edge_cost[edge]
                crossing[request] = True
                heappush(
                    actions, (clock + edge_latency[edge], number, _FAR + which, back[edge], request, 0.0)
                )
                number += 1
                busy += 1

    others = np.array([crossing.sum() + quiet_crossing, deliveries, finished], dtype=np.int64)
    return cost, messages, requests, site_cost, quiet, others
