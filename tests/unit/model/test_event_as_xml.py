"""Events from XML: doubtful values are passed on to the check of events, never lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from lxml import etree

from edn.errors import InvalidEvent, MalformedXml
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


LISTED = {"tags": "string[]", "at.marks": "integer[]", "price": "number"}


def test_arrays_and_undeclared_fields_are_read() -> None:
    element = xml.parse(
        b'<e:event xmlns:e="urn:edn:soap"><tags>a</tags><at><marks>1</marks><marks>2</marks></at>'
        b"<more><x>1</x><x>2</x><y><z>text</z></y></more>"
        b'<e:attribute name="at.floor">3</e:attribute></e:event>'
    )
    assert event_xml.read(element, LISTED) == {
        "tags": ["a"],
        "at": {"marks": [1, 2], "floor": "3"},
        "more": {"x": ["1", "2"], "y": {"z": "text"}},
    }


@pytest.mark.parametrize(
    "inner",
    ["<e:attribute>1</e:attribute>", '<at>1</at><e:attribute name="at.floor">1</e:attribute>'],
)
def test_an_attribute_without_a_name_or_inside_a_text_is_malformed(inner: str) -> None:
    with pytest.raises(MalformedXml):
        read(inner)


def test_any_json_object_has_an_xml_form() -> None:
    event = {
        "a.b": 1,
        "a": {"c": [True, None, {"d": 1.5}, [1, "x"]]},
        "": "",
        "1\u00e9": "\x01",
        "none": None,
    }
    text = etree.tostring(event_xml.build_document(event)).decode()
    inner = text.partition(">")[2].removesuffix("</e:event>")
    assert inner == (
        "<a><b>1</b><c>true</c>"
        '<c xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:nil="true"/>'
        '<c><d>1.5</d></c><c>[1,"x"]</c></a><_/><_x0031__x00E9_>&#65533;</_x0031__x00E9_>'
    )
