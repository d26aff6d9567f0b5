"""The precision in force and how it came to be.

Modes: `fixed` holds the precision that an operator set. The modes that decide by themselves (`paper`,
`model`) are named in the interface and refused until they exist.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from edn.errors import InvalidInput

MODES = ("fixed",)

#: decisions kept for whoever asks why
HISTORY = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    #: microseconds since 1970
    time: int
    mode: str
    precision: float
    reason: str


class Tuning:
    """Mode, precision and the history of decisions."""

    def __init__(self, *, mode: str = "fixed", precision: float = 1.0) -> None:
        self.mode = mode
        self.precision = precision
        self._history: deque[Decision] = deque(maxlen=HISTORY)

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
        self.mode, self.precision = mode, precision
        decision = Decision(time=time, mode=mode, precision=precision, reason=reason)
        self._history.append(decision)
        return decision

    def describe(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "precision": self.precision,
            "history": [asdict(decision) for decision in self._history],
        }
