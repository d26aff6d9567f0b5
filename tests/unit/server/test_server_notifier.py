"""Delivery to a real HTTP receiver on loopback: order, retries, independence of addresses, identity."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import UTC, datetime
from typing import Any

import pytest
from deliverykit import EVENT, REFUSED, Receiver, asking, eventually, fill, notifying, run, settings
from serverkit import Kit, activate, control, item

from edn.errors import Conflict
from edn_server.delivery import notifier as notifier_module
from edn_server.delivery import retry
from edn_server.delivery.circuit_breaker import HEALTHY
from edn_server.delivery.sender import Sender, Sent
from edn_server.outbox import bodies, cleanup
from edn_server.policies import RetryPolicy
from edn_server.sinks.base import Message
from edn_server.sinks.http import HttpSink
from edn_server.storage import outbox
from edn_server.storage.addresses import address_of, url_of


def test_a_notification_has_the_documented_form_and_headers_and_its_row_goes(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        kit.store(item("s", url=receiver.url("/a"), recipient="r"), item("t", url=receiver.url("/a")))
        kit.frame(0, 2, activate(1, ("s", 1), ("t", 1)), events=[(2, {"symbol": "é", "price": 1.5})])
        [row] = kit.rows()
        async with notifying(kit) as notifier:
            await notifier.idle()
            assert (notifier.counters.delivered, notifier.counters.failed) == (1, 0)
        [post] = receiver.posts
        assert post.body == {
            "notifications": [
                {
                    "topic": "quotes",
                    "event": {
                        "id": "e2",
                        "time": "1970-01-01T00:00:02Z",
                        "attributes": {"symbol": "é", "price": 1.5},
                    },
                    "matches": [{"subscription": "s", "recipient": "r"}, {"subscription": "t"}],
                }
            ]
        }
        assert post.headers["content-type"] == "application/json"
        assert post.headers["user-agent"].startswith("edn/")
        assert post.headers["webhook-id"].startswith("msg_")
        assert post.headers["webhook-id"].endswith(f"_{row.id}")
        assert abs(int(post.headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 60

    run(scenario)
    assert kit.count("outbox") == kit.count("events") == 0


def test_an_address_gets_its_rows_in_order_one_at_a_time_over_pages(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"), rows=40)
        async with notifying(kit) as notifier:
            await notifier.idle()
        ids = [post.body["notifications"][0]["event"]["id"] for post in receiver.posts]
        assert ids == [f"e{o}" for o in range(2, 42)]
        assert receiver.most_in_flight == {"/a": 1}

    run(scenario)


@pytest.mark.parametrize("status", ["500 No", "404 No", "302 Found\r\nlocation: /elsewhere", "429 Slow"])
def test_a_failed_attempt_is_repeated_under_the_same_webhook_id_and_in_order(kit: Kit, status: str) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"), rows=2)
        receiver.answers["/a"] = [f"{status}\r\n"] * 3
        async with notifying(kit) as notifier:
            await notifier.idle()
            assert (notifier.counters.delivered, notifier.counters.failed) == (2, 3)
        ids = [post.headers["webhook-id"] for post in receiver.at("/a")]
        assert len(receiver.posts) == 5
        assert ids[:4] == [ids[0]] * 4
        assert ids[4] != ids[0]
        assert [post.body for post in receiver.posts[:4]] == [receiver.posts[0].body] * 4

    run(scenario)


def test_no_attempt_begins_while_another_process_may_own_the_outbox(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"), rows=3)
        owned, asked = False, 0

        def may_send() -> bool:
            nonlocal asked
            asked += 1
            return owned

        async with notifying(kit, may_send=may_send) as notifier:
            await eventually(lambda: asked > 3)
            kit.frame(4, 5, events=[(5, EVENT)])  # passed on in memory
            notifier.wake([kit.rows()[0].address])
            await eventually(lambda: asked > 6)
            assert receiver.posts == []
            assert notifier.counters.failed == 0, "it is no fault of the sink"
            owned = True
            await notifier.idle()
            assert len(receiver.posts) == 4

    run(scenario)


def test_an_address_that_never_answers_delays_no_other(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        receiver.held["/stuck"] = asyncio.Event()
        fill(kit, receiver.url("/stuck"), receiver.url("/fine"), rows=5)
        async with notifying(kit):
            await receiver.until(lambda: len(receiver.at("/fine")) == 5)
            assert len(receiver.at("/stuck")) == 1
            receiver.held["/stuck"].set()
            await receiver.until(lambda: len(receiver.at("/stuck")) == 5)

    run(scenario)


def test_a_dead_address_keeps_its_rows_and_delays_no_other(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, "http://127.0.0.1:1/dead", receiver.url("/fine"), rows=3)
        async with notifying(kit) as notifier:
            counters = notifier.counters
            await eventually(lambda: counters.delivered == 3 and counters.failed > 1)

    run(scenario)
    assert {url_of(row.address) for row in kit.rows()} == {"http://127.0.0.1:1/dead"}
    assert len(kit.rows()) == 3


def test_gone_disables_the_address_at_once_and_what_waits_becomes_dead_letters(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        address = receiver.url("/a")
        fill(kit, address, rows=3)
        receiver.answers["/a"] = ["204 No Content\r\n", "410 Gone\r\n"]
        async with notifying(kit) as notifier:
            await notifier.idle()
            assert notifier.health(address_of("", address, "")).disabled == "gone"
            assert (notifier.counters.delivered, notifier.counters.dead) == (1, 2)
        assert len(receiver.posts) == 2
        # It stays so over a restart, and what comes then is not sent either.
        kit.frame(4, 5, events=[(5, EVENT)])
        async with notifying(kit) as notifier:
            await notifier.idle()
            assert notifier.health(address_of("", address, "")).disabled == "gone"
            assert len(receiver.posts) == 2
            await notifier.enable(address_of("", address, ""))
            assert notifier.health(address_of("", address, "")) == HEALTHY
            applied = await asyncio.to_thread(kit.frame, 5, 6, events=[(6, EVENT)])
            notifier.announce(applied.rows, applied.addresses)
            await notifier.idle()
        assert receiver.posts[-1].body["notifications"][0]["event"]["id"] == "e6"

    run(scenario)
    assert kit.rows() == []
    assert kit.count("dead_letters") == 3


@pytest.mark.parametrize("broken", ["composing", "deciding", "signing"])
def test_an_error_of_the_servers_own_is_a_failed_attempt_with_evidence_and_ends_as_a_dead_letter(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OverflowError("date value out of range")

    if broken == "composing":
        compose = bodies.event_fragment
        monkeypatch.setattr(
            bodies,
            "event_fragment",
            lambda event, topic: (fail if event.id == "e2" else compose)(event, topic),
        )
    elif broken == "deciding":
        decide = retry.decide

        def deciding(*arguments: Any, broken: bool = False, **options: Any) -> retry.Decision:
            status = arguments[1]
            return fail() if status == 503 else decide(*arguments, broken=broken, **options)

        monkeypatch.setattr(retry, "decide", deciding)
    else:
        posting = Sender.send

        async def signing(self: Sender, address: str, name: str, *rest: Any) -> Sent:
            return fail() if name.endswith("_1") else await posting(self, address, name, *rest)

        monkeypatch.setattr(Sender, "send", signing)

    async def scenario(receiver: Receiver) -> None:
        address = receiver.url("/a")
        fill(kit, address, rows=2)
        receiver.answers["/a"] = ["503 No\r\n"] * 3 if broken == "deciding" else []
        policy = RetryPolicy(steps=(0.001,), refused_attempts=3)
        async with asking(kit, retries=policy) as (notifier, evidence):
            await notifier.idle()
            shown = await evidence.attempts("s0")
            letters, _ = await evidence.letters(None, None, 10)
        assert [one["outcome"] for one in shown] == ["delivered", "dead", "again", "again"]
        assert all("OverflowError" in one["reason"] for one in shown[1:])
        assert [letter["attempts"] for letter in letters] == [3]
        assert "OverflowError" in letters[0]["reason"]
        assert receiver.posts[-1].body["notifications"][0]["event"]["id"] == "e3"

    run(scenario)
    assert kit.rows() == []


def test_an_address_that_the_full_disk_keeps_from_delivery_says_so(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier_module, "FAILED_SECONDS", 0.01)
    full = True
    settle = cleanup.Settle.work

    def work(job: cleanup.Settle, db: sqlite3.Connection) -> int:
        if full:
            raise sqlite3.OperationalError("database or disk is full")
        return settle(job, db)

    monkeypatch.setattr(cleanup.Settle, "work", work)

    async def scenario(receiver: Receiver) -> None:
        nonlocal full
        address = receiver.url("/a")
        fill(kit, address)
        async with asking(kit) as (notifier, evidence):
            await eventually(lambda: notifier.health(address_of("", address, "")).state == "failing")
            assert "disk is full" in (notifier.health(address_of("", address, "")).reason or "")
            shown = await evidence.attempts("s0")
            assert any("disk is full" in (one["reason"] or "") for one in shown)
            full = False
            await notifier.idle()
            assert notifier.health(address_of("", address, "")) == HEALTHY
            assert notifier.counters.dead == 0

    run(scenario)
    assert kit.rows() == []


def test_the_log_names_a_sink_without_its_path_or_query(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/hooks/T0KEN?key=S3CRET"))
        receiver.answers["/hooks/T0KEN?key=S3CRET"] = [REFUSED, "410 Gone\r\n"]
        async with notifying(kit) as notifier:
            await notifier.idle()

    run(scenario)
    said = "".join(capsys.readouterr())
    assert "attempt_failed" in said
    assert "sink_disabled" in said
    assert "127.0.0.1" in said
    assert "T0KEN" not in said
    assert "S3CRET" not in said


def test_a_crash_between_post_and_settlement_repeats_it_with_the_same_id_and_body(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"))
        kit.frame(2, 3, control(3, "deactivate", ids=["s0"]))
        receiver.held["/a"] = asyncio.Event()
        async with notifying(kit):
            await receiver.until(lambda: len(receiver.posts) == 1)
        # Stopped before the answer: the row is there after a restart, and so is whom it names.
        kit.reopen()
        kit.collect()
        receiver.held["/a"].set()
        async with notifying(kit) as notifier:
            await notifier.idle()
        first, second = receiver.posts
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        assert first.body == second.body
        assert first.body["notifications"][0]["matches"] == [{"subscription": "s0"}]

    run(scenario)
    assert kit.rows() == []


def test_rows_that_come_while_a_courier_works_are_delivered_too(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        address = receiver.url("/a")
        fill(kit, address)
        async with notifying(kit) as notifier:
            await receiver.until(lambda: len(receiver.posts) == 1)
            for offset in range(2, 12):
                applied = await asyncio.to_thread(kit.frame, offset, offset + 1, events=[(offset + 1, EVENT)])
                notifier.announce(applied.rows, applied.addresses)
            await notifier.idle()
        assert len(receiver.posts) == 11

    run(scenario)


def test_a_row_that_is_announced_while_the_outbox_is_read_is_not_lost(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(receiver: Receiver) -> None:
        loop = asyncio.get_running_loop()
        fill(kit, receiver.url("/a"))
        looked: list[bool] = []

        def page(*arguments: Any) -> outbox.Page:
            found = real_page(*arguments)
            if not looked:
                looked.append(True)
                applied = kit.frame(2, 3, events=[(3, EVENT)])
                loop.call_soon_threadsafe(notifier.announce, applied.rows, applied.addresses)
            return found

        real_page = outbox.page
        monkeypatch.setattr(outbox, "page", page)
        async with notifying(kit) as notifier:
            await notifier.idle()
        assert looked
        assert len(receiver.posts) == 2

    run(scenario)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{port}/a", "http://localhost:{port}/a", "http://2130706433:{port}/a"]
)
def test_no_connection_is_made_to_an_address_that_the_policy_forbids(url: str) -> None:
    async def scenario(receiver: Receiver) -> None:
        sink = HttpSink(settings(allow_loopback_sinks=False))
        answer = await sink.send(Message(url.format(port=receiver.port), "msg_1", 0, b"{}"))
        await sink.close()
        assert answer.status is None
        assert "--allow-loopback-sinks" in (answer.reason or "")
        assert receiver.posts == []

    run(scenario)


def test_the_connection_goes_to_the_checked_address_under_the_sinks_own_name() -> None:
    async def scenario(receiver: Receiver) -> None:
        sink = HttpSink(settings())
        url = f"http://localhost:{receiver.port}/a"
        assert (await sink.send(Message(url, "msg_1", 0, b"{}"))).status == 204
        await sink.close()
        assert receiver.posts[0].headers["host"] == f"localhost:{receiver.port}"

    run(scenario)


def test_an_answer_that_does_not_end_costs_only_its_connection() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(endless, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        sink = HttpSink(settings())
        async with asyncio.timeout(30):
            answer = await sink.send(Message(f"http://127.0.0.1:{port}/", "msg_1", 0, b"{}"))
        assert answer.status == 200
        assert answer.text == "x" * 512
        await sink.close()
        server.close()

    asyncio.run(main())


def test_an_example_for_a_stream_says_that_it_has_no_sink(kit: Kit) -> None:
    kit.store(item("s", url="stream:s"))
    kit.frame(0, 1, activate(1, ("s", 1)))

    async def scenario(receiver: Receiver) -> None:
        async with asking(kit) as (_, evidence):
            with pytest.raises(Conflict, match="is a stream: it has no sink"):
                await evidence.example("s")

    run(scenario)
