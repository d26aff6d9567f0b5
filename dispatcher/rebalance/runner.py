"""Runs repartitions: moves subscriptions to their assigned servers, in steps that survive a crash.

Theory of operation
-------------------
A repartition and its assignments are rows of the store (`store.repartitions`). It is *open* while assignments
are added, then *running*: each step moves a batch (`mover`) and deletes its assignments in one transaction,
so that a crash leaves exactly the rest. It is *done* when no assignment is left, or *cancelled*; moved
subscriptions stay on their new servers. One repartition runs at a time.

A plan (`apply`), the drain of a server (`drain`), the replacement of a lost one (`replace`) and the share of
a new one (`fill`) are all repartitions; they differ in the choice of assignments. A drained server gets no
new subscriptions; a lost one gets no requests.

Subscriptions that are bound to servers by name (`servers.bindings`) move only to these. A plan that assigns
them elsewhere is refused, and so is the drain of their last server. If a binding changes after a plan was
accepted, its subscriptions are skipped.

A step moves subscriptions from one server to one other, so that only two servers are busy with it. Moves are
limited to `rate` subscriptions per second, rest between steps while events are published, and wait while
servers lag. Of several dispatchers only one moves, the leader.

Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence

import structlog

from dispatcher.rebalance.advisor import RepartitionAdvisor
from dispatcher.rebalance.handover import Handover
from dispatcher.rebalance.mover import Mover, Outcome
from dispatcher.rebalance.selection import select_surplus
from dispatcher.servers.backup_gate import BackupGate
from dispatcher.servers.bindings import Bindings
from dispatcher.servers.pipeline import Pipeline
from dispatcher.servers.registration import Registration
from dispatcher.servers.registry import Leaving, Server, ServerRegistry
from dispatcher.servers.summaries import Summaries
from dispatcher.store import directory, interface, repartitions, servers
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from dispatcher.store.repartitions import Kind, Preview, Repartition
from dispatcher.store.topic_rows import Binding
from dispatcher.subscriptions.topics import Topics
from edn.errors import Conflict, EdnError, InvalidInput, NotFound, Unavailable

logger = structlog.get_logger()

#: subscriptions per step; a small step delays publishers less
BATCH = 25
#: assignments that are read and grouped into steps at once
WINDOW = 10_000
#: rest after a step while events are published, as a multiple of its duration
RESTS = 16.0
RATE = 1000.0
#: largest lag of a server, in records, during moves
LAG = 50_000
RETRY_SECONDS = 0.5
#: longest time between two looks for a repartition, where there are several dispatchers
LOOK_SECONDS = 3.0

#: (subscription, destination); placement chooses an empty destination
Rows = list[tuple[str, str]]


class RepartitionRunner:
    def __init__(
        self,
        log: Log,
        topics: Topics,
        members: ServerRegistry,
        registration: Registration,
        bindings: Bindings,
        pipeline: Pipeline,
        summaries: Summaries,
        backup_gate: BackupGate,
        mover: Mover,
        handover: Handover,
        advisor: RepartitionAdvisor,
        *,
        leads: Callable[[], bool],
        is_alone: Callable[[], bool],
    ) -> None:
        """`leads`: whether this dispatcher moves subscriptions; `is_alone`: whether there is no other log."""
        self._log = log
        self._topics = topics
        self._members = members
        self._registration = registration
        self._bindings = bindings
        self._pipeline = pipeline
        self._summaries = summaries
        self._backup_gate = backup_gate
        self._mover = mover
        self._handover = handover
        self._advisor = advisor
        self._leads = leads
        self._is_alone = is_alone
        self._woken = asyncio.Event()
        #: next steps of the repartition `_steps_of`
        self._steps: deque[Rows] = deque()
        self._steps_of = 0
        #: deferred subscription → time of the next try
        self._deferred: dict[str, float] = {}
        #: reason why no subscription moves at the moment
        self.waiting: str | None = None
        for server, state in self._log.load(servers.leaving):
            members.set_leaving(server, state)

    def wake(self) -> None:
        """Check for a repartition that another dispatcher has started."""
        self._woken.set()

    async def get(self, repartition: int) -> Repartition:
        return await self._log.reading(repartitions.find, repartition)

    async def newest(self) -> list[Repartition]:
        return await self._log.reading(repartitions.newest, 20)

    async def running(self) -> Repartition | None:
        return await self._log.reading(repartitions.running)

    async def figures(self) -> dict[str, float]:
        """Return the hit ratios and the progress of a repartition, for metrics."""
        running, ratio = await self.running(), self._advisor.describe()
        seen = {"hit_ratio": ratio["now"], "best_hit_ratio": ratio["best"]}
        return {
            **{name: value for name, value in seen.items() if value is not None},
            "repartition_proposed": float(self._advisor.proposal is not None),
            "repartition_left_subscriptions": running.left if running else 0,
            "unsettled_subscriptions": await self._handover.count_unfinished(),
        }

    async def preview(self, repartition: int) -> Preview:
        await self.get(repartition)
        names = [member.id for member in self._members]
        return await self._log.scanning(repartitions.preview, repartition, names)

    # -- any repartition --------------------------------------------------------------------------------

    async def open(
        self,
        *,
        rate: float = RATE,
        expected_hit_ratio: float | None = None,
        kind: Kind = "apply",
        server: str | None = None,
    ) -> Repartition:
        await self._check_none_runs()
        created = await self._log.submit(
            lambda transaction: repartitions.create(transaction, kind, server, rate, expected_hit_ratio)
        )
        return await self.get(created)

    async def assign(self, repartition: int, assignments: Iterable[tuple[str, str]]) -> Repartition:
        """Add assignments (subscription, server); raises if a server cannot host a subscription."""
        found = await self.get(repartition)
        _check_open(found)
        rows = list(assignments)
        self._check_servers({server for _, server in rows})
        await self._check_bindings(rows)

        def add(transaction: Transaction) -> None:
            _check_open(repartitions.find(transaction.connection, repartition))
            repartitions.assign(transaction, repartition, rows)

        await self._log.submit(add)
        return await self.get(repartition)

    async def start(self, repartition: int) -> Repartition:
        found = await self.get(repartition)
        if found.state == "running":
            return found
        if found.state != "open":
            raise Conflict(f"repartition {repartition} is {found.state}; open a new one")
        self._check_servers(await self._log.reading(repartitions.destinations, repartition))
        hit_ratio = self._advisor.hit_ratio()

        def begin(transaction: Transaction) -> None:
            other = repartitions.running(transaction.connection)
            if other is not None:
                raise _busy(other)
            repartitions.begin(transaction, repartition, hit_ratio)
            transaction.note(interface.Kind.REPARTITION, str(repartition))

        await self._log.submit(begin)
        self._woken.set()
        return await self.get(repartition)

    async def cancel(self, repartition: int) -> Repartition:
        """Cancel further moves; a server that was being drained gets subscriptions again."""

        def end(transaction: Transaction) -> Repartition:
            found = repartitions.find(transaction.connection, repartition)
            if found.state not in ("open", "running"):
                raise Conflict(f"repartition {repartition} is already {found.state}")
            repartitions.finish(transaction, repartition, "cancelled")
            if found.kind == "drain":
                self._unmark(transaction, found.server)
            return found

        found = await self._log.submit(end)
        if found.kind == "drain" and found.server is not None:
            self._members.set_leaving(found.server, None)
        return await self.get(repartition)

    # -- one server -------------------------------------------------------------------------------------

    async def drain(self, server: str, *, rate: float = RATE) -> Repartition:
        """Move all subscriptions of a server to others, which the placement policy chooses."""
        self._find_server(server)
        await self._check_none_runs()
        if not {member.id for member in self._members.hosts()} - {server}:
            raise Conflict(f"no other server is ready to host the subscriptions of {server}")
        await self._check_not_bound_to(server)
        await self._mark(server, "draining")
        return await self._move_all(server, "drain", rate)

    async def replace(self, server: str, *, rate: float = RATE) -> Repartition:
        """Restore the subscriptions of a lost server on others, from the directory and the log."""
        member = self._find_server(server)
        await self._check_none_runs()
        if not self._is_alone():
            raise Conflict(
                "a server cannot be replaced with several dispatchers, because each would have to replay its "
                "log; start the server from its data folder or a backup, and drain it"
            )
        if self._members.state(member) != "away":
            raise Conflict(f"server {server} is online: drain it, or stop it first")
        if not self._members.hosts():
            raise Conflict(f"no other server is ready to host the subscriptions of {server}")
        await self._check_not_bound_to(server)
        await self._mark(server, "lost")
        return await self._move_all(server, "replace", rate)

    async def fill(self, server: str, *, rate: float = RATE) -> Repartition:
        """Move subscriptions to a server from all others that have more than the average."""
        member = self._find_server(server)
        await self._check_none_runs()
        if member.leaving == "draining":
            await self._log.submit(lambda transaction: self._unmark(transaction, server))
            self._members.set_leaving(server, None)
        hosts = self._members.hosts()
        if server not in {member.id for member in hosts}:
            raise Conflict(f"server {server} is not ready to host subscriptions")
        created = await self.open(rate=rate, kind="fill", server=server)
        share = sum(member.subscriptions for member in hosts) // len(hosts)
        above = {m.id: m.subscriptions - share for m in hosts if m.id != server and m.subscriptions > share}
        lacking = share - next(member.subscriptions for member in hosts if member.id == server)
        schemas = {topic.uid: topic.schema for topic in self._topics.all()}
        chosen = (await self._log.scanning(select_surplus, schemas, above))[: max(lacking, 0)]
        bindings = await self._bindings_of(chosen)
        allowed = [(one, server) for one in chosen if one not in bindings or bindings[one].allows(server)]
        await self.assign(created.id, allowed)
        return await self.start(created.id)

    async def forget(self, server: str) -> None:
        member = self._find_server(server)
        hosted = await self._log.reading(directory.count_on, server)
        if hosted:
            raise Conflict(f"server {server} hosts {hosted:,} subscriptions: drain it first")
        unfinished = await self._handover.count_unfinished(server)
        if unfinished:
            raise Conflict(f"{unfinished:,} migrations from {server} are not finished: wait for them")
        if self._members.state(member) != "away":
            raise Conflict(f"server {server} is online: stop it first")
        await self._registration.forget(server)

    async def _mark(self, server: str, state: Leaving) -> None:
        cursor = await self._registration.cursor(server)

        def mark(transaction: Transaction) -> None:
            servers.mark_leaving(transaction, server, state, cursor)
            transaction.note(interface.Kind.SERVER, server)

        await self._log.submit(mark)
        self._members.set_leaving(server, state)

    def _unmark(self, transaction: Transaction, server: str | None) -> None:
        servers.unmark_leaving(transaction, server)
        if server is not None:
            transaction.note(interface.Kind.SERVER, server)

    async def _move_all(self, server: str, kind: Kind, rate: float) -> Repartition:
        """Start a repartition of all subscriptions of a server; each step chooses its destinations."""
        created = await self.open(rate=rate, kind=kind, server=server)
        await self._log.submit(
            lambda transaction: repartitions.assign_all_of(transaction, created.id, server)
        )
        return await self.start(created.id)

    async def _check_none_runs(self) -> None:
        running = await self.running()
        if running is not None:
            raise _busy(running)

    def _check_servers(self, named: set[str]) -> None:
        known = {member.id: member.leaving for member in self._members}
        for server in sorted(named - {""}):
            if server not in known:
                listed = ", ".join(sorted(known)[:20]) or "none"
                raise InvalidInput(
                    f'server must be one of {listed}, got "{server[:80]}"; make a new plan',
                    pointer="/assignments",
                )
            if known[server] is not None:
                raise InvalidInput(
                    f"server {server} is {known[server]} and cannot host subscriptions; make a new plan",
                    pointer="/assignments",
                )

    async def _bindings_of(self, names: Sequence[str]) -> dict[str, Binding]:
        """Return the bindings of subscriptions to servers, without unbound ones."""
        if not self._bindings.all():
            return {}
        found = {}
        for name, uid in (await self._log.reading(directory.topics_of, names)).items():
            topic = self._topics.by_uid(uid)
            binding = None if topic is None else self._bindings.hosts_of(topic.path)
            if binding is not None:
                found[name] = binding
        return found

    async def _check_bindings(self, rows: Sequence[tuple[str, str]]) -> None:
        bindings = await self._bindings_of([subscription for subscription, _ in rows])
        for subscription, server in rows:
            binding = bindings.get(subscription)
            if server and binding is not None and not binding.allows(server):
                raise InvalidInput(
                    f'server of subscription "{subscription}" must be one of '
                    f'{", ".join(binding.servers or ())} (route "{binding.name}"), got {server}; '
                    "make a new plan, or change the route",
                    pointer=f"/assignments/{subscription}",
                )

    async def _check_not_bound_to(self, server: str) -> None:
        """Raise if a server hosts subscriptions that are bound to it alone."""
        hosts = {member.id for member in self._members.hosts()} - {server}
        for uid in await self._log.reading(directory.topics_on, server):
            topic = self._topics.by_uid(uid)
            binding = None if topic is None else self._bindings.hosts_of(topic.path)
            if topic is not None and binding is not None and not hosts.intersection(binding.servers or ()):
                raise Conflict(
                    f'route "{binding.name}" binds subscriptions to "{topic.path}" to '
                    f"{', '.join(binding.servers or ())}, and only {server} of these is ready: "
                    "bind them to other servers first"
                )

    def _find_server(self, server: str) -> Server:
        member = self._members.get(server)
        if member is None:
            raise NotFound(f'server "{server[:80]}" does not exist')
        return member

    # -- the steps --------------------------------------------------------------------------------------

    async def run(self) -> None:
        while True:
            # Cleared before the read, so that a start during it is not missed.
            self._woken.clear()
            try:
                running = await self.running()
            except EdnError as error:
                self.waiting = str(error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if running is None:
                self.waiting = None
                self._deferred.clear()
                with contextlib.suppress(TimeoutError):
                    # Another dispatcher may have started one, and died before this one heard of it.
                    async with asyncio.timeout(LOOK_SECONDS if self._log.shared else None):
                        await self._woken.wait()
                continue
            if not self._leads():
                self.waiting = None
                await asyncio.sleep(RETRY_SECONDS)
                continue
            began, published = time.monotonic(), self._pipeline.published
            try:
                processed = await self._step(running)
            except EdnError as error:
                if self.waiting != str(error):
                    logger.warning("repartition_waits", repartition=running.id, reason=str(error))
                self.waiting = str(error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if processed:
                self.waiting = None
                spent = time.monotonic() - began
                rest = RESTS * spent if self._pipeline.published != published else 0.0
                await asyncio.sleep(max(rest, processed / running.rate - spent, 0.0))
            else:
                await asyncio.sleep(RETRY_SECONDS)

    async def _step(self, running: Repartition) -> int:
        """Move one batch; return how many subscriptions were moved or skipped."""
        if self._backup_gate.active:
            raise Unavailable("moves wait for the end of a backup")
        if self._pipeline.lag() > LAG:
            raise Unavailable("moves wait for servers that lag")
        rows = await self._next_rows(running)
        if not rows:
            await self._finish(running)
            return 0
        return await self._move(running, rows)

    async def _next_rows(self, running: Repartition) -> Rows:
        if self._steps_of != running.id:
            self._steps.clear()
            self._steps_of = running.id
        if not self._steps:
            now = time.monotonic()
            deferred = {name for name, when in self._deferred.items() if when > now}
            limit = WINDOW + len(deferred)
            groups: dict[tuple[str, str], Rows] = defaultdict(list)
            for name, source, server in await self._log.scanning(repartitions.assignments, running.id, limit):
                if name not in deferred:
                    groups[source, server].append((name, server))
            for rows in groups.values():
                self._steps.extend(rows[start : start + BATCH] for start in range(0, len(rows), BATCH))
        return self._steps.popleft() if self._steps else []

    async def _finish(self, running: Repartition) -> None:
        if await self._log.reading(repartitions.has_assignments, running.id):
            return

        def finish(transaction: Transaction) -> bool:
            connection, server = transaction.connection, running.server
            found = repartitions.find(connection, running.id)
            if found.state != "running" or repartitions.has_assignments(connection, running.id):
                return False
            empties_server = running.kind in ("drain", "replace")
            if empties_server and server is not None and directory.count_on(connection, server):
                # They were moving to this server when the repartition began.
                repartitions.assign_all_of(transaction, running.id, server)
                return False
            repartitions.finish(transaction, running.id, "done")
            return True

        if not await self._log.submit(finish):
            return
        for member in self._members:
            if member.forwarder is not None:
                self._summaries.request(member)  # its summary still covers the subscriptions that left it
        ended = await self.get(running.id)
        logger.info("repartition_done", repartition=ended.id, moved=ended.moved, skipped=ended.skipped)
        self._advisor.reset()

    async def _move(self, running: Repartition, rows: Rows) -> int:
        lost = await self._log.reading(servers.lost)

        def also(transaction: Transaction, outcome: Outcome) -> None:
            if repartitions.find(transaction.connection, running.id).state != "running":
                raise Conflict(f"repartition {running.id} was cancelled")
            repartitions.progress(transaction, running.id, outcome.moved, outcome.skipped)

        try:
            async with self._backup_gate.step():
                outcome = await self._mover.move(dict(rows), lost=lost, also=also)
        except InvalidInput as error:
            # A server refuses one of the subscriptions: move them one by one to find it.
            if len(rows) > 1:
                return sum([await self._move(running, [row]) for row in rows])
            logger.warning("subscription_not_movable", subscription=rows[0][0], reason=str(error))
            outcome = Outcome(skipped=[rows[0][0]])
            await self._log.submit(lambda transaction: also(transaction, outcome))
        if outcome.deferred:
            self.waiting = f"{len(outcome.deferred)} subscriptions wait for the end of their last migration"
            self._deferred.update(dict.fromkeys(outcome.deferred, time.monotonic() + 4 * RETRY_SECONDS))
        return len(outcome.moved) + len(outcome.skipped)


def _check_open(found: Repartition) -> None:
    if found.state != "open":
        raise Conflict(f"repartition {found.id} must be open to add assignments, got {found.state}")


def _busy(running: Repartition) -> Conflict:
    return Conflict(f"repartition {running.id} ({running.kind}) is running: wait for it or cancel it")
