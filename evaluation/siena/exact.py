"""Runs a scenario event by event, with real servers and clients: slow, and the reference of `compiled`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from evaluation.siena.clients import InterestedParty, ObjectOfInterest
from evaluation.siena.generic import GenericServer
from evaluation.siena.kernel import Simulator
from evaluation.siena.network import Network, Tree
from evaluation.siena.scenario import Architecture, Population
from evaluation.siena.servers import CentralServer, HierarchicalServer, PeerServer, Server


def build_servers(
    simulator: Simulator,
    architecture: Architecture,
    *,
    tree: Tree | None = None,
    centre: int = 0,
    explicit: bool = False,
    hierarchical: type[HierarchicalServer] = HierarchicalServer,
    generic: type[GenericServer] = GenericServer,
) -> Sequence[Server]:
    """Creates a server per site, or one for all; returns the server of each site's clients."""
    network = simulator.network
    if architecture == "ce":
        central = CentralServer()
        simulator.create_process_at(central, centre)
        return [central] * network.sites
    servers: list[Server] = []
    for site in range(network.sites):
        server: Server
        if architecture == "hs":
            server = hierarchical()
        elif architecture == "gs":
            server = generic()
        else:
            server = PeerServer(advertised=architecture == "aa", explicit=explicit)
        simulator.create_process_at(server, site)
        servers.append(server)
    connect(servers, network, architecture, tree or network.spanning_tree)
    return servers


def connect(servers: Sequence[Server], network: Network, architecture: Architecture, tree: Tree) -> None:
    near = [sorted(some) for some in network.near] if architecture == "gs" else tree.neighbours()
    for site, server in enumerate(servers):
        server.peers = {other: servers[other] for other in near[site]}
        if isinstance(server, HierarchicalServer):
            server.master = tree.parent[site] if tree.parent[site] >= 0 else None


def simulate(
    network: Network,
    architecture: Architecture,
    population: Population,
    *,
    tree: Tree | None = None,
    centre: int = 0,
    keep_records: bool = False,
) -> Simulator:
    """Runs a scenario to its end."""
    scenario = population.scenario
    simulator = Simulator(network, keep_records=keep_records)
    servers = build_servers(simulator, architecture, tree=tree, centre=centre, explicit=scenario.explicit)
    numbers = count()
    for site, delays in zip(population.object_sites.tolist(), population.delays.tolist(), strict=True):
        one = ObjectOfInterest(
            servers[site],
            numbers,
            cycles=scenario.object_cycles,
            delays=delays,
            pauses=scenario.pauses,
        )
        simulator.create_process_at(one, site)
    parties = []
    for site, start in zip(population.party_sites.tolist(), population.starts.tolist(), strict=True):
        party = InterestedParty(
            servers[site],
            numbers,
            cycles=scenario.party_cycles,
            notifications=scenario.notifications,
            start=start,
        )
        simulator.create_process_at(party, site)
        parties.append(party)
    simulator.run()
    if scenario.ends_parties:
        for party in parties:
            party.end()
        simulator.run()
    return simulator
