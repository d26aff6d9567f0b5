"""The Locust file: publishers of single events and of batches over REST and SOAP, and subscribers.

`EDN_LOAD_URL` is the network, `EDN_LOAD_SINK` the sink of the subscriptions, `EDN_LOAD_PLAN` the file with
the phases. At the beginning of a phase, the shape sets link and subscriptions.
"""

from __future__ import annotations

import itertools
import os
import time
import uuid
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import gevent
import httpx
import numpy as np
from locust import FastHttpUser, LoadTestShape, constant_throughput, task

from edn.client import Client, NewSubscription
from load.market import BATCH, TOPIC, filters, quotes
from load.plan import Phase, at, read

URL = os.environ["EDN_LOAD_URL"]
SINK = os.environ["EDN_LOAD_SINK"]
PLAN = read(Path(os.environ["EDN_LOAD_PLAN"]))
#: file with the time at which the load began: Locust needs seconds to start
BEGAN = Path(os.environ["EDN_LOAD_BEGAN"])
LAG_LIMIT = int(os.environ.get("EDN_LOAD_LAG_LIMIT", "20000"))
EVENTS = f"/v1/topics/{TOPIC}/events"
ENVELOPES = {
    "1.1": "http://schemas.xmlsoap.org/soap/envelope/",
    "1.2": "http://www.w3.org/2003/05/soap-envelope",
}
MEDIA_TYPES = {"1.1": "text/xml", "1.2": "application/soap+xml"}


class Traffic:
    """The current phase, and events that were drawn in advance, because drawing would slow Locust."""

    def __init__(self) -> None:
        rng = np.random.default_rng(int(os.environ.get("EDN_LOAD_SEED", "1")))
        self._events = {crowded: quotes(rng, 2000, crowded=crowded) for crowded in (False, True)}
        self._envelopes: dict[tuple[str, bool, int], bytes] = {}
        self._turn = itertools.count()
        self.phase = PLAN[0]
        self.subscribed = PLAN[0].subscriptions

    def one(self) -> dict[str, Any]:
        events = self._events[self.phase.crowded]
        return events[next(self._turn) % len(events)]

    def envelope(self, version: str) -> bytes:
        """Returns one event as a SOAP message, cached."""
        crowded = self.phase.crowded
        place = next(self._turn) % len(self._events[crowded])
        known = self._envelopes.get((version, crowded, place))
        if known is None:
            attributes = "".join(
                f"<{name}>{escape(str(value))}</{name}>"
                for name, value in self._events[crowded][place].items()
            )
            known = self._envelopes[version, crowded, place] = (
                f'<s:Envelope xmlns:s="{ENVELOPES[version]}" xmlns:e="urn:edn:soap"><s:Body><e:Publish>'
                f"<e:Topic>{TOPIC}</e:Topic><e:event>{attributes}</e:event></e:Publish></s:Body></s:Envelope>"
            ).encode()
        return known

    def many(self) -> list[dict[str, Any]]:
        events = self._events[self.phase.crowded]
        begin = next(self._turn) * 37 % (len(events) - BATCH)
        return events[begin : begin + BATCH]


TRAFFIC = Traffic()


class Shape(LoadTestShape):
    """Follows the plan."""

    def tick(self) -> tuple[int, float] | None:
        if not BEGAN.exists():
            BEGAN.write_text(str(time.time()))
        now = at(PLAN, self.get_run_time())
        if now is None:
            return None
        phase, users = now
        if phase is not TRAFFIC.phase:
            TRAFFIC.phase = phase
            gevent.spawn(change, phase)
        return users, 50.0


def change(phase: Phase) -> None:
    """Sets link and subscriptions of a phase, in its own greenlet."""
    limits = {"bytes_per_second": phase.bytes_per_second, "lag_limit": LAG_LIMIT}
    httpx.put(f"{URL}/v1/link", json=limits, timeout=60.0, trust_env=False).raise_for_status()
    missing = phase.subscriptions - TRAFFIC.subscribed
    if missing > 0:
        TRAFFIC.subscribed = phase.subscriptions
        wanted = filters(np.random.default_rng(missing), missing)
        with Client(URL, timeout=60.0) as client:
            client.subscribe_many(NewSubscription(topic=TOPIC, filter=one, url=SINK) for one in wanted)


def send(client: Any, form: str) -> None:
    """Publishes in one of the forms of the plan."""
    match form:
        case "REST single":
            client.post(EVENTS, json=TRAFFIC.one(), name="publish 1")
        case "REST batch":
            client.post(EVENTS, json=TRAFFIC.many(), name=f"publish {BATCH}")
        case _:
            version = form.removeprefix("SOAP ")
            client.post(
                "/soap",
                data=TRAFFIC.envelope(version),
                headers={"content-type": MEDIA_TYPES[version], "soapaction": '"urn:edn:soap/Publish"'},
                name=f"publish {form}",
            )


class SinglePublisher(FastHttpUser):
    """Publishes one event per request, as fast as answers arrive."""

    weight = 4

    @task
    def publish(self) -> None:
        send(self.client, TRAFFIC.phase.form or "REST single")


class BatchPublisher(FastHttpUser):
    """Publishes many events per request."""

    weight = 2

    @task
    def publish(self) -> None:
        send(self.client, TRAFFIC.phase.form or "REST batch")


class Subscriber(FastHttpUser):
    """Subscribes and unsubscribes, so that summaries change during the run."""

    weight = 1
    wait_time = constant_throughput(10)
    rng = np.random.default_rng()

    def on_start(self) -> None:
        self.mine: list[str] = []

    @task
    def churn(self) -> None:
        if len(self.mine) < 20 or self.rng.random() < 0.5:
            body: dict[str, Any] = {
                "id": str(uuid.uuid4()),
                "topic": TOPIC,
                "filter": filters(self.rng, 1)[0],
                "sink": {"url": SINK},
                "expires": "PT1H",
            }
            with self.client.post(
                "/v1/subscriptions", json=body, name="subscribe", catch_response=True
            ) as answer:
                if answer.status_code == 201:
                    self.mine.append(body["id"])
        else:
            id = self.mine.pop(int(self.rng.integers(len(self.mine))))
            self.client.delete(f"/v1/subscriptions/{id}", name="unsubscribe")
