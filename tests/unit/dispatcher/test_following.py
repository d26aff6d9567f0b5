"""What is told of an event's journey: a number that was given away names nobody else's subscription."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dispatcher.observe.event_trace import EventTrace
from dispatcher.servers.log_tail import Tail
from dispatcher.store import directory
from dispatcher.store.directory import Subscription
from dispatcher.store.interface import Transaction
from dispatcher.store.sqlite.log import SqliteLog
from dispatcher.subscriptions.topics import Topic
from edn import protocol
from edn.model.schema import Schema


def test_a_journey_names_subscriptions_of_the_events_own_topic(tmp_path: Path) -> None:
    keys = {"acme,mine": 1, "acme,mine+1": 1, "acme,other-topic": 2, "evil,secret-id": 3}

    def subscribe(transaction: Transaction) -> None:
        for id, topic in keys.items():
            row = Subscription(id, 1, "app", topic, None, "https://h/", None, None, "s1", 1)
            directory.insert(transaction.connection, row, frozenset())

    async def send(server: str, path: str, message: protocol.TraceQuery) -> bytes:
        found = [protocol.TracedRecipient(key, []) for key in (*keys, "acme,ended", "")]
        return protocol.encode(protocol.EventTrace(5, found))

    async def scenario() -> list[str]:
        log = SqliteLog(tmp_path, on_commit=lambda records: None)
        log.start()
        try:
            await log.submit(subscribe)
            calls: Any = SimpleNamespace(send=send)
            topic = Topic(1, "acme/orders", 1, Schema.parse({"n": "number"}), "scan", 0)
            shown = await EventTrace(log, Tail(head=log.head, limit_bytes=0), calls)._server("s1", topic, 7)
            return [one.subscription for one in shown.matches]
        finally:
            await log.stop()

    assert asyncio.run(scenario()) == ["mine", "mine", "", "", "", ""]
