"""Rows that are held back for a subscription: while it is paused, and until its replay has finished.

The two reasons end independently, so such a row has a state and a phase:

                 the subscription is paused        earlier rows are still to come
    history      buffered, history                 waiting, history
    live         buffered, live                    waiting, live

    pause      matches after the pause are buffered
    resume     buffered rows become waiting, in the name of the subscription's current version
    end        of a paused subscription: drops buffered rows and cancels the rest of the replay
    replay     live matches wait until the last page of the replay is stored
    arrival    of a migrated subscription: matches wait until the old server has delivered its rows
               (`handover.arrivals`)

Waiting rows become ready once no earlier row is still to come: first the history, then the live rows.

Pauses are per log: an event is buffered if it follows a pause in its own log. A resumption releases the rows
of all logs, unless another log has a newer pause: then the resumption was read late.

The state in memory changes only after the commit: `FrameHolds` collects the steps of a frame and decides the
queue of each match; `apply` makes them the new state.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal

import numpy as np

from edn.runtime.ownership import owned
from edn_server.storage import outbox, replays
from edn_server.storage.interface import Connection
from edn_server.storage.outbox import Place
from edn_server.storage.replays import Source
from edn_server.storage.versions import NEVER
from edn_server.subscriptions.registry import SubscriptionRegistry
from edn_server.subscriptions.topic_index import Flags, Int32s, Int64s

Step = Literal["pause", "resume", "end"]
Fate = Literal["ready", "buffered", "waiting", "dropped"]


@owned("writer")
class FrameHolds:
    """The pauses, resumptions, ends and replays that one frame brings."""

    def __init__(self, registry: SubscriptionRegistry, log: str) -> None:
        self._registry = registry
        self._log = log
        #: steps of each subscription, in order: offset, step, revision
        self._steps: dict[str, list[tuple[int, Step, int]]] = {}
        #: numbers whose replay begins
        self.begun: list[int] = []
        #: numbers whose replay is cancelled; those that still wait for another server
        self.cancelled: list[int] = []
        self._curtailed: list[int] = []
        #: addresses with released rows, and number of dropped notifications
        self.released: list[str] = []
        self.purged = 0

    def add(self, subscription: str, offset: int, step: Step, revision: int = 0) -> None:
        self._steps.setdefault(subscription, []).append((offset, step, revision))

    def _paused(self, subscription: str) -> bool:
        """Return whether a subscription was paused in this log before the frame."""
        return self._log in self._registry.paused.get(subscription, ())

    def is_paused(self, subscription: str) -> bool:
        """Return whether a subscription is paused in this log after the frame."""
        steps = self._steps.get(subscription)
        return steps[-1][1] == "pause" if steps else self._paused(subscription)

    def begin_replay(self, number: int) -> None:
        self.begun.append(number)

    # -- the queues of matches --------------------------------------------------------------------------

    def sort(self, numbers: Int32s, offsets: Int64s) -> tuple[Int32s, Flags, list[Place]]:
        """Return the queue of each match, whether it is stored at all, and the places of further queues.

        A queue is the number of an address or, beyond those, an index of the places.
        """
        registry = self._registry
        queues = registry.address[numbers].copy()
        wanted = np.ones(len(numbers), dtype=np.bool_)
        places: list[Place] = []
        touched = self._touched()
        candidates = registry.held[numbers]
        if len(touched):
            candidates = candidates | np.isin(numbers, touched)
        for number in sorted(np.unique(numbers[candidates]).tolist(), key=self._version):
            subscription = registry.versions[number].id
            rows = np.flatnonzero(numbers == number)
            fates = np.array([self._fate(subscription, offset) for offset in offsets[rows].tolist()])
            states: tuple[outbox.State, ...] = ("buffered", "waiting")
            for state in states:
                chosen = rows[fates == state]
                if len(chosen):
                    # One queue per number: such a row names one version.
                    queues[chosen] = len(registry.addresses) + len(places)
                    places.append(outbox.kept(subscription, state, "live"))
            wanted[rows[fates == "dropped"]] = False
        return queues, wanted, places

    def _touched(self) -> Int64s:
        numbers = [n for name in self._steps for n in self._registry.numbers.get(name, ())]
        return np.array(numbers + self.begun, dtype=np.int64)

    def _version(self, number: int) -> int:
        return self._registry.versions[number].version

    def _fate(self, subscription: str, offset: int) -> Fate:
        """Return the state of a match at an offset at the end of the frame."""
        steps = self._steps.get(subscription, [])
        at = bisect_right([where for where, *_ in steps], offset - 1)
        before = steps[at - 1][1] if at else None
        paused = self._paused(subscription) if before is None else before == "pause"
        if paused:
            for _, step, _ in steps[at:]:
                if step == "end":
                    return "dropped"
                if step == "resume":
                    paused = False
                    break
        if paused:
            return "buffered"
        replaying = any(n in self._registry.replaying or n in self.begun for n in self._numbers(subscription))
        return "waiting" if replaying else "ready"

    def _numbers(self, subscription: str) -> list[int]:
        return self._registry.numbers.get(subscription, [])

    # -- in the transaction -----------------------------------------------------------------------------

    def write(self, db: Connection) -> None:
        """Release or drop rows, before the frame's own rows are written, and store the new state."""
        log = self._log
        replays.begin(db, self.begun, Source("log", log))
        for subscription, steps in self._steps.items():
            paused, revision = self._paused(subscription), 0
            elsewhere = self._registry.paused.get(subscription, {})
            for _, step, revision in steps:
                if step == "pause":
                    paused = True
                elif step == "resume":
                    paused = False
                    late = any(other != log and newer > revision for other, newer in elsewhere.items())
                    if not late:
                        self.released += resume(db, self._registry, subscription, begun=self.begun)
                elif paused:
                    paused = False
                    self.purged += outbox.purge(db, subscription)
                    self._cancel(db, subscription)
                    self.released += release(db, self._registry, subscription, finished=self.cancelled)
            if paused:
                replays.pause(db, subscription, log, revision)
            else:
                replays.unpause(db, subscription, log)

    def _cancel(self, db: Connection, subscription: str) -> None:
        """Cancel a replay; rows still wait for the deliveries of another server."""
        coming = [n for n in self._numbers(subscription) if n in self._registry.replaying or n in self.begun]
        arriving = [n for n in coming if self._registry.is_arriving(n)]
        replays.decide_kept(db, arriving, replays.UNWANTED)
        replays.cancel_replays(db, arriving)
        self._curtailed += arriving
        self.cancel(db, [n for n in coming if n not in arriving])

    def cancel(self, db: Connection, numbers: Sequence[int]) -> None:
        """Cancel the replays of versions."""
        replays.cancel(db, numbers)
        self.cancelled += numbers

    # -- after the commit -------------------------------------------------------------------------------

    def apply(self) -> None:
        """Change the state in memory."""
        registry, log = self._registry, self._log
        for number in self.begun:
            registry.replaying.setdefault(number, set()).add(Source("log", log))
        for number in self.cancelled:
            registry.replaying.pop(number, None)
        for number in self._curtailed:
            registry.replaying[number] = {one for one in registry.replaying[number] if one.kind == "server"}
        for subscription, steps in self._steps.items():
            if steps[-1][1] == "pause":
                registry.paused.setdefault(subscription, {})[log] = steps[-1][2]
            elif subscription in registry.paused:
                registry.paused[subscription].pop(log, None)
                if not registry.paused[subscription]:
                    del registry.paused[subscription]
        begun = {registry.versions[number].id for number in self.begun if number in registry.versions}
        registry.mark_held([*self._steps, *begun])


def resume(
    db: Connection, registry: SubscriptionRegistry, subscription: str, *, begun: Sequence[int] = ()
) -> list[str]:
    """Make buffered rows wait, and release them if nothing precedes them; returns the addresses.

    `begun` are replays that begin in this transaction.
    """
    numbers = registry.numbers.get(subscription, [])
    if not numbers:
        return []
    outbox.resume(db, subscription, speaker(registry, subscription))
    arriving = [n for n in numbers if registry.is_arriving(n)]
    replays.decide_kept(db, arriving, replays.DUE)
    if arriving:
        return []
    coming = any(n in begun or n in registry.replaying for n in numbers)
    return outbox.release(db, subscription, ["history"] if coming else ["history", "live"])


def release(
    db: Connection, registry: SubscriptionRegistry, subscription: str, *, finished: Sequence[int]
) -> list[str]:
    """Release waiting rows if no earlier row is still to come; returns the addresses.

    `finished` are versions whose replay or hand-over ends in this transaction.
    """
    left = [n for n in registry.numbers.get(subscription, []) if n not in finished]
    if any(registry.is_arriving(n) for n in left):
        return []
    buffered = outbox.has_kept(db, subscription, "buffered", "history")
    coming = buffered or any(n in registry.replaying for n in left)
    return outbox.release(db, subscription, ["history"] if coming else ["history", "live"])


def speaker(registry: SubscriptionRegistry, subscription: str) -> int:
    """Return the version that names released rows: the newest that a log has activated."""
    numbers = registry.numbers[subscription]
    active = [n for n in numbers if any(log.since[n] != NEVER for log in registry.logs.values())]
    return max(active or numbers, key=lambda number: registry.versions[number].version)
