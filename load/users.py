"""What the load consists of: publishers of single events and of batches, subscribers that come and go.

Locust runs this file. `EDN_LOAD_SINK` is the address that the subscriptions notify.
"""

from __future__ import annotations

import os
import random
import uuid
from typing import Any

from locust import FastHttpUser, constant_throughput, task

from load.market import BATCH, TOPIC, quote, random_filter

SINK = os.environ["EDN_LOAD_SINK"]
EVENTS = f"/v1/topics/{TOPIC}/events"


class SinglePublisher(FastHttpUser):
    """One event a request, as fast as the answers come."""

    weight = 4
    dice = random.Random()

    @task
    def publish(self) -> None:
        self.client.post(EVENTS, json=quote(self.dice), name="publish 1")


class BatchPublisher(FastHttpUser):
    """Many events a request."""

    weight = 2
    dice = random.Random()

    @task
    def publish(self) -> None:
        self.client.post(EVENTS, json=[quote(self.dice) for _ in range(BATCH)], name=f"publish {BATCH}")


class Subscriber(FastHttpUser):
    """Subscribes and unsubscribes, so that summaries widen and shrink while events flow."""

    weight = 1
    wait_time = constant_throughput(10)
    dice = random.Random()

    def on_start(self) -> None:
        self.mine: list[str] = []

    @task
    def churn(self) -> None:
        if len(self.mine) < 20 or self.dice.random() < 0.5:
            body: dict[str, Any] = {
                "id": str(uuid.UUID(int=self.dice.getrandbits(128))),
                "topic": TOPIC,
                "filter": random_filter(self.dice),
                "sink": {"url": SINK},
                "expires": "PT1H",
            }
            with self.client.post(
                "/v1/subscriptions", json=body, name="subscribe", catch_response=True
            ) as answer:
                if answer.status_code == 201:
                    self.mine.append(body["id"])
        else:
            id = self.mine.pop(self.dice.randrange(len(self.mine)))
            self.client.delete(f"/v1/subscriptions/{id}", name="unsubscribe")
