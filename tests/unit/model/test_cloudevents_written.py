"""Events written as CloudEvents are valid for any attribute names."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from edn.errors import InvalidEvent
from edn.formats.cloudevents import CloudEvent, as_binary, as_structured, from_notification, plain, read
from edn.model.schema import Schema

TIME = "2026-01-01T00:00:00Z"


def event(**attributes: Any) -> CloudEvent:
    return notified("7", attributes)


def notified(id: str, attributes: dict[str, Any]) -> CloudEvent:
    text = msgspec.Raw(json.dumps(attributes, separators=(",", ":")).encode())
    return from_notification("sold", {"id": id, "time": TIME, "attributes": text})


def structured(event: CloudEvent) -> Any:
    return json.loads(msgspec.json.encode(as_structured(event)))


def test_an_event_of_plain_json_gets_the_source_and_type_of_its_topic() -> None:
    assert structured(event(price=31.5)) == {
        "specversion": "1.0",
        "id": "7",
        "source": "/v1/topics/sold",
        "type": "edn.sold",
        "time": TIME,
        "datacontenttype": "application/json",
        "data": {"price": 31.5},
    }


def test_what_came_as_a_cloud_event_goes_as_the_same() -> None:
    body = b'{"specversion":"1.0","id":"a","source":"/s","type":"t","rank":3,"data":{"price":1}}'
    types = {"ce.source": "string", "ce.type": "string", "ce.rank": "integer", "price": "number"}
    [came] = read("structured", b"application/cloudevents+json", [], body)
    assert b'"$id":"/s#a"' in plain([came], types)
    attributes = {"ce": {"source": "/s", "type": "t", "rank": 3}, "price": 1}
    goes = structured(notified("/s#a", attributes))
    for name, value in {"id": "a", "source": "/s", "type": "t", "rank": 3, "data": {"price": 1}}.items():
        assert goes[name] == value


@pytest.mark.parametrize(
    ("ce", "kind", "body"),
    [
        ({"data_base64": "AAEC"}, "application/octet-stream", b"\x00\x01\x02"),
        ({"data_base64": "AAEC", "datacontenttype": "image/png"}, "image/png", b"\x00\x01\x02"),
        ({"data_base64": "AAEC", "datacontenttype": "a\r\nb"}, "application/octet-stream", b"\x00\x01\x02"),
        ({"data_base64": "abc"}, "application/json", b'{"ce":{"data_base64":"abc"}}'),
        ({"data_base64": "no base64!"}, "application/json", b'{"ce":{"data_base64":"no base64!"}}'),
        ({"data_base64": None}, "application/json", b"{}"),
        ({"data": "text"}, "application/json", b'"text"'),
    ],
)  # fmt: skip
def test_data_is_binary_where_it_is_base64_and_stays_a_text_where_it_is_not(
    ce: dict[str, Any], kind: str, body: bytes
) -> None:
    _, content_type, written_body = as_binary(event(ce=ce))
    assert (content_type, written_body) == (kind, body)


ODD = {"Große-Stadt": 1, "a_b": 2, "nested": {"x": 3}, "id": "mine", "specversion": "9", "time": "never"}


def test_attributes_that_no_context_can_have_stay_in_the_data() -> None:
    made = event(ce={**ODD, "rank": 4})
    assert json.loads(bytes(made.data or b"")) == {"ce": ODD}
    headers, _, _ = as_binary(made)
    assert dict(headers) == {
        "ce-specversion": "1.0",
        "ce-id": "7",
        "ce-source": "/v1/topics/sold",
        "ce-type": "edn.sold",
        "ce-time": TIME,
        "ce-rank": "4",
    }
    assert len(headers) == 6


GOOD = {"specversion": "1.0", "id": "a", "source": "/s", "type": "t"}


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"type": ""}, "/type"),
        ({"specversion": "0.3"}, "/specversion"),
        ({"rank": 1.5}, "/rank"),
        ({"data_base64": "!"}, "/data_base64"),
        ({"rank": "x"}, "/rank"),
        ({"unknown": "x"}, "/unknown"),
        ({"data": 5}, "/data"),
    ],
)
def test_what_is_wrong_is_pointed_at_in_the_request_alone_or_in_a_batch(
    wrong: dict[str, Any], pointer: str
) -> None:
    types = {"ce.source": "string", "ce.type": "string", "ce.rank": "integer"}

    def refused(mode: str, value: object) -> tuple[int, str | None]:
        with pytest.raises(InvalidEvent) as error:
            plain(read(mode, b"", [], json.dumps(value).encode()), types, closed=True)
        return error.value.index, error.value.pointer

    assert refused("structured", {**GOOD, **wrong}) == (0, pointer)
    assert refused("batch", [GOOD, {**GOOD, **wrong}]) == (1, "/1" + pointer)


def test_an_id_that_is_a_source_alone_is_not_emptied() -> None:
    made = notified("/v1/topics/sold#", {})
    assert made.context["id"] == "/v1/topics/sold#"


@pytest.mark.parametrize(
    "data",
    [
        b'{"price":31,"e":1e2,"deep":{"a":[1,null,{"b":"\\u00e9"}]}}',
        b'{"ce":1}',
        b'{"ce.x":1}',
        b'{"$id":"x"}',
        b"{}",
        b"[1,2.0,{}]",
        b"null",
        b"31",
        b'"text"',
        b"true",
        None,
    ],
)
def test_data_comes_back_byte_for_byte(data: bytes | None) -> None:
    extensions = {"dataschema": "https://example.org/s", "unknown": "x", "rank": 7, "flag": False}
    head = json.dumps({**GOOD, **extensions}).encode()
    body = head if data is None else head[:-1] + b', "data": ' + data + b"}"
    [came] = read("structured", b"", [], body)
    batch = Schema.parse({"price": "number"}).decode_events(plain([came], {"price": "number"}))
    assert batch.ids == ["/s#a"]
    goes = from_notification("sold", {"id": "/s#a", "time": TIME, "attributes": msgspec.Raw(batch.bodies[0])})
    assert {name: goes.context[name] for name in extensions} == extensions
    assert (goes.data is None) == (data is None)
    if data is not None:
        assert bytes(goes.data or b"") == data
        _, kind, posted = as_binary(goes)
        assert (kind, posted) == ("application/json", data)


def test_a_text_comes_back_as_the_text_in_binary_mode() -> None:
    headers = [(f"ce-{name}".encode(), value.encode()) for name, value in GOOD.items()]
    [came] = read("binary", b"text/plain; charset=utf-8", headers, "héllo\n".encode())
    batch = Schema.parse({"price": "number"}).decode_events(plain([came], {"price": "number"}))
    goes = from_notification("sold", {"id": "/s#a", "time": TIME, "attributes": msgspec.Raw(batch.bodies[0])})
    assert as_binary(goes)[1:] == ("text/plain; charset=utf-8", "héllo\n".encode())
    assert structured(goes)["data"] == "héllo\n"
