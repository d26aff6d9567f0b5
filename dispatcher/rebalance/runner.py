"""A repartition: which subscriptions shall go where, carried out little by little, whatever happens.

Theory of operation ------------------- A repartition and its assignments are rows beside the log (see
`store.repartitions`). It is *open* while assignments are added, then *running*: batches of them are moved
(see `mover`), each in one transaction with the records of the move and the end of its assignments, so that a
crash at any step leaves only what is still to be done. It is *done* when no assignment is left, or
*cancelled*: what has moved stays where it is. One runs at a time.

A plan (`apply`), a server that is emptied (`drain`), one that is lost (`replace`) and one that gets its share
(`fill`) are all repartitions; they differ in who chooses. A server that is being emptied gets no new
subscriptions; one that is lost is asked for nothing any more.

What is bound to servers by name (see `servers.bindings`) goes only there: a plan that wants it elsewhere is
refused, and so is emptying the last server that it may be on. Of a plan that was accepted before, what is
bound otherwise by the time of its move is skipped.

A step takes some subscriptions from one server to one other, so that not all servers are busy with it at the
same moment. Moving is throttled to `rate` subscriptions a second and, while events come, rests between its
steps; it waits while servers are behind. With several dispatchers only the one that carries out changes
moves, and only while all of them are there.

Event loop only.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

import structlog

from dispatcher.rebalance.advisor import RepartitionAdvisor
from dispatcher.rebalance.handover import Handover
from dispatcher.rebalance.mover import Mover, Outcome
from dispatcher.rebalance.selection import surplus
from dispatcher.servers.admission import Leadership
from dispatcher.servers.backup_gate import BackupGate
from dispatcher.servers.bindings import Bindings
from dispatcher.servers.pipeline import Pipeline
from dispatcher.servers.placement import Candidate, Placer
from dispatcher.servers.registration import Registration
from dispatcher.servers.registry import Leaving, Server, ServerRegistry
from dispatcher.servers.summaries import Summaries
from dispatcher.store import directory, repartitions, servers
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from dispatcher.store.repartitions import Kind, Preview, Repartition
from dispatcher.store.topic_rows import Binding
from dispatcher.subscriptions.topics import Topics
from edn.errors import Conflict, EdnError, InvalidInput, NotFound, Unavailable
from edn.model.filter import Filter

logger = structlog.get_logger()

#: subscriptions of one step: a small one delays a publish by less than its own time
BATCH = 25
#: assignments that steps are chosen from
WINDOW = 10_000
#: while events come, a step is followed by a rest of so many times what it took: publishers feel it less
RESTS = 16.0
#: moves a second, unless somebody says otherwise
RATE = 1000.0
#: records that a server may be behind before moving waits for it
LAG = 50_000
#: seconds until something that could not be moved is tried again
AGAIN = 0.5


#: subscriptions, and where each shall go: to the server of that name, or where placement would have it ("")
Rows = list[tuple[str, str]]


class RepartitionRunner:
    def __init__(
        self,
        log: Log,
        topics: Topics,
        members: ServerRegistry,
        registration: Registration,
        bindings: Bindings,
        placing: Placer,
        pipeline: Pipeline,
        summaries: Summaries,
        backup_gate: BackupGate,
        mover: Mover,
        handover: Handover,
        advisor: RepartitionAdvisor,
        leadership: Leadership,
    ) -> None:
        self._log = log
        self._topics = topics
        self._members = members
        self._registration = registration
        self._bindings = bindings
        self._placing = placing
        self._pipeline = pipeline
        self._summaries = summaries
        self._backup_gate = backup_gate
        self._mover = mover
        self._handover = handover
        self._advisor = advisor
        self._leadership = leadership
        self._woken = asyncio.Event()
        #: the next steps, and the repartition that they are of
        self._steps: deque[Rows] = deque()
        self._steps_of = 0
        #: subscriptions that cannot be moved yet, and when to try again
        self._later: dict[str, float] = {}
        #: why nothing moves at this moment
        self.waiting: str | None = None
        for server, state in self._log.load(servers.leaving):
            members.set_leaving(server, state)

    # -- reading ----------------------------------------------------------------------------------------

    async def get(self, repartition: int) -> Repartition:
        return await self._log.reading(lambda connection: repartitions.find(connection, repartition))

    async def newest(self, limit: int = 20) -> list[Repartition]:
        return await self._log.reading(lambda connection: repartitions.newest(connection, limit))

    async def running(self) -> Repartition | None:
        return await self._log.reading(repartitions.running)

    async def figures(self) -> dict[str, float]:
        """How good the partition of subscriptions is, and how much is being moved: for metrics."""
        running, ratio = await self.running(), self._advisor.describe()
        seen = {"hit_ratio": ratio["now"], "best_hit_ratio": ratio["best"]}
        return {
            **{name: value for name, value in seen.items() if value is not None},
            "repartition_proposed": float(self._advisor.proposal is not None),
            "repartition_left_subscriptions": running.left if running else 0,
            "unsettled_subscriptions": await self._handover.unsettled(),
        }

    async def preview(self, repartition: int) -> Preview:
        await self.get(repartition)
        names = [member.id for member in self._members]
        return await self._log.scanning(
            lambda connection: repartitions.preview(connection, repartition, names)
        )

    # -- making -----------------------------------------------------------------------------------------

    async def open(
        self,
        *,
        rate: float = RATE,
        expected_hit_ratio: float | None = None,
        kind: Kind = "apply",
        server: str | None = None,
    ) -> Repartition:
        """A new one, to which assignments can be added."""
        await self._check_none_runs()
        made = await self._log.submit(
            lambda transaction: repartitions.make(transaction, kind, server, rate, expected_hit_ratio)
        )
        return await self.get(made)

    async def assign(self, repartition: int, assignments: Iterable[tuple[str, str]]) -> Repartition:
        """Add where subscriptions shall go; raises if a server is not one of this network."""
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
            raise Conflict(f"repartition {repartition} is {found.state}: open a new one")
        self._check_servers(
            await self._log.reading(lambda connection: repartitions.destinations(connection, repartition))
        )
        hit_ratio = self._advisor.hit_ratio()

        def begin(transaction: Transaction) -> None:
            other = repartitions.running(transaction.connection)
            if other is not None:
                raise _busy(other)
            repartitions.begin(transaction, repartition, hit_ratio)

        await self._log.submit(begin)
        self._woken.set()
        return await self.get(repartition)

    async def cancel(self, repartition: int) -> Repartition:
        """No further moves; what has moved stays. A server that was being emptied hosts again."""

        def end(transaction: Transaction) -> Repartition:
            found = repartitions.find(transaction.connection, repartition)
            if found.state not in ("open", "running"):
                raise Conflict(f"repartition {repartition} is {found.state} already")
            repartitions.finish(transaction, repartition, "cancelled")
            if found.kind == "drain":
                servers.unmark_leaving(transaction, found.server)
            return found

        found = await self._log.submit(end)
        if found.kind == "drain" and found.server is not None:
            self._members.set_leaving(found.server, None)
        return await self.get(repartition)

    # -- of one server ----------------------------------------------------------------------------------

    async def drain(self, server: str, *, rate: float = RATE) -> Repartition:
        """Move everything away from a server, to where the placement policy would have it."""
        self._known(server)
        await self._check_none_runs()
        if not {member.id for member in self._members.hosts()} - {server}:
            raise Conflict(f"no other server is ready to take what {server} hosts")
        await self._check_not_bound_to(server)
        await self._mark(server, "draining")
        return await self._away(server, "drain", rate)

    async def replace(self, server: str, *, rate: float = RATE) -> Repartition:
        """Build what a lost server hosted anew on others, from the directory and the log."""
        member = self._known(server)
        await self._check_none_runs()
        if not self._leadership.alone:
            raise Conflict(
                "where there are several dispatchers a server cannot be replaced: each of them would have to "
                "tell what it had not read; start it from its data folder, or from a backup, and drain it"
            )
        if self._members.state(member) != "away":
            raise Conflict(f"server {server} is there: drain it, or stop it first")
        if not self._members.hosts():
            raise Conflict(f"no other server is ready to take what {server} hosted")
        await self._check_not_bound_to(server)
        await self._mark(server, "lost")
        return await self._away(server, "replace", rate)

    async def fill(self, server: str, *, rate: float = RATE) -> Repartition:
        """Give a server its share: from each of the others what is above the average then.

        One that was emptied hosts again.
        """
        member = self._known(server)
        await self._check_none_runs()
        if member.leaving == "draining":
            await self._log.submit(lambda transaction: servers.unmark_leaving(transaction, server))
            self._members.set_leaving(server, None)
        hosts = self._members.hosts()
        if server not in {member.id for member in hosts}:
            raise Conflict(f"server {server} is not ready to host subscriptions")
        made = await self.open(rate=rate, kind="fill", server=server)
        share = sum(member.subscriptions for member in hosts) // len(hosts)
        above = {m.id: m.subscriptions - share for m in hosts if m.id != server and m.subscriptions > share}
        lacking = share - next(member.subscriptions for member in hosts if member.id == server)
        schemas = {topic.uid: topic.schema for topic in self._topics.all()}

        chosen = await self._log.scanning(
            lambda connection: surplus(connection, schemas, above)[: max(lacking, 0)]
        )
        bindings = await self._bindings_of(chosen)
        await self.assign(made.id, [(name, server) for name in chosen if _allows(bindings.get(name), server)])
        return await self.start(made.id)

    async def forget(self, server: str) -> None:
        """Take a server that hosts nothing any more out of the network."""
        member = self._known(server)
        hosted, unsettled = await self._hosted(server), await self._handover.unsettled(server)
        if hosted:
            raise Conflict(f"server {server} hosts {hosted:,} subscriptions: drain it first")
        if unsettled:
            raise Conflict(f"{unsettled:,} subscriptions that left {server} are not settled yet")
        if self._members.state(member) != "away":
            raise Conflict(f"server {server} still runs: stop it first")
        await self._registration.forget(server)

    async def _mark(self, server: str, state: Leaving) -> None:
        cursor = await self._registration.cursor(server)

        await self._log.submit(lambda transaction: servers.mark_leaving(transaction, server, state, cursor))
        self._members.set_leaving(server, state)

    async def _away(self, server: str, kind: Kind, rate: float) -> Repartition:
        """A repartition of everything that a server hosts; where to is chosen when it is moved."""
        made = await self.open(rate=rate, kind=kind, server=server)
        await self._log.submit(lambda transaction: repartitions.assign_all_of(transaction, made.id, server))
        return await self.start(made.id)

    # -- checks -----------------------------------------------------------------------------------------

    async def _check_none_runs(self) -> None:
        running = await self.running()
        if running is not None:
            raise _busy(running)

    def _check_servers(self, named: set[str]) -> None:
        there = {member.id: member.leaving for member in self._members}
        for server in sorted(named - {""}):
            if server not in there:
                listed = ", ".join(sorted(there)[:20]) or "none"
                raise InvalidInput(
                    f'no server "{server[:80]}" in this network (there are {listed}): plan anew',
                    pointer="/assignments",
                )
            if there[server] is not None:
                raise InvalidInput(
                    f"server {server} is {there[server]}: it takes no subscriptions; plan anew without it",
                    pointer="/assignments",
                )

    async def _bindings_of(self, names: Sequence[str]) -> dict[str, Binding]:
        """Return the bindings that say where subscriptions may be, of those that have one."""
        if not self._bindings.all():
            return {}
        found = {}
        for name, uid in (
            await self._log.reading(lambda connection: directory.topics_of(connection, names))
        ).items():
            topic = self._topics.by_uid(uid)
            binding = None if topic is None else self._bindings.hosts_of(topic.path)
            if binding is not None:
                found[name] = binding
        return found

    async def _check_bindings(self, rows: Sequence[tuple[str, str]]) -> None:
        bindings = await self._bindings_of([subscription for subscription, _ in rows])
        for subscription, server in rows:
            binding = bindings.get(subscription)
            if server and binding is not None and server not in (binding.servers or ()):
                raise InvalidInput(
                    f'subscription "{subscription}" may not go to {server}: the route "{binding.name}" '
                    f"binds it to {', '.join(binding.servers or ())}; plan anew, or bind it otherwise",
                    pointer=f"/assignments/{subscription}",
                )

    async def _check_not_bound_to(self, server: str) -> None:
        """Raise if something that a server hosts may be nowhere else."""
        hosts = {member.id for member in self._members.hosts()} - {server}
        for uid in await self._log.reading(lambda connection: directory.topics_on(connection, server)):
            topic = self._topics.by_uid(uid)
            binding = None if topic is None else self._bindings.hosts_of(topic.path)
            if topic is not None and binding is not None and not hosts.intersection(binding.servers or ()):
                raise Conflict(
                    f'subscriptions to "{topic.path}" are bound by the route "{binding.name}" to '
                    f"{', '.join(binding.servers or ())}, and none but {server} of these takes any: "
                    "bind them to others first"
                )

    def _known(self, server: str) -> Server:
        member = self._members.get(server)
        if member is None:
            raise NotFound(f'no server "{server[:80]}"')
        return member

    async def _hosted(self, server: str) -> int:
        return await self._log.reading(lambda connection: directory.count_on(connection, server))

    # -- carrying out -----------------------------------------------------------------------------------

    async def run(self) -> None:
        while True:
            # Cleared before the read: a start during it is not missed.
            self._woken.clear()
            running = await self.running()
            if running is None:
                self.waiting = None
                self._later.clear()
                await self._woken.wait()
                continue
            began, published = time.monotonic(), self._pipeline.published
            try:
                dealt = await self._step(running)
            except EdnError as error:
                if self.waiting != str(error):
                    logger.warning("a repartition waits", repartition=running.id, reason=str(error))
                self.waiting = str(error)
                await asyncio.sleep(AGAIN)
                continue
            if dealt:
                self.waiting = None
                spent = time.monotonic() - began
                rest = RESTS * spent if self._pipeline.published != published else 0.0
                await asyncio.sleep(max(rest, dealt / running.rate - spent, 0.0))
            else:
                await asyncio.sleep(AGAIN)

    async def _step(self, running: Repartition) -> int:
        """One batch; how many of it are dealt with."""
        if self._backup_gate.active:
            raise Unavailable("a backup is being made: moving goes on after it")
        if self._pipeline.lag() > LAG:
            raise Unavailable("servers are behind: moving waits for them")
        rows = await self._due(running)
        if not rows:
            await self._finish(running)
            return 0
        async with self._leadership.changing(complete=True):
            return await self._move(running, rows)

    async def _due(self, running: Repartition) -> Rows:
        """The next step: from one server to one other, so that no more than two work for it at a time."""
        if self._steps_of != running.id:
            self._steps.clear()
            self._steps_of = running.id
        if not self._steps:
            now = time.monotonic()
            later = {name for name, when in self._later.items() if when > now}

            left = await self._log.scanning(
                lambda connection: repartitions.left(connection, running.id, WINDOW + len(later))
            )
            groups: dict[tuple[str, str], Rows] = defaultdict(list)
            for name, source, server in left:
                if name not in later:
                    groups[source, server].append((name, server))
            for rows in groups.values():
                self._steps.extend(rows[start : start + BATCH] for start in range(0, len(rows), BATCH))
        return self._steps.popleft() if self._steps else []

    async def _finish(self, running: Repartition) -> None:
        """End a repartition that has nothing due, unless something is left to be moved."""
        if await self._log.reading(lambda connection: repartitions.has_assignments(connection, running.id)):
            return

        def finish(transaction: Transaction) -> bool:
            connection, server = transaction.connection, running.server
            found = repartitions.find(connection, running.id)
            if found.state != "running" or repartitions.has_assignments(connection, running.id):
                return False
            emptied = server is not None and running.kind in ("drain", "replace")
            if emptied and directory.count_on(connection, str(server)):
                # They were on their way there when it began.
                repartitions.assign_all_of(transaction, running.id, str(server))
                return False
            repartitions.finish(transaction, running.id, "done")
            return True

        if not await self._log.submit(finish):
            return
        for member in self._members:
            if member.forwarder is not None:
                self._summaries.request(member)  # what has left it is in its last one
        ended = await self.get(running.id)
        logger.info("a repartition is done", repartition=ended.id, moved=ended.moved, skipped=ended.skipped)
        self._advisor.done()

    async def _move(self, running: Repartition, rows: Sequence[tuple[str, str]]) -> int:
        lost = await self._log.reading(servers.lost)

        def also(transaction: Transaction, outcome: Outcome) -> None:
            if repartitions.find(transaction.connection, running.id).state != "running":
                raise Conflict("it was cancelled meanwhile")
            repartitions.progress(transaction, running.id, outcome.moved, outcome.skipped)

        bindings = await self._bindings_of([name for name, _ in rows])
        bound = [name for name, server in rows if server and not _allows(bindings.get(name), server)]
        if bound:
            await self._log.submit(lambda transaction: also(transaction, Outcome(skipped=bound)))
            rows = [(name, server) for name, server in rows if name not in bound]
        wanted = {name: server or await self._place(name) for name, server in rows}
        try:
            async with self._backup_gate.step():
                outcome = await self._mover.move(wanted, lost=lost, also=also)
        except InvalidInput as error:
            # A server refuses one of them for good; which, is found out one by one.
            if len(rows) > 1:
                return len(bound) + sum([await self._move(running, [row]) for row in rows])
            logger.warning("a subscription cannot be moved", subscription=rows[0][0], reason=str(error))
            outcome = Outcome(skipped=[rows[0][0]])
            await self._log.submit(lambda transaction: also(transaction, outcome))
        if outcome.deferred:
            self.waiting = f"{len(outcome.deferred)} subscriptions are not settled since their last move"
            self._later.update(dict.fromkeys(outcome.deferred, time.monotonic() + 4 * AGAIN))
        return len(outcome.moved) + len(outcome.skipped) + len(bound)

    async def _place(self, subscription: str) -> str:
        """Where the placement policy would have it, of the servers that take any."""
        found = await self._log.reading(lambda connection: directory.find(connection, subscription))
        topic = None if found is None else self._topics.by_uid(found.topic)
        if found is None or topic is None:
            return ""
        rects = Filter.parse(found.filter).bind(topic.schema).rects()
        binding = self._bindings.hosts_of(topic.path)
        return self._placing.choose(Candidate(found.topic, rects, found.location, binding=binding))


def _check_open(found: Repartition) -> None:
    if found.state != "open":
        raise Conflict(f"repartition {found.id} is {found.state}: nothing can be added to it")


def _allows(binding: Binding | None, server: str) -> bool:
    return binding is None or binding.servers is None or server in binding.servers


def _busy(running: Repartition) -> Conflict:
    return Conflict(f"repartition {running.id} ({running.kind}) is running: wait for its end, or cancel it")
