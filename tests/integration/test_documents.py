"""Any JSON through a running network: documents come back as they were sent, in every format."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec

from tests.network import Hook, Network, until
from tests.property.spaces import SEED
from tests.workload.documents import Writer

SERVERS = 1
BATCH = 250


def _topic(network: Network, name: str, **more: Any) -> str:
    answer = network.http.put(f"/v1/topics/{name}", json=more)
    assert answer.status_code == 201, answer.text
    return f"/v1/topics/{name}/events"


def _subscribe(network: Network, topic: str, url: str, filter: Any = None, **sink: Any) -> None:
    body = {"topic": topic, "filter": filter, "sink": {"url": url, **sink}}
    answer = network.http.post("/v1/subscriptions", json=body)
    assert answer.status_code == 201, answer.text


class _Entry(msgspec.Struct):
    event: dict[str, msgspec.Raw]


_posts = msgspec.json.Decoder(dict[str, list[_Entry]])


def _received(hook: Hook, path: str) -> dict[str, bytes]:
    """The bytes of each event at a path, by id."""
    found = {}
    for _, body in hook.at(path):
        for entry in _posts.decode(body)["notifications"]:
            found[str(json.loads(bytes(entry.event["id"])))] = bytes(entry.event["attributes"])
    return found


def test_ten_thousand_documents_come_back_byte_for_byte(network: Network, hook: Hook) -> None:
    events = _topic(network, "documents", attributes={"n": "integer", "deep.tags": ["string"]})
    _subscribe(network, "documents", hook.url("/plain"))
    _subscribe(network, "documents", hook.url("/even"), 'n < 100 and deep.tags any == "x"')
    writer = Writer(random.Random(SEED))
    sent: dict[str, bytes] = {}
    for first in range(0, 10_000, BATCH):
        parts = []
        for number in range(first, first + BATCH):
            tags = ["x", "y"] if number % 2 == 0 else ["y"]
            text = writer.document({"n": str(number), "deep": json.dumps({"tags": tags, "more": [1]})})
            sent[f"doc-{number}"] = text.encode()
            parts.append(f'{{"$id":"doc-{number}",' + text[1:])
        body = "[" + ",".join(parts) + "]"
        answer = network.http.post(
            events, content=body.encode(), headers={"content-type": "application/json"}
        )
        assert answer.status_code == 202, answer.text
    until("all documents", lambda: len(_received(hook, "/plain")) == 10_000, seconds=60)
    assert _received(hook, "/plain") == sent
    until("the filtered ones", lambda: len(_received(hook, "/even")) >= 50)
    assert _received(hook, "/even").keys() == {f"doc-{number}" for number in range(0, 100, 2)}


def test_data_of_cloud_events_comes_back_in_every_mode(network: Network, hook: Hook) -> None:
    events = _topic(network, "clouds", attributes={"price": "number"})
    for mode in ("binary", "structured", "batch"):
        _subscribe(network, "clouds", hook.url(f"/{mode}"), format=f"cloudevents-{mode}")
    writer = Writer(random.Random(SEED + 1))
    texts = [writer.value(0) for _ in range(40)] + [writer.document({"price": "31"}) for _ in range(20)]
    texts += ["{}", "null", '{"ce": 1}', '{"$id": "x"}', "31", "[]", '"text"']
    written = []
    for number, text in enumerate(texts):
        context = {"specversion": "1.0", "id": f"e{number}", "source": "/s", "type": "t"}
        context |= {"dataschema": "https://example.org/s", "sequence": "7", "flag": True}
        written.append(json.dumps(context)[:-1] + ', "data": ' + text + "}")
    answer = network.http.post(
        events,
        content=("[" + ",".join(written) + "]").encode(),
        headers={"content-type": "application/cloudevents-batch+json"},
    )
    assert answer.status_code == 202, answer.text
    expected = {f"e{number}": text for number, text in enumerate(texts)}

    def in_batches() -> dict[str, Any]:
        found = {}
        for _, body in hook.at("/batch"):
            for one in msgspec.json.decode(body, type=list[dict[str, msgspec.Raw]]):
                assert json.loads(bytes(one["dataschema"])) == "https://example.org/s"
                assert json.loads(bytes(one["flag"])) is True
                found[json.loads(bytes(one["id"]))] = bytes(one["data"]).decode()
        return found

    until("the batches", lambda: len(in_batches()) == len(texts), seconds=60)
    until(
        "the single ones",
        lambda: len(hook.at("/binary")) == len(hook.at("/structured")) == len(texts),
        seconds=60,
    )
    structured = {}
    for _, body in hook.at("/structured"):
        one = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        structured[json.loads(bytes(one["id"]))] = bytes(one["data"]).decode()
    binary = {headers["ce-id"]: body.decode() for headers, body in hook.at("/binary")}
    for found in (in_batches(), structured, binary):
        for id, text in expected.items():
            assert _value(found[id]) == _value(text), (id, text, found[id])
    assert structured["e40"].count("31") >= 1
    assert all("31.0" not in binary[f"e{number}"] or "31.0" in texts[number] for number in range(40, 60))


def _value(text: str) -> Any:
    return json.loads(text, parse_float=str, parse_int=str)  # digit by digit


def test_a_topic_is_closed_and_opened(network: Network, hook: Hook) -> None:
    events = _topic(network, "shut", attributes={"n": "integer"}, closed=True)
    assert network.http.get("/v1/topics/shut").json()["closed"] is True
    assert network.http.post(events, json={"n": 1, "x": 2}).status_code == 422
    # Without `closed` it stays as it is.
    assert network.http.put("/v1/topics/shut", json={"attributes": {"n": "integer"}}).json()["closed"] is True
    changed = network.http.put("/v1/topics/shut", json={"attributes": {"n": "integer"}, "closed": False})
    assert (changed.status_code, changed.json()["closed"]) == (200, False)
    assert network.http.post(events, json={"n": 1, "x": 2}).status_code == 202
    network.dispatcher.stop()
    network.restart_dispatcher()
    network.await_servers("ready", *network.servers)
    assert network.http.get("/v1/topics/shut").json()["closed"] is False


def test_a_field_that_is_declared_later_is_missing_in_retained_events(network: Network, hook: Hook) -> None:
    events = _topic(network, "later", attributes={"n": "integer"}, availability="forever")
    assert network.http.post(events, json={"n": 1, "city": "Bern"}).status_code == 202
    attributes = {"n": "integer", "city": "string"}
    assert network.http.put("/v1/topics/later", json={"attributes": attributes}).status_code == 200
    assert network.http.post(events, json={"n": 2, "city": "Bern"}).status_code == 202
    _subscribe(network, "later", hook.url("/contains"), 'city contains "er"')
    _subscribe(network, "later", hook.url("/without"), 'not city contains "er"')

    def numbers(path: str) -> list[int]:
        return sorted(json.loads(body)["n"] for body in _received(hook, path).values())

    until("both", lambda: numbers("/contains") and numbers("/without"))
    assert (numbers("/contains"), numbers("/without")) == ([2], [1])


def test_soap_gets_undeclared_fields_as_elements(network: Network, hook: Hook) -> None:
    events = _topic(network, "xml", attributes={"n": "integer", "tags": ["string"]})
    _subscribe(network, "xml", f"soap:?to={hook.url('/soap')}")
    event = {"n": 1, "tags": ["a", "b"], "more": {"x": [1, None, [2, 3]], "": "e"}, "é": True}
    assert network.http.post(events, json=event).status_code == 202
    until("the message", lambda: hook.at("/soap"))
    body = hook.at("/soap")[0][1].decode()
    for part in ("<n>1</n>", "<tags>a</tags><tags>b</tags>", "<more><x>1</x>", "<x>[2,3]</x>", "<_>e</_>"):
        assert part in body, body


def test_explain_shows_the_whole_event_and_the_deciding_element(network: Network, hook: Hook) -> None:
    _topic(network, "why", attributes={"a.b": "number", "tags": ["string"]})
    _subscribe(network, "why", hook.url("/why"), 'a.b > 3 and tags any prefix "x"')
    event = {"a": {"b": 5, "c": [1]}, "tags": ["y", "xy"], "other": {"z": None}}
    found = network.http.post("/v1/topics/why/explain", json={"event": event}).json()
    assert found["event"] == event
    [server] = found["servers"]
    assert server["subscriptions"][0]["matches"] is True
    shown = network.http.post("/v1/topics/why/explain", json={"filter": 'tags any == "x"'}).json()
    assert shown["exact"] is False
    assert shown["rectangles"] == [{"tags": {"exists": True}}]
