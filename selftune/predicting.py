"""The policy `model`: predict the throughput at other precisions, move where it helps, check what came of it.

Theory of operation
-------------------
The published rule knows one thing, whether its CPU is full, and takes routing to be what fills it. Where
sending fills it, or where even no routing would not free enough, every step down adds false positives and
makes matters worse. This policy is given the throughput model with its live parameters and, for several
precisions, routing time and hit ratio as measured on recent events. So it knows the bottleneck, and where it
would go.

- *Correct*: a CPU that is 80 % full at some throughput would be full at 1.25 times that: what TP_D really is
  here. (Full is what it gets to when nothing else holds the network up.) The same holds of the link and of
  the servers, as far as it is known how full they are; else a saturated network whose CPU is not full is
  bounded by the smaller of the two. What was seen ÷ what was predicted is a factor for that part's
  predictions from then on, so that what is measured wrongly, or not at all, weighs in too. And whatever
  passed, no part is narrower than that.
- *Move* to the precision with the largest corrected prediction, if that exceeds the one for the present
  precision by `margin`.
- *Check*: one interval after a move is for the network to settle, the next is compared with the one before
  the move. If the network was saturated in both and the throughput fell by more than `tolerance`, the
  prediction was wrong: go back, and bar that precision.
- *Back off*: a bar lasts `bar` intervals, twice as long each time the same precision disappoints, up to
  `longest_bar`. A throughput that changes by more than `trigger` without a move is a new situation, which
  lifts all bars.

At demand below capacity nothing can be checked; predictions still hold, and give headroom.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from selftune.reading import Reading
from selftune.throughput import Bottleneck, Components, Model

#: a correction beyond these is no correction
_FACTORS = (0.25, 4.0)
#: below this share other work than events' may be most of what the CPU does
_TELLING = 0.3
#: from this share on a link or a server may be what bounds the network
_FULL = 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class Caution:
    """How sure a prediction must be; shares of the throughput, and intervals."""

    margin: float = 0.03
    tolerance: float = 0.05
    bar: int = 8
    longest_bar: int = 128
    trigger: float = 0.25
    #: CPU share from which the dispatcher counts as the bottleneck
    threshold: float = 0.96
    #: weight of the newest interval in a correction
    weight: float = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A move that is to be checked."""

    origin: float
    #: throughput before it; None where the network was not saturated
    before: float | None
    #: predicted throughput there ÷ here
    gain: float
    #: intervals since
    age: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    precision: float
    move: Move | None = None
    #: precision → intervals for which it is not tried again
    bars: Mapping[float, int] = field(default_factory=dict)
    #: precision → how long its last bar was
    disappointments: Mapping[float, int] = field(default_factory=dict)
    #: throughput of the last interval at this precision
    last: float | None = None
    #: what was seen ÷ what was predicted, for each part that could be seen
    factors: Mapping[Bottleneck, float] = field(default_factory=dict)
    #: how full the dispatcher's CPU gets: some of the time its loop waits for other threads. None: not seen
    ceiling: float | None = None

    def predict(self, model: Model, precision: float) -> Components:
        """The model's prediction, corrected by what was seen."""
        parts = model.at(precision)
        return Components(
            incoming=parts.incoming,
            dispatcher=parts.dispatcher * self.factors.get("TP_D", 1.0),
            outgoing=parts.outgoing * self.factors.get("TP_OL", 1.0),
            servers=parts.servers * self.factors.get("TP_S", 1.0),
        )


def begin(precision: float) -> State:
    return State(precision=precision)


def decide(state: State, reading: Reading, caution: Caution) -> tuple[State, str | None]:
    """The state after one interval, and why the precision changed; None where it is left alone."""
    bars = {at: left - 1 for at, left in state.bars.items() if left > 1}
    state = replace(state, bars=bars)
    if state.move is not None:
        return _check(state, state.move, reading, caution)
    if state.last is not None and abs(reading.throughput - state.last) > caution.trigger * state.last:
        state = replace(state, bars={}, disappointments={})
    state = replace(state, last=reading.throughput)
    model = reading.model
    if model is None or state.precision not in model.curve:
        return state, None
    state = _correct(state, model, reading, caution)
    here = state.predict(model, state.precision)
    open_to_us = [at for at in model.curve if at not in state.bars]
    best = max(open_to_us, key=lambda at: (state.predict(model, at).throughput, at), default=state.precision)
    there = state.predict(model, best)
    # A throughput without any bound (nothing measured yet) compares as equal, and nothing moves.
    if best == state.precision or not there.throughput > here.throughput * (1.0 + caution.margin):
        return state, None
    move = Move(
        origin=state.precision,
        before=reading.throughput if reading.saturated else None,
        gain=there.throughput / here.throughput,
    )
    why = (
        f"{here.bottleneck} bounds it to {here.throughput:,.0f} events/s; "
        f"at {best:g}, {there.bottleneck} to {there.throughput:,.0f}, predicted"
    )
    return replace(state, precision=best, move=move, last=None), why


def _correct(state: State, model: Model, reading: Reading, caution: Caution) -> State:
    parts = model.at(state.precision)
    factors = dict(state.factors)

    def learn(part: Bottleneck, reached: float, predicted: float) -> None:
        if not 0 < predicted < math.inf or reached <= 0:
            return
        seen = min(_FACTORS[1], max(_FACTORS[0], reached / predicted))
        before = factors.get(part, seen)
        factors[part] = before + caution.weight * (seen - before)

    ceiling = state.ceiling
    if reading.saturated and reading.cpu >= _FULL and _slack(reading.link) and _slack(reading.server):
        # Nothing else holds it up: fuller than this it does not get.
        seen = min(1.0, reading.cpu)
        ceiling = seen if ceiling is None else ceiling + caution.weight * (seen - ceiling)
    if reading.cpu >= _TELLING:
        full = ceiling or 1.0
        learn("TP_D", reading.throughput * full / min(full, reading.cpu), parts.dispatcher)
    if reading.saturated and reading.cpu < caution.threshold:
        # Where it is known how full they were, only what was nearly full can have been the bottleneck.
        if parts.outgoing <= parts.servers:
            if reading.link is None or reading.link >= _FULL:
                learn("TP_OL", reading.throughput / min(1.0, reading.link or 1.0), parts.outgoing)
        elif reading.server is None or reading.server >= _FULL:
            learn("TP_S", reading.throughput / min(1.0, reading.server or 1.0), parts.servers)
    bounds: dict[Bottleneck, float] = {
        "TP_D": parts.dispatcher,
        "TP_OL": parts.outgoing,
        "TP_S": parts.servers,
    }
    for part, predicted in bounds.items():
        if 0 < predicted * factors.get(part, 1.0) < reading.throughput:
            factors[part] = reading.throughput / predicted
    return replace(state, factors=factors, ceiling=ceiling)


def _slack(share: float | None) -> bool:
    """Whether something is known to carry more than it did."""
    return share is not None and share < _FULL


def _check(state: State, move: Move, reading: Reading, caution: Caution) -> tuple[State, str | None]:
    if move.age == 0:
        return replace(state, move=replace(move, age=1)), None
    kept = replace(state, move=None, last=reading.throughput)
    if move.before is None or not reading.saturated:
        return kept, None
    if reading.throughput >= move.before * (1.0 - caution.tolerance):
        return kept, None
    here = state.precision
    bar = min(caution.longest_bar, 2 * state.disappointments.get(here, caution.bar // 2))
    back = replace(
        kept,
        precision=move.origin,
        bars={**state.bars, here: bar},
        disappointments={**state.disappointments, here: bar},
        last=None,
    )
    why = (
        f"{move.gain:.2f} times the throughput was predicted, {reading.throughput / move.before:.2f} came; "
        f"back, and {here:g} is not tried for {bar} intervals"
    )
    return back, why
