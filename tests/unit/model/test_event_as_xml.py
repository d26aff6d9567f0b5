"""Events from XML: doubtful values are passed on to the check of events, never lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from edn.errors import InvalidEvent
from edn.formats import event_xml, xml
from edn.model.schema import Schema

TYPES = {"symbol": "string", "price": "number", "volume": "integer", "at.floor": "integer"}
SCHEMA = Schema.parse(TYPES)


def read(inner: str) -> dict[str, Any]:
    return event_xml.read(xml.parse(f'<e:event xmlns:e="urn:edn:soap">{inner}</e:event>'.encode()), TYPES)


def test_an_event_is_read_as_json_would_have_it() -> None:
    read_event = read(
        "<symbol>GE</symbol><price>3.5e1</price><at><floor> 3 </floor></at>"
        '<e:attribute name="volume">7</e:attribute>'
    )
    assert read_event == {"symbol": "GE", "price": 35.0, "at": {"floor": 3}, "volume": 7}


@pytest.mark.parametrize("digits", ["1e999", "-1e999", "9" * 400, "NaN", "INF"])
def test_a_number_that_no_double_holds_is_refused_and_not_taken_for_missing(digits: str) -> None:
    body = msgspec.json.encode([read(f"<price>{digits}</price>")])
    with pytest.raises(InvalidEvent, match='attribute "price" must be a number'):
        SCHEMA.decode_events(body)


@pytest.mark.parametrize(
    "inner",
    [
        "<symbol>GE</symbol><symbol>IBM</symbol>",
        '<symbol>GE</symbol><e:attribute name="symbol">GE</e:attribute>',
        "<at><floor>1</floor></at><at><floor>2</floor></at>",
        "<price>1</price><price>2</price><price>3</price>",
    ],
)
def test_an_attribute_that_is_given_twice_is_refused(inner: str) -> None:
    with pytest.raises(InvalidEvent, match="got an array"):
        SCHEMA.decode_events(msgspec.json.encode([read(inner)]))


def test_an_element_that_is_nil_says_nothing() -> None:
    nil = '<symbol xmlns:x="http://www.w3.org/2001/XMLSchema-instance" x:nil="true"/>'
    assert read(nil + "<symbol>GE</symbol>" + nil) == {"symbol": "GE"}
