"""The policy `model`: predicts the throughput at other precisions, moves where it helps, checks the result.

Theory of operation ------------------- The published rule knows only whether the CPU is full, and assumes
that routing fills it. If sending fills it, or if even no routing would not free enough, every step down adds
false positives and makes it worse. This policy knows the throughput model with its measured parameters and,
for several precisions, routing time and hit ratio on recent events. So it knows the bottleneck, and how it
would change.

- *Correct*: a CPU that is 80 % full at some throughput would be full at 1.25 times that throughput, which is
  the real TP_D. (Full is the share that it reaches when nothing else limits the network.) The same holds for
  the link and the servers if their load is known; otherwise a saturated network whose CPU is not full is
  limited by the smaller of the two. Observed ÷ predicted throughput of a part is a factor for its later
  predictions, which corrects wrong and missing measurements. No part is predicted below a throughput that
  was observed.
- *Move* to the precision with the largest corrected prediction, if it exceeds that of the present precision
  by `margin`.
- *Check*: the first interval after a move is ignored, the second is compared with the one before the move.
  If the network was saturated in both and the throughput fell by more than `tolerance`, the prediction was
  wrong: go back, and start a cooldown of that precision.
- *Cool down*: a precision is not tried for `cooldown` intervals, twice as many after each further failure, up
  to `longest_cooldown`. A throughput that changes by more than `trigger` without a move ends all cooldowns.

With demand below the capacity nothing can be checked; predictions still apply, and add headroom.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from selftune.reading import Reading
from selftune.throughput import Bottleneck, Components, Model

#: range of correction factors
_FACTORS = (0.25, 4.0)
#: CPU share below which other work than events may dominate
_TELLING = 0.3
#: load from which a link or a server may be the bottleneck
_FULL = 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictiveRule:
    """Parameters of the policy: shares of the throughput, and intervals."""

    margin: float = 0.03
    tolerance: float = 0.05
    cooldown: int = 8
    longest_cooldown: int = 128
    trigger: float = 0.25
    #: CPU share from which the dispatcher is the bottleneck
    threshold: float = 0.96
    #: weight of the newest interval in a correction
    weight: float = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    origin: float
    #: throughput before it; None if the network was not saturated
    before: float | None
    #: predicted throughput there ÷ here
    gain: float
    #: intervals since
    age: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    precision: float
    move: Move | None = None
    #: precision → intervals for which it is not tried
    cooldowns: Mapping[float, int] = field(default_factory=dict)
    #: precision → length of its last cooldown
    last_cooldowns: Mapping[float, int] = field(default_factory=dict)
    #: throughput of the last interval at this precision
    last: float | None = None
    #: observed ÷ predicted throughput of each part that was observed
    factors: Mapping[Bottleneck, float] = field(default_factory=dict)
    #: CPU share of a full dispatcher, whose loop also waits for other threads; None: not observed
    ceiling: float | None = None

    def predict(self, model: Model, precision: float) -> Components:
        """Return the model's prediction, corrected by observations."""
        parts = model.at(precision)
        return Components(
            incoming=parts.incoming,
            dispatcher=parts.dispatcher * self.factors.get("TP_D", 1.0),
            outgoing=parts.outgoing * self.factors.get("TP_OL", 1.0),
            servers=parts.servers * self.factors.get("TP_S", 1.0),
        )


def begin(precision: float) -> State:
    return State(precision=precision)


def decide(state: State, reading: Reading, rule: PredictiveRule) -> tuple[State, str | None]:
    """Return the state after one interval, and why the precision changed; None if it did not."""
    state = replace(state, cooldowns={at: left - 1 for at, left in state.cooldowns.items() if left > 1})
    if state.move is not None:
        return _check(state, state.move, reading, rule)
    if state.last is not None and abs(reading.throughput - state.last) > rule.trigger * state.last:
        state = replace(state, cooldowns={}, last_cooldowns={})
    state = replace(state, last=reading.throughput)
    model = reading.model
    if model is None or state.precision not in model.curve:
        return state, None
    state = _correct(state, model, reading, rule)
    here = state.predict(model, state.precision)
    allowed = [at for at in model.curve if at not in state.cooldowns]
    best = max(allowed, key=lambda at: (state.predict(model, at).throughput, at), default=state.precision)
    there = state.predict(model, best)
    # Unbounded throughputs, before the first measurement, are equal: no move.
    if best == state.precision or not there.throughput > here.throughput * (1.0 + rule.margin):
        return state, None
    move = Move(
        origin=state.precision,
        before=reading.throughput if reading.saturated else None,
        gain=there.throughput / here.throughput,
    )
    why = (
        f"{here.bottleneck} limits the throughput to {here.throughput:,.0f} events/s; "
        f"at {best:g}, {there.bottleneck} would limit it to {there.throughput:,.0f}"
    )
    return replace(state, precision=best, move=move, last=None), why


def _correct(state: State, model: Model, reading: Reading, rule: PredictiveRule) -> State:
    parts = model.at(state.precision)
    factors = dict(state.factors)

    def learn(part: Bottleneck, reached: float, predicted: float) -> None:
        if not 0 < predicted < math.inf or reached <= 0:
            return
        seen = min(_FACTORS[1], max(_FACTORS[0], reached / predicted))
        before = factors.get(part, seen)
        factors[part] = before + rule.weight * (seen - before)

    ceiling = state.ceiling
    if reading.saturated and reading.cpu >= _FULL and _slack(reading.link) and _slack(reading.server):
        # Nothing else limits the network, so the CPU is full.
        seen = min(1.0, reading.cpu)
        ceiling = seen if ceiling is None else ceiling + rule.weight * (seen - ceiling)
    if reading.cpu >= _TELLING:
        full = ceiling or 1.0
        learn("TP_D", reading.throughput * full / min(full, reading.cpu), parts.dispatcher)
    if reading.saturated and reading.cpu < rule.threshold:
        # If the load is known, only a part that was nearly full can be the bottleneck.
        if parts.outgoing <= parts.servers:
            if reading.link is None or reading.link >= _FULL:
                learn("TP_OL", reading.throughput / min(1.0, reading.link or 1.0), parts.outgoing)
        elif reading.server is None or reading.server >= _FULL:
            learn("TP_S", reading.throughput / min(1.0, reading.server or 1.0), parts.servers)
    for part, predicted in parts.by_name.items():
        if part != "TP_IL" and 0 < predicted * factors.get(part, 1.0) < reading.throughput:
            factors[part] = reading.throughput / predicted
    return replace(state, factors=factors, ceiling=ceiling)


def _slack(share: float | None) -> bool:
    """Return whether a part is known to have capacity left."""
    return share is not None and share < _FULL


def _check(state: State, move: Move, reading: Reading, rule: PredictiveRule) -> tuple[State, str | None]:
    if move.age == 0:
        return replace(state, move=replace(move, age=1)), None
    kept = replace(state, move=None, last=reading.throughput)
    if move.before is None or not reading.saturated:
        return kept, None
    if reading.throughput >= move.before * (1.0 - rule.tolerance):
        return kept, None
    here = state.precision
    cooldown = min(rule.longest_cooldown, 2 * state.last_cooldowns.get(here, rule.cooldown // 2))
    back = replace(
        kept,
        precision=move.origin,
        cooldowns={**state.cooldowns, here: cooldown},
        last_cooldowns={**state.last_cooldowns, here: cooldown},
        last=None,
    )
    why = (
        f"predicted {move.gain:.2f} times the throughput, observed {reading.throughput / move.before:.2f}; "
        f"{here:g} is not tried for {cooldown} intervals"
    )
    return back, why
