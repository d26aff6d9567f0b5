"""Members of a subscription to a subtree on a server: told, counted and kept under the name of the whole."""

from __future__ import annotations

import pytest
from deliverykit import EVENT, REFUSED, Receiver, asking, run
from serverkit import Kit, activate, control, item, segment, topic

from edn import protocol
from edn.errors import NotFound
from edn.formats.soap.address import SoapAddress
from edn.formats.soap.addressing import WSA_2005, Endpoint
from edn.formats.soap.envelope import SOAP_12
from edn.formats.soap.eventing import CANCELLED, WSE_2004
from edn_server.handover.departures import ReportDepartures

FIRST, SECOND = "w+a", "w+b"


def host(kit: Kit, url: str) -> None:
    """A member on each of two topics."""
    for uid, id in ((1, FIRST), (2, SECOND)):
        kit.store(item(id, url=url, recipient="ann"), info=topic(uid, name=f"t.{id[-1]}"))
    kit.frame(0, 1, activate(1, (FIRST, 1), (SECOND, 1)))


def tell(kit: Kit, after: int) -> None:
    """An event of each topic."""
    segments = [segment([(after + uid, EVENT)], uid=uid) for uid in (1, 2)]
    kit.frame(after, after + 2, segments=segments)


def test_notifications_name_the_whole_also_after_a_restart(kit: Kit) -> None:
    host(kit, "http://127.0.0.1:9/hook")
    tell(kit, 1)
    assert kit.told() == [("w", "e2"), ("w", "e3")]
    kit.reopen()
    assert kit.told() == [("w", "e2"), ("w", "e3")]
    assert sorted(kit.registry.members_of("w")) == [FIRST, SECOND]
    assert kit.registry.members_of(FIRST) == [FIRST]
    assert kit.registry.members_of("x") == []


def test_an_ended_member_leaves_the_others(kit: Kit) -> None:
    host(kit, "http://127.0.0.1:9/hook")
    kit.frame(1, 2, control(2, "deactivate", ids=[FIRST]))
    assert kit.registry.members_of("w") == [SECOND]
    kit.frame(2, 3, control(3, "deactivate", ids=[SECOND]))
    assert kit.registry.members_of("w") == []
    assert kit.registry.members == {}


def test_letters_and_counters_are_asked_for_by_the_name_of_the_whole(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        host(kit, receiver.url("/a"))
        tell(kit, 1)
        receiver.answers["/a"] = [REFUSED]
        async with asking(kit) as (notifier, evidence):
            await notifier.idle()
            delivery = await evidence.delivery("w")
            assert (delivery["evaluated"], delivery["matched"], delivery["dead_letters"]) == (2, 2, 1)
            assert delivery["delivered"] + delivery["failed"] == 2
            [letter], _ = await evidence.letters("w", None, 10)
            assert (await evidence.letter(int(letter["id"].rpartition(".")[2])))["subscriptions"] == ["w"]
            queued = await evidence.recover("w", 0)
            assert queued["letters"] == 1
            await notifier.idle()
            assert (await evidence.letters("w", None, 10))[0] == []
            assert len(await evidence.attempts("w")) == len(receiver.posts)
            with pytest.raises(NotFound):
                await evidence.delivery("nobody")
        told = {
            entry["event"]["id"]: [match["subscription"] for match in entry["matches"]]
            for post in receiver.posts
            if post.status < 300
            for entry in post.body["notifications"]
        }
        assert told == {"e2": ["w"], "e3": ["w"]}

    run(scenario)


def test_one_member_tells_of_the_end_and_names_the_whole(kit: Kit) -> None:
    sink, end = Endpoint("http://127.0.0.1:9/sink", ()), Endpoint("http://127.0.0.1:9/end", ())
    address = SoapAddress(sink, SOAP_12, WSE_2004, WSA_2005, False, end, "http://manager/")
    host(kit, address.url())
    first = control(2, "deactivate", ids=[FIRST], end=CANCELLED)
    kit.frame(1, 3, first, control(3, "deactivate", ids=[SECOND]))
    [row] = kit.rows()
    assert b'"subscription":"w"' in row.body


def test_a_departed_member_is_asked_about_by_itself(kit: Kit) -> None:
    """What moves is a member: the other one stays, and so does what it has."""
    host(kit, "http://127.0.0.1:9/hook")
    tell(kit, 1)
    kit.frame(3, 4, control(4, "move", versions=[(FIRST, 2)]))
    departed, _ = kit.writer.submit(
        ReportDepartures(kit.registry, protocol.Departures([(FIRST, 2), (SECOND, 2)]))
    ).result(30)
    assert departed.ended == [FIRST]
    assert kit.registry.members_of("w") == [SECOND]
