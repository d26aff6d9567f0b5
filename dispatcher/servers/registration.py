"""Registers and removes servers, and receives their heartbeats."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from dispatcher.routing.table import RoutingTable
from dispatcher.servers.pipeline import Pipeline
from dispatcher.servers.placement import Placer
from dispatcher.servers.registry import HEARTBEAT_SECONDS, Server, ServerRegistry, check_registration, hashed
from dispatcher.servers.summaries import Summaries
from dispatcher.store import change_feed, directory, servers
from dispatcher.store.change_feed import Kind
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from edn import protocol
from edn.errors import Conflict, NotFound, Unavailable
from edn.runtime.ownership import owned
from edn.runtime.tasks import Tasks

logger = structlog.get_logger()


@owned("loop")
@dataclass(frozen=True, eq=False)
class Registration:
    _log: Log
    _table: RoutingTable
    _registry: ServerRegistry
    _placer: Placer
    _pipeline: Pipeline
    _summaries: Summaries
    _tasks: Tasks
    #: stores subscriptions that a returning server's data folder may lack: (id, url, cursor)
    _restore: Callable[[str, str, int], Awaitable[None]]

    def __post_init__(self) -> None:
        counts = self._log.load(directory.count_by_server)
        for name, url, key, epoch, registered in self._log.load(servers.all_servers):
            self._add(Server(name, url, key, epoch, registered, subscriptions=counts.get(name, 0)))

    def _add(self, server: Server) -> None:
        self._registry.add(server)
        self._table.add(server.id)

    async def register(self, request: protocol.Register) -> protocol.Registered:
        """Start the stream of a server: after its cursor, or without one at its *join* record."""
        check_registration(request)
        self._placer.check_registration(request)
        self._check_known(request)
        cursor = request.cursors.get(self._log.id)
        self._check_cursor(request.id, cursor)
        # All events are routed to it until its summary is known.
        self._table.add(request.id)
        known = self._registry.get(request.id) is not None
        joined, now, start = await self._log.submit(
            functools.partial(_join, request=request, known=known, cursor=cursor)
        )
        if cursor is not None:
            await self._restore(request.id, request.url, cursor)
        # Looked up after the waits: a server may register twice because the first answer was late.
        found = self._registry.get(request.id)
        if found is None:
            found = Server(request.id, request.url, hashed(request.key), request.epoch, now)
            self._registry.add(found)
        found.check_key(request.key)
        if found.task is not None:
            found.task.cancel()
        found.url, found.epoch, found.joined = request.url, request.epoch, joined
        self._placer.register(found, request.location, request.distance)
        self._registry.touch(found)
        found.forwarder = self._pipeline.new_forwarder(found, start, functools.partial(self._acked, found))
        found.task = self._tasks.spawn(found.forwarder.run(), f"forward to {found.id}")
        self._summaries.request(found)
        logger.info("server_registered", server=found.id, url=found.url, cursor=cursor, join=joined)
        return protocol.Registered(self._log.id, self._log.incarnation, HEARTBEAT_SECONDS)

    def _check_known(self, request: protocol.Register) -> None:
        """Raise `Conflict` if the id belongs to another server, or to one that was replaced."""
        found = self._registry.get(request.id)
        if found is None:
            return
        found.check_key(request.key)
        if found.leaving == "lost":
            raise Conflict(
                f"server {request.id} was replaced as lost; remove it, and start it with an empty data folder"
            )

    def _check_cursor(self, server: str, cursor: int | None) -> None:
        """Raise unless the log contains every record after the cursor."""
        if cursor is not None and cursor > self._log.head:
            raise Unavailable(
                f"server {server} has read this log up to offset {cursor}, but the log ends at "
                f"{self._log.head}: the dispatcher's data folder is too old; restore a newer one"
            )
        if cursor is not None and cursor < self._log.floor:
            raise Conflict(
                f"server {server} has read this log up to offset {cursor}, but the log begins after "
                f"{self._log.floor}: the server's data folder is too old; restore a newer one"
            )

    def _acked(self, found: Server, ack: protocol.FrameAck) -> None:
        self._registry.touch(found)
        if ack.shrinkable > 100 + found.subscriptions // 20:
            self._summaries.request(found)

    def heartbeat(self, server: str, beat: protocol.Heartbeat) -> None:
        found = self._registry.get(server)
        if found is None or found.forwarder is None or found.epoch != beat.epoch:
            raise NotFound(f'server "{server}" has not registered since the dispatcher started; register it')
        found.check_key(beat.key)
        self._registry.touch(found)
        found.backlog, found.cpu, found.notified = beat.backlog, beat.cpu, beat.notified
        found.suspect = beat.suspect

    def add_remote(self, state: protocol.ServerState, now: int) -> None:
        """Add a server that registered with another dispatcher; its stream starts when it registers here."""
        if self._registry.get(state.id) is None:
            self._add(Server(state.id, state.url, state.key, state.epoch, now))

    async def forget(self, server: str) -> None:
        """Remove a server without subscriptions from the network."""
        await self._log.submit(lambda transaction: servers.delete(transaction, server))
        found = self._registry.get(server)
        if found is not None and found.task is not None:
            found.task.cancel()
        self._registry.remove(server)
        self._table.remove(server)
        self._placer.forget_server(server)

    async def cursor(self, server: str) -> int:
        """Return the last known cursor of a server."""
        found = self._registry.get(server)
        if found is not None and found.forwarder is not None:
            return found.forwarder.acked
        noted = await self._log.reading(lambda connection: servers.cursor(connection, server))
        return max(noted, self._log.floor)


def introduce(transaction: Transaction, state: protocol.ServerState) -> bool:
    """Store a server that registered with another dispatcher; return whether it is new here.

    The log may have records for it from now on.
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
    """Store a server; return offset and time of its *join*, and the offset after which its stream starts."""
    first = None
    if not known:
        change_feed.note(transaction, Kind.SERVER, request.id)
    elif cursor is None:
        # The server may be known from another dispatcher; then the log has had records for it since.
        first = servers.first_record(transaction.connection, request.id)
    servers.put(transaction, request.id, request.url, hashed(request.key), request.epoch)
    joined = transaction.append_control(request.id, "join", incarnation=transaction.incarnation)
    if cursor is None:
        cursor = (joined if first is None else first) - 1
    return joined, transaction.time, cursor
