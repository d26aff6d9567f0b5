"""Selects similar subscriptions to move from overloaded servers to a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dispatcher.store import directory
from dispatcher.store.interface import Connection
from edn.arrays import Floats
from edn.errors import InvalidFilter
from edn.model.filter import Filter
from edn.model.schema import Schema
from edn.model.sequence import decode, is_sequence

MAX_SUBSCRIPTIONS = 50_000


@dataclass(frozen=True, slots=True)
class _Hosted:
    id: str
    server: str
    topic: int
    #: centre of the bounding rectangle; nan in unbounded columns
    centre: Floats


def select_surplus(
    connection: Connection, schemas: Mapping[int, Schema], surplus: Mapping[str, int]
) -> list[str]:
    """Select `surplus` subscriptions of each server, from the same end of the same attribute.

    Per topic, the attribute is the one with the most different values. So the new server gets about one slab
    of the space, and the rectangles of the others become narrower.
    """
    found = [one for server in surplus for one in _hosted(connection, schemas, server)]
    place: dict[str, float] = {}
    for topic in {one.topic for one in found}:
        own = [one for one in found if one.topic == topic]
        centres = _stacked([one.centre for one in own])
        column = _widest(centres)
        along = np.nan_to_num(centres[:, column], nan=-np.inf) if centres.shape[1] else np.zeros(len(own))
        ranks = np.argsort(np.argsort(along, kind="stable"), kind="stable") / max(len(own), 1)
        place |= {one.id: float(rank) for one, rank in zip(own, ranks, strict=True)}
    chosen: list[str] = []
    for server, count in surplus.items():
        own = sorted((one for one in found if one.server == server), key=lambda one: -place[one.id])
        chosen += [one.id for one in own[:count]]
    return chosen


def _hosted(connection: Connection, schemas: Mapping[int, Schema], server: str) -> list[_Hosted]:
    hosted = []
    for id, topic, filter in directory.filters_on(connection, server, MAX_SUBSCRIPTIONS):
        centre = np.empty(0)
        if topic in schemas:
            try:
                first = decode(filter).steps[0].filter if is_sequence(filter) else filter
                rects = Filter.parse(first).bind(schemas[topic]).rects()
            except InvalidFilter:
                continue
            if len(rects):
                lo, hi = rects.lo.min(axis=0), rects.hi.max(axis=0)
                bounded = np.isfinite(lo) & np.isfinite(hi) & (np.abs(lo) < 1e300) & (np.abs(hi) < 1e300)
                centre = np.where(bounded, (np.where(bounded, lo, 0) + np.where(bounded, hi, 0)) / 2, np.nan)
        hosted.append(_Hosted(id, server, topic, centre))
    return hosted


def _stacked(centres: list[Floats]) -> Floats:
    width = max((len(centre) for centre in centres), default=0)
    stacked = np.full((len(centres), width), np.nan)
    for row, centre in zip(stacked, centres, strict=True):
        row[: len(centre)] = centre
    return stacked


def _widest(centres: Floats) -> int:
    """Return the column that most subscriptions bound, and among those the one with most centres."""
    if not centres.shape[1]:
        return 0
    bounded = np.count_nonzero(~np.isnan(centres), axis=0)
    different = [len(np.unique(column[~np.isnan(column)])) for column in centres.T]
    return int(np.lexsort((different, bounded))[-1])
