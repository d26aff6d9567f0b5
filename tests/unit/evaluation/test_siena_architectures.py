"""All architectures notify exactly the clients that the oracle names, on random trees, graphs and scripts."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count
from typing import Any

import pytest

from evaluation.siena.clients import Client
from evaluation.siena.exact import build_servers
from evaluation.siena.generic import GenericServer
from evaluation.siena.kernel import Message, Simulator
from evaluation.siena.network import Link, Network, transit_stub
from evaluation.siena.poset import Poset
from evaluation.siena.scenario import Architecture
from evaluation.siena.servers import HierarchicalServer, PeerServer
from tests.unit.evaluation.siena_oracle import SPACE, Known, Oracle, pool

Op = tuple[str, int, Any]


def random_network(rng: random.Random, sites: int, extra: int) -> Network:
    links = [(rng.randrange(site), site) for site in range(1, sites)]
    for _ in range(extra):
        one, other = sorted(rng.sample(range(sites), 2))
        if (one, other) not in links:
            links.append((one, other))
    return Network(sites, [(a, b, Link(rng.randint(1, 40), rng.uniform(1, 40))) for a, b in links])


def random_script(rng: random.Random, clients: int, rounds: int) -> list[list[Op]]:
    """Rounds of requests that race with each other; publications are made between them."""
    filters = rng.sample(pool(), 12)
    verbs = ["subscribe"] * 4 + ["unsubscribe"] * 2 + ["advertise"] * 3 + ["unadvertise"]
    return [
        [(rng.choice(verbs), rng.randrange(clients), rng.choice(filters)) for _ in range(rng.randint(1, 8))]
        for _ in range(rounds)
    ]


class Played:
    """A script on one architecture: deliveries that are missing, repeated or wrong."""

    def __init__(self, network: Network, architecture: Architecture, **options: Any) -> None:
        self.simulator = Simulator(network, keep_records=True)
        self.servers = build_servers(self.simulator, architecture, **options)
        self.clients: list[Client] = []
        self.oracle = Oracle()
        self.by_advertisement = architecture == "aa"
        self.missing = self.repeated = self.wrong = self.published = self.told = 0

    def place(self, sites: list[int]) -> None:
        numbers = count()
        for site in sites:
            client = Client(self.servers[site], numbers)
            self.simulator.create_process_at(client, site)
            self.clients.append(client)
        self.simulator.run()

    def play(self, requests: list[Op]) -> None:
        for verb, client, filter in requests:
            getattr(self.clients[client], verb)(filter)
            change = self.oracle.remove if verb.startswith("un") else self.oracle.add
            change(client, filter, is_advertisement=verb.endswith("advertise"))
        self.simulator.run()

    def publish(self, publisher: int, point: int) -> int:
        number = self.clients[publisher].publish(point)
        self.simulator.run()
        expected = self.oracle.receivers(publisher, point, by_advertisement=self.by_advertisement)
        copies = Counter(
            at for at, client in enumerate(self.clients) for id in client.received if id == number
        )
        self.missing += len(expected - set(copies))
        self.wrong += len(set(copies) - expected)
        self.repeated += sum(copies.values()) - len(copies)
        self.published += 1
        self.told += len(copies)
        return number

    @property
    def faults(self) -> tuple[int, int, int]:
        return self.missing, self.repeated, self.wrong


def play(seed: int, architecture: Architecture, *, cyclic: bool = False, **options: Any) -> Played:
    rng = random.Random(seed)
    sites = rng.randint(1, 30)
    network = random_network(rng, sites, rng.randint(1, sites) if cyclic and sites > 2 else 0)
    played = Played(network, architecture, centre=rng.randrange(sites), **options)
    clients = rng.randint(2, 20)
    played.place([rng.randrange(sites) for _ in range(clients)])
    for requests in random_script(rng, clients, rng.randint(4, 10)):
        played.play(requests)
        wanted = [filter for verb, _, filter in requests if "subscribe" in verb]
        for _ in range(5):
            points = sorted(rng.choice(wanted).points) if wanted else range(len(SPACE))
            played.publish(rng.randrange(clients), rng.choice(points))
    return played


EVERY_DAY, ALL_TREES, ALL_GRAPHS = 100, 1_000, 200
TREES = [
    pytest.param(range(EVERY_DAY), id="some"),
    pytest.param(range(EVERY_DAY, ALL_TREES), id="all", marks=pytest.mark.slow),
]
GRAPHS = [
    pytest.param(range(20), id="some"),
    pytest.param(range(20, ALL_GRAPHS), id="all", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("seeds", TREES)
@pytest.mark.parametrize(
    ("architecture", "options"),
    [("ce", {}), ("hs", {}), ("as", {}), ("aa", {}), ("aa", {"explicit": True})],
    ids=["ce", "hs", "as", "aa", "aa-explicit"],
)
def test_every_architecture_notifies_exactly_whom_the_oracle_names(
    architecture: Architecture, options: dict[str, Any], seeds: range
) -> None:
    told = 0
    for seed in seeds:
        played = play(seed, architecture, **options)
        assert played.faults == (0, 0, 0), f"seed {seed}: missing, repeated, wrong"
        told += played.told
    assert told > len(seeds)


@pytest.mark.parametrize("seeds", GRAPHS)
def test_in_a_graph_with_cycles_each_message_crosses_each_link_at_most_once(seeds: range) -> None:
    for seed in seeds:
        played = play(seed, "gs", cyclic=True)
        assert played.faults == (0, 0, 0), f"seed {seed}: missing, repeated, wrong"
        asked = {record.service for record in played.simulator.trace.records if record.type == "subscription"}
        asked -= {
            record.service for record in played.simulator.trace.records if record.type == "unsubscription"
        }
        crossed = Counter(
            (record.service, record.type, *sorted((record.source_site, record.destination_site)))
            for record in played.simulator.trace.records
            if record.source_site != record.destination_site
            # A cancellation may bring several filters.
            and (record.type == "notification" or record.service in asked)
        )
        assert max(crossed.values(), default=1) == 1, f"seed {seed}"


def test_covering_filters_of_another_origin_must_not_prune_in_a_graph_with_cycles() -> None:
    """Equation (1) with one table for all origins loses notifications; one table per origin does not."""

    class SharedServer(GenericServer):
        def __init__(self) -> None:
            super().__init__(shared=True)

    lost = {True: 0, False: 0}
    for seed in range(40):
        for shared in lost:
            rng = random.Random(seed)
            network = random_network(rng, 10, 8)
            played = Played(network, "gs", generic=SharedServer if shared else GenericServer)
            played.place(list(range(10)))
            [everything] = [one for one in pool() if one.json == {"a": {"exists": True}}]
            for client in rng.sample(range(10), 4):
                played.play([("subscribe", client, everything)])
            point = SPACE.index({"a": 1})
            for client in range(10):
                played.publish(client, point)
            lost[shared] += played.missing
    assert lost[False] == 0
    assert lost[True] > 0


class LiteralServer(HierarchicalServer):
    def __init__(self) -> None:
        super().__init__(literal=True)


class OlderServer(HierarchicalServer):
    def __init__(self) -> None:
        super().__init__(resend=False)


@pytest.mark.parametrize("kind", [LiteralServer, OlderServer])
def test_both_published_unsubscriptions_of_the_hierarchy_lose_notifications(
    kind: type[HierarchicalServer],
) -> None:
    missing = sum(play(seed, "hs", hierarchical=kind).missing for seed in range(EVERY_DAY))
    assert missing > 0


def test_an_unsubscription_as_published_cancels_what_another_client_asked_for() -> None:
    """Two servers; a and b ask for AZ and UA at the lower one, a cancels everything, and b loses UA."""
    ua, az = Known({"a": {"eq": 1}}), Known({"a": {"eq": 3}})
    everything = Known({"a": {"exists": True}})
    for kind, lost in ((LiteralServer, 1), (HierarchicalServer, 0)):
        network = Network(2, [(0, 1, Link(1, 1.0))])
        played = Played(network, "hs", hierarchical=kind)
        played.place([1, 1, 0])
        played.play([("subscribe", 0, az)])
        played.play([("subscribe", 1, ua)])
        played.play([("unsubscribe", 0, everything)])
        played.publish(2, SPACE.index({"a": 1}))
        assert played.missing == lost


def test_a_new_neighbour_gets_all_roots_and_a_lost_one_is_forgotten() -> None:
    rng = random.Random(3)
    network = random_network(rng, 6, 0)
    played = Played(network, "as")
    played.place(list(range(6)))
    cut = max(range(6), key=lambda site: len(network.near[site]))
    other = next(iter(network.near[cut]))
    cause = Message(kind="setup", content=None)
    one, two = played.servers[cut], played.servers[other]
    assert isinstance(one, PeerServer)
    assert isinstance(two, PeerServer)
    one.disconnect(other, cause)
    two.disconnect(cut, cause)
    for requests in random_script(rng, 6, 3):
        played.play(requests)
    one.connect(two, cause)
    two.connect(one, cause)
    played.simulator.run()
    for _ in range(40):
        played.publish(rng.randrange(6), rng.randrange(len(SPACE)))
    assert played.faults == (0, 0, 0)
    one.disconnect(other, cause)
    two.disconnect(cut, cause)
    played.simulator.run()
    assert all(other not in {*entry.subscribers, *entry.forwards} for entry in one.table.poset)


@pytest.mark.parametrize("seed", range(30))
def test_the_poset_keeps_immediate_relations_only(seed: int) -> None:
    rng = random.Random(seed)
    poset = Poset()
    there: dict[Known, Any] = {}
    for _ in range(60):
        filter = rng.choice(pool())
        if filter in there:
            poset.remove(there.pop(filter))
        else:
            entry, is_new = poset.insert(filter)
            if is_new:
                there[filter] = entry
        poset.check()
        point = rng.randrange(len(SPACE))
        expected = {one for one in there if point in one.points}
        assert {entry.filter for entry in poset.matching(point)} == expected
        assert poset.tests <= 10_000
    assert len(poset) == len(there)


def test_a_large_graph_is_connected_and_reaches_every_site() -> None:
    network = transit_stub(1_000, 7)
    assert max(network.spanning_tree.depths()) < 60
    assert sorted(network.spanning_tree.order) == list(range(1_000))
