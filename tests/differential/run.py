"""Sends a plan to a network of real processes and judges what its sink received."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.differential.judge import Verdict, judge
from tests.differential.plan import Plan, Step, Subscription
from tests.integration.scenario import settle
from tests.network import Network, Receiver

#: subscriptions of one request
_MANY = 40


def run(plan: Plan, folder: Path, *, servers: int = 3) -> Verdict:
    """One fresh network for one plan; an AssertionError says which request was refused."""
    with Receiver(folder) as receiver:
        network = Network(folder, servers)
        try:
            network.start()
            names: dict[str, str] = {}
            for step in plan.steps:
                _Sending(network, receiver, names).send(step)
            settle(network)
            return judge(plan, names, receiver.deliveries())
        except (AssertionError, httpx.HTTPError):
            print(network.report())
            raise
        finally:
            network.close()


class _Sending:
    def __init__(self, network: Network, receiver: Receiver, names: dict[str, str]) -> None:
        self._network, self._receiver, self._names = network, receiver, names
        self._http = network.http

    def send(self, step: Step) -> None:
        for topic, attributes in step.topics.items():
            _accepted(self._http.put(f"/v1/topics/{topic}", json={"attributes": attributes}))
        if step.cancel:
            settle(self._network)  # an event that was accepted before the end may be delivered or not
        for name in step.cancel:
            _accepted(self._http.delete(f"/v1/subscriptions/{name}"))
        for start in range(0, len(step.subscribe), _MANY):
            bodies = [self._body(one) for one in step.subscribe[start : start + _MANY]]
            _accepted(self._http.post("/v1/subscriptions", json=bodies))
        for one in step.change:
            kept = {key: part for key, part in self._body(one).items() if key in ("filter", "sink")}
            _accepted(self._http.put(f"/v1/subscriptions/{one.id}", json=kept))
        for post in step.posts:
            answer = self._http.post(
                f"/v1/topics/{post.topic}/events",
                content=post.body(),
                headers={"content-type": "application/json"},
            )
            _accepted(answer)
            self._names.update(zip(answer.json()["ids"], post.names, strict=True))

    def _body(self, one: Subscription) -> dict[str, Any]:
        body: dict[str, Any] = {"id": one.id, "topic": one.topic}
        body["sink"] = {"url": self._receiver.address(f"a{one.address}")}
        if one.sent is not None:
            body["filter"] = one.sent
        return body


def _accepted(answer: httpx.Response) -> None:
    assert answer.is_success, f"{answer.request.method} {answer.request.url}: {answer.text}\n{_sent(answer)}"


def _sent(answer: httpx.Response) -> str:
    return answer.request.content[:4000].decode(errors="replace")
