"""Monitors sequences: decides which events complete one. Pure; no I/O and no clock.

Theory of operation
-------------------
A sequence with steps s1 … sk that are filled `times` times each has n **slots**, one per event. The **half
match** is the tuple of the events taken so far; with m events, slot m is awaited, and with it a step. A
candidate brings the **roles** that it can play: a bit per step whose filter it matches, and a bit per
`unless`. `advance` looks at one candidate:

    half match   candidate                                       next half match
    ----------   ---------------------------------------------   ----------------------------------------
    m > 0        time − time of the first event > within         () first, then as for m = 0
    m = 0        matches step 1                                  (candidate,)
    m > 0        not later than the last event                   unchanged
    m > 0        matches the awaited step, m + 1 < n             half match + (candidate,)
    m > 0        matches the awaited step, m + 1 = n             (); complete: half match + (candidate,)
    m > 0        matches the `unless` of the awaited step        () first, then as for m = 0
    any          otherwise                                       unchanged

Rows are tried from the top. Two times are compared as numbers; equal ones are in order only if the same log
made both, because candidates of one log come in its order (`is_later`).

Invariants, which the tests assert: the events of a half match rise in time, the last minus the first is at
most `within`, and there are fewer than n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

Payload = TypeVar("Payload")

MAX_STEPS = 16
#: bit of the role "unless of step i": 1 << (UNLESS + i); that of "step i" is 1 << i
UNLESS = MAX_STEPS


class Candidate(NamedTuple, Generic[Payload]):
    """An event that matches a step or an `unless`."""

    #: time of the event in microseconds
    stamp: int
    #: log that made the stamp; empty if the publisher chose it
    origin: str
    payload: Payload


HalfMatch = tuple[Candidate[Payload], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a monitor needs to know of a sequence."""

    #: the step of each slot
    slots: tuple[int, ...]
    #: microseconds; None: no limit
    within: int | None = None


def plan_of(times: tuple[int, ...], within: int | None) -> Plan:
    """Returns the plan of steps that are filled so many times each."""
    return Plan(tuple(step for step, count in enumerate(times) for _ in range(count)), within)


def is_later(candidate: Candidate[Payload], last: Candidate[Payload]) -> bool:
    """Returns whether a candidate, looked at after `last`, is later than it."""
    if candidate.stamp != last.stamp:
        return candidate.stamp > last.stamp
    return candidate.origin == last.origin != ""


def advance(
    plan: Plan, half: HalfMatch[Payload], roles: int, candidate: Candidate[Payload]
) -> tuple[HalfMatch[Payload], HalfMatch[Payload]]:
    """Returns the next half match, and the events of the sequence that the candidate completes, or ()."""
    if half and plan.within is not None and candidate.stamp - half[0].stamp > plan.within:
        half = ()
    if half:
        if not is_later(candidate, half[-1]):
            return half, ()
        step = plan.slots[len(half)]
        if roles >> step & 1:
            taken = (*half, candidate)
            return ((), taken) if len(taken) == len(plan.slots) else (taken, ())
        if not roles >> (UNLESS + step) & 1:
            return half, ()
        half = ()
    return ((candidate,) if roles & 1 else ()), ()
