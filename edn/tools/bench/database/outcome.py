"""The results of `edn bench database`, and the bounds that they should keep."""

from __future__ import annotations

from dataclasses import dataclass, field

from edn.tools.bench.database.append import Appended
from edn.tools.bench.database.apply import Applied
from edn.tools.bench.database.publishing import Published
from edn.tools.bench.database.several import Several
from edn.tools.bench.delivery.results import Cost


@dataclass(frozen=True, slots=True)
class Bound:
    name: str
    measured: float
    bound: float
    #: whether the bound is a least value, not a greatest one
    is_least: bool = True

    @property
    def is_kept(self) -> bool:
        return self.measured >= self.bound if self.is_least else self.measured <= self.bound


@dataclass(slots=True)
class Outcome:
    #: seconds by which the standby delays a commit
    round_trip: float = 0.0
    append: list[Appended] = field(default_factory=list)
    apply: list[Applied] = field(default_factory=list)
    publish: list[Published] = field(default_factory=list)
    delivery: list[Cost] = field(default_factory=list)
    dispatchers: list[Several] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)
