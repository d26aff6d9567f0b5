"""Sensor thresholds: one technician per hall, with limits for day and night, changed without a gap.

python examples/sensor_thresholds.py [URL of the network]
"""

from __future__ import annotations

import asyncio
import sys

from edn import AsyncClient
from edn.client.receiver import Notification, Receiver

DAY = {"hall": "north", "$any": [{"celsius": {"gt": 70}}, {"celsius": {"lt": 5}}, {"battery": {"lt": 0.1}}]}
NIGHT = {"hall": "north", "celsius": {"gt": 40}}


async def main(url: str) -> None:
    arrived: asyncio.Queue[Notification] = asyncio.Queue()
    async with AsyncClient(url) as client, Receiver(arrived.put) as receiver:
        await client.create_topic(
            "plant.sensors", {"sensor": "string", "hall": "string", "celsius": "number", "battery": "number"}
        )
        watch = await client.subscribe(
            "plant.sensors", DAY, url=receiver.url, recipient="technician", expires="PT10M"
        )
        await client.publish("plant.sensors", {"sensor": "n1", "hall": "north", "celsius": 45.0})
        await client.publish("plant.sensors", {"sensor": "n2", "hall": "north", "celsius": 71.5})
        await client.publish("plant.sensors", {"sensor": "s1", "hall": "south", "celsius": 99.0})
        await client.publish("plant.sensors", {"sensor": "n3", "hall": "north", "battery": 0.05})
        print("day:  ", await next_line(arrived), "and", await next_line(arrived))

        await client.change(watch.id, filter=NIGHT, url=receiver.url, recipient="technician", expires="PT10M")
        await client.publish("plant.sensors", {"sensor": "n1", "hall": "north", "celsius": 45.0})
        print("night:", await next_line(arrived))

        why = await client.explain_event("plant.sensors", {"hall": "north", "celsius": 20.0})
        print(f"a quiet sensor would be heard by {why['matched']}")
        await client.unsubscribe(watch.id)


async def next_line(arrived: asyncio.Queue[Notification]) -> str:
    return str((await arrived.get()).event.attributes["sensor"])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["http://127.0.0.1:8080"]))
