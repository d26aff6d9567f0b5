"""The precision in force and how it came to be: the mode, the policy behind it, the history of decisions.

Modes: `fixed` holds the precision that an operator set, `paper` follows the published rule
(`selftune.paper`), `model` predicts (`selftune.predicting`). Whoever owns a `Tuning` gives it a reading
once an interval and applies the precision that it is told.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from edn.errors import InvalidInput
from selftune import paper, predicting
from selftune.reading import Reading

MODES = ("fixed", "paper", "model")

#: decisions kept for whoever asks why
HISTORY = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    #: microseconds since 1970
    time: int
    mode: str
    precision: float
    reason: str
    #: what the policy was told; None for an operator's word
    cpu: float | None = None
    throughput: float | None = None


class Tuning:
    """Mode, precision and the history of decisions. No clock, no threads."""

    def __init__(
        self,
        *,
        mode: str = "fixed",
        precision: float = 1.0,
        rule: paper.Rule | None = None,
        caution: predicting.Caution | None = None,
    ) -> None:
        self.rule = rule or paper.Rule(damping=2.0)
        self.caution = caution or predicting.Caution()
        self._history: deque[Decision] = deque(maxlen=HISTORY)
        #: decisions so far, those too that the history has forgotten
        self.decided = 0
        self._begin(mode, precision)

    def _begin(self, mode: str, precision: float) -> None:
        self.mode, self.precision = mode, precision
        self._paper = paper.begin(precision)
        self._predicting = predicting.begin(precision)

    def set(self, *, mode: str, precision: float, time: int, reason: str) -> Decision:
        """Take an operator's word; the decision that it makes."""
        if mode not in MODES:
            raise InvalidInput(
                f'mode "{mode}" is not available; known are {", ".join(MODES)}', pointer="/mode"
            )
        if not 0.0 <= precision <= 1.0:
            raise InvalidInput(
                f"precision {precision}: between 0 (everything to every server) and 1 (precise)",
                pointer="/precision",
            )
        self._begin(mode, precision)
        return self._decided(Decision(time=time, mode=mode, precision=precision, reason=reason))

    def read(self, reading: Reading, *, time: int) -> Decision | None:
        """One interval is over. The decision, if the precision is to change."""
        if self.mode == "paper":
            self._paper, why = paper.decide(self._paper, reading, self.rule)
            precision = self._paper.precision
        elif self.mode == "model":
            self._predicting, why = predicting.decide(self._predicting, reading, self.caution)
            precision = self._predicting.precision
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
        """The last decisions, the oldest of them first."""
        return list(self._history)[-count:] if count else []

    def describe(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "precision": self.precision,
            "history": [asdict(decision) for decision in self._history],
        }
