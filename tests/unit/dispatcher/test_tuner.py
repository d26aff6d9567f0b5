"""From counters to a decision that is in force: the tuner, the survey and the meter, without any network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest

from dispatcher.config import Settings
from dispatcher.routing.table import RoutingTable
from dispatcher.servers.pipeline import SAMPLE, PipelineCounters
from dispatcher.services import Services
from dispatcher.tuning.loop import LEAST_EVENTS, Tuner
from dispatcher.tuning.probe import PrecisionProbe
from edn.errors import Conflict, InvalidInput
from edn.summary import Summary
from edn.tools.bench.workloads import uniform_points, uniform_rectangles
from selftune.cpu import Cpu
from selftune.curve import Effort
from selftune.tuning import Tuning

TOPIC = 5
RNG = np.random.default_rng(7)
POINTS = uniform_points(RNG, 400, 4)
RECTANGLES = [uniform_rectangles(RNG, 80, 4) for _ in range(2)]


def summarise(table: RoutingTable, seq: int = 1) -> None:
    for server, (lo, hi) in zip("ab", RECTANGLES, strict=True):
        table.add(server)
        table.accept(server, 1, seq, {TOPIC: Summary.build(lo, hi)})


def precise_hit_ratio(points: np.ndarray) -> float:
    inside = [
        ((points[:, None, :] >= lo) & (points[:, None, :] <= hi)).all(axis=2).any(axis=1)
        for lo, hi in RECTANGLES
    ]
    return float(np.mean(inside))


def test_the_meter_counts_pairs_and_keeps_a_sample_of_recent_events() -> None:
    counters = PipelineCounters()
    routed = np.zeros((400, 2), dtype=np.bool_)
    routed[:100, 0] = True
    counters.count_routed(TOPIC, POINTS, routed, 0.5)
    before = counters.snapshot()
    counters.count_routed(TOPIC, POINTS, ~routed, 0.25)
    counters.count_frame(700, 7000, 0.1)
    counted = counters.snapshot().since(before)
    assert (counted.events, counted.tested, counted.hits, counted.routing) == (400, 800, 700, 0.25)
    assert (counted.copies, counted.sent_bytes, counted.sending) == (700, 7000, 0.1)
    for _ in range(SAMPLE):
        counters.count_routed(TOPIC, POINTS[:3] + 100.0, routed[:3], 0.0)
    sample = counters.samples[TOPIC].points()
    assert sample.shape == (SAMPLE, 4)
    assert (sample > 100.0).all()


def test_shares_are_those_since_the_last_question() -> None:
    counters = PipelineCounters()
    routed = np.zeros((300, 1), dtype=np.bool_)
    counters.count_routed(1, POINTS[:300], routed, 0.0)
    counters.count_routed(2, POINTS[:100], routed[:100], 0.0)
    assert counters.pop_shares() == {1: 0.75, 2: 0.25}
    assert counters.pop_shares() == {}


def probed(points: np.ndarray) -> tuple[RoutingTable, PipelineCounters, PrecisionProbe]:
    table, counters = RoutingTable(), PipelineCounters()
    summarise(table)
    counters.count_routed(TOPIC, points, table.route(TOPIC, points), 0.0)
    return table, counters, PrecisionProbe(table, counters, Effort(seconds=60.0, most=10_000))


def test_a_survey_measures_what_other_precisions_let_through() -> None:
    _, counters, probe = probed(POINTS)
    asyncio.run(probe.measure_all())
    assert list(probe.measured) == [step / 10 for step in range(11)]
    ratios = [one.hit_ratio for one in probe.measured.values()]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] == pytest.approx(precise_hit_ratio(counters.samples[TOPIC].points()))
    assert probe.measured[0.0].routing == 0.0
    assert probe.spent > 0


def test_neighbours_are_measured_and_their_cuts_kept_until_the_table_changes() -> None:
    table, _, probe = probed(POINTS)

    async def work() -> None:
        await probe.measure_near(0.5, 0.1, seconds=10.0)
        assert {0.4, 0.5, 0.6} <= set(probe.measured)
        kept = await probe.rebuild(0.6)
        assert await probe.rebuild(0.6) is kept
        summarise(table, seq=2)
        fresh = await probe.rebuild(0.6)
        assert fresh is not kept
        table.apply(fresh)

    asyncio.run(work())
    assert table.describe("a").precision == 0.6


def test_far_measurements_are_forgotten_when_events_change() -> None:
    table, counters, probe = probed(POINTS)

    async def work() -> None:
        await probe.measure_all()
        nowhere = np.full((400, 4), 99.0)
        for _ in range(20):
            counters.count_routed(TOPIC, nowhere, table.route(TOPIC, nowhere), 0.0)
        await probe.measure_near(0.5, 0.1, seconds=0.0)

    asyncio.run(work())
    assert set(probe.measured) == {0.4, 0.5, 0.6}
    assert probe.measured[0.5].hit_ratio == 0.0


class Monitor:
    """A CPU as full as a test says."""

    def __init__(self, share: float) -> None:
        self.share = share

    def look(self) -> Cpu:
        return Cpu(share=self.share, core=1.0)


def tuned(
    tmp_path: Path,
    mode: str,
    work: Callable[[Services, Tuner, Monitor], Awaitable[None]],
    precision: float = 1.0,
) -> None:
    async def run() -> None:
        network = Services(Settings(data=tmp_path, secret="s" * 16))
        network.log.start()
        try:
            summarise(network.table)
            tuner = Tuner(
                network.log,
                network.table,
                network.members,
                network.pipeline,
                network.link,
                Tuning(mode=mode, precision=precision),
                interval=1.0,
            )
            network.table.set_precision(precision)
            monitor = Monitor(1.0)
            tuner._monitor = monitor  # type: ignore[assignment]  # the same two methods
            tuner._begin()
            await work(network, tuner, monitor)
        finally:
            await network.stop()

    asyncio.run(run())


def flow(network: Services, events: int = 400) -> None:
    points = POINTS[:events]
    routed = network.table.route(TOPIC, points)
    network.counters.count_routed(TOPIC, points, routed, 0.01)
    network.counters.count_frame(int(routed.sum()), 1000, 0.001)


def test_a_full_cpu_lowers_the_precision_by_the_published_rule_and_an_idle_one_raises_it(
    tmp_path: Path,
) -> None:
    async def work(network: Services, tuner: Tuner, monitor: Monitor) -> None:
        flow(network)
        await tuner.tick()
        assert network.table.describe("a").precision == 0.9
        monitor.share = 0.7
        flow(network)
        await tuner.tick()
        assert network.table.describe("a").precision == 1.0
        assert [one["precision"] for one in tuner.describe()["history"]] == [0.9, 1.0]
        stored = network.log._reader.execute("SELECT value FROM meta WHERE key = 'precision'").fetchone()
        assert stored == (1.0,)

    tuned(tmp_path, "paper", work)


@pytest.mark.parametrize(
    ("mode", "events", "share"), [("fixed", 400, 1.0), ("paper", LEAST_EVENTS - 1, 1.0), ("paper", 400, 0.3)]
)
def test_nothing_is_decided_when_nothing_is_to_be_tuned(
    tmp_path: Path, mode: str, events: int, share: float
) -> None:
    async def work(network: Services, tuner: Tuner, monitor: Monitor) -> None:
        monitor.share = share
        for _ in range(3):
            flow(network, events)
            await tuner.tick()
        assert tuner.describe()["history"] == []

    tuned(tmp_path, mode, work, precision=0.5)


def test_the_model_is_fed_with_what_was_counted(tmp_path: Path) -> None:
    async def work(network: Services, tuner: Tuner, monitor: Monitor) -> None:
        network.link.limit(5000.0)
        flow(network)
        await tuner.tick()
        told = tuner.describe()
        assert told["parameters"]["servers"] == 2
        assert told["parameters"]["bandwidth"] == 5000.0
        copies = network.counters.counts.copies
        assert told["parameters"]["message_bytes"] == pytest.approx(1000 / copies)
        assert told["parameters"]["per_copy"] == pytest.approx(0.001 / copies)
        [here] = [point for point in told["curve"] if point["precision"] == 1.0]
        # as it was live: 0.01 s for 400 events and two servers
        assert here["routing"] == pytest.approx(0.01 / 800)
        assert here["hit_ratio"] == pytest.approx(copies / 800, rel=0.2)
        assert {0.9, 1.0} <= {point["precision"] for point in told["curve"]}

    tuned(tmp_path, "model", work)


def test_an_operators_word_is_in_force_at_once_and_wrong_ones_change_nothing(tmp_path: Path) -> None:
    async def work(network: Services, tuner: Tuner, monitor: Monitor) -> None:
        await tuner.set("fixed", 0.2)
        assert network.table.describe("b").precision == 0.2
        await tuner.set("model", None)
        assert (tuner.tuning.mode, tuner.tuning.precision) == ("model", 0.2)
        with pytest.raises(InvalidInput, match="magic"):
            await tuner.set("magic", 0.5)
        assert (tuner.tuning.mode, network.table.describe("b").precision) == ("model", 0.2)

    tuned(tmp_path, "fixed", work)


def test_a_survey_needs_events(tmp_path: Path) -> None:
    async def work(network: Services, tuner: Tuner, monitor: Monitor) -> None:
        with pytest.raises(Conflict, match="no event"):
            await tuner.survey()
        flow(network)
        await tuner.tick()
        await tuner.survey()
        assert len(tuner.describe()["curve"]) == 11

    tuned(tmp_path, "fixed", work)
