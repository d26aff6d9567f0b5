"""Registers servers, hears their heartbeats, and forgets them. Event loop only."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable

import structlog

from dispatcher.routing.table import RoutingTable
from dispatcher.servers.pipeline import Pipeline
from dispatcher.servers.placement import Placing
from dispatcher.servers.registry import HEARTBEAT_SECONDS, Server, ServerRegistry, check_registration, hashed
from dispatcher.servers.summaries import Summaries
from dispatcher.store import change_feed, directory, servers
from dispatcher.store.change_feed import Kind
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from edn import protocol
from edn.errors import Conflict, NotFound, Unavailable
from edn.runtime.tasks import Tasks

logger = structlog.get_logger()


class Registration:
    def __init__(
        self,
        log: Log,
        table: RoutingTable,
        members: ServerRegistry,
        placing: Placing,
        pipeline: Pipeline,
        summaries: Summaries,
        tasks: Tasks,
        restore: Callable[[str, str, int], Awaitable[None]],
    ) -> None:
        """`restore` stores on a server that returns what its data folder may lack: (id, address, cursor)."""
        self._log = log
        self._table = table
        self._members = members
        self._placing = placing
        self._pipeline = pipeline
        self._summaries = summaries
        self._tasks = tasks
        self._restore = restore
        counts = log.load(directory.count_by_server)
        for name, url, key, epoch, registered in log.load(servers.all_servers):
            self._add(Server(name, url, key, epoch, registered, subscriptions=counts.get(name, 0)))

    def _add(self, member: Server) -> None:
        self._members.add(member)
        self._table.add(member.id)

    async def register(self, request: protocol.Register) -> protocol.Registered:
        """Start the stream of a server: at its cursor if this log knows it, else at its join."""
        check_registration(request)
        self._placing.check_registration(request)
        self._check_known(request)
        cursor = request.cursors.get(self._log.id)
        self._check_cursor(request.id, cursor)
        # From here on everything is routed to it, until its summary is known.
        self._table.add(request.id)
        known = self._members.get(request.id) is not None
        joined, now, start = await self._log.submit(
            functools.partial(_join, request=request, known=known, cursor=cursor)
        )
        if cursor is not None:
            await self._restore(request.id, request.url, cursor)
        # Not before: one that asks twice, because the first answer was late, is one server all the same.
        member = self._members.get(request.id)
        if member is None:
            member = Server(request.id, request.url, hashed(request.key), request.epoch, now)
            self._members.add(member)
        member.check_key(request.key)
        if member.task is not None:
            member.task.cancel()
        member.url, member.epoch, member.joined = request.url, request.epoch, joined
        self._placing.registered(member, request.location, request.distance)
        self._members.touch(member)
        member.forwarder = self._pipeline.forwarder(member, start, functools.partial(self._acked, member))
        member.task = self._tasks.spawn(member.forwarder.run(), f"forward to {member.id}")
        self._summaries.ask(member)
        logger.info("server_registered", server=member.id, url=member.url, cursor=cursor, join=joined)
        return protocol.Registered(self._log.id, self._log.incarnation, HEARTBEAT_SECONDS)

    def _check_known(self, request: protocol.Register) -> None:
        """Raise if the id is another server's, or was given up."""
        member = self._members.get(request.id)
        if member is None:
            return
        member.check_key(request.key)
        if member.leaving == "lost":
            raise Conflict(
                f"server {request.id} was given up for lost, and replaced: forget it, and start it with "
                "an empty data folder"
            )

    def _check_cursor(self, server: str, cursor: int | None) -> None:
        """Raise if the log does not hold what comes after it."""
        if cursor is not None and cursor > self._log.head:
            raise Unavailable(
                f"server {server} has read this log up to {cursor}, but it ends at {self._log.head}: "
                "the dispatcher's data folder is older than the network; restore the newer one"
            )
        if cursor is not None and cursor < self._log.floor:
            raise Conflict(
                f"server {server} has read up to {cursor}, the log begins after {self._log.floor}: the "
                "server's data folder is older than the network; restore the newer one"
            )

    def _acked(self, member: Server, ack: protocol.FrameAck) -> None:
        self._members.touch(member)
        if ack.shrinkable > 100 + member.subscriptions // 20:
            self._summaries.ask(member)

    def heartbeat(self, server: str, beat: protocol.Heartbeat) -> None:
        member = self._members.get(server)
        if member is None or member.forwarder is None or member.epoch != beat.epoch:
            raise NotFound(f'server "{server}" has not registered since this dispatcher started: register')
        member.check_key(beat.key)
        self._members.touch(member)
        member.backlog, member.cpu, member.notified = beat.backlog, beat.cpu, beat.notified
        member.suspect = beat.suspect

    def introduced(self, state: protocol.ServerState, now: int) -> None:
        """Know a server of another dispatcher; it gets all records from here on, once it registers."""
        if self._members.get(state.id) is None:
            self._add(Server(state.id, state.url, state.key, state.epoch, now))

    async def forget(self, server: str) -> None:
        """Remove a server that hosts nothing from the network; if it returns, it is a new one."""
        await self._log.submit(lambda transaction: servers.delete(transaction, server))
        member = self._members.get(server)
        if member is not None and member.task is not None:
            member.task.cancel()
        self._members.remove(server)
        self._table.remove(server)
        self._placing.forget_server(server)

    async def cursor(self, server: str) -> int:
        """Return the offset up to which a server has read the log, as far as is known."""
        member = self._members.get(server)
        if member is not None and member.forwarder is not None:
            return member.forwarder.acked
        noted = await self._log.reading(lambda connection: servers.cursor(connection, server))
        return max(noted, self._log.floor)


def introduce(transaction: Transaction, state: protocol.ServerState) -> bool:
    """Write down a server that another dispatcher knows, and return whether it is new here.

    From here on there may be records for it.
    """
    if servers.is_known(transaction.connection, state.id):
        return False
    servers.put(transaction, state.id, state.url, state.key, state.epoch)
    transaction.append_control(state.id, "join", incarnation=transaction.incarnation)
    change_feed.note(transaction, Kind.SERVER, state.id)
    return True


def _join(
    transaction: Transaction, request: protocol.Register, known: bool, cursor: int | None
) -> tuple[int, int, int]:
    """Write down a server: offset and time of its *join*, and the offset after which its stream starts."""
    first = None
    if not known:
        change_feed.note(transaction, Kind.SERVER, request.id)
    elif cursor is None:
        # Another dispatcher may have told of it; from there on there are records for it.
        first = servers.first_record(transaction.connection, request.id)
    servers.put(transaction, request.id, request.url, hashed(request.key), request.epoch)
    joined = transaction.append_control(request.id, "join", incarnation=transaction.incarnation)
    if cursor is None:
        cursor = (joined if first is None else first) - 1
    return joined, transaction.time, cursor
