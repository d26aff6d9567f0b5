"""Hostile XML is refused, fetches nothing, and leaves the dispatcher as it was."""

from __future__ import annotations

import httpx
import psutil
import pytest

from edn.errors import EdnError
from edn.formats import xml
from tests.network import Network
from tests.soap.attacks import ATTACKS

SERVERS = 1
#: not refused as XML: without an XInclude processor it is an element like any other
HARMLESS = {"XInclude"}
#: bytes by which a process may differ before and after, whatever was asked of it
SLACK = 8 << 20


@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in HARMLESS])
def test_hostile_xml_is_refused(name: str) -> None:
    with pytest.raises(EdnError) as refused:
        xml.parse(ATTACKS[name])
    assert 400 <= refused.value.status < 500


def test_what_is_harmless_stays_what_it_is() -> None:
    assert xml.parse(ATTACKS["XInclude"])[0].text is None
    assert xml.parse("<?xml version='1.0' encoding='utf-16'?><x>é</x>".encode("utf-16")).text == "é"
    assert xml.parse(b"\xef\xbb\xbf<x>&lt;!DOCTYPE&#33;</x>").text == "<!DOCTYPE!"
    assert xml.parse(b"<x><![CDATA[<!DOCTYPE x>]]></x>").text == "<!DOCTYPE x>"
    assert xml.parse(b"<x>" * xml.MAX_DEPTH + b"</x>" * xml.MAX_DEPTH) is not None


def test_the_dispatcher_refuses_each_and_its_memory_stays_flat(network: Network) -> None:
    process = psutil.Process(network.dispatcher.pid)

    def post(document: bytes) -> httpx.Response:
        return network.http.post("/soap", content=document, headers={"content-type": "application/soap+xml"})

    for document in ATTACKS.values():  # once, for what is loaded and cached at the first of its kind
        post(document)
    before = process.memory_info().rss
    for _ in range(5):
        for name, document in ATTACKS.items():
            answer = post(document)
            assert answer.status_code in (400, 413, 500), name
            assert (
                b"Sender" in answer.content
                or b"VersionMismatch" in answer.content
                or answer.status_code == 413
            )
            assert b"root:" not in answer.content
    assert process.memory_info().rss - before < SLACK
    assert network.http.get("/livez").status_code == 200
