"""Interest in rectangles: equal to the exact simulation by covering, never too narrow by summaries."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

from evaluation.siena.clients import Client
from evaluation.siena.exact import build_servers
from evaluation.siena.experiments.lattice import Box
from evaluation.siena.kernel import Simulator
from evaluation.siena.network import transit_stub
from evaluation.siena.rectangles import RectangleTree, bounding, merged_intervals, summary_cut


def corners(rng: np.random.Generator, d: int) -> Any:
    return np.sort(rng.integers(0, 12, (2, d)), axis=0).astype(np.float64) + np.array([[0.0], [0.5]])


@pytest.mark.parametrize("seed", range(12))
def test_covering_sends_the_messages_of_the_exact_simulation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = transit_stub(int(rng.integers(2, 15)), seed)
    ours = RectangleTree(network.spanning_tree, 2)
    simulator = Simulator(network)
    servers = build_servers(simulator, "as")
    live: dict[int, tuple[int, Client, Box]] = {}
    for id in range(60):
        if live and rng.random() < 0.35:
            gone = int(rng.choice(sorted(live)))
            site, client, box = live.pop(gone)
            ours.unsubscribe(gone, site)
            client.unsubscribe(box)
        else:
            lo, hi = corners(rng, 2)
            site = int(rng.integers(network.sites))
            if any((box.lo, box.hi) == (lo.tolist(), hi.tolist()) for _, _, box in live.values()):
                continue  # equal filters share an entry there
            client = Client(servers[site], count())
            simulator.create_process_at(client, site)
            simulator.run()
            live[id] = site, client, Box(lo.tolist(), hi.tolist())
            ours.subscribe(id, site, lo, hi)
            client.subscribe(live[id][2])
        simulator.run()
        theirs = simulator.trace.messages
        assert ours.sent.subscribe + ours.sent.unsubscribe == (
            theirs["subscription"] + theirs["unsubscription"]
        ), id


@pytest.mark.parametrize("k", [1, 2, 8, None])
def test_a_summary_of_any_size_misses_nothing_and_the_precise_one_wastes_nothing(k: int | None) -> None:
    rng = np.random.default_rng(1)
    tree = transit_stub(20, 1).spanning_tree
    network = RectangleTree(tree, 3, summary_cut(k))
    live = {}
    for id in range(80):
        live[id] = int(rng.integers(20))
        lo, hi = corners(rng, 3)
        network.subscribe(id, live[id], lo, hi)
        points = rng.random((30, 3)) * 12
        assert network.crossings(points, rng.integers(0, 20, 30).tolist())[2] == 0
    network.report()
    for id in rng.choice(80, 30, replace=False).tolist():
        network.unsubscribe(id, live[id])
    assert network.sent.unsubscribe == 0
    network.report()
    crossed, useless, missed = network.crossings(rng.random((300, 3)) * 12, rng.integers(0, 20, 300).tolist())
    assert missed == 0
    assert crossed > 0
    assert (useless == 0) == (k is None)
    if k is not None:
        assert network.state <= k


def test_the_published_example_of_merging() -> None:
    """= 1, > 2 and = 2 are > 0."""
    lo, hi = merged_intervals(np.array([[1.0], [3.0], [2.0]]), np.array([[1.0], [np.inf], [2.0]]))
    assert (lo.tolist(), hi.tolist()) == ([[1.0]], [[np.inf]])
    lo, hi = merged_intervals(np.array([[1.0], [4.0]]), np.array([[2.0], [5.0]]))
    assert (lo.tolist(), hi.tolist()) == ([[1.0], [4.0]], [[2.0], [5.0]])
    assert [one.tolist() for one in bounding(lo, hi)] == [[[1.0]], [[5.0]]]
