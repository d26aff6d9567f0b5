"""The SOAP door end to end, over real processes: every version, the same subscriptions as over REST."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.network import Network, until
from tests.soap.messages import EVENTING, Client, event
from tests.soap.sink import Sink

WAYS = [
    {"soap": soap, "eventing": eventing, "addressing": addressing}
    for soap in ("1.1", "1.2")
    for eventing, addressing in (("2004", "2005"), ("2004", "2004"), ("2011", "2005"))
]
FILTER = '<w:Filter Dialect="urn:edn:filter">price &gt; 30 and symbol == "GE"</w:Filter>'


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    running = Network(tmp_path_factory.mktemp("soap"), 2, server_options=["--retry-steps", "0.05"])
    try:
        running.start()
        attributes = {"symbol": "string", "price": "number", "at.floor": "integer", "open": "boolean"}
        running.http.put("/v1/topics/stocks", json={"attributes": attributes}).raise_for_status()
        yield running
    finally:
        print(running.report())
        running.close()


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    running = Sink()
    yield running
    running.close()


def client(network: Network, way: dict[str, str]) -> Client:
    return Client(network.url, **way)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
def test_subscribe_receive_renew_and_unsubscribe_in_every_version(
    network: Network, sink: Sink, way: dict[str, str]
) -> None:
    one = client(network, way)
    ns = EVENTING[way["eventing"]]
    path = "/" + "-".join(way.values())
    answer = one.subscribe(
        "stocks", sink.url(path), filter=FILTER, parameters='<mine xmlns="urn:x" k="1">7</mine>'
    )
    assert answer.status == 200
    assert answer.text("//a:Action") == f"{ns}/SubscribeResponse"
    assert answer.text("//a:RelatesTo") == "urn:uuid:1"
    assert answer.text("//w:SubscriptionManager/a:Address") == one.url
    assert one.granted(answer) == "PT3600.000S" or one.granted(answer).startswith("PT3599.")
    name = answer.text("//a:ReferenceParameters/e:Subscription")
    shown = network.http.get(f"/v1/subscriptions/{name}").json()
    assert shown["topic"] == "stocks"
    assert shown["filter"] == {"$all": [{"price": {"gt": 30}}, {"symbol": "GE"}]} or shown["filter"]

    published = one.publish(
        "stocks",
        event(symbol="GE", price=31.5, open="true"),
        event(symbol="GE", price=3),
        event(symbol="GE", price="4e1"),
    )
    assert published.status == 200, published.reason
    assert published.text("//e:Accepted") == "3"
    [first, second] = until("two notifications", lambda: sink.at(path)[1:] and sink.at(path))
    edition = way["addressing"]
    assert first.text("//a:Action", addressing=edition) == "urn:edn:topic:stocks"
    assert first.text("//*[local-name() = 'mine']") == "7"
    assert first.text("//e:event/price") == "31.5"
    assert first.text("//e:event/open") == "true"
    assert second.text("//e:event/price") == "40"
    assert first.all("//e:Match/@subscription") == [name]
    assert first.text("//a:MessageID", addressing=edition) != second.text("//a:MessageID", addressing=edition)
    expected = "text/xml" if way["soap"] == "1.1" else "application/soap+xml"
    assert first.headers["content-type"].startswith(expected)

    assert one.granted(one.manage("GetStatus", name)).startswith("PT359")
    assert one.granted(one.manage("Renew", name, "<w:Expires>PT2H</w:Expires>")).startswith("PT7")
    over = one.manage("Unsubscribe", name)
    assert over.status == 200
    assert len(over.all("//w:UnsubscribeResponse")) == (way["eventing"] == "2011")
    assert network.http.get(f"/v1/subscriptions/{name}").status_code == 404
    gone = one.manage("GetStatus", name)
    assert gone.status == (400 if way["soap"] == "1.2" else 500)
    assert gone.codes[-1] == ("InvalidMessage" if way["eventing"] == "2004" else "UnknownSubscription")
    one.close()


def test_what_is_made_over_rest_is_seen_here(network: Network) -> None:
    body = {"topic": "stocks", "sink": {"url": "http://127.0.0.1:9/x"}, "expires": "PT1H"}
    name = network.http.post("/v1/subscriptions", json=body).json()["id"]
    one = Client(network.url)
    assert one.granted(one.manage("GetStatus", name)).startswith("PT359")
    assert one.manage("Unsubscribe", name).status == 200
    assert network.http.get(f"/v1/subscriptions/{name}").status_code == 404
    one.close()
