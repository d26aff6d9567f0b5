"""What is wrong is said by the book: codes, subcodes and statuses of both versions and both vocabularies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.network import Network
from tests.soap.messages import EVENTING, OURS, Answer, Client, envelope

SERVERS = 1
SINK = "http://127.0.0.1:9/sink"


@pytest.fixture(scope="module", autouse=True)
def topic(network: Network) -> None:
    network.http.put("/v1/topics/stocks", json={"attributes": {"price": "number"}}).raise_for_status()


@dataclass(frozen=True)
class Wrong:
    name: str
    ask: Callable[[Client], Answer]
    #: local name of the most telling code, by vocabulary
    codes: dict[str, str]
    #: a part of the reason
    says: str


def same(code: str) -> dict[str, str]:
    return {"2004": code, "2011": code}


def filtered(client: Client, dialect: str | None, text: str) -> Answer:
    named = "" if dialect is None else f' Dialect="{dialect}"'
    return client.subscribe("stocks", SINK, filter=f"<w:Filter{named}>{text}</w:Filter>")


TABLE = [
    Wrong(
        "an unknown delivery",
        lambda client: client.subscribe("stocks", SINK, mode="urn:by-pigeon"),
        {"2004": "DeliveryModeRequestedUnavailable", "2011": "DeliveryFormatRequestedUnavailable"},
        "urn:by-pigeon",
    ),
    Wrong(
        "an expiry in the past",
        lambda client: client.subscribe("stocks", SINK, expires="2001-01-01T00:00:00Z"),
        {"2004": "InvalidExpirationTime", "2011": "UnsupportedExpirationValue"},
        "in the future",
    ),
    Wrong(
        "a negative duration",
        lambda client: client.subscribe("stocks", SINK, expires="-PT1H"),
        {"2004": "InvalidExpirationTime", "2011": "UnsupportedExpirationValue"},
        "must be in the future",
    ),
    Wrong(
        "an expiry that is none",
        lambda client: client.subscribe("stocks", SINK, expires="soon"),
        {"2004": "InvalidExpirationTime", "2011": "UnsupportedExpirationValue"},
        "a time such as",
    ),
    Wrong(
        "an unknown dialect",
        lambda client: filtered(client, "urn:sql", "price > 3"),
        same("FilteringRequestedUnavailable"),
        "urn:sql",
    ),
    Wrong(
        "a filter that is none",
        lambda client: filtered(client, "urn:edn:filter", "price >"),
        {"2004": "FilteringRequestedUnavailable", "2011": "CannotProcessFilter"},
        "",
    ),
    Wrong(
        "an attribute that the topic lacks",
        lambda client: filtered(client, "urn:edn:filter", "cost == 3"),
        {"2004": "FilteringRequestedUnavailable", "2011": "CannotProcessFilter"},
        "is not an attribute of this topic",
    ),
    Wrong(
        "an empty filter",
        lambda client: filtered(client, "urn:edn:filter", ""),
        {"2004": "FilteringRequestedUnavailable", "2011": "EmptyFilter"},
        "Filter must not be empty",
    ),
    Wrong(
        "an address that no notification may go to",
        lambda client: client.subscribe("stocks", "ftp://example.org/x"),
        {"2004": "InvalidMessage", "2011": "UnusableEPR"},
        "http",
    ),
    Wrong(
        "an unknown topic",
        lambda client: client.subscribe("nothing", SINK),
        same("InvalidMessage"),
        "does not exist",
    ),
    Wrong(
        "no topic at all",
        lambda client: client.subscribe("", SINK),
        same("InvalidMessage"),
        "must name a topic",
    ),
    Wrong(
        "a renewal of nothing",
        lambda client: client.manage("Renew", "nobody"),
        {"2004": "UnableToRenew", "2011": "UnknownSubscription"},
        "does not exist",
    ),
    Wrong(
        "an end of nothing",
        lambda client: client.manage("Unsubscribe", "nobody"),
        {"2004": "InvalidMessage", "2011": "UnknownSubscription"},
        "does not exist",
    ),
    Wrong(
        "a status without a subscription",
        lambda client: client.ask(f"{EVENTING[client.eventing]}/GetStatus", "<w:GetStatus/>"),
        same("InvalidMessage"),
        "must name the subscription",
    ),
    Wrong(
        "an action that is not that of the body",
        lambda client: client.ask("urn:else", "<w:GetStatus/>"),
        same("ActionNotSupported"),
        "got urn:else",
    ),
    Wrong(
        "an element that nobody answers",
        lambda client: client.ask("urn:else", '<x xmlns="urn:x"/>'),
        same("ActionNotSupported"),
        "{urn:x}x",
    ),
    Wrong(
        "an answer that is wanted elsewhere",
        lambda client: client.ask(
            f"{OURS}/EnumerateTopics",
            "<e:EnumerateTopics/>",
            "<a:ReplyTo><a:Address>http://127.0.0.1:9/elsewhere</a:Address></a:ReplyTo>",
        ),
        same("OnlyAnonymousAddressSupported"),
        "must be anonymous",
    ),
    Wrong(
        "a header that occurs twice",
        lambda client: client.ask(
            f"{OURS}/EnumerateTopics", "<e:EnumerateTopics/>", "<a:MessageID>urn:2</a:MessageID>"
        ),
        same("InvalidAddressingHeader"),
        "MessageID is repeated",
    ),
]


@pytest.mark.parametrize("soap", ["1.1", "1.2"])
@pytest.mark.parametrize("eventing", ["2004", "2011"])
@pytest.mark.parametrize("wrong", TABLE, ids=lambda wrong: wrong.name)
def test_what_is_wrong_is_a_fault_by_the_book(
    network: Network, wrong: Wrong, eventing: str, soap: str
) -> None:
    client = Client(network.url, soap=soap, eventing=eventing)
    before = network.http.get("/v1/subscriptions").json()
    answer = wrong.ask(client)
    assert answer.codes[-1] == wrong.codes[eventing]
    assert wrong.says in answer.reason
    # SOAP 1.1 knows one status of faults.
    assert answer.status == (500 if soap == "1.1" else 400)
    assert answer.media_type == ("text/xml" if soap == "1.1" else "application/soap+xml")
    if soap == "1.2":
        assert answer.codes[0] == "Sender"
    assert network.http.get("/v1/subscriptions").json() == before
    client.close()


@pytest.mark.parametrize(("soap", "code"), [("1.1", "Client"), ("1.2", "Sender")])
def test_an_event_that_cannot_be_taken_is_the_senders_fault_and_names_its_place(
    network: Network, soap: str, code: str
) -> None:
    client = Client(network.url, soap=soap)
    good, bad = "<e:event><price>3</price></e:event>", "<e:event><price>many</price></e:event>"
    answer = client.publish("stocks", good, bad)
    assert answer.codes == [code]
    assert answer.text("//e:Problem/e:index") == "1"
    assert answer.text("//e:Problem/e:status") == "422"
    assert "price" in answer.reason
    client.close()


@pytest.mark.parametrize("soap", ["1.1", "1.2"])
def test_a_header_that_must_be_understood_and_is_not_is_named(network: Network, soap: str) -> None:
    client = Client(network.url, soap=soap)
    header = '<x:security xmlns:x="urn:x" s:mustUnderstand="1"/>'
    answer = client.post(envelope("<e:EnumerateTopics/>", header, soap=soap))
    assert answer.codes == ["MustUnderstand"]
    assert answer.status == 500
    if soap == "1.2":
        assert answer.all("//t:NotUnderstood/@qname") == ["n:security"]
    # One that is for somebody else on the way is none of ours.
    role = "actor" if soap == "1.1" else "role"
    header = f'<x:security xmlns:x="urn:x" s:mustUnderstand="1" s:{role}="urn:somebody"/>'
    assert client.post(envelope("<e:EnumerateTopics/>", header, soap=soap)).status == 200
    client.close()


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        (b'<Envelope xmlns="urn:soap:2.0"><Body/></Envelope>', "VersionMismatch", "{urn:soap:2.0}Envelope"),
        (b"<price>3</price>", "VersionMismatch", "price"),
        (b"price = 3", "Sender", "must begin with <"),
        (b"<a><b></a>", "Sender", "not XML"),
        (envelope("<e:Publish/><e:Publish/>"), "Sender", "must have one element, got 2"),
        (envelope(""), "Sender", "the Body is empty"),
    ],
    ids=["another version", "no envelope", "no XML", "XML that does not close", "two bodies", "no body"],
)
def test_what_is_no_message_is_told_so(network: Network, body: bytes, code: str, says: str) -> None:
    client = Client(network.url)
    answer = client.post(body)
    assert answer.codes[0] == code
    assert says in answer.reason
    client.close()


def test_a_reference_parameter_in_a_relative_namespace_is_refused(network: Network) -> None:
    """It cannot be canonicalised, so it could not be echoed as it was."""
    client = Client(network.url)
    answer = client.subscribe("stocks", "http://127.0.0.1:9/", parameters='<x xmlns="relative">1</x>')
    assert answer.status == 400
    assert "absolute URIs" in answer.reason
    client.close()
