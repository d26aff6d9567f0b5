"""Sequences of calls along the links of the OpenAPI document, drawn by schemathesis, on a running network.

Each step takes ids and names from an answer before it. Besides what every single answer must be, what was
made at any door must be there at all of them, and what has ended at none.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.errors import FlakyStrategyDefinition
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    use_after_free,
)

from dispatcher.api.openapi import LINKS
from tests.hostile.requests import ATTRIBUTES
from tests.hostile.test_openapi import NO_HTTP
from tests.network import Hook, Network

SERVERS = 1
#: a generated request, and its answer
Case = Any
Response = Any
TOPICS = ("stocks", "stocks.nyse", "shop")
CONTEXT = {"ce.source": "string", "ce.type": "string", "ce.subject": "string"}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    use_after_free,
]
#: A machine that stands still for seconds makes a server look absent: so many calls may be delayed by that.
PATIENCE = 3
EXPIRIES = ("PT1H", "P1D")
#: what changes the network itself, or answers without end, is not among them
LINKED = r"^/(v1/(topics|subscriptions|keys|dead-letters)|cloudevents/|v1/servers$|v1/servers/\{id\}/summary)"
FILTERS: list[Any] = [None, "price > 3", {"symbol": "GE"}, {"$not": {"ce.type": "sold"}}]
EXPRESSIONS: list[Any] = [
    [],
    [{"exact": {"type": "sold"}}],
    [{"not": {"prefix": {"source": "/shops/"}}}, {"urn:edn:filter": "price > 3"}],
]


def steer(case: Case, hook: Hook) -> None:
    """Most drawn requests name no topic that is there and no address that may be called; now and then one is
    made to, so that sequences get anywhere. What else was drawn stays as it is. The same request is always
    steered alike."""
    chance = random.Random(f"{case.operation.label} {case.body!r}")
    if case.operation.method == "put" and case.path == "/v1/topics/{name}":
        if case.path_parameters["name"] not in TOPICS:
            case.path_parameters["name"] = chance.choice(TOPICS)
        if isinstance(case.body, dict) and chance.random() < 0.8:
            case.body = {"attributes": {**ATTRIBUTES, **CONTEXT}}
    elif case.path == "/v1/topics/{name}/events" and case.operation.method == "post":
        if chance.random() < 0.7:
            case.body = [{"price": chance.random() * 9, "symbol": chance.choice(["GE", "KO"])}]
    elif isinstance(case.body, dict) and chance.random() < 0.8:
        sink = hook.url(f"/{chance.choice('ab')}")
        if case.path.startswith("/v1/subscriptions"):
            if "topic" in case.body:
                case.body["topic"] = chance.choice(TOPICS)
            if "filter" in case.body:
                case.body["filter"] = chance.choice(FILTERS)
            if case.body.get("sink") is not None:
                case.body["sink"] = {"url": sink, "format": chance.choice(["json", "cloudevents-batch"])}
            if case.body.get("expires") is not None:
                case.body["expires"] = chance.choice(EXPIRIES)
            case.body.pop("location", None)
            case.body.pop("from", None)
        elif case.path.startswith("/cloudevents/"):
            case.body |= {"sink": sink, "protocol": "HTTP", "filters": chance.choice(EXPRESSIONS)}
            for name in ("id", "source", "types", "sinkcredential", "protocolsettings"):
                case.body.pop(name, None)
            case.body["config"] = {"topic": chance.choice(TOPICS)} if case.operation.method == "post" else {}


class Known:
    """Which subscriptions there are, and were, by what the calls at all doors were answered."""

    def __init__(self) -> None:
        #: id → topic
        self.living: dict[str, str] = {}
        self.ended: set[str] = set()

    def check(self, case: Case, status: int) -> None:
        id = (case.path_parameters or {}).get("id")
        if "/subscriptions/{id}" not in case.path:
            return
        if id in self.living:
            assert status != 404, f"{case.operation.label}: {id} is there"
        elif id in self.ended:
            assert status in (400, 404, 413, 415, 422), f"{case.operation.label}: {id} has ended"

    def learn(self, case: Case, answer: Any) -> None:
        """From what was done."""
        method, path, parameters = case.operation.method, case.path, case.path_parameters or {}
        if method == "post" and path in ("/v1/subscriptions", "/cloudevents/subscriptions"):
            for one in answer.get("subscriptions", [answer]):
                self.living[one["id"]] = one["topic"] if "topic" in one else one["config"]["topic"]
                self.ended.discard(one["id"])
        elif method == "delete" and path == "/v1/subscriptions":
            self._end(answer["ids"])
        elif method == "delete" and path == "/v1/topics/{name}":
            self.end_all(parameters["name"])
        elif method == "delete" and "/subscriptions/{id}" in path:
            self._end([parameters["id"]])
        if isinstance(case.body, dict | list) and not _lasting(case.body):
            # It may expire any moment: nothing is said of it any more.
            for one in {parameters.get("id"), *_ids(answer)} & self.living.keys():
                del self.living[one]

    def end_all(self, topic: str) -> None:
        self._end([id for id, one in self.living.items() if one == topic])

    def _end(self, ids: list[str]) -> None:
        for id in ids:
            self.living.pop(id, None)
            self.ended.add(id)


def _ids(answer: Any) -> set[str]:
    found = answer.get("subscriptions", [answer]) if isinstance(answer, dict) else []
    return {one["id"] for one in found if isinstance(one, dict) and "id" in one}


def _lasting(body: Any) -> bool:
    """Whether what is asked for lasts longer than the test."""
    if isinstance(body, list):
        return all(_lasting(one) for one in body)
    given = {**body, **(body.get("config") or {})} if isinstance(body, dict) else {}
    return given.get("expires") in (None, *EXPIRIES)


def explore(
    network: Network, hook: Hook, *, rounds: int, scenarios: int, steps: int
) -> Counter[tuple[str, bool]]:
    """Draws and calls; how often each operation was called, and whether it did what it was asked.

    What is drawn is chance: after so many rounds there are as many more as it takes to have had a
    subscription made at each door, and half of what follows from that; five times as many at the most.

    Hypothesis wants the same draws to lead to the same choices, and a running network keeps no such promise:
    a round ends where it notices that. What is wrong with an answer is kept all the same.
    """
    whole = schemathesis.openapi.from_url(f"{network.url}/openapi.json")
    schema = whole.include(path_regex=LINKED).exclude(method="GET", path="/v1/subscriptions/{id}/events")
    wrong: list[Exception] = []
    delayed: list[str] = []
    called: Counter[tuple[str, bool]] = Counter()
    known = Known()

    class Workflow(schema.as_state_machine()):  # type: ignore[misc]  # made at run time
        def setup(self) -> None:
            for topic in TOPICS:
                network.http.delete(f"/v1/topics/{topic}?cascade=true")
                known.end_all(topic)
                network.http.put(f"/v1/topics/{topic}", json={"attributes": {**ATTRIBUTES, **CONTEXT}})

        def before_call(self, case: Case) -> None:
            steer(case, hook)

        def call(self, case: Case, **given: Any) -> Response:
            """As a client does that takes "not now, but in two seconds" for an answer, and nothing else."""
            response = super().call(case, **given)
            if response.status_code == 503 and "retry-after" in response.headers:
                delayed.append(f"{case.operation.label}: {response.content!r}")
                assert len(delayed) <= PATIENCE, delayed
                time.sleep(float(response.headers["retry-after"][0]))
                response = super().call(case, **given)
            return response

        def validate_response(self, response: Response, case: Case, *_: Any, **__: Any) -> None:
            if response.content == NO_HTTP:
                return
            done = response.status_code < 300
            called[case.operation.label, done] += 1
            try:
                case.validate_response(response, checks=CHECKS, recorder=self.recorder)
                known.check(case, response.status_code)
            except Exception as error:
                wrong.append(error)
                raise
            if done:
                known.learn(case, response.json() if response.content else None)

    given = settings(
        max_examples=scenarios,
        stateful_step_count=steps,
        deadline=None,
        phases=[Phase.generate],
        verbosity=Verbosity.quiet,
        database=None,
        # Where CI is set Hypothesis draws the same each time, and so would every round.
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )
    for done in range(5 * rounds):
        if done >= rounds and not missing(called):
            break
        with contextlib.suppress(FlakyStrategyDefinition):
            Workflow.run(settings=given)
        if wrong:
            raise wrong[0]
    return called


def missing(called: Counter[tuple[str, bool]]) -> set[str]:
    """What has yet to be done before this says anything."""
    done = {label for label, taken in called if taken}
    makers = {"POST /v1/subscriptions", "POST /cloudevents/subscriptions"}
    # What follows from an answer was reached, and worked, in many ways.
    targets = {f"{method} {path}" for links in LINKS.values() for method, path, _ in links}
    few = len(targets & done) < len(targets) // 2
    return makers - done | (targets - done if few else set())


def check(called: Counter[tuple[str, bool]], least: int) -> None:
    print(f"{called.total()} calls, {sum(n for (_, done), n in called.items() if done)} of them done")
    assert called.total() >= least
    assert not missing(called), called


def test_sequences_of_calls_are_answered_as_documented(network: Network, hook: Hook) -> None:
    check(explore(network, hook, rounds=5, scenarios=5, steps=8), 60)


@pytest.mark.slow
def test_many_long_sequences_of_calls_are_answered_as_documented(network: Network, hook: Hook) -> None:
    check(explore(network, hook, rounds=20, scenarios=5, steps=15), 1000)


def test_after_all_those_sequences_the_processes_live(network: Network) -> None:
    assert all(process.alive() for process in network.processes())
    network.await_servers("ready", "s1")
