"""The published self-tuning rule, as a pure function.

Theory of operation
-------------------
The dispatcher looks at its own CPU only. Once in an interval it has a *reading*: the mean CPU share over the
interval and the throughput. When the timeout of t intervals is over, or the throughput has changed much
without its doing, it takes a step: CPU-bound (at or above the threshold) lowers the precision by x, anything
else raises it, because then the outgoing link or the servers are the bottleneck.

Few operating points make the rule oscillate around the best one. `update_t` notices a repeated oscillation
and multiplies t by n, up to a bound: a larger n is calmer, n = 1 never dampens. Anything but an oscillation
sets t back to 1.

    wait for timeout t or a change of the throughput
    p = p + 1
    if CPU-bound: precision[p] = precision[p-1] - x, else precision[p-1] + x       (kept within 0 … 1)
    update_t:
        if p < 3: t = 1
        else if precision[p] = precision[p-2] and precision[p-1] = precision[p-3]:
            if precision[p] > precision[p-1]: oscillations = oscillations + 1
            if oscillations >= 3 and n t <= maxT: t = n t, oscillations = 0
        else: oscillations = 0, t = 1

With a *variable step*, x doubles with each step that goes the same way as the one before, up to a largest,
and falls back to the smallest when the direction turns: large steps far from the best point, small ones near
it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from selftune.reading import Reading

#: oscillations that count as "the best achievable point is reached"
OSCILLATIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What the published rule leaves to choose; its own choices by default."""

    #: x
    step: float = 0.1
    #: the largest x of a variable step; equal to `step`: all steps are alike
    largest_step: float = 0.1
    #: CPU share from which the dispatcher counts as the bottleneck
    threshold: float = 0.96
    #: n
    damping: float = 1.0
    #: maxT, in intervals
    longest: float = 16.0
    #: relative change of the throughput that is significant; infinite: only the timeout counts
    trigger: float = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    #: the last four precisions, the newest last: all that update_t looks at
    precisions: tuple[float, ...]
    #: p
    index: int = 0
    #: t, in intervals
    timeout: float = 1.0
    oscillations: int = 0
    #: intervals since the last step
    waited: int = 0
    #: throughput of the first interval after the last step, which later ones are compared with
    settled: float | None = None
    #: x of the next step in the direction of the last; its sign is that direction
    stride: float = 0.0

    @property
    def precision(self) -> float:
        return self.precisions[-1]


def begin(precision: float) -> State:
    return State(precisions=(precision,))


def update_t(state: State, rule: Rule) -> State:
    """The timeout after a step; `state.precisions` and `state.index` are those after it."""
    if state.index < 3:
        return replace(state, timeout=1.0)
    before_3, before_2, before_1, now = state.precisions
    if now == before_2 and before_1 == before_3:
        oscillations = state.oscillations + (now > before_1)
        if oscillations >= OSCILLATIONS and rule.damping * state.timeout <= rule.longest:
            return replace(state, timeout=rule.damping * state.timeout, oscillations=0)
        return replace(state, oscillations=oscillations)
    return replace(state, oscillations=0, timeout=1.0)


def decide(state: State, reading: Reading, rule: Rule) -> tuple[State, str | None]:
    """The state after one interval, and why the precision was stepped; None where it is left alone."""
    waited = state.waited + 1
    settled = reading.throughput if state.settled is None else state.settled
    changed = state.settled is not None and abs(reading.throughput - settled) > rule.trigger * settled
    if waited < state.timeout and not changed:
        return replace(state, waited=waited, settled=settled), None
    bound = reading.cpu >= rule.threshold
    stride = _stride(state, rule, -1.0 if bound else 1.0)
    # Rounded, so that a way up and a way down meet the same numbers.
    after = round(min(1.0, max(0.0, state.precision + stride)), 6)
    stepped = replace(
        state,
        precisions=(*state.precisions, after)[-4:],
        index=state.index + 1,
        waited=0,
        settled=None,
        stride=stride,
    )
    why = f"CPU {reading.cpu:.0%}, {'at or above' if bound else 'below'} {rule.threshold:.0%}"
    if changed:
        why += f"; throughput went from {settled:,.0f} to {reading.throughput:,.0f} events/s by itself"
    return update_t(stepped, rule), why


def _stride(state: State, rule: Rule, direction: float) -> float:
    if state.stride * direction <= 0:
        return direction * rule.step
    return direction * min(2.0 * abs(state.stride), max(rule.step, rule.largest_step))
