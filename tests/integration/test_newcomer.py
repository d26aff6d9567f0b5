"""The rim of the interface against a running network: topics, explanations, dead letters, export, streams."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from edn import AsyncClient, Client, ProblemError
from tests.network import Hook, Network, until

SERVERS = 2
SERVER_OPTIONS = ("--retry-steps", "0.05", "--refused-attempts", "1")


@pytest.fixture
def client(network: Network) -> Any:
    with Client(network.url) as made:
        yield made


def edn(network: Network, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edn.cli", *arguments],
        env={**os.environ, "EDN_URL": network.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_topic_is_created_once_and_changed_by_revision(client: Client) -> None:
    made = client.create_topic("once", {"a": "number"}, only_new=True, availability="90s")
    assert (made.revision, made.availability) == (1, 90)
    with pytest.raises(ProblemError, match="exists already") as refused:
        client.create_topic("once", {"b": "number"}, only_new=True)
    assert refused.value.status == 412
    assert client.topic("once").attributes == {"a": "number"}, "nothing was replaced"
    changed = client.create_topic("once", {"a": "number", "b": "string"}, revision=1)
    assert changed.revision == 2
    with pytest.raises(ProblemError, match="it was changed in between"):
        client.create_topic("once", {"a": "number"}, revision=1)
    with pytest.raises(ProblemError, match="does not exist, but revision 3 was expected"):
        client.create_topic("never", {"a": "number"}, revision=3)


def test_of_many_who_create_a_topic_one_does(network: Network) -> None:
    async def run() -> list[int]:
        async def create(number: int) -> int:
            async with AsyncClient(network.url) as client:
                try:
                    await client.create_topic("raced", {f"a{number}": "number"}, only_new=True)
                except ProblemError as problem:
                    return problem.status
                return 201

        return await asyncio.gather(*(create(number) for number in range(8)))

    assert sorted(asyncio.run(run())) == [201] + [412] * 7


def test_an_explanation_names_the_clause_that_fails(client: Client) -> None:
    client.create_topic("why", {"symbol": "string", "price": "number"})
    client.create_topic("whynot", {"symbol": "string"})
    client.subscribe("why", 'symbol == "GE" and price > 30', id="why-ge")
    client.subscribe("whynot", id="why-other")
    client.subscribe("why.**", "price > 30", id="why-tree")

    def asked(id: str, event: dict[str, Any]) -> Any:
        return client.explain_event("why", event, subscription=id)["subscription"]

    low = asked("why-ge", {"symbol": "GE", "price": 29})
    assert (low["matches"], low["clauses"]) == (False, ["price > 30"])
    assert low["text"] == 'symbol == "GE" and price > 30'
    high = asked("why-ge", {"symbol": "GE", "price": 31})
    assert (high["matches"], len(high["clauses"])) == (True, 2)
    assert asked("why-tree", {"price": 29})["clauses"] == ["price > 30"]
    assert "another topic" in asked("why-other", {"price": 29})["failure"]
    with pytest.raises(ProblemError, match="does not exist"):
        asked("nobody", {"price": 29})
    assert "subscription" not in client.explain_event("why", {"price": 1})


def test_the_age_of_a_summary_grows(client: Client) -> None:
    client.create_topic("ages", {"price": "number"})
    client.subscribe("ages", "price > 1")

    def ages() -> list[float]:
        servers = client.explain_event("ages", {"price": 0})["servers"]
        return [one["summary_seconds"] for one in servers if one["summary_seconds"] is not None]

    first = until("summaries", lambda: len(found := ages()) == SERVERS and found)
    until("a greater age", lambda: max(ages()) > max(first))


@pytest.mark.parametrize(
    ("filter", "warned"),
    [
        ("price > 40 and price < 30", True),
        ('symbol == "GE" and symbol == "KO"', True),
        ("price > 30 and price < 40", False),
        ('symbol == "GE" or (price > 40 and price < 30)', False),
        (None, False),
    ],
)
def test_a_filter_that_nothing_matches_is_warned_of(client: Client, filter: str | None, warned: bool) -> None:
    client.create_topic("warned", {"symbol": "string", "price": "number"})
    made = client.subscribe("warned", filter)
    assert (made.warning is not None) == warned
    assert client.subscription(made.id).warning is None, "only the answer to a request has it"
    changed = client.change(made.id, filter="price > 40 and price < 30")
    assert "exclude each other" in str(changed.warning)


def test_dead_letters_are_in_order_with_their_subscriptions_and_page_by_page(
    network: Network, client: Client, hook: Hook
) -> None:
    client.create_topic("letters", {"n": "integer"})
    ids = [f"letters-{number}" for number in range(4)]
    for id in ids:  # so many that both servers host one
        hook.status[f"/{id}"] = 422
        client.subscribe("letters", url=hook.url(f"/{id}"), id=id)
    for number in range(3):
        client.publish("letters", {"n": number})
        count = (number + 1) * len(ids)
        until("the letters", lambda count=count: len(list(client.dead_letters())) >= count)  # type: ignore[misc]
    letters = list(client.dead_letters())
    assert len({letter.id.partition(".")[0] for letter in letters}) == SERVERS, "of several servers"
    assert [letter.died for letter in letters] == sorted(letter.died for letter in letters)
    assert [letter.id for letter in client.dead_letters(limit=2)] == [letter.id for letter in letters]
    assert {id for letter in letters for id in letter.subscriptions or []} == set(ids)
    mine = list(client.dead_letters(subscription=ids[0], limit=1))
    assert [letter.subscriptions for letter in mine] == [[ids[0]]] * 3
    listed = edn(network, "dead-letters", "list", "--subscription", ids[0])
    assert listed.stdout.count(ids[0]) >= 3


def test_nothing_is_requeued_for_a_disabled_address(client: Client, hook: Hook) -> None:
    client.create_topic("disabled", {"n": "integer"})
    hook.status["/disabled"] = 410
    made = client.subscribe("disabled", url=hook.url("/disabled"))
    client.publish("disabled", {"n": 1})
    until("the letter", lambda: list(client.dead_letters(subscription=made.id)))
    [letter] = client.dead_letters(subscription=made.id)
    for requeue in (lambda: client.recover(made.id, "1h"), lambda: client.resend(letter.id)):
        with pytest.raises(ProblemError, match=r"disabled since .*; enable it first") as refused:
            requeue()
        assert refused.value.status == 409
    hook.status["/disabled"] = 204
    client.enable(made.id)
    assert client.recover(made.id, "1h").letters == 1
    until("the notification", lambda: client.subscription(made.id).delivery.delivered == 1)  # type: ignore[union-attr]


def test_a_stream_has_no_example(client: Client) -> None:
    client.create_topic("examples", {"n": "integer"})
    made = client.subscribe("examples")
    with pytest.raises(ProblemError, match="is a stream"):
        client.send_example(made.id)


def test_an_export_creates_topics_and_subscriptions_elsewhere_and_prints_new_secrets(
    network: Network, client: Client, hook: Hook, tmp_path: Path
) -> None:
    client.create_topic("exported", {"n": "integer"}, availability=60)
    client.subscribe("exported", "n > 1", url=hook.url("/exported"), id="exported-1")
    client.subscribe("exported", id="exported-2")
    file = tmp_path / "all.jsonl"
    done = edn(network, "export", str(file), "--topic", "exported")
    assert done.returncode == 0, done.stderr
    assert "1 topic and 2 subscriptions" in done.stderr
    client.delete_topic("exported", cascade=True)
    imported = edn(network, "import", str(file), "--json")
    assert imported.returncode == 0, imported.stderr
    counts = json.loads(imported.stdout)
    assert (counts["topics"], counts["subscriptions"]) == (1, 2)
    [secret] = counts["secrets"]
    assert (secret["id"], secret["url"]) == ("exported-1", hook.url("/exported"))
    assert secret["secret"].startswith("whsec_")
    topic = client.topic("exported")
    assert (topic.attributes, topic.availability) == ({"n": "integer"}, 60)
    again = json.loads(edn(network, "import", str(file), "--json").stdout)
    assert (again["topics"], again["secrets"]) == (0, []), "an import can be repeated"


def test_a_stream_is_read_and_resumed_over_a_restart_of_its_server(network: Network, client: Client) -> None:
    client.create_topic("streamed", {"n": "integer", "text": "string"})
    made = client.subscribe("streamed", "n >= 0")
    read: list[tuple[int, str]] = []
    texts = ["plain", "two\u2028lines", "\u0085", "\r", "end"]

    def reader() -> None:
        with Client(network.url) as reading:
            for notification in reading.stream(made.id):
                attributes = notification.event.attributes
                read.append((attributes["n"], attributes["text"]))

    thread = threading.Thread(target=reader)
    thread.start()
    for number, text in enumerate(texts):
        client.publish("streamed", {"n": number, "text": text})
    until("the first events", lambda: len(read) == len(texts))
    server = network.servers[str(made.server)]
    server.kill()
    server.start()
    server.await_ready()
    network.await_servers("ready", str(made.server))
    client.publish("streamed", {"n": 5, "text": "later"})
    until("the event after the restart", lambda: len(read) == len(texts) + 1)
    client.unsubscribe(made.id)
    thread.join(30)
    assert not thread.is_alive(), "the end of the subscription ends the iteration"
    assert read == [*enumerate(texts), (5, "later")], "each once, in order"


def test_a_stream_continues_after_a_position(network: Network, client: Client) -> None:
    client.create_topic("positions", {"n": "integer"})
    made = client.subscribe("positions")
    client.publish_many("positions", [{"n": number} for number in range(6)])

    async def take(count: int, after: str | None) -> tuple[list[int], str | None]:
        found = []
        async with AsyncClient(network.url) as reading:
            async for notification in reading.stream(made.id, after=after):
                found.append(notification.event.attributes["n"])
                after = notification.position
                if len(found) == count:
                    break
        return found, after

    first, position = asyncio.run(take(2, None))
    rest, _ = asyncio.run(take(4, position))
    assert (first, rest) == ([0, 1], [2, 3, 4, 5])
    with pytest.raises(ProblemError, match="does not exist"):
        next(iter(client.stream("nobody")))
    sunk = client.subscribe("positions", url="http://127.0.0.1:9/")
    with pytest.raises(ProblemError, match="has a sink"):
        next(iter(client.stream(sunk.id)))


def test_the_command_reads_a_stream(network: Network, client: Client) -> None:
    client.create_topic("listened", {"n": "integer"})
    listening = subprocess.Popen(
        [sys.executable, "-m", "edn.cli", "listen", "--stream", "--topic", "listened", "--count", "2"],
        env={**os.environ, "EDN_URL": network.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until("the subscription", lambda: list(client.subscriptions(topic="listened")))
        client.publish_many("listened", [{"n": 1}, {"n": 2}])
        printed, said = listening.communicate(timeout=30)
    finally:
        if listening.poll() is None:
            listening.kill()
            listening.communicate()
    assert listening.returncode == 0, said
    assert [line.split("listened: ")[1].split(" ")[0] for line in printed.splitlines()] == ["n=1", "n=2"]
    assert list(client.subscriptions(topic="listened")) == []
