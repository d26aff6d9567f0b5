"""Sequences of events: their form (`form`), and the monitor that decides them (`monitor`).

May import `edn.model` and `edn.formats`.
"""

from __future__ import annotations

from edn.model.sequence.form import BoundSequence, Sequence, Step, Watch, decode, encode, is_sequence
from edn.model.sequence.monitor import UNLESS, Candidate, HalfMatch, Plan, advance, is_later, plan_of

__all__ = [
    "UNLESS",
    "BoundSequence",
    "Candidate",
    "HalfMatch",
    "Plan",
    "Sequence",
    "Step",
    "Watch",
    "advance",
    "decode",
    "encode",
    "is_later",
    "is_sequence",
    "plan_of",
]
