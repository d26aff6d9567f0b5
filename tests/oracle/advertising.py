"""What an advertisement means, written a second time from SIENA's definitions (Carzaniga et al., §3.4, §3.6).

    n ≺ a   every attribute of the event satisfies one constraint of the advertisement on that name
    a ≺ a   every event that the second covers is covered by the first
    f ≺ a   some event is covered by the advertisement and matches the filter

The last two are decided by exhaustion, as in `cells`: one event for each combination of cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.oracle.cells import representatives
from tests.oracle.meaning import Events, condition
from tests.oracle.values import Schema, Values

Written = Mapping[str, Any]


def covers_event(written: Written, values: Values, schema: Schema) -> bool:
    """Whether an advertisement covers an event, read by `values.read_event`."""
    for name, value in values.items():
        if name not in written:
            if "$others" not in written:
                return False
        elif written[name] != "any" and not any(
            condition(alternative, schema[name])(value) for alternative in written[name]
        ):
            return False
    return True


def covering(written: Written, events: Sequence[Values], schema: Schema) -> npt.NDArray[np.bool_]:
    return np.array([covers_event(written, event, schema) for event in events], dtype=np.bool_)


def _probes(written: Written, schema: Schema) -> list[Written]:
    """Filters that split the values of each attribute where the advertisement does."""
    found: list[Written] = [{name: {"exists": True}} for name in schema]
    for name, alternatives in written.items():
        if name != "$others" and alternatives != "any":
            found += [{name: alternative} for alternative in alternatives]
    return found


def covers(first: Written, second: Written, schema: Schema, *, limit: int = 4_000) -> bool:
    """Whether the first covers every event that the second covers; raises NotDecided."""
    events = representatives([*_probes(first, schema), *_probes(second, schema)], schema, limit=limit)
    return not (covering(second, events, schema) & ~covering(first, events, schema)).any()


def overlaps(advertisement: Written, filter: Written | None, schema: Schema, *, limit: int = 4_000) -> bool:
    """Whether some event is covered by the advertisement and matches the filter; raises NotDecided."""
    events = representatives([*_probes(advertisement, schema), filter], schema, limit=limit)
    matching = Events(events, schema).matching(filter)
    return bool((covering(advertisement, events, schema) & matching).any())
