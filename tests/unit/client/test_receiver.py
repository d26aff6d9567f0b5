"""The receiver takes notifications once, over a real socket."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx
import pytest

from edn import receiver as receiving
from edn.receiver import Notification, Receiver

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
    asyncio.run(receiver.app({"type": "http", "method": "POST", "headers": []}, receive, send))
    assert told == []
    assert receiver.counters.posts == 0
