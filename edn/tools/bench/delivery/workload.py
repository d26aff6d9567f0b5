"""Draws subscriptions and events, and computes which notifications must arrive.

Subscriptions are squares in the unit square, with uniform centres. Subscription `i` belongs to address
`i % addresses`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edn.arrays import Floats, Ints

#: attributes of the topic
NAMES = ("x", "y")
TOPIC = "delivery"
#: digits of coordinates, so that their text is short and exact
DIGITS = 6


@dataclass(frozen=True, slots=True)
class Expected:
    """The notifications of some events: one per event and address, with a number of matches."""

    #: event number × addresses + address, sorted
    keys: Ints
    matches: Ints
    addresses: int

    @property
    def total_matches(self) -> int:
        return int(self.matches.sum())

    def only(self, addresses: Ints) -> Expected:
        """Returns the part that belongs to these addresses."""
        chosen = np.isin(self.keys % self.addresses, addresses)
        return Expected(self.keys[chosen], self.matches[chosen], self.addresses)


@dataclass(frozen=True, slots=True)
class Workload:
    lo: Floats
    hi: Floats
    #: address of each subscription
    owners: Ints
    addresses: int

    @classmethod
    def draw(cls, rng: np.random.Generator, subscriptions: int, addresses: int, matches: float) -> Workload:
        """Draws subscriptions of which an event matches about `matches`; all if there are no more."""
        side = min(1.0, math.sqrt(matches / subscriptions))
        centres = rng.random((subscriptions, len(NAMES)))
        if side == 1.0:
            centres[:] = 0.5
        lo, hi = np.round(centres - side / 2, DIGITS), np.round(centres + side / 2, DIGITS)
        return cls(lo, hi, np.arange(subscriptions) % addresses, addresses)

    def matching(self, point: Floats) -> Ints:
        """Returns the numbers of the subscriptions that contain a point."""
        return np.flatnonzero(((self.lo <= point) & (point <= self.hi)).all(axis=1))

    def expect(self, points: Floats) -> Expected:
        keys, matches = [], []
        for number, point in enumerate(points):
            found, counts = np.unique(self.owners[self.matching(point)], return_counts=True)
            keys.append(number * self.addresses + found)
            matches.append(counts)
        if not keys:
            return Expected(np.zeros(0, np.int64), np.zeros(0, np.int64), self.addresses)
        return Expected(np.concatenate(keys), np.concatenate(matches), self.addresses)


def draw_points(rng: np.random.Generator, count: int) -> Floats:
    return np.round(rng.random((count, len(NAMES))), DIGITS)


def as_events(points: Floats) -> list[dict[str, float]]:
    return [dict(zip(NAMES, row, strict=True)) for row in points.tolist()]


def host(address: int) -> str:
    """Returns the IP address of an address number: each is an origin of its own."""
    number = address + 1
    return f"127.1{number >> 16 & 0xFF:02d}.{number >> 8 & 0xFF}.{number & 0xFF}"


def address_of(host: str) -> int:
    """Returns the number of an IP address that `host` made; -1 for any other."""
    _, second, third, fourth = map(int, host.split("."))
    return ((second - 100) << 16 | third << 8 | fourth) - 1 if second >= 100 else -1
