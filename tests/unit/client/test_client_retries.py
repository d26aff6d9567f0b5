"""When a request is sent again, when not, and what the caller is told in the end."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from edn import Client, ProblemError, Retries, UnreachableError

OK_EVENT = (202, {"accepted": 1, "ids": ["e1"]})
TOPIC = {"name": "t", "attributes": {}}


def refuse(kind: type[httpx.TransportError]) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        raise kind("as the test wants it", request=request)

    return answer


class Script:
    """A network that gives its answers one after the other; a further request is a failure of the test."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.pauses: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if callable(answer):
            response: httpx.Response = answer(request)
            return response
        status, body, *headers = answer
        return httpx.Response(status, json=body, headers=headers[0] if headers else {})

    def client(self, count: int = 3) -> Client:
        return Client(
            "http://edn.test",
            retries=Retries(count=count, first_seconds=0.5, longest_seconds=8.0, dice=lambda: 1.0),
            transport=httpx.MockTransport(self),
            sleep=self.pauses.append,
        )


BROKEN = refuse(httpx.ReadError)
NOBODY = refuse(httpx.ConnectError)
BUSY = (429, {"title": "Too many requests", "detail": "slow down"}, {"retry-after": "2"})
DOWN = (503, {"title": "Unavailable", "detail": "starting"})


@pytest.mark.parametrize(
    ("before", "pauses"),
    [
        ([], []),
        ([BUSY], [2.0]),  # as the network asks
        ([DOWN], [0.5]),  # the back-off: 0.5 × 2⁰ × (0.5 + 0.5 × 1.0)
        ([DOWN, DOWN, DOWN], [0.5, 1.0, 2.0]),
        ([NOBODY, BROKEN], [0.5, 1.0]),
        ([refuse(httpx.ReadTimeout)], [0.5]),
        ([BUSY, NOBODY, DOWN], [2.0, 1.0, 2.0]),
    ],
)
def test_a_publish_is_repeated_under_one_key_until_it_is_accepted(
    before: list[Any], pauses: list[float]
) -> None:
    script = Script(*before, OK_EVENT)
    with script.client() as client:
        assert client.publish("t", {"a": 1}) == "e1"
    assert script.pauses == pauses
    assert len({request.headers["idempotency-key"] for request in script.requests}) == 1
    assert len({request.content for request in script.requests}) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 409, 410, 413, 422, 500, 502])
def test_a_refusal_is_told_at_once(status: int) -> None:
    script = Script((status, {"title": "No", "detail": "because"}))
    with script.client() as client, pytest.raises(ProblemError) as caught:
        client.publish("t", {"a": 1})
    assert (caught.value.status, caught.value.title, caught.value.detail) == (status, "No", "because")
    assert script.pauses == []


def test_a_retry_after_beyond_the_patience_is_reported_instead_of_waited_for() -> None:
    script = Script((503, {"detail": "later"}, {"retry-after": "60"}))
    with script.client() as client, pytest.raises(ProblemError) as caught:
        client.topic("t")
    assert caught.value.retry_after == 60.0
    assert script.pauses == []


def test_the_last_refusal_is_raised_when_the_retries_are_used_up() -> None:
    script = Script(DOWN, DOWN, DOWN)
    with script.client(count=2) as client, pytest.raises(ProblemError, match="starting"):
        client.topic("t")
    assert script.pauses == [0.5, 1.0]


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (NOBODY, "connection failed"),
        (BROKEN, "connection broken"),
        (refuse(httpx.ReadTimeout), "no answer before the timeout"),
        (refuse(httpx.ConnectTimeout), "no connection before the timeout"),
    ],
)
def test_a_network_that_cannot_be_reached_is_named_with_its_address_and_the_reason(
    failure: Any, said: str
) -> None:
    script = Script(failure)
    with script.client(count=0) as client, pytest.raises(UnreachableError, match=said) as caught:
        client.topic("t")
    assert caught.value.url == "http://edn.test"


def test_a_delete_that_broke_and_then_finds_nothing_has_done_its_work() -> None:
    script = Script(BROKEN, (404, {"title": "Not found", "detail": "no such subscription"}))
    with script.client() as client:
        client.unsubscribe("s")
    assert len(script.requests) == 2


@pytest.mark.parametrize("before", [[], [NOBODY], [DOWN]])
def test_a_delete_that_never_arrived_and_finds_nothing_says_so(before: list[Any]) -> None:
    script = Script(*before, (404, {"title": "Not found", "detail": "no such subscription"}))
    with script.client() as client, pytest.raises(ProblemError, match="no such subscription"):
        client.unsubscribe("s")


@pytest.mark.parametrize(
    ("body", "title", "detail", "pointer", "index", "column"),
    [
        ({"title": "Invalid filter", "detail": "price is a number",
          "errors": [{"detail": "…", "pointer": "/filter/price"}]},
         "Invalid filter", "price is a number", "/filter/price", None, None),
        ({"title": "Invalid event", "detail": "d", "index": 3}, "Invalid event", "d", None, 3, None),
        ({"title": "Invalid filter", "detail": "d", "column": 7}, "Invalid filter", "d", None, None, 7),
        ("a proxy's page", "Unprocessable Entity", '"a proxy\'s page"', None, None, None),
        ({}, "Unprocessable Entity", "status 422", None, None, None),
    ],
)  # fmt: skip
def test_problems_carry_the_place(
    body: Any, title: str, detail: str, pointer: str | None, index: int | None, column: int | None
) -> None:
    with Script((422, body)).client() as client, pytest.raises(ProblemError) as caught:
        client.topic("t")
    problem = caught.value
    assert (problem.title, problem.detail) == (title, detail)
    assert (problem.pointer, problem.index, problem.column) == (pointer, index, column)
    for place in (pointer, index, column):
        assert place is None or str(place) in str(problem)


def test_publish_many_splits_keeps_the_keys_apart_and_reports_progress() -> None:
    def accept(request: httpx.Request) -> httpx.Response:
        key = request.headers["idempotency-key"]
        events = json.loads(request.content)
        ids = [f"{key}/{number}" for number in range(len(events))]
        return httpx.Response(202, json={"accepted": len(events), "ids": ids})

    progress: list[int] = []
    script = Script(accept, accept, accept)
    with script.client() as client:
        published = client.publish_many(
            "t", ({"a": number} for number in range(1100)), idempotency_key="k", on_accepted=progress.append
        )
    assert progress == [500, 500, 100]
    assert published.accepted == len(set(published.ids)) == 1100
    assert published.ids[:2] == ["k/0", "k/1"]
    sent = [event["a"] for request in script.requests for event in json.loads(request.content)]
    assert sent == list(range(1100))


def test_publish_many_counts_a_refused_event_in_the_whole_and_names_what_went_in_before() -> None:
    first = (202, {"accepted": 500, "ids": [f"e{number}" for number in range(500)]})
    script = Script(first, (422, {"title": "Invalid event", "detail": "bad", "index": 7}))
    with script.client() as client, pytest.raises(ProblemError) as caught:
        client.publish_many("t", ({"a": number} for number in range(600)))
    assert caught.value.index == 507
    assert len(caught.value.accepted) == 500


def test_publishing_nothing_asks_nothing() -> None:
    with Script().client() as client:
        assert client.publish_many("t", []).accepted == 0


def test_importing_the_client_loads_no_numerical_library() -> None:
    probe = (
        "import sys; from edn import Client, AsyncClient; "
        "heavy = {'numpy', 'numba', 'fastapi', 'rtree'} & set(sys.modules); "
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
