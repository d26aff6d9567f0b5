"""Online placement: the server that a new subscription goes to.

A policy sees the candidates' loads and answers with one of them. It is told of every placement at once, so
that an array of subscriptions is spread by the same rule as single ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Protocol

from edn.errors import InvalidInput


class Placement(Protocol):
    def place(self, loads: Mapping[str, int]) -> str:
        """One of `loads`' servers, which is never empty; `loads` counts subscriptions."""
        ...


class Random:
    """Any server, whatever its load: the paper's baseline."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()

    def place(self, loads: Mapping[str, int]) -> str:
        return self._rng.choice(sorted(loads))


class LeastLoaded:
    """The server with the fewest subscriptions; of equals, one by chance."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()

    def place(self, loads: Mapping[str, int]) -> str:
        least = min(loads.values())
        return self._rng.choice(sorted(server for server, load in loads.items() if load == least))


_POLICIES: dict[str, Callable[[], Placement]] = {"random": Random, "least-loaded": LeastLoaded}


def new_placement(name: str) -> Placement:
    try:
        return _POLICIES[name]()
    except KeyError:
        known = ", ".join(sorted(_POLICIES))
        raise InvalidInput(f'no placement policy "{name}"; known are {known}') from None
