"""Placement simulated in memory: what the experiments measure is placed as the product places it."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.simulated_placement import Offline, Online, Setup, draw, hit_ratio, partitioned, place

pytest.importorskip("sklearn", reason="K-means needs the extra `spark`")

SMALL = Setup(servers=4, dimensions=2, per_server=150, events=400)


def test_the_hit_ratio_counts_pairs_of_events_and_servers() -> None:
    lo, hi = np.array([[0.0], [5.0], [0.0]]), np.array([[1.0], [6.0], [9.0]])
    events = np.array([[0.5], [5.5], [9.5]])
    # server 0: the first event; server 1: the first two; server 2, empty: none
    parts = np.array([0, 1, 1])
    assert hit_ratio(lo, hi, parts, 3, events) == pytest.approx(3 / 9)


@pytest.mark.parametrize(
    "method",
    [
        Offline("random"),
        Offline("rtree"),
        Offline("kmeans"),
        Offline("traffic"),
        Online(),
        Online(offline=0.5, bound=16),
        Online(policy="kmeans", spread=0),
        Online(ties="random"),
    ],
)
def test_every_subscription_is_placed_once_and_no_server_above_the_threshold(
    method: Offline | Online,
) -> None:
    parts = partitioned(SMALL, 0, method, draw(SMALL, 0))
    assert len(parts) == 600
    assert set(parts.tolist()) <= {0, 1, 2, 3}
    assert np.bincount(parts).max() <= 300


def test_similar_subscriptions_together_save_traffic_and_loads_are_told() -> None:
    random, offline = place(SMALL, 0, Offline("random")), place(SMALL, 0, Offline("rtree"))
    assert offline.hit_ratio < 0.9 * random.hit_ratio
    assert offline.loads == (150, 150, 150, 150)
    assert offline.imbalance == 1.0


def test_where_events_are_uneven_looking_at_them_helps() -> None:
    crowd = Setup(servers=4, dimensions=2, per_server=150, events=400, distribution="crowd")
    assert place(crowd, 0, Offline("traffic")).hit_ratio < place(crowd, 0, Offline("rtree")).hit_ratio


def test_what_was_partitioned_offline_stays_where_it_was_put() -> None:
    drawn = draw(SMALL, 0)
    half = partitioned(SMALL, 0, Online(offline=0.5), drawn)
    # The first half is split into equal parts.
    assert np.bincount(half[:300]).tolist() == [75, 75, 75, 75]
