"""Derives the time of a process from two clocks, neither of which is reliable alone. Pure: both are injected.

Theory of operation
-------------------
A machine has a **monotonic** clock, which measures elapsed time exactly but restarts with the machine, and a
**wall** clock, which names instants but may be changed by an administrator, a time daemon, a bad battery or
the host of a virtual machine. A `Timekeeper` derives three readings from them:

    now         network time: names instants and decides expiry. It follows the wall clock, but only as fast
                as `SLEW` allows, so that it never stands still and never jumps
    steady      steady time: measures ages. It counts elapsed time only; corrections of the wall clock do not
                change it
    estimate    estimated time of day, for people, signatures and new expiries. It differs from `now` only
                after the machine was off, until its wall clock is trusted again

A wall clock that departs from network time by more than `Limits.jump` is **suspect**. Network time then
advances by elapsed time alone, so nothing expires early and the network keeps running: a subscription of two
seconds ends after two seconds also during the jump.

    in step ──departs by more than jump──> suspect ──back within jump──────────────> in step
                                              │ ^ ─departs elsewhere─┘
                                              └──agrees with elapsed time for `trust`──> adopted ─> in step
                                              └──confirmed by an operator──────────────> adopted

Adoption sets network time to the wall clock at once, forwards or backwards. Steady time does not change, with
one exception: the time that a machine was off is known only from its wall clock.

After a restart of the process the clock continues from the saved state (`Saved`). On the same boot of the
machine the elapsed time is known. After a new boot only a lower bound is known: the saved time plus the time
since the boot. A wall clock that is ahead of that by at most `jump` is trusted at once. Otherwise it is
suspect, and network time and steady time are the lower bound: nothing expires or is purged before the wall
clock is trusted or confirmed.

Invariants, for any readings of the wall clock and any number of restarts on one boot:

    - steady time advances exactly with the monotonic clock
    - between two adoptions network time advances by at least 1 - SLEW and at most 1 + SLEW of elapsed time
    - network time that is in step converges to the wall clock, without overshooting
    - only a wall clock that was stable for `trust` seconds, or confirmed, is adopted
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

#: relative speed at which network time follows the wall clock
SLEW = 0.5
#: seconds by which a stable wall clock may depart from the elapsed time
AGREEMENT = 1.0

#: result of an observation; None is no change
Finding = Literal["jumped", "returned", "agreed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    #: seconds of departure that make a wall clock suspect
    jump: float = 300.0
    #: seconds of agreement before a suspect wall clock is trusted
    trust: float = 300.0


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the clock for a restart."""

    #: id of the machine's boot; empty if unknown
    boot: str
    #: the three clocks at one moment, in seconds
    monotonic: float
    time: float
    steady: float
    #: whether time and steady are lower bounds since a new boot
    bound: bool = False


@dataclass(frozen=True, slots=True)
class _Anchor:
    """The readings at one moment. Immutable, so any thread can read it without a lock."""

    monotonic: float
    time: float
    steady: float
    #: seconds that network time still has to catch up
    lead: float = 0.0
    #: estimated time of day, if it differs from network time
    estimate: float | None = None
    #: network time − steady time in whole seconds, so that repeated conversions agree
    between: int = 0


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A wall clock that departed from network time."""

    #: monotonic time since which it is stable
    since: float
    #: wall clock − monotonic clock
    offset: float
    #: wall clock − network time at the jump
    lead: float


class Timekeeper:
    """The clocks of a process. Every thread may read them; the owner calls `observe` every second."""

    def __init__(
        self,
        *,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        boot: str = "",
        limits: Limits | None = None,
    ) -> None:
        """`monotonic` counts from the boot with the id `boot`. A new timekeeper trusts the wall clock."""
        self._monotonic = monotonic
        self._wall = wall
        self._boot = boot
        self.limits = limits or Limits()
        self._changing = threading.Lock()
        self._bound = False
        self.suspicion: Suspicion | None = None
        #: sum of the adopted steps in seconds, and their number
        self.adopted = 0.0
        self.adoptions = 0
        here = wall()
        self._anchor = _Anchor(monotonic(), here, here)

    # -- readings ---------------------------------------------------------------------------------------

    def now(self) -> float:
        """Returns network time in seconds since 1970."""
        return _time(self._anchor, self._monotonic())

    def steady(self) -> float:
        """Returns steady time in seconds; only differences are meaningful."""
        anchor = self._anchor
        return anchor.steady + self._monotonic() - anchor.monotonic

    def estimate(self) -> float:
        """Returns the estimated time of day in seconds since 1970, never before `now`."""
        anchor, monotonic = self._anchor, self._monotonic()
        if anchor.estimate is None:
            return _time(anchor, monotonic)
        return anchor.estimate + monotonic - anchor.monotonic

    def instant(self, steady: float) -> float:
        """Converts steady time into network time, to about a second."""
        return steady + self._anchor.between

    def moment(self, instant: float) -> float:
        """Converts network time into steady time; the inverse of `instant`."""
        return instant - self._anchor.between

    # -- corrections ------------------------------------------------------------------------------------

    def observe(self) -> Finding | None:
        """Compares the clocks. After "agreed" the owner calls `adopt`."""
        with self._changing:
            monotonic, wall = self._monotonic(), self._wall()
            here = self._advanced(monotonic)
            lead = wall - here.time
            if abs(lead) <= self.limits.jump:
                returned = self.suspicion is not None
                if self._bound and lead > 0:  # the machine was off for `lead` seconds
                    self._set(monotonic, wall, here.steady + lead)
                else:
                    self._set(monotonic, here.time, here.steady, lead)
                self._bound, self.suspicion = False, None
                return "returned" if returned else None
            guess = wall if self._bound and lead > 0 else None
            self._set(monotonic, here.time, here.steady, estimate=guess)
            offset = wall - monotonic
            known = self.suspicion
            if known is None or abs(offset - known.offset) > AGREEMENT:
                self.suspicion = Suspicion(monotonic, offset, lead)
                return "jumped"
            return "agreed" if monotonic - known.since >= self.limits.trust else None

    def adopt(self, *, confirmed: bool = False) -> float:
        """Sets network time to a suspect wall clock; returns the step in seconds, or 0.

        Without a confirmation the wall clock must have been stable for `trust` seconds.
        """
        with self._changing:
            monotonic, wall = self._monotonic(), self._wall()
            here = self._advanced(monotonic)
            lead, known = wall - here.time, self.suspicion
            if abs(lead) <= self.limits.jump:
                return 0.0
            if not confirmed and (
                known is None
                or abs(wall - monotonic - known.offset) > AGREEMENT
                or monotonic - known.since < self.limits.trust
            ):
                return 0.0
            gap = lead if self._bound and lead > 0 else 0.0
            self._set(monotonic, wall, here.steady + gap)
            self._bound, self.suspicion = False, None
            self.adopted += lead
            self.adoptions += 1
            return lead

    def save(self) -> Saved:
        with self._changing:
            here = self._advanced(self._monotonic())
            return Saved(
                boot=self._boot,
                monotonic=here.monotonic,
                time=here.time,
                steady=here.steady,
                bound=self._bound,
            )

    def resume(self, saved: Saved | None, *, least: float = 0.0) -> Finding | None:
        """Continues from a saved state, and observes. `least`: a lower bound of network time."""
        with self._changing:
            monotonic = self._monotonic()
            if saved is None and not least:
                return None  # a new data folder
            if saved is not None and self._boot and saved.boot == self._boot and monotonic >= saved.monotonic:
                elapsed = monotonic - saved.monotonic
                self._set(monotonic, saved.time + elapsed, saved.steady + elapsed)
                self._bound = saved.bound
            else:
                known = saved or Saved(boot="", monotonic=0.0, time=least, steady=least)
                # A later boot has run for at least that long.
                later = known.boot and self._boot and known.boot != self._boot
                time = max(known.time + (monotonic if later else 0.0), least)
                self._set(monotonic, time, known.steady + time - known.time)
                self._bound = True
            self.suspicion = None
        return self.observe()

    def _set(
        self, monotonic: float, time: float, steady: float, lead: float = 0.0, estimate: float | None = None
    ) -> None:
        between = self._anchor.between
        if abs(time - steady - between) > 1:
            between = round(time - steady)
        self._anchor = _Anchor(monotonic, time, steady, lead, estimate, between)

    def _advanced(self, monotonic: float) -> _Anchor:
        anchor = self._anchor
        steady = anchor.steady + monotonic - anchor.monotonic
        return _Anchor(monotonic, _time(anchor, monotonic), steady)


def _time(anchor: _Anchor, monotonic: float) -> float:
    elapsed = monotonic - anchor.monotonic
    most = elapsed * SLEW
    return anchor.time + elapsed + min(max(anchor.lead, -most), most)
