"""Spaces with filters and events, for the product and for the oracle."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from edn.model.event import EventBatch
from edn.model.filter import BoundFilter, Filter
from edn.model.schema import Schema
from tests.oracle import samples
from tests.oracle.meaning import Events
from tests.oracle.values import Values
from tests.workload import adversarial

#: a failure is replayed with the seed that its message names
SEED = int(os.environ.get("EDN_TEST_SEED", "20061"))
SPACES = 20
FILTERS = 100
EVENTS = 150


@dataclass(frozen=True)
class Case:
    """One space with its filters and events, seen by the product and by the oracle."""

    space: adversarial.Space
    written: list[dict[str, Any]]
    bound: list[BoundFilter]
    schema: Schema
    batch: EventBatch
    values: list[Values]
    #: (filter, event): does it match, according to the oracle
    expected: npt.NDArray[np.bool_]

    def contradiction(self, claim: str, **parts: Any) -> str:
        lines = [f"{name}: {part!r}" for name, part in parts.items()]
        return "\n".join([claim, f"EDN_TEST_SEED={SEED}", f"schema: {self.space.attributes}", *lines])


def draw(chance: random.Random) -> Case:
    space = adversarial.Space(chance)
    schema = Schema.parse(space.attributes)
    kinds = [space.filter] * 12 + [space.simple_filter] * 7 + [space.wide_filter]
    written = [chance.choice(kinds)() for _ in range(FILTERS)]
    pool = {
        name: [
            value
            for value in samples.candidates(space.attributes[name], constants)
            if adversarial.can_be_written(space.attributes[name], value)
        ]
        for name, constants in samples.constants(written, space.attributes).items()
    }
    values = samples.sample(pool, EVENTS, chance)
    batch = schema.decode_events(msgspec.json.encode([space.event(one) for one in values]))
    events = Events(values, space.attributes)
    expected = np.array([events.matching(one) for one in written])
    bound = [Filter.parse(one).bind(schema) for one in written]
    return Case(space, written, bound, schema, batch, values, expected)


def draw_all() -> list[Case]:
    chance = random.Random(SEED)
    return [draw(chance) for _ in range(SPACES)]
