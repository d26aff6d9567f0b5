"""Sequences over a running network: what follows what is notified once, across crashes and moves."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.network import Hook, Network, until
from tests.network.moving import move

SERVERS = 2
A, B = {"kind": "a"}, {"kind": "b"}
A_B = [{"filter": A}, {"filter": B}]
#: the trace of the SIENA paper (§3.3) in the order of matching: kind and time
TRACE = (("b", 4), ("a", 3), ("a", 1), ("b", 2), ("a", 5), ("b", 6), ("a", 7), ("b", 8))


@pytest.fixture(scope="module", autouse=True)
def topics(network: Network) -> None:
    for name in ("trace", "keyed", "other"):
        attributes = {"kind": "string", "user": "integer"}
        assert network.http.put(f"/v1/topics/{name}", json={"attributes": attributes}).status_code == 201


def subscribe(network: Network, hook: Hook, name: str, steps: list[Any] = A_B, **more: Any) -> dict[str, Any]:
    body = {"id": name, "topic": "trace", "sequence": steps, "sink": {"url": hook.url(f"/{name}")}, **more}
    answer = network.http.post("/v1/subscriptions", json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def publish(network: Network, events: Any, topic: str = "trace") -> None:
    answer = network.http.post(f"/v1/topics/{topic}/events", json=events)
    assert answer.status_code == 202, answer.text


def heard(hook: Hook, name: str) -> list[list[dict[str, Any]]]:
    """The events of each notified sequence; a repeated POST counts once."""
    found = {headers["webhook-id"]: body for headers, body in hook.at(f"/{name}", 200)}
    return [entry["events"] for body in found.values() for entry in json.loads(body)["notifications"]]


def spell(sequences: list[list[dict[str, Any]]]) -> list[str]:
    """Each sequence as kind and second of its events."""
    return [
        "·".join(f"{one['attributes']['kind'].upper()}(t{one['time'][17:19].lstrip('0')})" for one in events)
        for events in sequences
    ]


def test_the_trace_of_the_paper(network: Network, hook: Hook) -> None:
    subscribe(network, hook, "plain")
    for kind, at in TRACE:
        publish(network, {"kind": kind, "$time": f"2030-01-01T00:00:{at:02}Z"})
    until("two sequences", lambda: len(heard(hook, "plain")) >= 2)
    assert spell(heard(hook, "plain")) == ["A(t3)·B(t6)", "A(t7)·B(t8)"]


def test_with_settle_above_the_spread_there_are_four(network: Network, hook: Hook) -> None:
    subscribe(network, hook, "ordered", settle="PT4S")
    base = int(time.time()) + 2

    def stamp(at: int) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(base)) + f".{at:03}Z"

    for kind, at in TRACE:
        publish(network, {"kind": kind, "$time": stamp(at)})
    until("four sequences", lambda: len(heard(hook, "ordered")) >= 4)
    found = [[int(one["time"][20:26]) // 1000 for one in events] for events in heard(hook, "ordered")]
    assert found == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert network.http.delete("/v1/subscriptions/ordered").status_code == 204


def test_events_of_one_request_are_in_order(network: Network, hook: Hook) -> None:
    subscribe(network, hook, "request")
    publish(network, [A, B, A, B])
    until("two sequences", lambda: len(heard(hook, "request")) >= 2)
    publish(network, [B, A])
    publish(network, [B])
    until("the third", lambda: len(heard(hook, "request")) >= 3)
    assert [[one["attributes"] for one in events] for events in heard(hook, "request")] == [[A, B]] * 3


def state(network: Network, name: str) -> dict[str, Any]:
    answer = network.http.get(f"/v1/subscriptions/{name}")
    found: dict[str, Any] = answer.json()
    return found


def begin_keys(network: Network, hook: Hook, name: str, keys: range) -> dict[str, Any]:
    made = subscribe(network, hook, name, [*A_B, {"filter": A, "topic": "other"}], topic="keyed", by=["user"])
    publish(network, [{**A, "user": key} for key in keys], "keyed")
    publish(network, [{**B, "user": key} for key in keys], "keyed")
    until("the half matches", lambda: state(network, name)["sequence_state"]["half_matches"] == len(keys))
    return made


def finish_keys(network: Network, hook: Hook, name: str, keys: range) -> None:
    publish(network, [{**A, "user": key} for key in keys], "other")
    until("all sequences", lambda: len(heard(hook, name)) >= len(keys))
    publish(network, [{**A, "user": key} for key in keys], "other")
    until("nothing to wait for", lambda: state(network, name)["sequence_state"]["half_matches"] == 0)
    found = heard(hook, name)
    assert sorted(events[0]["attributes"]["user"] for events in found) == list(keys)
    assert all([one["topic"] for one in events] == ["keyed", "keyed", "other"] for events in found)


def test_half_matches_survive_a_kill(network: Network, hook: Hook) -> None:
    made = begin_keys(network, hook, "killed", range(100))
    assert state(network, "killed")["sequence_state"]["waiting_for"] == 3
    victim = network.servers[made["server"]]
    victim.kill()
    victim.start()
    victim.await_ready()
    network.await_servers("ready", *network.servers)
    finish_keys(network, hook, "killed", range(100))


def test_half_matches_move_with_their_sequence(network: Network, hook: Hook) -> None:
    names = [f"moved-{number}" for number in range(4)]
    made = {name: begin_keys(network, hook, name, range(25)) for name in names}
    elsewhere = {
        name: next(server for server in network.servers if server != one["server"])
        for name, one in made.items()
    }
    done = move(network.http, elsewhere)
    assert (done["moved"], done["skipped"]) == (4, 0)
    for name in names:
        found = state(network, name)
        assert found["server"] == elsewhere[name]
        assert found["sequence_state"]["half_matches"] == 25
    publish(network, [{**A, "user": key} for key in range(25)], "other")
    for name in names:
        until("all sequences", lambda name=name: len(heard(hook, name)) >= 25)
        assert sorted(events[0]["attributes"]["user"] for events in heard(hook, name)) == list(range(25))


def test_a_sequence_is_shown_changed_and_ended_by_covering(network: Network, hook: Hook) -> None:
    made = subscribe(
        network, hook, "shown", [{"filter": A, "times": 2}, {"filter": B, "topic": "other"}], within="5m"
    )
    assert made["sequence"] == [
        {"topic": "trace", "filter": A, "times": 2},
        {"topic": "other", "filter": B},
    ]
    assert (made["filter"], made["within"], made["topic"]) == (None, "PT5M", "trace")
    listed = network.http.get("/v1/subscriptions", params={"topic": "other"}).json()["subscriptions"]
    assert "shown" in [one["id"] for one in listed]

    sink = {"url": hook.url("/shown")}
    changed = network.http.put("/v1/subscriptions/shown", json={"filter": A, "sink": sink})
    assert changed.status_code == 200, changed.text
    assert "sequence" not in changed.json()
    changed = network.http.put("/v1/subscriptions/shown", json={"sequence": A_B, "sink": sink})
    assert [step["filter"] for step in changed.json()["sequence"]] == [A, B]
    paused = network.http.post("/v1/subscriptions/shown/pause")
    assert paused.json()["state"] == "paused"
    resumed = network.http.post(
        "/v1/subscriptions/shown/resume", json={"sink": {"url": hook.url("/elsewhere")}}
    )
    assert resumed.status_code == 200, resumed.text
    assert resumed.json()["sequence"] == changed.json()["sequence"]

    def end(**query: str) -> Any:
        answer = network.http.delete("/v1/subscriptions", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    plain = {"id": "filtered", "topic": "trace", "filter": A, "sink": sink}
    assert network.http.post("/v1/subscriptions", json=plain).status_code == 201
    narrow = json.dumps([{"filter": {"kind": "x"}}, {"filter": None}])
    assert end(topic="trace", sequence=narrow)["ids"] == []
    assert end(topic="trace", filter='kind prefix "a"') == {"ids": ["filtered"], "sequences": 3}
    wide = json.dumps([{"filter": None}, {"filter": {"kind": {"prefix": "b"}}}])
    assert set(end(topic="trace", sequence=wide)["ids"]) == {"shown", "plain", "request"}


@pytest.mark.parametrize(
    ("body", "status", "pointer", "part"),
    [
        ({"sequence": A_B[:1]}, 422, "/sequence", "for one step use filter"),
        ({"sequence": A_B * 9}, 422, "/sequence", "got 18"),
        (
            {"sequence": [A_B[0], {"filter": "kind > 'b' and kind < 'a'"}]},
            422,
            "/sequence/1/filter",
            "exclude",
        ),
        ({"sequence": A_B, "filter": A}, 422, "/sequence", "got both"),
        ({"sequence": A_B, "by": ["nobody"]}, 422, "/by/0", "none of"),
        ({"sequence": A_B, "within": "PT0S"}, 422, "/within", "above 0"),
        ({"sequence": A_B, "within": "-1h"}, 422, "/within", "a duration"),
        ({"sequence": A_B, "settle": "PT2H"}, 422, "/settle", "one hour"),
        ({"sequence": [A_B[0], {"topic": "trace.**"}]}, 422, "/sequence/1/topic", "subtree"),
        ({"sequence": A_B, "from": "PT1H"}, 422, "/from", "live events"),
        ({"sequence": [A_B[0], {"topic": "nothing"}]}, 404, "/sequence/1/topic", "does not exist"),
        ({"filter": A, "within": "PT1H"}, 422, "/within", "with a sequence only"),
        ({"filter": {"$sequence": []}}, 422, "/filter/$sequence", "$sequence"),
        ({"topic": None}, 422, "/topic", "topic must be given"),
    ],
)
def test_bad_requests_are_refused(
    network: Network, body: dict[str, Any], status: int, pointer: str, part: str
) -> None:
    answer = network.http.post("/v1/subscriptions", json={"topic": "trace", **body})
    assert answer.status_code == status, answer.text
    problem = answer.json()
    assert part in problem["detail"]
    assert problem["errors"][0]["pointer"] == f"#{pointer}" or problem["errors"][0]["pointer"] == pointer


def test_topics_of_a_sequence_are_guarded(network: Network, hook: Hook) -> None:
    for name in ("first", "second"):
        attributes = {"attributes": {"kind": "string", "user": "integer"}}
        assert network.http.put(f"/v1/topics/{name}", json=attributes).status_code == 201
    servers = sorted(network.servers)
    for name, server in zip(("first", "second"), servers, strict=True):
        assert network.http.put(f"/v1/routes/{name}", json={"servers": [server]}).status_code == 201
    body = {
        "topic": "first",
        "sequence": [A_B[0], {"topic": "second"}],
        "sink": {"url": hook.url("/guarded")},
    }
    refused = network.http.post("/v1/subscriptions", json=body)
    assert refused.status_code == 409, refused.text
    assert all(part in refused.json()["detail"] for part in ("first", "second", *servers))
    assert network.http.delete("/v1/routes/second").status_code in (200, 204)
    made = network.http.post("/v1/subscriptions", json={"id": "guarded", **body})
    assert made.status_code == 201, made.text
    assert made.json()["server"] == servers[0]
    refused = network.http.put("/v1/topics/second", json={"attributes": {"user": "integer"}})
    assert refused.status_code == 201 or refused.status_code == 200  # the step uses no attribute
    refused = network.http.delete("/v1/topics/second")
    assert refused.status_code == 409, refused.text
    assert network.http.delete("/v1/topics/second", params={"cascade": True}).status_code in (200, 204)
    assert network.http.get("/v1/subscriptions/guarded").status_code == 404


def test_every_format_carries_all_events(network: Network, hook: Hook) -> None:
    subscribe(network, hook, "cloud", sink={"url": hook.url("/cloud"), "format": "cloudevents-structured"})
    stream = network.http.post(
        "/v1/subscriptions", json={"id": "streamed", "topic": "trace", "sequence": A_B}
    )
    assert stream.status_code == 201, stream.text
    publish(network, [{**A, "$id": "f1"}, {**B, "$id": "f2"}])
    [(_, body)] = until("the CloudEvent", lambda: hook.at("/cloud", 200))
    event = json.loads(body)
    assert (event["type"], event["id"]) == ("edn.sequence", "f2/cloud")
    assert [one["id"] for one in event["data"]["events"]] == ["f1", "f2"]
    with network.http.stream("GET", "/v1/subscriptions/streamed/events") as lines:
        data = next(line for line in lines.iter_lines() if line.startswith("data:") and "events" in line)
    assert [one["id"] for one in json.loads(data[5:])["events"]] == ["f1", "f2"]
