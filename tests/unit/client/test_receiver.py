"""The receiver takes notifications once, over a real socket."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from standardwebhooks import Webhook
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from edn.client import receiver as receiving
from edn.client.receiver import Notification, Receiver, ReceiverMiddleware

BODY: dict[str, Any] = {
    "notifications": [
        {
            "topic": "stocks",
            "event": {"id": f"e{number}", "time": "2026-01-01T00:00:00Z", "attributes": {"price": number}},
            "matches": [{"subscription": "s", "recipient": None}],
        }
        for number in range(2)
    ]
}


def exchange(*requests: tuple[str, dict[str, str], Any]) -> tuple[list[int], list[Notification], Receiver]:
    """Send requests to a receiver of its own; statuses, notifications and the receiver."""

    async def run() -> tuple[list[int], list[Notification], Receiver]:
        arrived: list[Notification] = []
        async with Receiver(arrived.append) as receiver, httpx.AsyncClient(trust_env=False) as http:
            statuses = []
            for method, headers, body in requests:
                content = {"content": body} if isinstance(body, bytes) else {"json": body}
                answer = await http.request(method, receiver.url, headers=headers, **content)
                statuses.append(answer.status_code)
            return statuses, arrived, receiver

    return asyncio.run(run())


# Constants: the processes that run tests side by side must collect the same ones.
SECRET = "whsec_" + base64.b64encode(b"a secret of these tests, 1").decode()
OTHER = "whsec_" + base64.b64encode(b"a secret of these tests, 2").decode()
CONTENT = json.dumps(BODY).encode()


def signed(
    secret: str = SECRET, id: str = "w1", content: bytes = CONTENT, at: datetime | None = None
) -> dict[str, str]:
    """Return the headers that an independent library makes."""
    at = at or datetime.now(UTC)
    return {
        "webhook-id": id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret).sign(id, at, content.decode()),
    }


def post(app: Any, *posts: tuple[dict[str, str], bytes], path: str = "/") -> list[httpx.Response]:
    """Post to an application in this process, one after the other."""

    async def run() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://receiver") as http:
            return [await http.post(path, headers=headers, content=content) for headers, content in posts]

    return asyncio.run(run())


@pytest.mark.parametrize("secret", [SECRET, [SECRET, OTHER], (OTHER, SECRET)])
def test_a_signed_post_is_accepted_with_each_secret(secret: Any) -> None:
    arrived: list[Notification] = []
    (answer,) = post(Receiver(arrived.append, secret=secret), (signed(), CONTENT))
    assert answer.status_code == 204
    assert len(arrived) == 2


def test_a_post_that_is_signed_with_two_secrets_is_accepted_by_the_holder_of_one() -> None:
    headers = signed()
    headers["webhook-signature"] = f"{signed(OTHER)['webhook-signature']} {headers['webhook-signature']}"
    (answer,) = post(Receiver(lambda _: None, secret=SECRET), (headers, CONTENT))
    assert answer.status_code == 204


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("headers", "content", "status", "said"),
    [
        (lambda: signed(OTHER), CONTENT, 401, "fits none of the receiver's secrets"),
        (lambda: signed(), CONTENT + b" ", 401, "fits none of the receiver's secrets"),
        (lambda: signed() | {"webhook-id": "w2"}, CONTENT, 401, "fits none of the receiver's secrets"),
        (lambda: signed(at=datetime.now(UTC) - HOUR), CONTENT, 401, "more than 5 minutes old"),
        (lambda: signed(at=datetime.now(UTC) + HOUR), CONTENT, 401, "in the future"),
        (lambda: signed() | {"webhook-timestamp": "soon"}, CONTENT, 401, "seconds since 1970"),
        (lambda: signed() | {"webhook-signature": "garbage"}, CONTENT, 401, "must be v1,<base64>"),
        (lambda: signed() | {"webhook-signature": "v1,x"}, CONTENT, 401, "must be v1,<base64>"),
        (lambda: {"webhook-id": "w1"}, CONTENT, 401, "are required"),
        (dict, CONTENT, 401, "are required"),
        (lambda: signed(content=b"[]"), b"[]", 400, "the body must be"),
        (lambda: signed(), b"\xff\xfe", 400, "must be UTF-8"),
        (lambda: signed() | {"ce-specversion": "1.0"}, CONTENT, 415, "without the format cloudevents"),
    ],
)
def test_a_refusal_says_why_and_hands_nothing_over(
    headers: Callable[[], dict[str, str]], content: bytes, status: int, said: str
) -> None:
    arrived: list[Notification] = []
    receiver = Receiver(arrived.append, secret=SECRET)
    refused, accepted = post(receiver, (headers(), content), (signed(), CONTENT))
    assert refused.status_code == status
    assert said in refused.json()["detail"]
    assert SECRET not in refused.text
    assert accepted.status_code == 204, "a refused POST does not use up its id"
    assert len(arrived) == 2
    assert receiver.counters.refused == 1


@pytest.mark.parametrize("secret", ["", "secret", "whsec_", "whsec_c2hvcnQ=", ["whsec_!"], []])
def test_a_malformed_secret_is_refused_without_being_shown(secret: Any) -> None:
    with pytest.raises(ValueError) as refused:
        Receiver(lambda _: None, secret=secret)
    assert "secret must be" in str(refused.value)
    assert "c2hvcnQ" not in str(refused.value)


def test_secrets_can_be_replaced_while_it_runs() -> None:
    receiver = Receiver(lambda _: None, secret=SECRET)
    receiver.set_secret(OTHER)
    old, new = post(receiver, (signed(SECRET), CONTENT), (signed(OTHER), CONTENT))
    assert (old.status_code, new.status_code) == (401, 204)


class Failing:
    """A function that raises at its n-th call."""

    def __init__(self, *raising: int) -> None:
        self.calls: list[str] = []
        self._raising = raising

    def __call__(self, notification: Notification) -> None:
        self.calls.append(notification.event.id)
        if len(self.calls) in self._raising:
            raise ValueError("a private text")


def plain(failing: Failing) -> Callable[[Notification], object]:
    return failing


def coroutine(failing: Failing) -> Callable[[Notification], object]:
    async def call(notification: Notification) -> None:
        await asyncio.sleep(0)
        failing(notification)

    return call


def wrapped(failing: Failing) -> Callable[[Notification], object]:
    return lambda notification: coroutine(failing)(notification)


KINDS = pytest.mark.parametrize("kind", [plain, coroutine, wrapped])


@KINDS
@pytest.mark.parametrize(
    ("raising", "statuses", "calls"),
    [
        ((1,), [500, 204, 204], ["e0", "e0", "e1"]),
        ((2,), [500, 204, 204], ["e0", "e1", "e1"]),
        ((2, 3), [500, 500, 204], ["e0", "e1", "e1", "e1"]),
        ((1, 3), [500, 500, 204], ["e0", "e0", "e1", "e1"]),
    ],
)
def test_a_function_that_raises_gets_the_same_notification_again_and_no_earlier_one(
    kind: Callable[[Failing], Any],
    raising: tuple[int, ...],
    statuses: list[int],
    calls: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing = Failing(*raising)
    receiver = Receiver(kind(failing), secret=SECRET)
    with caplog.at_level(logging.ERROR):
        answers = post(receiver, *[(signed(), CONTENT)] * 3)
    assert [answer.status_code for answer in answers] == statuses
    assert failing.calls == calls
    assert receiver.counters.notifications == 2
    assert receiver.counters.failed == len(raising)
    assert "ValueError" in answers[0].json()["detail"]
    assert "private" not in answers[0].text
    assert "a private text" in caplog.text, "the program's own log has all of it"


def test_posts_without_an_id_are_handed_over_again_from_the_start() -> None:
    failing = Failing(2)
    answers = post(Receiver(failing), *[({}, CONTENT)] * 2)
    assert [answer.status_code for answer in answers] == [500, 204]
    assert failing.calls == ["e0", "e1", "e0", "e1"]


def test_a_function_that_raises_stop_iteration_does_not_hang() -> None:
    exhausted = iter([1])
    first, second = post(Receiver(lambda _: next(exhausted)), ({"webhook-id": "a"}, CONTENT), ({}, CONTENT))
    assert (first.status_code, second.status_code) == (500, 500)


def test_plain_functions_run_off_the_event_loop_and_coroutines_on_it() -> None:
    threads: list[int] = []

    def plain(_: Notification) -> None:
        threads.append(threading.get_ident())

    async def on_loop(_: Notification) -> None:
        plain(_)

    class Called:
        async def __call__(self, _: Notification) -> None:
            plain(_)

    post(Receiver(plain), ({}, CONTENT))
    assert threading.get_ident() not in threads
    for function in (on_loop, Called()):
        threads.clear()
        post(Receiver(function), ({}, CONTENT))
        assert set(threads) == {threading.get_ident()}


@pytest.mark.parametrize("raises", [False, True])
def test_concurrent_repeats_of_an_id_call_the_function_once_and_get_one_answer(raises: bool) -> None:
    async def run() -> tuple[list[int], int]:
        begun, release = asyncio.Event(), asyncio.Event()
        calls = 0

        async def slow(_: Notification) -> None:
            nonlocal calls
            calls += 1
            begun.set()
            await release.wait()
            if raises:
                raise ValueError

        receiver = Receiver(slow)
        content = json.dumps({"notifications": BODY["notifications"][:1]}).encode()
        transport = httpx.ASGITransport(app=receiver)
        async with httpx.AsyncClient(transport=transport, base_url="http://receiver") as http:
            posts = [
                asyncio.create_task(http.post("/", headers={"webhook-id": "w"}, content=content))
                for _ in range(5)
            ]
            await begun.wait()
            while receiver.counters.posts < 5:  # noqa: ASYNC110 - it has no event for that
                await asyncio.sleep(0)
            release.set()
            return [answer.status_code for answer in await asyncio.gather(*posts)], calls

    statuses, calls = asyncio.run(run())
    assert statuses == [500 if raises else 204] * 5
    assert calls == 1


def test_a_sender_that_goes_away_does_not_interrupt_the_function() -> None:
    async def run() -> tuple[list[str], int]:
        begun, release = asyncio.Event(), asyncio.Event()
        finished: list[str] = []

        async def slow(notification: Notification) -> None:
            begun.set()
            await release.wait()
            finished.append(notification.event.id)

        receiver = Receiver(slow)
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=receiver), base_url="http://receiver"
        ) as http:
            first = asyncio.create_task(http.post("/", headers={"webhook-id": "w"}, content=CONTENT))
            await begun.wait()
            first.cancel()
            await asyncio.wait([first])
            repeat = asyncio.create_task(http.post("/", headers={"webhook-id": "w"}, content=CONTENT))
            while receiver.counters.posts < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
            release.set()
            return finished, (await repeat).status_code

    assert asyncio.run(run()) == (["e0", "e1"], 204)


def fastapi_route(receiver: Receiver) -> Any:
    app = FastAPI()
    app.add_route("/hook", receiver)  # type: ignore[arg-type]
    return app


def starlette_route(receiver: Receiver) -> Any:
    return Starlette(routes=[Route("/hook", receiver)])


def fastapi_mount(receiver: Receiver) -> Any:
    app = FastAPI()
    app.mount("/hook", receiver)
    return app


def starlette_mount(receiver: Receiver) -> Any:
    return Starlette(routes=[Mount("/hook", receiver)])


def fastapi_middleware(receiver: Receiver) -> Any:
    app = FastAPI()
    app.add_middleware(ReceiverMiddleware, receiver=receiver, path="/hook")
    return app


def starlette_middleware(receiver: Receiver) -> Any:
    async def home(_: Any) -> PlainTextResponse:
        return PlainTextResponse("home")

    return Starlette(
        routes=[Route("/", home)],
        middleware=[Middleware(ReceiverMiddleware, receiver=receiver, path="/hook")],
    )


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (fastapi_route, "/hook"),
        (starlette_route, "/hook"),
        (fastapi_mount, "/hook/"),
        (starlette_mount, "/hook/"),
        (fastapi_middleware, "/hook"),
        (starlette_middleware, "/hook"),
    ],
)
def test_it_works_inside_other_applications(make: Callable[[Receiver], Any], path: str) -> None:
    arrived: list[Notification] = []
    app = make(Receiver(arrived.append, secret=SECRET))
    wrong, right = post(app, (signed(OTHER), CONTENT), (signed(), CONTENT), path=path)
    assert (wrong.status_code, right.status_code) == (401, 204)
    assert len(arrived) == 2
    (elsewhere,) = post(app, (signed(), CONTENT), path="/elsewhere")
    assert elsewhere.status_code == 404


def test_an_ended_subscription_is_logged_and_acknowledged(caplog: pytest.LogCaptureFixture) -> None:
    content = json.dumps(
        {"notifications": [], "end": {"subscription": "s1", "status": "x", "reason": "gone"}}
    )
    with caplog.at_level(logging.WARNING):
        (answer,) = post(Receiver(lambda _: None), ({"webhook-id": "w"}, content.encode()))
    assert answer.status_code == 204
    assert "subscription s1 has ended: gone" in caplog.text


def test_notifications_arrive_in_order() -> None:
    statuses, arrived, _ = exchange(("POST", {"webhook-id": "w1"}, BODY))
    assert statuses == [204]
    assert [notification.event.id for notification in arrived] == ["e0", "e1"]
    assert arrived[1].event.attributes == {"price": 1}


def test_a_repeat_is_acknowledged_and_not_handed_on() -> None:
    statuses, arrived, receiver = exchange(*[("POST", {"webhook-id": "w1"}, BODY)] * 3)
    assert statuses == [204] * 3
    assert len(arrived) == 2
    assert (receiver.counters.posts, receiver.counters.repeats) == (3, 2)


def test_posts_without_an_id_are_all_handed_on() -> None:
    _, arrived, _ = exchange(*[("POST", {}, BODY)] * 2)
    assert len(arrived) == 4


def test_a_refused_body_does_not_use_up_its_id() -> None:
    statuses, arrived, receiver = exchange(
        ("POST", {"webhook-id": "w1"}, b"nonsense"), ("POST", {"webhook-id": "w1"}, BODY)
    )
    assert statuses == [400, 204]
    assert len(arrived) == 2
    assert receiver.counters.refused == 1


def test_only_so_many_ids_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "REMEMBERED", 2)
    posts = [("POST", {"webhook-id": id}, BODY) for id in ("a", "b", "c", "c", "a")]
    _, arrived, _ = exchange(*posts)
    assert len(arrived) == 2 * 4  # a was forgotten when c came; c itself was not


def test_other_methods_and_bodies_beyond_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "MAX_BODY_BYTES", 10)
    statuses, arrived, _ = exchange(("GET", {}, None), ("POST", {}, b"x" * 11))
    assert statuses == [405, 413]
    assert arrived == []


def test_consent_is_given_to_whoever_asks() -> None:
    async def run() -> httpx.Response:
        async with Receiver(lambda _: None) as receiver, httpx.AsyncClient(trust_env=False) as http:
            return await http.options(receiver.url, headers={"WebHook-Request-Origin": "edn.example"})

    answer = asyncio.run(run())
    assert answer.headers["webhook-allowed-origin"] == "edn.example"


def test_a_port_that_is_taken_is_an_error_at_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            asyncio.run(Receiver(lambda _: None, port=port).start())


def test_what_its_sender_left_unfinished_is_neither_taken_nor_forwarded() -> None:
    told: list[object] = []

    async def forward(headers: list[tuple[bytes, bytes]], body: bytes) -> int:
        told.append(body)
        return 204

    async def send(message: dict[str, Any]) -> None:
        told.append(message)

    coming = [{"type": "http.request", "body": b'{"noti', "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> dict[str, Any]:
        return coming.pop(0)

    receiver = Receiver(told.append, forward=forward)
    asyncio.run(receiver({"type": "http", "method": "POST", "headers": []}, receive, send))
    assert told == []
    assert receiver.counters.posts == 0
