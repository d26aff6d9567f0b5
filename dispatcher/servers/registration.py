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
from dispatcher.store import directory, servers
from dispatcher.store.changes import ServerRow
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Kind, Transaction
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
    #: returns the URLs of all dispatchers; empty for a single one
    _dispatchers: Callable[[], list[str]]

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
        joined, now, start = await self._log.submit(functools.partial(_join, request=request, cursor=cursor))
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
        return protocol.Registered(
            self._log.id,
            self._log.incarnation,
            HEARTBEAT_SECONDS,
            shared=self._log.shared,
            dispatchers=self._dispatchers(),
        )

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

    def heartbeat(self, server: str, beat: protocol.Heartbeat) -> list[str]:
        """Note that a server is alive; return the URLs of all dispatchers."""
        found = self._registry.get(server)
        if found is None or found.forwarder is None or found.epoch != beat.epoch:
            raise NotFound(f'server "{server}" has not registered since the dispatcher started; register it')
        found.check_key(beat.key)
        self._registry.touch(found)
        found.backlog, found.cpu, found.notified = beat.backlog, beat.cpu, beat.notified
        found.suspect = beat.suspect
        return self._dispatchers()

    def add_known(self, row: ServerRow) -> None:
        """Add a server that registered with another dispatcher; its stream starts when it registers here."""
        if self._registry.get(row[0]) is None:
            self._add(Server(*row))

    async def forget(self, server: str) -> None:
        """Remove a server without subscriptions from the network."""

        def operation(transaction: Transaction) -> None:
            servers.delete(transaction, server)
            transaction.note(Kind.SERVER, server)

        await self._log.submit(operation)
        self.drop(server)

    def drop(self, server: str) -> None:
        """Forget a server that was removed from the network."""
        if self._registry.get(server) is None:
            return
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


def _join(transaction: Transaction, request: protocol.Register, cursor: int | None) -> tuple[int, int, int]:
    """Store a server; return offset and time of its *join*, and the offset after which its stream starts."""
    connection = transaction.connection
    key, first = servers.key_of(connection, request.id), None
    if key is not None and key != hashed(request.key):
        raise Conflict(f'server id "{request.id}" belongs to another server; choose another id')
    servers.put(transaction, request.id, request.url, hashed(request.key), request.epoch)
    if key is None:
        # From now on, every log may have records for it.
        transaction.note(Kind.SERVER, request.id)
        joined = transaction.append_control(request.id, "join")
    else:
        if cursor is None:
            # The server may be known from another dispatcher; then the log has had records for it since.
            first = servers.first_record(connection, request.id)
        joined = transaction.append_to(transaction.own, request.id, "join")
    if cursor is None:
        cursor = (joined if first is None else first) - 1
    return joined, transaction.time, cursor
