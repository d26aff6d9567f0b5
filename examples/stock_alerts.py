"""Stock alerts: each investor is notified of the moves in their filter, and of no others.

python examples/stock_alerts.py [URL of the network]
"""

from __future__ import annotations

import asyncio
import sys

from edn import AsyncClient, NewSubscription
from edn.client.receiver import Notification, Receiver

#: investor → filter
FILTERS = {
    "ann": 'symbol == "GE" and price > 30',
    "ben": 'symbol in ("KO", "PEP") and change <= -2.5',
    "cleo": 'venue prefix "NY" and volume >= 100000',
}
QUOTES = [
    {"symbol": "GE", "venue": "NYSE", "price": 29.5, "change": -0.3, "volume": 4_000},
    {"symbol": "GE", "venue": "NYSE", "price": 31.2, "change": 5.8, "volume": 250_000},
    {"symbol": "KO", "venue": "NYSE", "price": 55.0, "change": -3.1, "volume": 9_000},
    {"symbol": "MSFT", "venue": "NASDAQ", "price": 330.0, "change": 0.4, "volume": 700_000},
]
#: matches of all quotes
ALERTS = 3


async def main(url: str) -> None:
    arrived: asyncio.Queue[Notification] = asyncio.Queue()
    async with AsyncClient(url) as client, Receiver(arrived.put) as receiver:
        names = {"symbol": "string", "venue": "string"}
        await client.create_topic(
            "quotes", {**names, "price": "number", "change": "number", "volume": "integer"}
        )
        made = await client.subscribe_many(
            NewSubscription(topic="quotes", filter=filter, url=receiver.url, recipient=who, expires="PT10M")
            for who, filter in FILTERS.items()
        )
        await client.publish_many("quotes", QUOTES)
        left = ALERTS
        while left:
            alert = await arrived.get()
            quote = alert.event.attributes
            for match in alert.matches:
                print(f"{match.recipient}: {quote['symbol']} at {quote['price']} ({quote['change']:+} %)")
                left -= 1
        for subscription in made:
            await client.unsubscribe(subscription.id)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["http://127.0.0.1:8080"]))
