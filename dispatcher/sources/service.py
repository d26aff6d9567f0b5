"""All sources: create, list, delete, and run those of this dispatcher.

One dispatcher runs a source at a time. With a data folder that is the only one. With a database it is the one
that has claimed the source: it renews the claim (`LEASE_SECONDS`) and stops once another has it. Clocks
cannot break more than that: a message that two dispatchers consume becomes one event, by its id.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import msgspec
import structlog

from dispatcher.auth.caller import Caller
from dispatcher.auth.keys import Quota, Scope
from dispatcher.config import Settings
from dispatcher.sources.runner import Counters, Publish, SourceRunner, State
from dispatcher.store import sources as store
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from dispatcher.store.sources import Letter, Source
from dispatcher.subscriptions.topics import Topics
from edn.brokers.link import Link
from edn.brokers.messages import BrokerFailed
from edn.brokers.opening import forget
from edn.errors import Conflict, EdnError, InvalidInput, InvalidSink, NotFound, Overloaded, Unavailable
from edn.formats import broker_url
from edn.formats.broker_url import BrokerUrl
from edn.http import sink_policy
from edn.model import namespace
from edn.runtime.ownership import owned
from edn.runtime.tasks import Tasks

logger = structlog.get_logger()

#: seconds between two looks at the table, and seconds of a claim
LOOK_SECONDS = 2.0
LEASE_SECONDS = 8.0
#: sources of one tenant: each holds a connection and up to `prefetch` messages
MOST_SOURCES = 100
#: look-ups of names at a time: they block threads
LOOKUPS = 2


@dataclass(frozen=True, slots=True)
class Described:
    """A source with the state of its runner, if this dispatcher runs it."""

    source: Source
    runner: SourceRunner | None
    letters: int


@owned("loop")
class Sources:
    def __init__(
        self,
        settings: Settings,
        log: Log,
        topics: Topics,
        tasks: Tasks,
        publish: Publish,
    ) -> None:
        self._settings = settings
        self._log = log
        self._topics = topics
        self._tasks = tasks
        self._publish = publish
        self._runners: dict[str, tuple[SourceRunner, asyncio.Task[None]]] = {}
        #: messages of runners that have ended
        self._past = Counters()
        self._changed = asyncio.Event()
        self._lookups = asyncio.Semaphore(LOOKUPS)
        self._link = Link(
            self._resolve,
            settings.allow_loopback_sinks,
            settings.broker_ca_file,
            settings.sink_networks,
        )

    # -- requests ---------------------------------------------------------------------------------------

    async def create(self, who: Caller, *, id: str | None, topic: str, url: str) -> tuple[Described, bool]:
        """Creates a source; returns it and whether it is new: the same request again changes nothing."""
        self._topics.get(topic, who.tenant)
        parsed = self._parse(url)
        key = namespace.key_of(who.tenant, id or secrets.token_hex(8))
        source = Source(
            id=key,
            tenant=who.tenant,
            topic=topic,
            shown=broker_url.masked(url),
            consumer=f"edn-{secrets.token_hex(8)}",
            api_key=who.key,
            owner=who.name,
            quota=msgspec.json.encode(who.quota).decode(),
            created=self._log.estimate(),
        )

        whole = broker_url.write(parsed)

        def operation(transaction: Transaction) -> Source | None:
            found = store.find(transaction.connection, key)
            if found is not None:
                if found.topic != topic or store.open_url(transaction.connection, key) != whole:
                    name = namespace.public_id(key)[:80]
                    raise Conflict(f'source "{name}" exists with another topic or URL')
                return found
            if store.count(transaction.connection, who.tenant) >= MOST_SOURCES:
                raise Overloaded(f"a tenant must have at most {MOST_SOURCES} sources", retry_after=60)
            store.insert(transaction, source, whole)
            return None

        found = await self._log.submit(operation)
        if found is None:
            self._changed.set()
            return Described(source, None, 0), True
        return await self._describe(found), False

    async def all(self, tenant: str | None) -> list[Described]:
        """Returns the sources of a tenant, or of all."""
        found = await self._log.reading(store.all_sources)
        letters = await self._log.reading(store.count_letters)
        return [
            self._described(one, letters.get(one.id, 0))
            for one in found
            if tenant is None or one.tenant == tenant
        ]

    async def get(self, who: Caller, id: str) -> Described:
        return await self._describe(await self._find(who, id))

    async def delete(self, who: Caller, id: str) -> None:
        """Deletes a source, and what it has created at the broker if that can be reached."""
        source = await self._find(who, id)
        url = await self._read_url(source)

        def operation(transaction: Transaction) -> None:
            if not store.delete(transaction, source.id):
                raise _not_found(source.id)

        await self._log.submit(operation)
        await self._stop(source.id)
        if url is not None:
            self._tasks.spawn(self._forget(source, url), f"forget {source.id}")

    async def letters(self, who: Caller, id: str, limit: int, before: int | None) -> list[Letter]:
        """Returns dead letters, the newest first."""
        source = await self._find(who, id)
        return await self._log.reading(store.letters, source.id, limit, before)

    async def delete_letters(self, who: Caller, id: str) -> int:
        source = await self._find(who, id)
        return await self._log.submit(lambda transaction: store.delete_letters(transaction, source.id))

    async def _find(self, who: Caller, id: str) -> Source:
        # The operator names sources of tenants by their keys, as in listings.
        key = namespace.key_of(who.tenant, id) if not (who.is_operator and namespace.OWNED in id) else id
        found = await self._log.reading(store.find, key)
        if found is None:
            raise _not_found(key)
        return found

    async def _describe(self, source: Source) -> Described:
        letters = await self._log.reading(store.count_letters)
        return self._described(source, letters.get(source.id, 0))

    def _described(self, source: Source, letters: int) -> Described:
        found = self._runners.get(source.id)
        return Described(source, None if found is None else found[0], letters)

    def _parse(self, url: str) -> BrokerUrl:
        try:
            parsed = broker_url.parse(url, "source")
            development = self._settings.allow_loopback_sinks
            sink_policy.check_broker(
                parsed,
                "source",
                allow_loopback=development,
                allow_plain=development,
                networks=self._settings.sink_networks,
            )
        except InvalidSink as error:
            text = error.detail.replace("the sink's", "the source's").replace("the sink ", "the source ")
            raise InvalidInput(text, pointer="/url") from None
        except InvalidInput as error:
            error.pointer = "/url"
            raise
        return parsed

    async def _read_url(self, source: Source) -> BrokerUrl | None:
        """Returns the URL of a source; None if it was deleted or cannot be opened, which the log says."""
        try:
            url = await self._log.reading(store.open_url, source.id)
            return None if url is None else broker_url.parse(url, "source")
        except EdnError as error:
            logger.error("source_not_opened", source=source.id, reason=error.detail)
            return None

    def figures(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Returns the metrics of all sources."""
        states: dict[tuple[str, ...], float] = {(state,): 0 for state in get_args(State)}
        total = Counters()
        total += self._past
        for runner, _ in self._runners.values():
            states[runner.state,] += 1
            total += runner.counters
        outcomes = ("published", "rejected", "dropped")
        return {
            "sources": states,
            "source_messages_total": {(name,): getattr(total, name) for name in outcomes},
        }

    # -- running ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Runs the sources of this dispatcher until it is cancelled."""
        try:
            while True:
                self._changed.clear()
                try:
                    await self._look()
                except (Unavailable, Overloaded) as error:
                    logger.warning("sources_not_read", reason=error.detail)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._changed.wait()
        finally:
            await asyncio.gather(*map(self._stop, list(self._runners)))

    async def _look(self) -> None:
        """Starts and stops runners, so that they are those of the sources that this dispatcher has."""
        found = {source.id: source for source in await self._log.reading(store.all_sources)}
        mine = set(found)
        if found and self._settings.database is not None:
            owner = self._log.id
            mine = set(
                await self._log.submit(
                    lambda transaction: store.claim(transaction, list(found), owner, LEASE_SECONDS)
                )
            )
        for id, (runner, _) in list(self._runners.items()):
            if id not in mine or found[id].consumer != runner.source.consumer:
                await self._stop(id)
        for id, source in found.items():
            if id in mine and id not in self._runners:
                await self._start(source)

    async def _start(self, source: Source) -> None:
        url = await self._read_url(source)
        if url is None:
            return
        quota = msgspec.json.decode(source.quota, type=Quota)
        who = Caller(source.api_key, source.owner, source.tenant, frozenset({Scope.PUBLISH}), quota)
        runner = SourceRunner(source, url, who, self._link, self._publish, self._topics.get, self._bury)
        task = asyncio.get_running_loop().create_task(runner.run(), name=f"source {source.id}")
        self._runners[source.id] = (runner, task)

    async def _stop(self, id: str) -> None:
        found = self._runners.pop(id, None)
        if found is not None:
            found[1].cancel()
            await asyncio.gather(found[1], return_exceptions=True)
            self._past += found[0].counters

    async def _bury(self, source: str, letters: Sequence[Letter]) -> int:
        def operation(transaction: Transaction) -> int:
            if store.find(transaction.connection, source) is None:
                return 0
            return store.insert_letters(transaction, source, letters)

        return await self._log.submit(operation)

    async def _forget(self, source: Source, url: BrokerUrl) -> None:
        try:
            await forget(self._link, url, source.consumer)
        except BrokerFailed as failure:
            logger.warning(
                "source_left_at_broker", consumer=source.consumer, broker=source.shown, reason=failure.reason
            )

    async def _resolve(self, host: str) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        async with self._lookups:
            try:
                found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            except socket.gaierror as error:
                raise OSError(f"the name {host} does not resolve: {error.strerror}") from None
        return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _not_found(key: str) -> NotFound:
    return NotFound(f'source "{namespace.public_id(key)[:80]}" does not exist')
