"""The published self-tuning rule, as a pure function.

Theory of operation
-------------------
The dispatcher measures only its own CPU. A *reading* per interval is the mean CPU share and the throughput.
After a timeout of t intervals, or when the throughput changes much without a step, it takes a step: if it is
CPU-bound (at or above the threshold), it lowers the precision by x, else it raises it, because then the
outgoing link or the servers are the bottleneck.

With discrete precisions the rule oscillates around the best one. `update_t` detects a repeated oscillation
and multiplies t by n, up to a limit: a larger n is calmer, n = 1 never dampens. Anything else resets t to 1.

    wait for timeout t or a change of the throughput
    p = p + 1
    if CPU-bound: precision[p] = precision[p-1] - x, else precision[p-1] + x       (kept within 0 … 1)
    update_t:
        if p < 3: t = 1
        else if precision[p] = precision[p-2] and precision[p-1] = precision[p-3]:
            if precision[p] > precision[p-1]: oscillations = oscillations + 1
            if oscillations >= 3 and n t <= maxT: t = n t, oscillations = 0
        else: oscillations = 0, t = 1

With a *variable step*, x doubles with each step in the same direction, up to a limit, and is reset when the
direction changes: large steps far from the best precision, small ones near it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from selftune.reading import Reading

#: oscillations after which the best precision is reached
OSCILLATIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Parameters of the published rule; the defaults are its own."""

    #: x
    step: float = 0.1
    #: largest x of a variable step; equal to `step`: no variable steps
    largest_step: float = 0.1
    #: CPU share from which the dispatcher is the bottleneck
    threshold: float = 0.96
    #: n
    damping: float = 1.0
    #: maxT, in intervals
    longest: float = 16.0
    #: relative change of the throughput that ends the timeout; infinite: none does
    trigger: float = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    #: the last four precisions, newest last, for `update_t`
    precisions: tuple[float, ...]
    #: p
    index: int = 0
    #: t, in intervals
    timeout: float = 1.0
    oscillations: int = 0
    #: intervals since the last step
    waited: int = 0
    #: throughput of the first interval after the last step
    settled: float | None = None
    #: x of the last step, with its direction as the sign
    stride: float = 0.0

    @property
    def precision(self) -> float:
        return self.precisions[-1]


def begin(precision: float) -> State:
    return State(precisions=(precision,))


def update_t(state: State, rule: Rule) -> State:
    """Return the state with the timeout after a step, which `state` already contains."""
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
    """Return the state after one interval, and why a step was taken; None if none was."""
    waited = state.waited + 1
    settled = reading.throughput if state.settled is None else state.settled
    changed = state.settled is not None and abs(reading.throughput - settled) > rule.trigger * settled
    if waited < state.timeout and not changed:
        return replace(state, waited=waited, settled=settled), None
    bound = reading.cpu >= rule.threshold
    stride = _stride(state, rule, -1.0 if bound else 1.0)
    # Rounded, so that steps up and down reach the same numbers.
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
        why += f"; throughput changed from {settled:,.0f} to {reading.throughput:,.0f} events/s by itself"
    return update_t(stepped, rule), why


def _stride(state: State, rule: Rule, direction: float) -> float:
    if state.stride * direction <= 0:
        return direction * rule.step
    return direction * min(2.0 * abs(state.stride), max(rule.step, rule.largest_step))
