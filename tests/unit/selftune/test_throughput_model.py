"""The throughput equations, by arithmetic that can be followed on paper."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from selftune.throughput import (
    Model,
    OperatingPoint,
    Parameters,
    components,
    with_subscriptions,
)

#: the published set-up: T_f = 1.6 ms, N_s = 10, S_m = 3 KB, B = 80 Mbit/s
PUBLISHED = Parameters(servers=10, fixed=1.6e-3, message_bytes=3000, bandwidth=10e6)
PRECISE = OperatingPoint(routing=139e-6, hit_ratio=0.42)
NONE = OperatingPoint(routing=0.0, hit_ratio=1.0)


@pytest.mark.parametrize(
    ("parameters", "at", "dispatcher", "outgoing", "servers", "bottleneck"),
    [
        # 1 / (1.6 ms + 10 × 139 µs) = 1 / 2.99 ms; 10 MB/s ÷ (0.42 × 3 KB × 10)
        (PUBLISHED, PRECISE, 334.448, 793.651, math.inf, "TP_D"),
        # 1 / 1.6 ms; 10 MB/s ÷ 30 KB
        (PUBLISHED, NONE, 625.0, 333.333, math.inf, "TP_OL"),
        # with T_c = 0.1 ms: 1.6 + 1.39 + 0.1 × 0.42 × 10 = 3.41 ms
        (replace(PUBLISHED, per_copy=1e-4), PRECISE, 293.255, 793.651, math.inf, "TP_D"),
        # T_s F = 10 ms: 1 ÷ (0.42 × 10 ms)
        (replace(PUBLISHED, serving=10e-3), PRECISE, 334.448, 793.651, 238.095, "TP_S"),
        # half a core: half of TP_D
        (replace(PUBLISHED, core=0.5), NONE, 312.5, 333.333, math.inf, "TP_D"),
        # nothing is sent: only the CPU bounds
        (PUBLISHED, OperatingPoint(routing=1e-4, hit_ratio=0.0), 384.615, math.inf, math.inf, "TP_D"),
    ],
)
def test_each_part_bounds_the_throughput(
    parameters: Parameters,
    at: OperatingPoint,
    dispatcher: float,
    outgoing: float,
    servers: float,
    bottleneck: str,
) -> None:
    found = components(parameters, at)
    assert found.dispatcher == pytest.approx(dispatcher, rel=1e-4)
    assert found.outgoing == pytest.approx(outgoing, rel=1e-4)
    assert found.servers == pytest.approx(servers, rel=1e-4)
    assert found.throughput == pytest.approx(min(dispatcher, outgoing, servers), rel=1e-4)
    assert found.bottleneck == bottleneck


def test_publishers_bound_it_too() -> None:
    found = components(replace(PUBLISHED, arrival=0.01), PRECISE)
    assert (found.throughput, found.bottleneck) == (100.0, "TP_IL")


def curve(*points: tuple[float, float, float]) -> dict[float, OperatingPoint]:
    return {at: OperatingPoint(routing=us * 1e-6, hit_ratio=hits) for at, us, hits in points}


#: precision, T_d in µs, R
CURVE = curve((0.0, 0, 1.0), (0.3, 51, 0.81), (0.4, 72, 0.72), (0.5, 94, 0.63), (1.0, 139, 0.44))


@pytest.mark.parametrize(
    ("parameters", "best"),
    [
        (replace(PUBLISHED, bandwidth=1e6), 1.0),  # TP' < TP_D everywhere
        (replace(PUBLISHED, bandwidth=1e9), 0.0),  # TP' > TP_D everywhere
        (PUBLISHED, 0.4),  # they cross
        (replace(PUBLISHED, bandwidth=1e9, serving=3e-3), 0.4),  # TP' is the servers'
        (replace(PUBLISHED, bandwidth=1e9, per_copy=0.5e-3), 1.0),  # sending fills the CPU, not routing
    ],
)
def test_the_best_precision_in_each_of_the_cases(parameters: Parameters, best: float) -> None:
    assert Model(parameters, CURVE).best() == best


def test_of_equals_the_most_precise_is_best() -> None:
    same = curve((0.2, 0, 0.5), (0.7, 0, 0.5))
    assert Model(PUBLISHED, same).best() == 0.7


def test_relative_throughput_follows_from_the_components_where_they_cross() -> None:
    # T_f = T_c = 0 and a crossing at R_o: T_do = R_o T_l; the published RTP_p and RTP_n
    link, hits, precise = 100e-6, 0.73, 155e-6
    parameters = Parameters(servers=10, fixed=0.0, message_bytes=1000, bandwidth=10e6)
    best = components(parameters, OperatingPoint(routing=hits * link, hit_ratio=hits)).throughput
    at_precise = components(parameters, OperatingPoint(routing=precise, hit_ratio=0.5)).throughput
    at_none = components(parameters, NONE).throughput
    assert best / at_precise == pytest.approx(precise / (hits * link))
    assert best / at_none == pytest.approx(1 / hits)


def test_twice_the_subscriptions_are_missed_only_by_events_that_both_halves_miss() -> None:
    twice = with_subscriptions(OperatingPoint(routing=1e-4, hit_ratio=0.4), 2.0)
    assert twice.routing == pytest.approx(2e-4)
    assert twice.hit_ratio == pytest.approx(1 - 0.6 * 0.6)
    assert with_subscriptions(twice, 1.0).hit_ratio == pytest.approx(twice.hit_ratio)
