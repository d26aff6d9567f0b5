"""Runs of the published grid: objects × parties × architectures, the mean of several runs per point.

A *seed* is one whole evaluation as published: every point is the mean of `runs` runs with a graph, a
placement and delays of their own. Several experiments use the same runs, so they are kept in memory.

A *reading* is one meaning of an ambiguous text. The first one is the base; the others change one thing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from statistics import fmean, stdev
from typing import Any

import numpy as np

from evaluation.experiment import Outcome, Progress, Scale, Series
from evaluation.siena import compiled
from evaluation.siena.compiled import Totals
from evaluation.siena.network import Network, transit_stub
from evaluation.siena.scenario import Architecture, Population, Scenario

ARCHITECTURES: tuple[Architecture, ...] = ("ce", "hs", "as", "aa")
DISTRIBUTED: tuple[Architecture, ...] = ("hs", "as", "aa")
#: parties from which on there is probably one at every site
SATURATED = 100


@dataclass(frozen=True, slots=True)
class Reading:
    name: str
    scenario: Scenario = field(default_factory=Scenario)
    #: whether all runs of a seed share a graph
    one_graph: bool = False
    #: whether the tree consists of the cheapest paths to site 0 instead of being the cheapest tree
    by_paths: bool = False


BASE = Reading("Poisson process, 10 and 10, a graph per run")
READINGS = (
    BASE,
    Reading("one delay per object (R1)", Scenario(delays="constant")),
    Reading("20 publications, 15 notifications (R2)", Scenario(publications=20, notifications=15)),
    Reading("one graph for all runs (R3)", one_graph=True),
    Reading("parties end with the run (R7)", Scenario(ends_parties=True)),
    Reading("a tree of cheapest paths", by_paths=True),
)
NAMES = [reading.name for reading in READINGS]


@lru_cache(maxsize=64)
def network_of(sites: int, seed: int, run: int) -> Network:
    return transit_stub(sites, [seed, run])


@lru_cache(maxsize=8)
def population_of(scenario: Scenario, sites: int, seed: int, run: int) -> Population:
    return Population.draw(scenario, sites, [seed, run, 1])


@cache
def totals(
    seed: int, run: int, reading: Reading, architecture: Architecture, scenario: Scenario, sites: int = 100
) -> Totals:
    """Runs one scenario once; its behaviour is that of `scenario`, not of the reading."""
    network = network_of(sites, seed, 0 if reading.one_graph else run)
    population = population_of(scenario, sites, seed, run)
    centre = int(np.random.default_rng([seed, run, 2]).integers(sites))
    tree = network.path_tree if reading.by_paths else network.spanning_tree
    return compiled.simulate(network, architecture, population, tree=tree, centre=centre)


def sample(
    seed: int,
    runs: int,
    architecture: Architecture,
    reading: Reading = BASE,
    *,
    sites: int = 100,
    **changes: Any,
) -> list[Totals]:
    """Runs one point of the grid."""
    scenario = replace(reading.scenario, **changes)
    return [totals(seed, run, reading, architecture, scenario, sites) for run in range(runs)]


@dataclass(frozen=True, slots=True)
class Grid:
    """Sizes of the published grid, and how many runs the base and the other readings have."""

    objects: Sequence[int]
    parties: Sequence[int]
    runs: int
    reading_runs: int

    def runs_of(self, reading: Reading) -> int:
        return self.runs if reading is BASE else self.reading_runs

    def fill(self, outcome: Outcome, seed: int, progress: Progress, metrics: dict[str, Any]) -> None:
        """Adds a curve over the parties per reading, metric, architecture and number of objects."""
        turns = [(reading, objects) for reading in READINGS for objects in self.objects]
        for done, (reading, objects) in enumerate(turns):
            progress(done, len(turns), f"{objects} objects, {reading.name}")
            scenarios = [
                replace(reading.scenario, objects=objects, parties=parties) for parties in self.parties
            ]
            # The architectures of a run share its clients.
            runs = range(self.runs_of(reading))
            points = {
                (scenario, run, architecture): totals(seed, run, reading, architecture, scenario)
                for scenario in scenarios
                for run in runs
                for architecture in ARCHITECTURES
            }
            for architecture in ARCHITECTURES:
                found = [[points[scenario, run, architecture] for run in runs] for scenario in scenarios]
                for metric, measure in metrics.items():
                    outcome.series[key(reading, metric, architecture, objects)] = Series(
                        self.parties, [measure(some) for some in found]
                    )


def key(reading: Reading | str, metric: str, architecture: str, objects: int) -> str:
    name = reading if isinstance(reading, str) else reading.name
    return f"{name}: {metric} of {architecture}, {objects} objects"


def mean_of(attribute: str) -> Any:
    """Returns the mean over runs of one number."""
    return lambda runs: fmean(getattr(one, attribute) for one in runs)


def relative_deviation(runs: Sequence[Totals]) -> float:
    """Standard deviation over the mean of the total cost."""
    costs = [one.total for one in runs]
    return stdev(costs) / fmean(costs) if len(costs) > 1 and fmean(costs) else 0.0


def worst_site(runs: Sequence[Totals]) -> float:
    """The largest mean cost of a site over the runs."""
    return float(np.mean([one.site_cost for one in runs], axis=0).max())


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"objects": (1, 10), "parties": (1, 10, 20, 100, 200, 400), "runs": 2, "reading_runs": 2},
    "quick": {
        "objects": (1, 10, 100, 1000),
        "parties": (1, 5, 20, 100, 200, 1000),
        "runs": 3,
        "reading_runs": 2,
    },
    "full": {
        "objects": (1, 10, 100, 1000),
        "parties": (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000),
        "runs": 10,
        "reading_runs": 2,
    },
}
SEEDS: dict[Scale, int] = {"tiny": 1, "quick": 2, "full": 3}


class View:
    """Curves of one reading of an outcome."""

    def __init__(self, outcome: Outcome, reading: str) -> None:
        self._outcome = outcome
        self._reading = reading
        names = [name for name in outcome.series if name.startswith(f"{reading}: ")]
        self.objects = sorted({int(name.rsplit(", ", 1)[1].split()[0]) for name in names})
        self.parties = list(outcome.series[names[0]].x)

    def curve(self, metric: str, architecture: str, objects: int) -> list[float]:
        return list(self._outcome.y(key(self._reading, metric, architecture, objects)))

    def at(self, metric: str, architecture: str, objects: int, parties: float) -> float:
        return self.curve(metric, architecture, objects)[self.parties.index(parties)]

    def places(self, low: float = 0, high: float = float("inf")) -> list[int]:
        """Returns the positions of the numbers of parties in a range."""
        return [at for at, parties in enumerate(self.parties) if low <= parties <= high]


def slopes(x: Sequence[float], y: Sequence[float]) -> list[float]:
    """Returns the log-log slope of every step."""
    return [
        float(np.log(y[at + 1] / y[at]) / np.log(x[at + 1] / x[at])) if y[at] > 0 and y[at + 1] > 0 else 0.0
        for at in range(len(x) - 1)
    ]


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """Returns the exponent of a power law fitted to all points."""
    return float(np.polyfit(np.log(x), np.log(np.maximum(y, 1e-12)), 1)[0])
