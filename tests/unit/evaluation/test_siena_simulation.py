"""The simulator, its two ways to run a scenario, and scenarios that cannot be run."""

from __future__ import annotations

import random
from itertools import count

import numpy as np
import pytest

from edn.errors import InvalidInput
from evaluation.siena import compiled, exact
from evaluation.siena.clients import ANY_EVENT, Client
from evaluation.siena.exact import build_servers
from evaluation.siena.kernel import Message, Process, Simulator
from evaluation.siena.network import Link, Network, transit_stub
from evaluation.siena.scenario import Population, Scenario, check_architecture, parse_scenario


def line(*costs: int) -> Network:
    """Sites in a row."""
    return Network(len(costs) + 1, [(at, at + 1, Link(cost, float(cost))) for at, cost in enumerate(costs)])


@pytest.mark.parametrize("architecture", ["ce", "hs", "as", "aa"])
@pytest.mark.parametrize("seeds", [range(25), pytest.param(range(25, 300), marks=pytest.mark.slow)])
def test_the_compiled_simulation_agrees_with_the_exact_one_to_the_unit(
    architecture: str, seeds: range
) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        sites = rng.randint(1, 30)
        network = transit_stub(sites, seed)
        scenario = Scenario(
            objects=rng.randint(1, 25),
            parties=rng.randint(0, 40),
            object_cycles=rng.randint(1, 6),
            publications=rng.randint(1, 8),
            party_cycles=rng.randint(1, 6),
            notifications=rng.randint(1, 8),
            # Faster than a message crosses the network, in half of them.
            publication_delay=rng.choice([(10, 60), (2000, 2500)]),
            start_delay=(0, 300),
            delays=rng.choice(["exponential", "constant"]),
            ends_parties=rng.random() < 0.3,
            explicit=rng.random() < 0.3,
            pauses=rng.random() < 0.3,
        )
        population = Population.draw(scenario, sites, seed)
        tree = rng.choice([network.spanning_tree, network.path_tree])
        centre = rng.randrange(sites)
        known = check_architecture(architecture)
        ours = compiled.simulate(network, known, population, tree=tree, centre=centre)
        trace = exact.simulate(network, known, population, tree=tree, centre=centre).trace
        for name, sums in (("cost", ours.cost), ("messages", ours.messages), ("requests", ours.requests)):
            assert sums.tolist() == [getattr(trace, name)[kind] for kind in compiled.TYPES], (seed, name)
        assert ours.site_cost.tolist() == trace.site_cost, seed
        assert ours.crossing_services == trace.crossing_services, seed
        assert ours.deliveries == sum(trace.deliveries.values()), seed


def test_a_seed_gives_the_same_run_again() -> None:
    def totals(seed: int) -> list[int]:
        network = transit_stub(50, seed)
        population = Population.draw(Scenario(objects=10, parties=40), 50, seed)
        return compiled.simulate(network, "aa", population).site_cost.tolist()

    assert totals(4) == totals(4)
    assert totals(4) != totals(5)


def test_costs_of_a_first_subscription_and_a_notification_by_hand() -> None:
    """Sites 0 - 1 - 2 - 3 with costs 5, 7, 11; a party at 3, an object at 1."""
    expected = {
        # To the server at 0 and back: 23, and 5 + 23.
        "ce": (23, 5 + 23),
        # Up to the root, and the notification up to the root and down to 3.
        "hs": (23, 5 + 18),
        "as": (23, 18),
        # The advertisement has reached everybody (23); the subscription stops at it.
        "aa": (18, 18),
        "gs": (23, 18),
    }
    for name, (subscription, notification) in expected.items():
        simulator = Simulator(line(5, 7, 11))
        servers = build_servers(simulator, check_architecture(name))
        numbers = count()
        party, source = Client(servers[3], numbers), Client(servers[1], numbers)
        simulator.create_process_at(party, 3)
        simulator.create_process_at(source, 1)
        simulator.run()
        source.advertise(ANY_EVENT)
        simulator.run()
        party.subscribe(ANY_EVENT)
        simulator.run()
        source.publish(None)
        simulator.run()
        trace = simulator.trace
        assert (trace.cost["subscription"], trace.cost["notification"]) == (subscription, notification), name
        assert party.received == [0], name
        assert source.received == [], name


def test_the_trace_sums_messages_by_site_link_and_service() -> None:
    simulator = Simulator(line(5, 7), keep_records=True)
    servers = build_servers(simulator, "as")
    client = Client(servers[0], count())
    simulator.create_process_at(client, 0)
    simulator.run()
    client.subscribe(ANY_EVENT)
    simulator.run()
    trace = simulator.trace
    assert [(one.source_site, one.destination_site, one.arrival) for one in trace.records] == [
        (0, 0, 0.0),
        (0, 1, 5.0),
        (1, 2, 12.0),
    ]
    assert {one.service for one in trace.records} == {1}
    assert trace.site_cost == [5, 12, 7]
    assert dict(trace.link_cost) == {(0, 1): 5, (1, 2): 7}
    assert (trace.service_cost[1], trace.delay(1)) == (12, 12.0)


class Talker(Process):
    """Sends itself a message, creates a process, ends."""

    def __init__(self, log: list[str], name: str) -> None:
        self._log, self._name = log, name

    def initialize(self) -> None:
        self._log.append(f"{self._name} begins at {self.simulator.clock:g}")
        self.simulator.wait(self, 2.0)
        self.simulator.send(Message(kind="setup", content=None), self, self)

    def process(self, message: Message, sender: Process) -> None:
        self._log.append(f"{self._name} gets a message at {self.simulator.clock:g}")
        if self._name == "one":
            self.simulator.create_process(Talker(self._log, "two"), self)

    def timeout(self) -> None:
        self._log.append(f"{self._name} wakes at {self.simulator.clock:g}")
        self.simulator.wait(self, 1.0)
        self.simulator.exit(self)

    def terminate(self) -> None:
        self._log.append(f"{self._name} ends at {self.simulator.clock:g}")


def test_processes_begin_wait_create_others_and_end() -> None:
    simulator = Simulator(line(1))
    log: list[str] = []
    simulator.create_process_at(Talker(log, "one"), 1)
    simulator.run(until=1.0)
    assert log == [
        "one begins at 0",
        "one gets a message at 0",
        "two begins at 0",
        "two gets a message at 0",
    ]
    simulator.run()
    # The wait of an ended process expires without effect.
    assert log[4:] == ["one wakes at 2", "two wakes at 2", "one ends at 2", "two ends at 2"]


@pytest.mark.parametrize("sites", [1, 2, 7, 24, 25, 26, 100, 399])
def test_a_transit_stub_graph_has_the_sites_asked_for(sites: int) -> None:
    network = transit_stub(sites, 3)
    assert network.sites == sites
    for tree in (network.spanning_tree, network.path_tree):
        assert sorted(tree.order) == list(range(sites))
        assert tree.parent.count(-1) == 1
        at = {site: place for place, site in enumerate(tree.order)}
        assert all(at[above] < at[site] for site, above in enumerate(tree.parent) if above >= 0)


def test_the_spanning_tree_is_the_cheapest_of_all() -> None:
    """Against the sum of Kruskal's algorithm, which joins components instead of growing one."""
    for seed in range(10):
        network = transit_stub(60, seed)
        component = list(range(60))
        expected = 0
        for one, other, link in sorted(network.links, key=lambda found: found[2].cost):
            if component[one] != component[other]:
                expected += link.cost
                old, new = component[one], component[other]
                component = [new if name == old else name for name in component]
        parent = network.spanning_tree.parent
        assert sum(network.near[s][above].cost for s, above in enumerate(parent) if above >= 0) == expected


def test_delays_have_the_published_mean() -> None:
    for delays in ("exponential", "constant", "poisson"):
        drawn = Population.draw(Scenario(objects=400, delays=delays), 100, 1).delays
        assert drawn.mean() == pytest.approx(2250, rel=0.02)
        assert (np.ptp(drawn, axis=1) == 0).all() == (delays == "constant")


EXAMPLE = """//
// scenario spec file
//
servers = acyclic adv_fwd;
objects {
  event = "A";
  number = 1000;
  pub/adv = 20;
  time/pub = 2000~2500;
  cycles = 10;
};
parties {
  pattern = "A";
  number = 30;
  notif/sub = 15;   // these two are mutex
  cycles = 10;
  init_delay = 2000~2500;
};
"""


def test_the_published_scenario_file_can_be_read() -> None:
    found = parse_scenario(EXAMPLE)
    assert found.architecture == "aa"
    assert found.scenario == Scenario(objects=1000, parties=30, publications=20, notifications=15)
    assert found.network(1).sites == 100


def test_a_scenario_file_may_give_the_network() -> None:
    found = parse_scenario("servers = hierarchical; links { s0 - s1 = 31; s1 - s2 = 4; };")
    assert [link for *_, link in found.network(1).links] == [Link(31, 31.0), Link(4, 4.0)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (EXAMPLE.replace("pub/adv", "pubs"), 'line 8: a tag of objects must be one of number'),
        (EXAMPLE + "colour = red;", 'line 19: a tag must be one of servers, sites, links, objects, parties'),
        (EXAMPLE.replace("adv_fwd", "ring"), 'line 4: servers must be one of centralized, hierarchical'),
        (EXAMPLE.replace("1000", "many"), "line 7: a number must be an integer, got many"),
        (EXAMPLE.replace("2000~2500", "soon"), "line 9: a range must be low~high, got soon"),
        (EXAMPLE.replace("2000~2500", "2500~2000"), "a delay must be a range from 0 or more upwards"),
        (EXAMPLE.replace("number = 1000", "number = 0"), "parties must have objects to wait for, got 30"),
        (EXAMPLE + "sites = 0;", "sites must be 1 or more, got 0"),
        ("servers = acyclic", "; must follow, got the end"),
        ("objects { number = 1; };", "servers must be one of centralized, "),
        ("servers = generic; links { s0 - x = 3; };", "line 1: a site must be s0, s1, …, got x"),
        ("servers = generic; links { s0 - s0 = 3; };", "a link must join two of the sites s0 to s0"),
        (
            "servers = generic;\nlinks { s0 - s1 = 3; s2 - s3 = 4; };",
            "the network must be connected, got site s2 without a path to s0",
        ),
    ],
)  # fmt: skip
def test_a_scenario_that_cannot_be_run_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as problem:
        parse_scenario(text).network(0)
    assert said in str(problem.value)


def test_unknown_architectures_and_no_sites_are_refused() -> None:
    with pytest.raises(InvalidInput, match='architecture must be one of ce, hs, as, aa, gs, got "xx"'):
        check_architecture("xx")
    with pytest.raises(InvalidInput, match="architecture must be one of ce, hs, as, aa, got gs"):
        compiled.simulate(line(1), "gs", Population.draw(Scenario(), 2, 0))
    for make in (lambda: transit_stub(0, 1), lambda: Network(0, [])):
        with pytest.raises(InvalidInput, match="sites must be 1 or more, got 0"):
            make()
