"""The other dispatchers: who is there, who has learnt of what, and who carries out changes.

Theory of operation ------------------- Each dispatcher *follows* each other one: it asks, again and again,
for what has changed there since the place that it has taken over, and takes it over (`store.change_feed`,
`reconcile`). An answer waits a moment for something to change, so following is also the heartbeat, and asking
for what comes after a place acknowledges it.

*Granting.* Whoever has taken over everything is **granted**: from that answer on no change is answered to a
client before the granted one has it. So a dispatcher that is granted by all others may take events: every
subscription that was acknowledged anywhere is in its log, and every end is. A grant holds for `lease` seconds
from the answer at the one who gave it, and for somewhat less, from the question, at the one who got it; and
one that is silent for a lease, or refuses connections, or does not take over what has changed, is left out.
Whoever is left out finds out by its own clock, takes nothing until it has caught up, and is granted again.

*Dead or silent.* A refused connection says that a process is gone; the others go on at once. One that hangs
is left out when its lease has run out; until then changes wait, and so, for the last part of it, do events.
A network that is cut in two cannot be told from that: both sides go on, see docs/adr/0010.

*Changes* are carried out by one at a time, the **leader**: of those that are ready the one with the smallest
log id, once all whom it has granted see it so too. The others pass such calls on to it (see
`api.leader_proxy`).

Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from dispatcher.replication.reconcile import Merger
from dispatcher.servers.client import ServerClient
from dispatcher.store import change_feed, meta
from dispatcher.store.event_log import Log
from edn import protocol
from edn.errors import Conflict, Unavailable
from edn.http.control_client import ControlClient, TransportFailed
from edn.runtime import clock
from edn.runtime.tasks import Tasks, periodic

logger = structlog.get_logger()

#: seconds after which a silent dispatcher is left out; it stops accepting a little earlier
LEASE_SECONDS = 6.0
#: seconds that an answer waits for something to change
POLL_SECONDS = 0.5
#: seconds that a question may take
PATIENCE = 1.5
#: part of a lease that the one who got it counts on
SHARE = 5 / 6
#: questions without an answer, one after the other, before silence means anything: a dispatcher that hung
#: itself would take its own silence for that of the others
ATTEMPTS = 3
#: seconds after which one that was told of a change and has not taken it over is no longer granted
SLOW = 3.0
#: seconds that a call may wait for a leader
TURN_SECONDS = 4.0

_page = protocol.Decoder(protocol.PeerPage)


@dataclass(slots=True)
class Peer:
    """Another dispatcher as this one follows it."""

    url: str
    #: when it last answered, or this one started
    answered: float
    log: str = ""
    incarnation: int = 0
    #: as of its last answer
    ready: bool = False
    granted: bool = False
    sees: str = ""
    #: until when this dispatcher may rely on that answer
    lease: float = 0.0
    refused: bool = False
    failures: int = 0
    failure: str | None = None

    def dead(self, now: float, lease: float) -> bool:
        return self.refused or (self.failures >= ATTEMPTS and now - self.answered > lease)


@dataclass(slots=True)
class Follower:
    """Another dispatcher as it follows this one."""

    log: str
    incarnation: int
    #: it has taken over everything up to this place
    acked: int = 0
    sees: str = ""
    #: whether its questions are answered with a grant, and when one was last
    granting: bool = False
    granted_at: float = float("-inf")

    def counts(self, now: float, lease: float) -> bool:
        """Whether it may be taking events in the belief that nothing is kept from it."""
        return now - self.granted_at <= lease


class Peers:
    alone = False

    def __init__(
        self,
        log: Log,
        calls: ServerClient,
        tasks: Tasks,
        urls: Sequence[str],
        own_url: str | None,
        clock: Callable[[], float] = clock.monotonic,
    ) -> None:
        """`urls`: of the other dispatchers."""
        self._log = log
        self._calls = calls
        self._tasks = tasks
        self._url = own_url
        self._clock = clock
        self._lease = LEASE_SECONDS
        self._peers = [Peer(url, clock()) for url in urls]
        self._followers: dict[str, Follower] = {}
        self._changed = asyncio.Event()
        #: it has once had all that the others have
        self._caught_up = False
        #: changes that are being carried out here
        self._executing = 0
        self._log.on_change = self._wake

    # -- life -------------------------------------------------------------------------------------------

    def start(self, merger: Merger) -> None:
        """Follow the others; `merger` merges their changes into this log."""
        for peer in self._peers:
            peer.answered = self._clock()
            self._tasks.spawn(self._follow(peer, merger), f"follow {peer.url}")
        self._tasks.spawn(periodic(3600.0, self._forget, "forgetting tombstones"), "tombstones")

    @property
    def client(self) -> ControlClient:
        return self._calls.client

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _news(self, seconds: float) -> None:
        """Until something has changed, or so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    # -- following --------------------------------------------------------------------------------------

    async def _follow(self, peer: Peer, merger: Merger) -> None:
        cursor = 0
        while True:
            asked = self._clock()
            poll = protocol.PeerPoll(self._log.id, self._log.incarnation, cursor, self._reported())
            try:
                response = await self.client.post(
                    f"{peer.url}/internal/changes",
                    content=protocol.encode(poll),
                    headers={"content-type": protocol.MSGPACK},
                    timeout=PATIENCE,
                )
                if response.status_code != 200:
                    raise Unavailable(f"{response.status_code}: {response.text[:200]}")
                page = _page.decode(response.content)
                if page.log != peer.log:
                    self._meet(peer, page)
                    cursor = await merger.cursor(page.log)
                    if page.after != cursor:
                        continue
                if page.upto > page.after:
                    await merger.merge(page)
                cursor = page.upto
            except Exception as error:
                # Not only the client's own errors: see `servers.client`. And a page that cannot be taken
                # over is asked for again.
                self._failed(peer, error)
                await asyncio.sleep(0.1 if 0 < peer.failures < 10 else POLL_SECONDS)
                continue
            self._answered(peer, page, asked)

    def _meet(self, peer: Peer, page: protocol.PeerPage) -> None:
        if page.log == self._log.id:
            raise Conflict(f"{peer.url} is this dispatcher itself: leave it out of the peers")
        logger.info("following another dispatcher", url=peer.url, log=page.log)
        self._leave_out(peer.log)
        peer.log = page.log

    def _answered(self, peer: Peer, page: protocol.PeerPage, asked: float) -> None:
        before = (peer.ready, peer.granted, peer.sees, peer.refused)
        if peer.failure:
            logger.info("another dispatcher answers again", url=peer.url)
        peer.answered, peer.failures, peer.failure, peer.refused = self._clock(), 0, None, False
        peer.incarnation, peer.ready, peer.granted, peer.sees = (
            page.incarnation,
            page.ready,
            page.granted,
            page.sees,
        )
        # One that is not ready carries out nothing, so nothing is kept from anybody.
        if page.granted or not page.ready:
            peer.lease = asked + self._lease * SHARE
        if before != (peer.ready, peer.granted, peer.sees, peer.refused):
            self._wake()

    def _failed(self, peer: Peer, error: Exception) -> None:
        refused = _is_refusal(error)
        peer.failure = str(error) or type(error).__name__
        if isinstance(error, TransportFailed):
            peer.failures += 1
        else:
            # It lives, though it answers nothing useful, or what it says cannot be written here: without its
            # grant nothing is taken.
            peer.failures, peer.answered = 0, self._clock()
            logger.warning("another dispatcher is not followed", url=peer.url, reason=peer.failure)
        if (refused and not peer.refused) or peer.failures == ATTEMPTS:
            logger.warning("another dispatcher does not answer", url=peer.url, reason=peer.failure)
        if refused:
            peer.refused = True
            peer.ready = peer.granted = False
            self._leave_out(peer.log)
            self._wake()

    def _leave_out(self, log: str) -> None:
        """A process that is gone takes nothing."""
        follower = self._followers.get(log)
        if follower is not None:
            follower.granting, follower.granted_at = False, float("-inf")

    # -- being followed ---------------------------------------------------------------------------------

    async def answer(self, poll: protocol.PeerPoll) -> protocol.PeerPage:
        """What has changed since the place that the asking one names."""
        follower = self._followers.get(poll.log)
        if follower is None or follower.incarnation != poll.incarnation:
            follower = self._followers[poll.log] = Follower(poll.log, poll.incarnation)
        if not follower.counts(self._clock(), self._lease):
            follower.granting = False
        # A place that was never given: this data folder is older than what the other has seen of it.
        after = poll.after if poll.after <= self._log.touched else 0
        await self._check_memory(after)
        news = (follower.acked, follower.sees) != (after, poll.sees)
        follower.acked, follower.sees = after, poll.sees
        if not follower.granting and after >= self._log.touched:
            follower.granting, news = True, True
            logger.info("another dispatcher has caught up", log=poll.log)
        if follower.granting:
            follower.granted_at = self._clock()
        if news:
            self._wake()
        told = (self.accepting(), self._reported())
        deadline = self._clock() + POLL_SECONDS
        while (
            not news
            and after >= self._log.touched
            and follower.granting
            and told == (self.accepting(), self._reported())
            and (left := deadline - self._clock()) > 0
        ):
            await self._news(left)
        page = await self._log.reading(lambda connection: change_feed.read(connection, after))
        if follower.granting:
            follower.granted_at = self._clock()
        return protocol.PeerPage(
            log=self._log.id,
            incarnation=self._log.incarnation,
            after=after,
            upto=page.upto,
            granted=follower.granting,
            ready=self.accepting(),
            sees=self._reported(),
            servers=page.servers,
            topics=page.topics,
            rings=page.rings,
            subscriptions=page.subscriptions,
            keys=page.keys,
            gone=page.gone,
            bindings=page.bindings,
        )

    async def _check_memory(self, after: int) -> None:
        forgotten = (await self._log.reading(lambda connection: meta.read(connection, "forgotten"))).get(
            "forgotten", 0
        )
        if 0 < after < forgotten:
            raise Conflict(
                "it was away for longer than ends are remembered: start it with an empty data folder"
            )

    async def _forget(self) -> None:
        await self._log.submit(change_feed.forget)

    # -- what may be done here --------------------------------------------------------------------------

    def accepting(self) -> bool:
        """Whether events may be taken: nothing that was acknowledged elsewhere is unknown here."""
        now = self._clock()
        if not self._caught_up:
            self._caught_up = all(self._has_all(peer, now) for peer in self._peers)
            if not self._caught_up:
                return False
            logger.info("level with the other dispatchers")
        return all(peer.lease > now or peer.dead(now, self._lease) for peer in self._peers)

    def _has_all(self, peer: Peer, now: float) -> bool:
        """Before the first event: both have all that the other has, or it is not there."""
        follower = self._followers.get(peer.log)
        both = peer.granted and peer.lease > now and follower is not None and follower.granting
        return both or peer.dead(now, self._lease)

    def leader(self) -> str:
        """Log of the one that carries out changes, as far as is known here; empty is none."""
        now = self._clock()
        there = [peer.log for peer in self._peers if peer.ready and not peer.dead(now, self._lease)]
        return min([*there, self._log.id] if self.accepting() else there, default="")

    def leads(self) -> bool:
        """Whether that is this one, and all others agree."""
        return self.leader() == self._log.id and all(
            follower.sees == self._log.id for follower in self._counting()
        )

    def complete(self) -> bool:
        """Whether all dispatchers are there, and level."""
        now = self._clock()
        there = all(peer.ready and not peer.dead(now, self._lease) for peer in self._peers)
        return there and len(list(self._counting())) >= len(self._peers)

    def _reported(self) -> str:
        # As long as a change is under way here nobody else shall begin one.
        return self._log.id if self._executing else self.leader()

    def _counting(self) -> Iterator[Follower]:
        now = self._clock()
        return (each for each in self._followers.values() if each.counts(now, self._lease))

    async def turn(self) -> str | None:
        """Wait for a leader: None if this one is, and `done` must follow; else the leader's address."""
        deadline = self._clock() + TURN_SECONDS
        while True:
            leader = self.leader()
            if leader and leader != self._log.id:
                return next(peer.url for peer in self._peers if peer.log == leader)
            if leader and self.leads():
                self._executing += 1
                return None
            left = deadline - self._clock()
            if left <= 0:
                raise Unavailable(
                    "the dispatchers have not agreed yet on who carries out changes", retry_after=1
                )
            await self._news(min(left, 0.1))

    def done(self) -> None:
        self._executing -= 1
        if not self._executing:
            self._wake()

    async def settled(self) -> None:
        """Until every dispatcher that may take events has everything that has changed here so far."""
        target, began = self._log.touched, self._clock()
        while True:
            behind = [each for each in self._counting() if each.acked < target]
            if not behind:
                return
            if self._clock() - began > SLOW:
                for each in behind:
                    # From its next question on it knows; until it has asked, its lease has to run out.
                    each.granting = False
            await self._news(0.1)

    @contextlib.asynccontextmanager
    async def changing(self, *, complete: bool = False) -> AsyncIterator[None]:
        """Carry out a change, and wait until the others have it; raises `Unavailable` if another leads.

        `complete`: only if all dispatchers are there.
        """
        if await self.turn() is not None:
            raise Unavailable("another dispatcher carries out changes at this moment")
        try:
            if complete and not self.complete():
                raise Unavailable("a dispatcher is away: subscriptions move when all are there")
            yield
            await self.settled()
        finally:
            self.done()

    async def level(self) -> None:
        """Until this one has all that the others had when it started, and they all that it has now."""
        while not (self._caught_up or self.accepting()):
            await self._news(0.1)
        await self.settled()

    # -- what it can say of itself ----------------------------------------------------------------------

    def describe(self) -> list[dict[str, Any]]:
        now, leader = self._clock(), self.leader()
        own = {
            "log": self._log.id,
            "url": self._url,
            "self": True,
            "reachable": True,
            "ready": self.accepting(),
            "level": self._caught_up,
            "leader": leader == self._log.id,
            "failure": None,
        }
        others = [
            {
                "log": peer.log or None,
                "url": peer.url,
                "self": False,
                "reachable": peer.failure is None and bool(peer.log),
                "ready": peer.ready and not peer.dead(now, self._lease),
                "level": peer.log in self._followers and self._followers[peer.log].granting,
                "leader": bool(leader) and leader == peer.log,
                "failure": peer.failure,
            }
            for peer in self._peers
        ]
        return [own, *others]


def _is_refusal(error: BaseException | None) -> bool:
    """Whether nobody listens there: the process is gone. Anything else may be the network's fault."""
    while error is not None:
        if isinstance(error, ConnectionRefusedError):
            return True
        if isinstance(error, BaseExceptionGroup):
            return all(_is_refusal(each) for each in error.exceptions)
        error = error.__cause__ or error.__context__
    return False
