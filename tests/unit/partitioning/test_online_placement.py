from __future__ import annotations

import random

import pytest

from edn.errors import InvalidInput
from partitioning.online import LeastLoaded, Random, new_placement


def test_the_least_loaded_server_is_chosen() -> None:
    assert LeastLoaded().place({"a": 3, "b": 1, "c": 2}) == "b"


def test_equal_loads_are_broken_by_chance() -> None:
    policy = LeastLoaded(random.Random(1))
    chosen = {policy.place({"a": 1, "b": 1, "c": 5}) for _ in range(50)}
    assert chosen == {"a", "b"}


def test_random_ignores_loads() -> None:
    policy = Random(random.Random(1))
    chosen = {policy.place({"a": 0, "b": 1000}) for _ in range(50)}
    assert chosen == {"a", "b"}


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="kmeans, least-loaded, random, rtree, traffic"):
        new_placement("best")
