"""Applies control records: where versions begin and end to match, and when they expire.

    activate     a version begins: since := offset
    change       the named one begins, the older ones of its subscription end there
    move         the same, but the named one and the older ones are on different servers (see
                 `handover.departures`, `handover.arrivals`)
    deactivate   the versions that it names end; of a subscription that it names the active one ends, or,
                 when none is, those that were stored for nothing. So a subscription that is made anew under
                 the id of one whose end this server has yet to read loses nothing
    renew        a new expiry, in this log, for the version that is active there
    pause        what matches after it is kept and not sent; resume lets it go (see `outbox.buffered`)
    rotate       the secrets of an address change; no interval does
    join         what a log that its dispatcher has left has active begins here too. What no log activated is
                 dropped if its dispatcher cannot mean it any more: an earlier incarnation stored it, or its
                 log is retired. Of several dispatchers each activates in its own log what it has learnt of

A record changes the columns at once, because the events of the same frame are matched with them, and
remembers what was there, so that a failed transaction can take it back. Inside a frame the order of controls
and events needs no care: an event is compared with (since, until], and *renew* is only accepted before the
expiry that it replaces, so that the latest expiry holds for every event of the frame.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import structlog

from edn import protocol
from edn.formats.webhooks import KeyRing
from edn.runtime.ownership import owned
from edn_server.outbox.buffered import FrameHolds, release
from edn_server.storage import logs, outbox, versions
from edn_server.storage.interface import Connection
from edn_server.storage.replays import Source
from edn_server.storage.versions import NEVER
from edn_server.storage.writer import Job
from edn_server.subscriptions.registry import LogState, SubscriptionRegistry
from edn_server.subscriptions.topic_index import Int64s

logger = structlog.get_logger()


@owned("writer")
class ControlRecords:
    """The control records of one frame."""

    def __init__(self, registry: SubscriptionRegistry, log: LogState) -> None:
        self._registry = registry
        self._log = log
        self._before: list[tuple[Int64s, Int64s, Int64s]] = []
        self._moved: set[int] = set()
        #: numbers that this frame ends in this log
        self.ended: set[int] = set()
        #: (number, offset) of what begins in it
        self.begun: list[tuple[int, int]] = []
        self.rings: list[KeyRing] = []
        #: versions that end and are not stored (see `subscriptions.store`)
        self.unknown: list[tuple[str, int]] = []
        #: numbers whose subscription goes on elsewhere
        self.moved: list[int] = []
        #: (number, why) of what ended by another's will than its subscriber's
        self.cancelled: list[tuple[int, str]] = []
        self.holds = FrameHolds(registry, log.name)
        self.joined = log.joined

    def apply(self, control: protocol.Control) -> None:
        offset = control.offset
        match control.kind:
            case "activate":
                for id, version in control.versions:
                    self._begin(id, version, offset)
                for id, version in control.replays:
                    number = self._number(id, version)
                    if number is not None:
                        self.holds.begin_replay(number)
            case "pause" | "resume":
                for id in control.ids:
                    self.holds.add(id, offset, control.kind, control.revision)
            case "change":
                for id, version in control.versions:
                    self._end(self._older(id, version), offset)
                    self._begin(id, version, offset)
            case "move":
                for id, version in control.versions:
                    older = self._older(id, version)
                    self._end(older, offset)
                    if self._number(id, version) is not None:
                        self._begin(id, version, offset)
                    else:
                        self.moved += older
                for id, version in control.replays:
                    number = self._number(id, version)
                    if number is not None:
                        self.holds.begin_replay(number)
            case "deactivate":
                for id in control.ids:
                    self.holds.add(id, offset, "end")
                    numbers = self._numbers(id)
                    active = [n for n in numbers if self._active(n)]
                    self._end(active or numbers, offset)
                    if control.end and numbers:
                        self.cancelled.append((numbers[-1], control.end))
                for id, version in control.versions:
                    named = self._number(id, version)
                    if named is None:
                        self.unknown.append((id, version))
                    self._end([] if named is None else [named], offset)
            case "renew":
                for id, expires in control.expiries:
                    self._renew(id, NEVER if expires is None else expires)
            case "join":
                self._join(control)
            case "rotate":
                self.rings.extend(control.rings)

    def undo(self) -> None:
        for column, numbers, values in reversed(self._before):
            column[numbers] = values
        self._before.clear()

    def write(self, db: Connection) -> None:
        log = self._log
        versions.store_intervals(
            db,
            [
                versions.Interval(n, log.name, int(log.since[n]), int(log.until[n]), int(log.expires[n]))
                for n in sorted(self._moved)
            ],
        )
        versions.store_rings(db, self.rings)
        versions.mark_moved(db, self.moved)

    # -- one kind each ----------------------------------------------------------------------------------

    def _begin(self, id: str, version: int, offset: int) -> None:
        number = self._number(id, version)
        if number is None:
            logger.error("a version that is not stored was activated", subscription=id, version=version)
            return
        if self._log.since[number] == NEVER:
            # A deactivate before it, of an earlier life of the same subscription, may have ended it.
            self._set(self._log.until, [number], NEVER)
            self._set(self._log.since, [number], offset)
            self._moved.add(number)
            self.ended.discard(number)
            self.begun.append((number, offset))

    def _end(self, numbers: list[int], offset: int) -> None:
        open_ended = [number for number in numbers if self._log.until[number] == NEVER]
        self._set(self._log.until, open_ended, offset)
        self._moved.update(open_ended)
        self.ended.update(open_ended)

    def _renew(self, id: str, expires: int) -> None:
        active = [n for n in self._numbers(id) if self._active(n)]
        self._set(self._log.expires, active, expires)
        self._moved.update(active)

    def _join(self, control: protocol.Control) -> None:
        registry, log = self._registry, self._log
        living = np.flatnonzero(registry.living)
        living = living[(log.since[living] == NEVER) & (log.until[living] == NEVER)]
        own = registry.stored_by[living] == registry.log_number(log.name)
        drop = own & (registry.incarnation[living] < control.incarnation)
        active = np.zeros(len(living), dtype=np.bool_)
        ended = np.zeros(len(living), dtype=np.bool_)
        for other in registry.logs.values():
            if other is log:
                continue
            if other.retired:
                drop |= registry.stored_by[living] == registry.log_number(other.name)
            begun = other.since[living] != NEVER
            if registry.several and not other.retired:
                # Its dispatcher may be about to have it activated here, too, or ended.
                drop &= ~begun
                continue
            active |= begun & (other.until[living] == NEVER)
            ended |= other.until[living] != NEVER
        begins = living[active & ~ended & ~own]
        self._set(log.since, begins.tolist(), control.offset)
        self._moved.update(begins.tolist())
        self._end(living[ended | (drop & ~active)].tolist(), control.offset)
        self.joined = control.offset

    # -- columns ----------------------------------------------------------------------------------------

    def _numbers(self, id: str) -> list[int]:
        return self._registry.numbers.get(id, [])

    def _older(self, id: str, version: int) -> list[int]:
        return [n for n in self._numbers(id) if self._registry.versions[n].version < version]

    def _number(self, id: str, version: int) -> int | None:
        found = (n for n in self._numbers(id) if self._registry.versions[n].version == version)
        return next(found, None)

    def _active(self, number: int) -> bool:
        return bool(self._log.since[number] != NEVER and self._log.until[number] == NEVER)

    def _set(self, column: Int64s, numbers: list[int], value: int) -> None:
        if numbers:
            index = np.array(numbers, dtype=np.int64)
            self._before.append((column, index, column[index]))
            column[index] = value


class Follow(Job[None]):
    """A dispatcher named its log; one that it had before it has left, and that ends nothing any more."""

    fresh = True

    def __init__(self, registry: SubscriptionRegistry, url: str, log: str, incarnation: int) -> None:
        self._registry = registry
        self._url = url
        self._name = log
        self._incarnation = incarnation
        self._left: list[str] = []
        self._over: list[int] = []

    def work(self, db: Connection) -> None:
        # The only dispatcher has no other log in use, whoever had it before.
        url = self._url if self._registry.several else None
        self._left = logs.others_of(db, self._name, url)
        _retire(db, self._registry, self._left, self._name)
        logs.follow(db, self._name, self._incarnation, self._url)
        log = self._registry.logs.get(self._name)
        if log is None or log.cursor is None:
            return
        self._over = _over(db, self._registry, [*self._left], log)

    def done(self, result: None) -> None:
        log = self._registry.log(self._name)
        log.incarnation = max(log.incarnation, self._incarnation)
        log.retired = False
        _leave(self._registry, self._left, self._name)
        self._registry.remove(self._over)


class Leave(Job[None]):
    """Logs of dispatchers that this server is no longer told to follow end nothing any more."""

    fresh = True

    def __init__(self, registry: SubscriptionRegistry, urls: Sequence[str]) -> None:
        """`urls`: those that it is told to."""
        self._registry = registry
        self._urls = urls
        self._left: list[str] = []
        self._over: list[int] = []

    def work(self, db: Connection) -> None:
        known = logs.followed(db)
        self._left = [log for log, url in known if url not in self._urls]
        live = [log for log in self._registry.logs.values() if log.live and log.name not in self._left]
        if len(known) <= len(self._urls) or not live:
            self._left = []  # none has gone; one that has another address now says so itself
            return
        _retire(db, self._registry, self._left, live[0].name)
        self._over = _over(db, self._registry, self._left, live[0])

    def done(self, result: None) -> None:
        if self._left:
            live = next(
                log for log in self._registry.logs.values() if log.live and log.name not in self._left
            )
            _leave(self._registry, self._left, live.name)
            self._registry.remove(self._over)


def _retire(db: Connection, registry: SubscriptionRegistry, left: Sequence[str], heir: str) -> None:
    logs.retire(db, left, heir)
    # Nobody will tell the rest of that past: what waits behind it goes out.
    for number, sources in registry.replaying.items():
        found = registry.versions.get(number)
        if found is not None and not _others(sources, left):
            release(db, registry, found.id, finished=[number])


def _others(sources: set[Source], left: Sequence[str]) -> set[Source]:
    """Return the sources of a history that do not depend on the dispatchers of these logs."""
    return {source for source in sources if source.log not in left}


def _over(db: Connection, registry: SubscriptionRegistry, left: Sequence[str], heir: LogState) -> list[int]:
    """Versions that no log matches any more, once those are left."""
    ended = registry.living & (heir.until != NEVER)
    for log in registry.logs.values():
        if log.live and log.name not in left:
            ended &= log.until != NEVER
    # One whose past is still coming ends with the last page of it.
    ended[[n for n, sources in registry.replaying.items() if _others(sources, left)]] = False
    over: list[int] = np.flatnonzero(ended).tolist()
    versions.end(db, over, outbox.last_row(db))
    return over


def _leave(registry: SubscriptionRegistry, left: Sequence[str], heir: str) -> None:
    for name in left:
        if name in registry.logs:
            registry.logs[name].retired = True
        for revisions in registry.paused.values():
            if name in revisions:
                revisions[heir] = revisions.pop(name)
    for number in list(registry.replaying):
        registry.replaying[number] = _others(registry.replaying[number], left)
        if not registry.replaying[number]:
            del registry.replaying[number]
            found = registry.versions.get(number)
            registry.mark_held([] if found is None else [found.id])
