"""Two tenants on one server that agree in ids, URLs and names: what belongs to one is never the other's."""

from __future__ import annotations

import contextlib
import json

import pytest
from serverkit import Kit, activate, control, item, segment, topic

from edn.errors import CorruptMessage
from edn.formats.soap.address import SoapAddress
from edn.formats.soap.addressing import Endpoint
from edn.formats.soap.eventing import CANCELLED
from edn.model.namespace import key_of
from edn_server.delivery.dead_letters import Abandoned, Purge, StoreDeadLetters
from edn_server.outbox.batches import DeliveryBatch
from edn_server.storage import addresses
from edn_server.storage import dead_letters as letter_table

TENANTS = ("acme", "evil")
EVENT = {"symbol": "GE", "price": 31.0}
URL = "http://127.0.0.1:9/hook"
SOAP = SoapAddress(Endpoint(URL), end=Endpoint(URL)).url()


def fill(kit: Kit, url: str = URL) -> None:
    """A subscription `s` of each tenant to a topic of the same name, and an event of each."""
    for uid, tenant in enumerate(TENANTS, 1):
        made = item(key_of(tenant, "s"), url=url, tenant=tenant)
        kit.store(made, info=topic(uid, name="orders", tenant=tenant))
    kit.frame(
        0,
        4,
        activate(1, *((key_of(tenant, "s"), 1) for tenant in TENANTS)),
        segments=[segment([(offset, EVENT)], uid=uid) for uid, offset in ((1, 3), (2, 4))],
    )


@pytest.mark.parametrize("url", [URL, SOAP, "cloudevents:?mode=batch&to=x", "mailto:a#b@example.org"])
def test_a_row_is_one_tenants_and_names_ids_without_the_tenant(kit: Kit, url: str) -> None:
    fill(kit, url)
    kit.reopen()
    rows = kit.rows()
    assert [(addresses.tenant_of(row.address), addresses.url_of(row.address)) for row in rows] == [
        ("acme", url),
        ("evil", url),
    ]
    for row, event in zip(rows, ("e3", "e4"), strict=True):
        [entry] = kit.body(row)["notifications"]
        assert (entry["topic"], entry["event"]["id"]) == ("orders", event)
        assert entry["matches"] == [{"subscription": "s"}]


def test_streams_and_buffers_are_kept_by_key(kit: Kit) -> None:
    # The name of the stream that the message gives plays no part.
    fill(kit, "stream:acme,s")
    assert [row.address for row in kit.rows()] == ["stream:acme,s", "stream:evil,s"]
    kit.frame(4, 5, control(5, "pause", ids=["evil,s"]))
    kit.frame(5, 7, segments=[segment([(6, EVENT)], uid=1), segment([(7, EVENT)], uid=2)])
    assert [(row.address, row.subscription) for row in kit.rows()][2:] == [
        ("stream:acme,s", "acme,s"),
        ("", "evil,s"),
    ]


def test_the_end_is_told_to_the_tenants_own_address(kit: Kit) -> None:
    fill(kit, SOAP)
    kit.frame(4, 5, control(5, "deactivate", ids=["evil,s"], end=CANCELLED))
    [row] = [row for row in kit.rows() if row.frame_id is None]
    assert addresses.tenant_of(row.address) == "evil"
    assert json.loads(row.body)["end"]["subscription"] == "s"
    assert list(kit.registry.numbers) == ["acme,s"]


def test_letters_are_found_by_key_and_go_with_their_own_subscription(kit: Kit) -> None:
    fill(kit)
    deaths = [
        Abandoned(DeliveryBatch((row,), json.dumps(kit.body(row)).encode()), 1, 410, "gone")
        for row in kit.rows()
    ]
    kit.writer.submit(StoreDeadLetters(deaths, 10)).result(30)
    with contextlib.closing(kit.folder.connect(read_only=True)) as reader:
        for tenant in TENANTS:
            [letter] = letter_table.page(reader, key_of(tenant, "s"), (0, 0), 10)
            assert addresses.tenant_of(letter.address) == tenant
            assert letter_table.count(reader, key_of(tenant, "s")) == 1
        assert letter_table.page(reader, "s", (0, 0), 10) == []
        kit.writer.submit(Purge(0, lambda key: key == "evil,s")).result(30)
        [left] = letter_table.page(reader, None, (0, 0), 10)
        assert addresses.tenant_of(left.address) == "acme"


@pytest.mark.parametrize(
    ("id", "tenant", "of_topic"), [("s", "acme", "acme"), ("acme,s", "", ""), ("evil,s", "evil", "acme")]
)
def test_a_store_whose_tenants_disagree_is_refused(kit: Kit, id: str, tenant: str, of_topic: str) -> None:
    with pytest.raises(CorruptMessage, match="tenant"):
        kit.store(item(id, tenant=tenant), info=topic(tenant=of_topic))
