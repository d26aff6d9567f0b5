"""Ours: What the published unsubscriptions lose.

The hierarchical server of 000 forwards an unsubscription as it came and sends the roots again that it
uncovers; that of 003 cancels each subscription that is gone, and sends nothing again (R4). Ours cancels as
003 and sends again as 000. Random trees of up to 30 servers, clients that subscribe to and unsubscribe from
random intervals, one request after the other, and a publication after each. Counted are the notifications
that a client should have got and did not.
"""

from __future__ import annotations

from itertools import count

import numpy as np

from evaluation.experiment import Claim, Experiment, Outcome, Progress
from evaluation.figures import Canvas
from evaluation.siena.clients import Client
from evaluation.siena.exact import build_servers
from evaluation.siena.experiments.lattice import Box
from evaluation.siena.kernel import Simulator
from evaluation.siena.network import transit_stub
from evaluation.siena.servers import HierarchicalServer


class LiteralServer(HierarchicalServer):
    def __init__(self) -> None:
        super().__init__(literal=True)


class OlderServer(HierarchicalServer):
    def __init__(self) -> None:
        super().__init__(resend=False)


KINDS: dict[str, type[HierarchicalServer]] = {
    "000": LiteralServer,
    "003": OlderServer,
    "ours": HierarchicalServer,
}


def run(seed: int, progress: Progress, *, trees: int, requests: int) -> Outcome:
    outcome = Outcome()
    for done, (name, kind) in enumerate(KINDS.items()):
        progress(done, len(KINDS), name)
        due = lost = harmed = 0
        for tree in range(trees):
            found = _lost(np.random.default_rng([seed, tree]), requests, kind)
            due, lost, harmed = due + found[0], lost + found[1], harmed + (found[1] > 0)
        outcome.values[f"lost, {name}"] = lost / max(1, due)
        outcome.values[f"trees with losses, {name}"] = harmed / trees
    return outcome


def _lost(rng: np.random.Generator, requests: int, kind: type[HierarchicalServer]) -> tuple[int, int]:
    """Runs one script; returns the notifications that were due, and those that were lost."""
    sites = int(rng.integers(2, 31))
    simulator = Simulator(transit_stub(sites, int(rng.integers(1 << 30))))
    servers = build_servers(simulator, "hs", hierarchical=kind)
    numbers = count()
    clients = [Client(servers[site], numbers) for site in rng.integers(0, sites, 8).tolist()]
    for client in clients:
        simulator.create_process_at(client, client.server.site)
    simulator.run()
    wanted: list[list[Box]] = [[] for _ in clients]
    due = lost = 0
    for _ in range(requests):
        at = int(rng.integers(len(clients)))
        low, high = np.sort(rng.integers(0, 12, 2)).tolist()
        box = Box([float(low)], [float(high)])
        if wanted[at] and rng.random() < 0.4:
            # Often more than what was asked for: it cancels everything that it covers.
            wanted[at] = [one for one in wanted[at] if not box.covers(one)]
            clients[at].unsubscribe(box)
        else:
            wanted[at].append(box)
            clients[at].subscribe(box)
        simulator.run()
        point = [float(rng.integers(0, 12))]
        number = clients[int(rng.integers(len(clients)))].publish(point)
        simulator.run()
        for client, boxes in zip(clients, wanted, strict=True):
            if any(one.matches(point) for one in boxes):
                due += 1
                lost += number not in client.received
    return due, lost


def draw(canvas: Canvas) -> None:
    left, right = canvas.panels(2, height=3.6)
    for panel, metric, title in (
        (left, "lost", "Notifications lost"),
        (right, "trees with losses", "Trees with losses"),
    ):
        panel.labels(title, "", "share")
        panel.bars(list(KINDS), [f"{metric}, {name}" for name in KINDS])


EXPERIMENT = Experiment(
    name="siena-unsubscription",
    text=__doc__,
    sizes={
        "tiny": {"trees": 15, "requests": 40},
        "quick": {"trees": 40, "requests": 40},
        "full": {"trees": 200, "requests": 60},
    },
    seeds={"tiny": 1, "quick": 2, "full": 3},
    run=run,
    draw=draw,
    claims=(
        Claim(
            "Both published unsubscriptions lose notifications.",
            {"000 and 003": lambda o: [o["lost, 000"] > 0, o["lost, 003"] > 0]},
            strict=True,
        ),
        Claim(
            "Ours loses none.",
            {"all trees": lambda o: o["lost, ours"] == 0},
            strict=True,
        ),
    ),
)
