"""Delivery is fair: hanging attempts of one tenant, or of one host, keep nobody else's from starting."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, ClassVar

import pytest
from deliverykit import EVENT, eventually, notifying
from serverkit import Kit, activate, item, segment, topic

from edn.model.namespace import key_of
from edn_server.config import Settings
from edn_server.ingest.apply_frame import Applied
from edn_server.sinks.base import Answer, Message


class ControlledSink:
    """Hangs on URLs that name a dead host, and answers all others at once."""

    started: ClassVar[list[str]] = []

    def __init__(self, _: Settings) -> None:
        self.started.clear()

    async def send(self, message: Message) -> Answer:
        self.started.append(message.url)
        if "//dead" in message.url:
            await asyncio.Event().wait()
        return Answer(204)

    async def close(self) -> None:
        """Nothing to close."""


def begin(kit: Kit, sinks: dict[str, list[str]]) -> None:
    """Subscribe the sinks of each tenant to a topic of its own, and publish an event to each."""
    names = []
    for uid, (tenant, urls) in enumerate(sinks.items(), 1):
        items = [item(key_of(tenant, f"s{index}"), url=url, tenant=tenant) for index, url in enumerate(urls)]
        kit.store(*items, info=topic(uid, tenant=tenant))
        names += [(one.id, 1) for one in items]
    kit.frame(0, 1, activate(1, *names))
    publish(kit, 1, topics=len(sinks))


def publish(kit: Kit, after: int, *, topics: int) -> Applied:
    """Publish an event to each topic."""
    segments = [segment([(after + uid, EVENT)], uid=uid) for uid in range(1, topics + 1)]
    return kit.frame(after, after + topics, segments=segments)


@pytest.mark.parametrize("hosts", ["one dead host", "a host each"])
def test_with_600_hanging_attempts_of_one_tenant_another_tenants_start(kit: Kit, hosts: str) -> None:
    dead = [f"http://dead{n if hosts == 'a host each' else ''}:1/{n}" for n in range(600)]
    quiet = [f"http://healthy{n}:1/" for n in range(5)]
    begin(kit, {"noisy": dead, "quiet": quiet})

    async def main() -> None:
        async with asyncio.timeout(60), notifying(kit, {"http": ControlledSink}, concurrent_posts=512) as one:
            started = ControlledSink.started
            # None of the noisy tenant's attempts ends, ever.
            await eventually(lambda: set(quiet) <= set(started))
            await eventually(lambda: one._slots.running("noisy") == 96)  # its limit for new addresses
            # Later events start at once, too.
            applied = await asyncio.to_thread(publish, kit, 3, topics=2)
            one.announce(applied.rows, applied.addresses)
            await eventually(lambda: all(started.count(url) == 2 for url in quiet))
            assert one._slots.running("noisy") == 96

    asyncio.run(main())


def test_a_healthy_address_is_not_starved_by_its_own_tenants_dead_ones(kit: Kit) -> None:
    healthy = "http://healthy:1/"
    begin(kit, {"": [healthy]})

    async def main() -> None:
        async with asyncio.timeout(60), notifying(kit, {"http": ControlledSink}, concurrent_posts=512) as one:
            started = ControlledSink.started
            await one.idle()  # it has succeeded once
            dead = [f"d{n}" for n in range(600)]
            await asyncio.to_thread(kit.store, *(item(name, url=f"http://dead:1/{name}") for name in dead))
            control = activate(3, *((name, 1) for name in dead))
            applied = await asyncio.to_thread(kit.frame, 2, 4, control, events=[(4, EVENT)])
            one.announce([row for row in applied.rows if "dead" in row.address], ())
            await eventually(lambda: one._slots.running("") == 96)
            one.announce([row for row in applied.rows if "dead" not in row.address], ())
            await eventually(lambda: started.count(healthy) == 2)

    asyncio.run(main())


def test_rows_of_a_quiet_tenant_are_read_between_those_of_a_noisy_one(kit: Kit) -> None:
    """One thread reads and composes for all: nobody waits there behind hundreds of another's."""

    async def main() -> None:
        order: list[str] = []
        first = threading.Event()

        def read(_: Any, name: str) -> None:
            first.wait(30)
            order.append(name)

        async with asyncio.timeout(60), notifying(kit) as one:
            noisy = [f"noisy//http://dead{n}:1/" for n in range(200)]
            reads = [asyncio.create_task(one._read(address, read, "noisy")) for address in noisy]
            await asyncio.sleep(0)
            reads += [
                asyncio.create_task(one._read(f"quiet//http://healthy{n}:1/", read, "quiet"))
                for n in range(5)
            ]
            await asyncio.sleep(0)
            first.set()
            await asyncio.gather(*reads)
        # Some of the noisy ones were begun before; from then on both take turns.
        assert order.index("quiet") <= 3
        assert order[:20].count("quiet") == 5

    asyncio.run(main())
