"""A dispatcher's inside with servers that store whatever they are given, and do nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dispatcher.config import Settings
from dispatcher.servers.registry import Server
from dispatcher.services import Services
from dispatcher.store import directory
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import read_records
from dispatcher.store.records import ControlRecord
from dispatcher.subscriptions.installer import SubscriptionInstaller
from dispatcher.subscriptions.service import SubscriptionRequest, Subscriptions
from dispatcher.subscriptions.subtree import Subtree
from dispatcher.subscriptions.subtree_sync import SubtreeSync
from dispatcher.subscriptions.topics import Topics
from edn import protocol
from edn.errors import Unavailable
from edn.model import namespace
from edn.model.filter import Filter


def make_ready(network: Services, *servers: str) -> None:
    """Servers that are there, as far as anybody can tell."""
    for name in servers:
        member = Server(name, "http://127.0.0.1:1", "key", 1, 0)
        # What a forwarder is asked for by those who look at servers, and no more.
        member.forwarder = SimpleNamespace(  # type: ignore[assignment]
            acked=0,
            failure=None,
            position=1 << 60,
            forwarded=0,
            matched=0,
            useful=0,
            wake=lambda: None,
        )
        member.seen, member.fetching = float("inf"), True
        network.members.add(member)
        network.table.add(name)


@dataclass
class Servers:
    """Take the place of `ServerClient.store`."""

    away: set[str] = field(default_factory=set)
    seq: int = 0
    items: list[tuple[str, protocol.StoreItem]] = field(default_factory=list)

    async def store(self, server: str, request: protocol.Store) -> protocol.Stored:
        if server in self.away:
            raise Unavailable(f"server {server} is offline", retry_after=2)
        self.seq += 1
        self.items += [(server, item) for item in request.items]
        return protocol.Stored(1, self.seq)


class Core:
    """Topics, subscriptions and what joins them, without a door."""

    def __init__(self, folder: Path, servers: tuple[str, ...] = ("s1", "s2")) -> None:
        self.network = Services(Settings(data=folder, secret="s" * 16, placement_seed=1))
        self.log = self.network.log
        self.servers = Servers()
        self.network.calls.store = self.servers.store  # type: ignore[method-assign]  # the stub of this kit
        make_ready(self.network, *servers)
        self.topics = Topics(self.log)
        parts = self.network
        self.installer = SubscriptionInstaller(
            self.log,
            parts.placing,
            parts.bindings,
            parts.calls,
            parts.summaries,
            parts.tasks,
            lambda _: None,
        )
        self.subscriptions = Subscriptions(self.log, self.topics, parts.placing, self.installer)
        self.subtree_sync = SubtreeSync(
            self.log,
            self.topics,
            self.subscriptions,
            self.installer,
            parts.summaries,
        )

    async def subscribe(self, id: str, name: str, filter: Any = None, **more: Any) -> Subscription:
        parsed = Filter.parse(filter)
        place = Subtree(name) if namespace.is_subtree(name) else self.topics.get(name)
        bound = None if isinstance(place, Subtree) else parsed.bind(place.schema)
        wanted = SubscriptionRequest(
            id=id,
            owner="o",
            topic=place,
            filter=parsed,
            bound=bound,
            **{"url": "http://h/", "recipient": None, "expires": None, **more},
        )
        [(made, _)] = await self.subscriptions.create([wanted])
        return made

    async def put(self, name: str, *attributes: str, **more: Any) -> None:
        """Of numbers, and one more, so that there is any."""
        await self.subtree_sync.put(name, dict.fromkeys(["own", *attributes], "number"), None, **more)

    def members(self, id: str) -> dict[str, Subscription]:
        """By the names of their topics."""
        found = {}
        for one in directory.members(self.log._reader, id):
            topic = self.topics.by_uid(one.topic)
            assert topic is not None, f"{one.id} has outlived its topic"
            found[topic.name] = one
        return found

    def controls(self, after: int = 0) -> list[tuple[str, str, list[str]]]:
        """Kind, server and ids of the records beyond an offset."""
        return [
            (
                record.control.kind,
                record.server,
                [
                    *record.control.ids,
                    *(id for id, _ in record.control.versions),
                    *(id for id, _ in record.control.expiries),
                ],
            )
            for record in read_records(self.log._reader, after, 1 << 30)
            if isinstance(record, ControlRecord)
        ]


@contextlib.asynccontextmanager
async def core(folder: Path, *servers: str) -> AsyncIterator[Core]:
    made = Core(folder, servers or ("s1", "s2"))
    made.log.start()
    try:
        yield made
    finally:
        await made.network.stop()
