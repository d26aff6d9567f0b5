"""Auction watch: notifies bidders who are outbid, and of auctions that end soon, old and new.

Lots are available for a day, so later subscribers still get them, once and in order.

python examples/auction_watch.py [URL of the network]
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from edn import AsyncClient
from edn.client.receiver import Notification, Receiver

DAY = 86_400


async def main(url: str) -> None:
    arrived: asyncio.Queue[Notification] = asyncio.Queue()
    now = datetime.now(UTC)
    soon = now + timedelta(hours=1)
    async with AsyncClient(url) as client, Receiver(arrived.put) as receiver:
        lot = {"lot": "integer", "kind": "string", "bid": "number", "bidder": "string", "ends": "time"}
        await client.create_topic("auctions", lot, availability=DAY)
        # Published before the first subscription.
        lamp = {"lot": 7, "kind": "lamp", "bid": 40, "ends": now + timedelta(minutes=30)}
        chair = {"lot": 8, "kind": "chair", "bid": 90, "ends": now + timedelta(days=3)}
        await client.publish_many("auctions", [lamp, chair])

        ending = await client.subscribe(
            "auctions",
            {"kind": ["lamp", "vase"], "ends": {"lt": soon.isoformat()}, "bid": {"lte": 50}},
            url=receiver.url,
            recipient="lamps that end soon",
            expires="PT10M",
        )
        print(await next_line(arrived))
        outbid = await client.subscribe(
            "auctions",
            'lot == 8 and bid > 100 and not bidder == "dora"',
            url=receiver.url,
            recipient="dora was outbid",
            expires="PT10M",
            since="now",
        )
        await client.publish("auctions", {**chair, "bid": 100, "bidder": "dora"})
        await client.publish("auctions", {**chair, "bid": 110, "bidder": "emil"})
        print(await next_line(arrived))
        for subscription in (ending, outbid):
            await client.unsubscribe(subscription.id)


async def next_line(arrived: asyncio.Queue[Notification]) -> str:
    notification = await arrived.get()
    lot = notification.event.attributes
    return f"{notification.matches[0].recipient}: lot {lot['lot']}, {lot['kind']}, {lot['bid']:g}"


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["http://127.0.0.1:8080"]))
