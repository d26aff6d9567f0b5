"""Applies control records: they set the intervals and expiries of versions.

    activate     starts a version: since := offset
    change       starts the named version and ends the older ones of its subscription
    move         the same, but the named version and the older ones are on different servers (see
                 `handover.departures`, `handover.arrivals`)
    deactivate   ends the named versions. Of a named subscription it ends the active version or, without one,
                 all versions, which were stored in vain. So a subscription that reuses the id of an ended one
                 is safe, even if this server has yet to read the end of the old one
    renew        sets the expiry, in this log, of the active version
    pause        buffers later matches; resume releases them (see `outbox.buffered`)
    rotate       changes the signing keys of an address; no interval changes
    join         ends versions that no log activated and that their dispatcher no longer knows: an earlier
                 incarnation stored them, or their log is retired. In a log beside others, the first join ends
                 all versions, and the log activates the current ones. A log that is alone starts the versions
                 that are active in a log that the dispatcher has left
    follow       takes the log of another dispatcher into use: a version ends only when that has ended it, too
    retire       ends the use of a log whose dispatcher is gone; this server has read all of it

A record changes the columns at once, because the events of the same frame are matched with them, and saves
the old values for `undo` after a failed transaction. Inside a frame the order of records and events does not
matter: matching compares an event with (since, until], and *renew* is accepted only before the old expiry, so
the latest expiry is right for every event of the frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import structlog

from edn import protocol
from edn.formats.webhooks import KeyRing
from edn.runtime.ownership import owned
from edn_server.outbox.buffered import FrameHolds, release, resume
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
        #: numbers whose interval or expiry changed
        self._changed: set[int] = set()
        #: numbers that this frame ends in this log
        self.ended: set[int] = set()
        #: (number, offset) of versions that it starts
        self.begun: list[tuple[int, int]] = []
        self.rings: list[KeyRing] = []
        #: ended versions that are not stored (see `subscriptions.store`)
        self.unknown: list[tuple[str, int]] = []
        #: numbers whose subscription migrated to another server
        self.moved: list[int] = []
        #: (number, reason) of versions that ended without their subscriber's request
        self.cancelled: list[tuple[int, str]] = []
        #: logs of other dispatchers that begin and end
        self.followed: list[str] = []
        self.retired: list[str] = []
        self.holds = FrameHolds(registry, log.name)
        self.joined = log.joined

    def apply(self, control: protocol.Control) -> None:
        offset = control.offset
        match control.kind:
            case "activate":
                for id, version in control.versions:
                    self._begin(id, version, offset)
                self._begin_replays(control)
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
                    if self._registry.find(id, version) is not None:
                        self._begin(id, version, offset)
                    else:
                        self.moved += older
                self._begin_replays(control)
            case "deactivate":
                for id in control.ids:
                    self.holds.add(id, offset, "end")
                    numbers = self._numbers(id)
                    active = [n for n in numbers if self._active(n)]
                    self._end(active or numbers, offset)
                    if control.end and numbers:
                        self.cancelled.append((numbers[-1], control.end))
                for id, version in control.versions:
                    named = self._registry.find(id, version)
                    if named is None:
                        self.unknown.append((id, version))
                    else:
                        self._end([named], offset)
            case "renew":
                for id, expires in control.expiries:
                    self._renew(id, NEVER if expires is None else expires)
            case "join":
                self._join(control)
            case "rotate":
                self.rings.extend(control.rings)
            case "follow":
                self.followed.append(control.log)
            case "retire":
                if control.log != self._log.name:
                    self.retired.append(control.log)

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
                for n in sorted(self._changed)
            ],
        )
        versions.store_rings(db, self.rings)
        versions.mark_moved(db, self.moved)

    # -- kinds of records -------------------------------------------------------------------------------

    def _begin(self, id: str, version: int, offset: int) -> None:
        number = self._registry.find(id, version)
        if number is None:
            logger.error("activated_version_missing", subscription=id, version=version)
            return
        if self._log.since[number] == NEVER:
            # A deactivate of an earlier subscription with this id may have ended it.
            self._set(self._log.until, [number], NEVER)
            self._set(self._log.since, [number], offset)
            self._changed.add(number)
            self.ended.discard(number)
            self.begun.append((number, offset))

    def _begin_replays(self, control: protocol.Control) -> None:
        for id, version in control.replays:
            number = self._registry.find(id, version)
            if number is not None:
                self.holds.begin_replay(number)

    def _end(self, numbers: list[int], offset: int) -> None:
        open_ended = [number for number in numbers if self._log.until[number] == NEVER]
        self._set(self._log.until, open_ended, offset)
        self._changed.update(open_ended)
        self.ended.update(open_ended)

    def _renew(self, id: str, expires: int) -> None:
        active = [n for n in self._numbers(id) if self._active(n)]
        self._set(self._log.expires, active, expires)
        self._changed.update(active)

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
            if control.shared:
                # It is active or has ended there, and this log activates it or has ended it.
                drop &= ~begun
                continue
            active |= begun & (other.until[living] == NEVER)
            ended |= other.until[living] != NEVER
        if control.shared and self.joined is None:
            ended[:] = True
        begins = living[active & ~ended & ~own]
        self._set(log.since, begins.tolist(), control.offset)
        self._changed.update(begins.tolist())
        self._end(living[ended | (drop & ~active)].tolist(), control.offset)
        self.joined = control.offset

    # -- logs of other dispatchers ----------------------------------------------------------------------

    def retire_logs(self, db: Connection) -> None:
        """Stores which logs begin and end; releases rows that only a log that ends has paused."""
        for name in self._new_logs():
            logs.follow(db, name)
        logs.retire(db, self.retired)
        for subscription, revisions in self._registry.paused.items():
            if not revisions.keys().isdisjoint(self.retired) and not self.holds.is_paused(subscription):
                self.holds.released += resume(db, self._registry, subscription, begun=self.holds.begun)

    def _new_logs(self) -> list[str]:
        # A log that is read late may announce one that has ended meanwhile.
        return [name for name in self.followed if name not in self._registry.ended_logs]

    def find_leftovers(self) -> list[int]:
        """Returns the versions that the dispatchers of retired logs stored and no log has activated."""
        registry, found = self._registry, []
        for name in self.retired:
            own = registry.living & (registry.stored_by == registry.log_number(name))
            found += [n for n in np.flatnonzero(own).tolist() if not registry.is_activated(n, self._log)]
        return found

    def leave_logs(self) -> None:
        """Changes the logs in memory, after the commit."""
        for name in self._new_logs():
            self._registry.log(name).retired = False
        _leave(self._registry, self.retired)

    # -- columns ----------------------------------------------------------------------------------------

    def _numbers(self, id: str) -> list[int]:
        return self._registry.numbers.get(id, [])

    def _older(self, id: str, version: int) -> list[int]:
        return [n for n in self._numbers(id) if self._registry.versions[n].version < version]

    def _active(self, number: int) -> bool:
        return bool(self._log.since[number] != NEVER and self._log.until[number] == NEVER)

    def _set(self, column: Int64s, numbers: list[int], value: int) -> None:
        if numbers:
            index = np.array(numbers, dtype=np.int64)
            self._before.append((column, index, column[index]))
            column[index] = value


@dataclass(slots=True)
class FollowLog(Job[None]):
    """Follows the log of a dispatcher; if there are no logs beside it, retires the one before."""

    fresh = True

    registry: SubscriptionRegistry
    log: str
    incarnation: int
    #: whether other dispatchers have logs beside this one
    shared: bool = False
    _left: list[str] = field(default_factory=list, init=False)
    _over: list[int] = field(default_factory=list, init=False)

    def work(self, db: Connection) -> None:
        if not self.shared:
            self._left = logs.others_of(db, self.log)
            _retire(db, self.registry, self._left, self.log)
        logs.follow(db, self.log, self.incarnation)
        log = self.registry.logs.get(self.log)
        if self._left and log is not None and log.cursor is not None:
            self._over = _over(db, self.registry, self._left, log)

    def done(self, result: None) -> None:
        log = self.registry.log(self.log)
        log.incarnation = max(log.incarnation, self.incarnation)
        log.retired = False
        _leave(self.registry, self._left, self.log)
        self.registry.remove(self._over)


def _retire(db: Connection, registry: SubscriptionRegistry, left: Sequence[str], heir: str) -> None:
    logs.retire(db, left, heir)
    # The rest of those replays will not arrive: release the notifications that wait for it.
    for number, sources in registry.replaying.items():
        found = registry.versions.get(number)
        if found is not None and not _others(sources, left):
            release(db, registry, found.id, finished=[number])


def _others(sources: set[Source], left: Sequence[str], *, is_shared: bool = False) -> set[Source]:
    """Returns the sources of a history that do not depend on the dispatchers of these logs.

    In a shared directory, another dispatcher completes a migration.
    """
    return {source for source in sources if source.log not in left or (is_shared and source.kind == "server")}


def _over(db: Connection, registry: SubscriptionRegistry, left: Sequence[str], heir: LogState) -> list[int]:
    """Ends the versions that no log matches once these logs are retired; returns their numbers."""
    numbers = np.flatnonzero(registry.living)
    ended = registry.find_ended(numbers, heir, left=left)
    # A version whose replay is unfinished ends with its last page.
    replaying = {n for n, sources in registry.replaying.items() if _others(sources, left)}
    over = [number for number in ended.tolist() if number not in replaying]
    versions.end(db, over, outbox.last_row(db))
    return over


def _leave(registry: SubscriptionRegistry, left: Sequence[str], heir: str | None = None) -> None:
    """Leaves logs in memory; `heir`: the only log from now on, which gets their pauses; see `logs.retire`."""
    touched: set[str] = set()
    for name in left:
        if heir is None:
            registry.logs.pop(name, None)
            registry.ended_logs.add(name)
        elif name in registry.logs:
            registry.logs[name].retired = True
        for subscription, revisions in list(registry.paused.items()):
            if name not in revisions:
                continue
            revision = revisions.pop(name)
            if heir is not None:
                revisions[heir] = revision
            elif not revisions:
                del registry.paused[subscription]
            touched.add(subscription)
    for number in list(registry.replaying) if left else ():
        registry.replaying[number] = _others(registry.replaying[number], left, is_shared=heir is None)
        if not registry.replaying[number]:
            del registry.replaying[number]
            found = registry.versions.get(number)
            touched |= set() if found is None else {found.id}
    registry.mark_held(touched)
