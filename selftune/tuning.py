"""The mode, the precision in force, and the history of decisions.

The mode `fixed` keeps the precision that an operator set, `paper` follows the published rule
(`selftune.paper`), `model` predicts (`selftune.predictive`). The owner of a `Tuning` passes one reading per
interval and applies the decided precision.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from edn.errors import InvalidInput
from edn.model.coordinates import rfc3339
from selftune import paper, predictive
from selftune.reading import Reading

MODES = ("fixed", "paper", "model")

#: decisions in the history
HISTORY = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    #: microseconds since 1970
    time: int
    mode: str
    precision: float
    reason: str
    #: the reading; None if an operator decided
    cpu: float | None = None
    throughput: float | None = None


class Tuning:
    """Mode, precision and history. Uses no clock and no threads."""

    def __init__(
        self,
        *,
        mode: str = "fixed",
        precision: float = 1.0,
        rule: paper.Rule | None = None,
        predictive_rule: predictive.PredictiveRule | None = None,
    ) -> None:
        self.rule = rule or paper.Rule(damping=2.0)
        self.predictive_rule = predictive_rule or predictive.PredictiveRule()
        self._history: deque[Decision] = deque(maxlen=HISTORY)
        #: number of decisions since the start
        self.decided = 0
        self._begin(mode, precision)

    def _begin(self, mode: str, precision: float) -> None:
        self.mode, self.precision = mode, precision
        self._paper = paper.begin(precision)
        self._predictive = predictive.begin(precision)

    def set(self, *, mode: str, precision: float, time: int, reason: str) -> Decision:
        """Set mode and precision as an operator; return the decision."""
        if mode not in MODES:
            raise InvalidInput(f'mode must be one of {", ".join(MODES)}, got "{mode}"', pointer="/mode")
        if not 0.0 <= precision <= 1.0:
            raise InvalidInput(
                f"precision must be from 0 (everything to every server) to 1 (precise), got {precision}",
                pointer="/precision",
            )
        self._begin(mode, precision)
        return self._decided(Decision(time=time, mode=mode, precision=precision, reason=reason))

    def read(self, reading: Reading, *, time: int) -> Decision | None:
        """End an interval; return the decision, if the precision changes."""
        if self.mode == "paper":
            self._paper, why = paper.decide(self._paper, reading, self.rule)
            precision = self._paper.precision
        elif self.mode == "model":
            self._predictive, why = predictive.decide(self._predictive, reading, self.predictive_rule)
            precision = self._predictive.precision
        else:
            return None
        if why is None or precision == self.precision:
            return None
        self.precision = precision
        return self._decided(
            Decision(
                time=time,
                mode=self.mode,
                precision=precision,
                reason=why,
                cpu=round(reading.cpu, 4),
                throughput=round(reading.throughput, 2),
            )
        )

    def _decided(self, decision: Decision) -> Decision:
        self._history.append(decision)
        self.decided += 1
        return decision

    def latest(self, count: int) -> list[Decision]:
        return list(self._history)[-count:] if count else []

    def describe(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "precision": self.precision,
            "history": [{**asdict(one), "time": rfc3339(one.time)} for one in self._history],
        }
