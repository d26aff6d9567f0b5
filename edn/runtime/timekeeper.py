"""Tells the time of a process from two clocks, neither of which is right alone. Pure: both are injected.

Theory of operation
-------------------
A machine has a **monotonic** clock, which measures elapsed time exactly and means nothing after a restart of
the machine, and a **wall** clock, which names instants and may be stepped by an administrator, a time daemon,
a bad battery or a virtual machine's host. A `Timekeeper` derives three readings from them:

    now         network time: names instants. Decides what has expired. It follows the wall clock, but only
                as fast as `SLEW` allows, so that it never stands still and never jumps
    steady      steady time: measures ages. It counts elapsed time only, and no correction of the wall clock
                changes it. Decides what is old
    estimate    the best guess of the civil time, for people, signatures and new expiry instants. It differs
                from `now` only while a machine that was switched off has not been trusted again

A wall clock that departs from network time by more than `Limits.jump` is **suspect**. Network time then goes
on by elapsed time alone. So nothing expires early, and nothing needs to stop: a subscription of two seconds
ends after two seconds during the glitch, too.

    in step ──departs by more than jump──> suspect ──back within jump──────────────> in step
                                              │ ^ ─departs elsewhere─┘
                                              └──agrees with elapsed time for `trust`──> adopted ─> in step
                                              └──confirmed by an operator──────────────> adopted

Adopting makes the wall clock network time at once, forwards or backwards. Steady time does not move, with one
exception: the length of the time that a machine was off is known only from its wall clock.

After a restart of the process the clock goes on from what was saved (`Saved`). On the same boot of the
machine the elapsed time is known, whatever the wall clock says. After a new boot only a lower bound is known:
what was saved, and the time since the boot. If the wall clock is ahead of that by at most `jump`, it is
believed at once; if by more, it is suspect, and network time and steady time are the lower bound meanwhile:
nothing expires, and nothing is purged, before the wall clock has been trusted or confirmed.

Invariants, for any readings of the wall clock and any number of restarts on one boot:

    - steady time advances exactly with the monotonic clock
    - between two adoptions network time advances by at least 1 - SLEW and at most 1 + SLEW of elapsed time
    - network time that is in step converges to the wall clock, without overshooting
    - nothing is adopted that was not stable for `trust` seconds, or confirmed
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

#: how much faster or slower than the elapsed time network time may run in order to follow the wall clock
SLEW = 0.5
#: seconds by which a suspect wall clock may depart from the elapsed time and still agree with it
AGREEMENT = 1.0

#: what an observation found; None is nothing new
Finding = Literal["jumped", "returned", "agreed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds: the departure that makes a wall clock suspect, and how long it must agree to be trusted."""

    jump: float = 300.0
    trust: float = 300.0


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the clock that a restart needs."""

    #: names the boot of the machine; empty where that is unknown
    boot: str
    #: seconds of the three clocks at one moment
    monotonic: float
    time: float
    steady: float
    #: time and steady are lower bounds since a new boot
    bound: bool = False


@dataclass(frozen=True, slots=True)
class _Anchor:
    """The readings at one moment. Immutable: readers of any thread see one anchor or the next."""

    monotonic: float
    time: float
    steady: float
    #: what network time has yet to make up for
    lead: float = 0.0
    #: the best guess, where it is not network time
    estimate: float | None = None
    #: network time less steady time in whole seconds, so that what is shown twice is shown the same
    between: int = 0


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A wall clock that departed from network time."""

    #: monotonic time since which it agrees with the elapsed time
    since: float
    #: wall clock less monotonic clock
    offset: float
    #: seconds by which it was ahead of network time then, or behind
    lead: float


class Timekeeper:
    """Readings are safe in every thread and take no lock; whoever owns it calls `observe` every second."""

    def __init__(
        self,
        *,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        boot: str = "",
        limits: Limits | None = None,
    ) -> None:
        """`monotonic` counts from the boot that `boot` names. A new timekeeper believes the wall clock."""
        self._monotonic = monotonic
        self._wall = wall
        self._boot = boot
        self.limits = limits or Limits()
        self._changing = threading.Lock()
        self._bound = False
        self.suspicion: Suspicion | None = None
        #: seconds of the adoptions so far, and how many there were
        self.adopted = 0.0
        self.adoptions = 0
        here = wall()
        self._anchor = _Anchor(monotonic(), here, here)

    # -- readings ---------------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the network time: seconds since 1970."""
        return _time(self._anchor, self._monotonic())

    def steady(self) -> float:
        """Return the steady time: seconds, of which only differences mean something."""
        anchor = self._anchor
        return anchor.steady + self._monotonic() - anchor.monotonic

    def estimate(self) -> float:
        """Return the best guess of the civil time: seconds since 1970, never before `now`."""
        anchor, monotonic = self._anchor, self._monotonic()
        if anchor.estimate is None:
            return _time(anchor, monotonic)
        return anchor.estimate + monotonic - anchor.monotonic

    def instant(self, steady: float) -> float:
        """Return the network time of a moment of steady time, to about a second."""
        return steady + self._anchor.between

    def moment(self, instant: float) -> float:
        """Return the moment of steady time of an instant; the inverse of `instant`."""
        return instant - self._anchor.between

    # -- keeping it -------------------------------------------------------------------------------------

    def observe(self) -> Finding | None:
        """Compare the clocks. After "agreed" the owner calls `adopt` when it is ready for the step."""
        with self._changing:
            monotonic, wall = self._monotonic(), self._wall()
            here = self._advanced(monotonic)
            lead = wall - here.time
            if abs(lead) <= self.limits.jump:
                returned = self.suspicion is not None
                if self._bound and lead > 0:  # the machine was off for so long
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
        """Make a suspect wall clock network time; return the seconds of the step, 0 if there was none.

        Without a confirmation only what `observe` found to agree is adopted.
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
        """Go on from what was saved, and observe. `least`: seconds that network time had surely reached."""
        with self._changing:
            monotonic = self._monotonic()
            if saved is None and not least:
                return None  # a new folder: nothing can be lost
            if saved is not None and self._boot and saved.boot == self._boot and monotonic >= saved.monotonic:
                elapsed = monotonic - saved.monotonic
                self._set(monotonic, saved.time + elapsed, saved.steady + elapsed)
                self._bound = saved.bound
            else:
                known = saved or Saved(boot="", monotonic=0.0, time=least, steady=least)
                # On a later boot it has surely run for as long as that.
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
