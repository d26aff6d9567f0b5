"""The SOAP door end to end, over real processes: every version, the same subscriptions as over REST."""

from __future__ import annotations

import pytest

from tests.network import Network, until
from tests.soap.messages import EVENTING, Client, event
from tests.soap.sink import Sink

SERVERS = 2
SERVER_OPTIONS = ["--retry-steps", "0.05"]
WAYS = [
    {"soap": soap, "eventing": eventing, "addressing": addressing}
    for soap in ("1.1", "1.2")
    for eventing, addressing in (("2004", "2005"), ("2004", "2004"), ("2011", "2005"))
]
FILTER = '<w:Filter Dialect="urn:edn:filter">price &gt; 30 and symbol == "GE"</w:Filter>'


@pytest.fixture(scope="module", autouse=True)
def topic(network: Network) -> None:
    attributes = {"symbol": "string", "price": "number", "at.floor": "integer", "open": "boolean"}
    network.http.put("/v1/topics/stocks", json={"attributes": attributes}).raise_for_status()


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
    assert one.granted(answer).startswith(("PT3600", "PT359"))
    name = answer.text("//a:ReferenceParameters/e:Subscription")
    shown = network.http.get(f"/v1/subscriptions/{name}").json()
    assert shown["topic"] == "stocks"
    assert shown["filter"] == {"price": {"gt": 30}, "symbol": "GE"}

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


XPATH = "http://www.w3.org/TR/1999/REC-xpath-19991116"


@pytest.mark.parametrize("dialect", [None, XPATH, f"{EVENTING['2011']}/Dialects/XPath10"])
def test_xpath_filters_are_matched_on_a_topic_that_is_bound_to_them(
    network: Network, sink: Sink, dialect: str | None
) -> None:
    one = Client(network.url)
    topic = f"bound{0 if dialect is None else len(dialect)}"
    made = one.ask(
        "urn:edn:soap/CreateTopic",
        f"<e:CreateTopic><e:Topic>{topic}</e:Topic><e:Attributes>"
        '<e:Attribute name="price" type="number"/><e:Attribute name="symbol" type="string"/></e:Attributes>'
        f"<e:Engine>{XPATH}</e:Engine><x:Extra xmlns:x='urn:x'/></e:CreateTopic>",
    )
    assert made.status == 200, made.reason
    assert network.http.get(f"/v1/topics/{topic}").json()["engine"] == "xpath"
    named = "" if dialect is None else f' Dialect="{dialect}"'
    filter = f'<w:Filter{named} xmlns:q="urn:edn:soap">/q:event[price &gt; 30]/symbol = "GE"</w:Filter>'
    answer = one.subscribe(topic, sink.url(f"/{topic}"), filter=filter)
    assert answer.status == 200, answer.reason
    name = answer.text("//e:Subscription")
    shown = network.http.get(f"/v1/subscriptions/{name}").json()
    assert shown["filter"] == {"$xpath": '(/child::e:event[(child::price > 30)]/child::symbol = "GE")'}
    ours = network.http.post(
        "/v1/subscriptions",
        json={
            "topic": topic,
            "filter": "xpath \"starts-with(symbol, 'G')\" and price < 31",
            "sink": {"url": f"soap:?to={sink.url(f'/rest-{topic}')}&wrap=1"},
        },
    )
    assert ours.status_code == 201, ours.text
    one.publish(
        topic,
        event(symbol="GE", price=30.5),
        event(symbol="GE", price=29),
        event(symbol="IBM", price=99),
        event(symbol="GE", price=32),
    )
    heard = until("two events", lambda: sink.at(f"/{topic}")[1:] and sink.at(f"/{topic}"))
    assert [message.text("//price") for message in heard] == ["30.5", "32"]
    wrapped = until("the wrapped ones", lambda: sink.at(f"/rest-{topic}"))
    prices = [price.text for message in wrapped for price in message.all("//w:Notify//e:event/price")]
    assert prices == ["30.5", "29"]
    one.close()


def test_xpath_is_refused_by_a_topic_of_another_engine(network: Network, sink: Sink) -> None:
    one = Client(network.url)
    answer = one.subscribe("stocks", sink.url("/no"), filter="<w:Filter>price &gt; 30</w:Filter>")
    assert answer.codes[-1] == "CannotProcessFilter"
    assert "must be xpath" in answer.reason
    assert answer.reason.endswith("got bitmap")
    one.close()


def test_an_attempt_after_a_failure_begins_with_the_message_that_failed(network: Network, sink: Sink) -> None:
    one = Client(network.url)
    name = one.subscribe("stocks", sink.url("/again")).text("//e:Subscription")
    sink.answers["/again"] = [202, 503, 202, 500]
    one.publish("stocks", *(event(symbol="A", price=number) for number in range(6)))
    heard = until("six events", lambda: sink.at("/again")[5:] and sink.at("/again"))
    assert [message.text("//price") for message in heard] == [str(number) for number in range(6)]
    tried = sink.at("/again", taken=False)
    assert len(tried) == 8
    ids = {message.text("//price"): message.text("//a:MessageID") for message in tried}
    assert all(ids[message.text("//price")] == message.text("//a:MessageID") for message in tried)
    assert len(set(ids.values())) == 6
    one.manage("Unsubscribe", name)
    one.close()


@pytest.mark.parametrize("eventing", ["2004", "2011"])
def test_whoever_asked_for_it_is_told_of_an_end_that_they_did_not_ask_for(
    network: Network, sink: Sink, eventing: str
) -> None:
    one = Client(network.url, eventing=eventing)
    path = f"/end-{eventing}"
    name = one.subscribe("stocks", sink.url("/nothing"), end=sink.url(path)).text("//e:Subscription")
    network.http.delete(f"/v1/subscriptions/{name}").raise_for_status()
    [heard] = until("the end", lambda: sink.at(path))
    ns = EVENTING[eventing]
    assert heard.text("//a:Action", eventing) == f"{ns}/SubscriptionEnd"
    assert heard.text("//w:SubscriptionEnd/w:Status", eventing) == f"{ns}/SourceCancelling"
    if eventing == "2004":
        assert heard.text("//w:SubscriptionManager//e:Subscription", eventing) == name
        assert heard.text("//w:SubscriptionManager/a:Address", eventing) == one.url

    # Who asks for it themselves is not told.
    quiet = one.subscribe("stocks", sink.url("/nothing"), end=sink.url(path)).text("//e:Subscription")
    one.manage("Unsubscribe", quiet)
    name = one.subscribe("stocks", sink.url("/gone"), end=sink.url(path)).text("//e:Subscription")
    sink.answers["/gone"] = [410]
    one.publish("stocks", event(symbol="A", price=1))
    until("the second end", lambda: sink.at(path)[1:])
    assert sink.at(path)[1].text("//w:Status", eventing) == f"{ns}/DeliveryFailure"
    assert network.http.get(f"/v1/subscriptions/{name}").status_code == 404
    one.close()


def test_a_topic_that_is_deleted_ends_its_subscriptions_with_a_word(network: Network, sink: Sink) -> None:
    network.http.put("/v1/topics/brief", json={"attributes": {"x": "number"}}).raise_for_status()
    one = Client(network.url)
    one.subscribe("brief", sink.url("/nothing"), end=sink.url("/brief-end"))
    network.http.delete("/v1/topics/brief", params={"cascade": True}).raise_for_status()
    [heard] = until("the end", lambda: sink.at("/brief-end"))
    assert heard.text("//w:Status").endswith("/SourceCancelling")
    one.close()


def test_a_subtree_is_subscribed_to_and_routes_are_managed(network: Network, sink: Sink) -> None:
    one = Client(network.url)
    bound = one.ask(
        "urn:edn:soap/CreateRoute",
        f"<e:CreateRoute><e:Name>floor.**</e:Name><e:Server>s2</e:Server><e:Engine>{XPATH}</e:Engine>"
        "<x:Extra xmlns:x='urn:x'/></e:CreateRoute>",
    )
    assert bound.status == 200, bound.reason
    assert bound.all("//e:Binding/@engine") == ["xpath"]
    answer = one.subscribe("floor.**", sink.url("/floor"), end=sink.url("/floor-end"))
    name = answer.text("//a:ReferenceParameters/e:Subscription")
    created = one.ask(
        "urn:edn:soap/CreateTopic",
        "<e:CreateTopic><e:Topic>floor.third</e:Topic><e:Attributes>"
        '<e:Attribute name="n" type="integer"/></e:Attributes></e:CreateTopic>',
    )
    assert created.all("//e:TopicDescription/@engine") == ["xpath"]  # what is bound above it
    assert one.publish("floor.third", event(n=1)).status == 200
    [heard] = until("a notification", lambda: sink.at("/floor"))
    assert heard.all("//e:Match/@subscription") == [name]
    assert heard.text("//a:Action") == "urn:edn:topic:floor.third"
    routes = one.ask(
        "urn:edn:soap/EnumerateRoutes", "<e:EnumerateRoutes><e:Name>floor.**</e:Name></e:EnumerateRoutes>"
    )
    assert routes.all("//e:Route/@name") == ["floor.third"]
    assert routes.all("//e:Route/@server") == ["s2"]
    assert routes.all("//e:Binding/@name") == ["floor.**"]
    assert one.granted(one.manage("Renew", name, "<w:Expires>PT2H</w:Expires>")).startswith("PT7")
    network.http.delete(f"/v1/subscriptions/{name}").raise_for_status()
    [ended] = until("the end", lambda: sink.at("/floor-end"))
    assert ended.text("//w:Status").endswith("/SourceCancelling")
    assert (
        one.ask("urn:edn:soap/DeleteRoute", "<e:DeleteRoute><e:Name>floor.**</e:Name></e:DeleteRoute>").status
        == 200
    )
    gone = one.ask("urn:edn:soap/DeleteRoute", "<e:DeleteRoute><e:Name>floor.**</e:Name></e:DeleteRoute>")
    assert (gone.status, "does not exist" in gone.reason) == (400, True)
    nameless = one.ask("urn:edn:soap/CreateRoute", "<e:CreateRoute><e:Server>s2</e:Server></e:CreateRoute>")
    assert (nameless.status, "must have a name" in nameless.reason) == (400, True)
    network.http.delete("/v1/topics/floor.third").raise_for_status()
    one.close()
