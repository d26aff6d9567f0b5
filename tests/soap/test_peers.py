"""Clients that others wrote, unmodified: subscribe, status, renew, receive, unsubscribe, and a fault."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import zeep
import zeep.exceptions
from lxml import etree

from tests.network import Network, until
from tests.programs import require, unavailable
from tests.soap.device import DeviceConsumer, HTTPReturnCodeError
from tests.soap.sink import Sink

SERVERS = 1
SERVER_OPTIONS = ["--retry-steps", "0.05"]
TOPIC = "peers"


@pytest.fixture(scope="module", autouse=True)
def topic(network: Network) -> None:
    body = {"attributes": {"symbol": "string", "price": "number"}}
    network.http.put(f"/v1/topics/{TOPIC}", json=body).raise_for_status()


# -- zeep -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("soap", ["Soap11", "Soap12"])
@pytest.mark.parametrize("eventing", ["2004", "2011"])
def test_zeep_goes_the_whole_way(network: Network, sink: Sink, soap: str, eventing: str) -> None:
    with requests.Session() as session:
        client = zeep.Client(f"{network.url}/soap?wsdl", transport=zeep.Transport(session=session))

        def port(name: str) -> Any:
            return client.bind("EventDistribution", name + soap)

        source, publishing = port(f"EventSource{eventing}"), port("Publishing")
        path = f"/zeep-{soap}-{eventing}"
        made = source.Subscribe(
            Delivery={"NotifyTo": {"Address": sink.url(path)}},
            Expires="PT1H",
            Filter={"_value_1": 'price > 30 and symbol == "GE"', "Dialect": "urn:edn:filter"},
            Topic=TOPIC,
        )
        [identifier] = made.SubscriptionManager.ReferenceParameters._value_1
        headers = {"Subscription": identifier}
        assert network.http.get(f"/v1/subscriptions/{identifier}").status_code == 200
        granted = made.Expires if eventing == "2004" else made.GrantedExpires
        assert granted.startswith("PT3")
        assert str(source.GetStatus(_soapheaders=headers)).startswith("PT3")
        assert str(source.Renew(Expires="PT2H", _soapheaders=headers)).startswith("PT7")

        def attributes(**values: object) -> dict[str, Any]:
            return {"attribute": [{"name": name, "_value_1": str(value)} for name, value in values.items()]}

        answer = publishing.Publish(
            Topic=TOPIC, event=[attributes(symbol="GE", price=31), attributes(symbol="GE", price=29)]
        )
        assert answer.Accepted == 2
        assert len(answer.Id) == 2
        [heard] = until("a notification", lambda: sink.at(path))
        assert heard.text("//e:event/price") == "31"

        source.Unsubscribe(_soapheaders=headers)
        assert network.http.get(f"/v1/subscriptions/{identifier}").status_code == 404
        with pytest.raises(zeep.exceptions.Fault, match="does not exist"):
            source.GetStatus(_soapheaders=headers)
        with pytest.raises(zeep.exceptions.Fault, match="price") as refused:
            publishing.Publish(Topic=TOPIC, event=[attributes(price="many")])
        assert "Client" in refused.value.code or "Sender" in refused.value.code


def test_zeep_manages_topics(network: Network) -> None:
    with requests.Session() as session:
        client = zeep.Client(f"{network.url}/soap?wsdl", transport=zeep.Transport(session=session))
        manager = client.bind("EventDistribution", "ManagementSoap12")
        made = manager.CreateTopic(
            Topic="zeep.topic",
            Attributes={"Attribute": [{"name": "x", "type": "number"}]},
            Engine="urn:edn:matcher:rtree",
            Availability="60",
        )
        assert (made.name, made.engine, made.availability) == ("zeep.topic", "rtree", "60")
        assert "zeep.topic" in [topic.name for topic in manager.EnumerateTopics()]
        bound = manager.CreateRoute(Name="zeep.**", Server=["s1"], Engine="urn:edn:matcher:scan")
        assert (bound.name, bound.Server, bound.engine) == ("zeep.**", ["s1"], "scan")
        below = manager.CreateTopic(
            Topic="zeep.topic.below", Attributes={"Attribute": [{"name": "x", "type": "number"}]}
        )
        assert below.engine == "rtree"  # that of the topic above it is nearer than what is bound to zeep.**
        made = network.http.post(
            "/v1/subscriptions", json={"topic": "zeep.**", "sink": {"url": "http://127.0.0.1:9/"}}
        ).json()
        routes = manager.EnumerateRoutes(Name="zeep.**")
        found = [(one.name, one.server, one.subscriptions) for one in routes.Route]
        assert found == [("zeep.topic", "s1", 1), ("zeep.topic.below", "s1", 1)]
        assert [one.name for one in routes.Binding] == ["zeep.**"]
        network.http.delete(f"/v1/subscriptions/{made['id']}").raise_for_status()
        manager.DeleteRoute(Name="zeep.**")
        with pytest.raises(zeep.exceptions.Fault, match="does not exist"):
            manager.DeleteRoute(Name="zeep.**")
        manager.DeleteTopic(Topic="zeep.topic.below")
        manager.DeleteTopic(Topic="zeep.topic")
        assert network.http.get("/v1/topics/zeep.topic").status_code == 404
        with pytest.raises(zeep.exceptions.Fault, match="does not exist"):
            manager.DeleteTopic(Topic="zeep.topic")


# -- sdc11073 ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def devices() -> Iterator[DeviceConsumer]:
    logging.getLogger("sdc").setLevel(logging.ERROR)
    running = DeviceConsumer()
    yield running
    running.close()


def publish(network: Network, *prices: float) -> None:
    events = [{"symbol": "GE", "price": price} for price in prices]
    network.http.post(f"/v1/topics/{TOPIC}/events", json=events).raise_for_status()


@pytest.mark.parametrize(
    ("dialect", "text", "heard"),
    [
        ("http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01/Action", f"urn:edn:topic:{TOPIC}", 2),
        ("urn:edn:filter", "price > 30", 1),
    ],
    ids=["by action", "by content"],
)
def test_sdc11073_goes_the_whole_way(
    network: Network, devices: DeviceConsumer, dialect: str, text: str, heard: int
) -> None:
    topic = etree.Element("{urn:edn:soap}Topic")
    topic.text = TOPIC
    subscription = devices.subscribe(network.url, dialect, text, [topic] if heard == 1 else None)
    assert subscription.is_subscribed
    assert 3590 < subscription.granted_expires <= 3600
    assert 3590 < subscription.get_status() <= 3600
    assert 7190 < subscription.renew(7200) <= 7200
    publish(network, 29, 31)
    until("its notifications", lambda: subscription.event_counter >= heard)
    assert subscription.event_counter == heard
    assert subscription.notification_data.action == f"urn:edn:topic:{TOPIC}"
    assert subscription.notification_msg.msg_node.find("price").text == "31"
    subscription.unsubscribe()
    assert not subscription.is_subscribed
    subscription.is_subscribed = True  # as if it did not know
    with pytest.raises((HTTPReturnCodeError, ValueError)):
        subscription.unsubscribe()


def test_sdc11073_is_told_of_the_end(network: Network, devices: DeviceConsumer) -> None:
    action = "http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01/Action"
    subscription = devices.subscribe(network.url, action, f"urn:edn:topic:{TOPIC}")
    [name] = subscription.subscribe_response.SubscriptionManager.ReferenceParameters
    network.http.delete(f"/v1/subscriptions/{name.text}").raise_for_status()
    until("its end", lambda: not subscription.is_subscribed)
    assert subscription.end_status.endswith("/SourceCancelling")


# -- gSOAP and npm soap: installed by their own package managers ------------------------------------------


def run(*command: str, folder: Path | None = None, seconds: float = 100) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


def told(output: str) -> dict[str, str]:
    """The lines of a peer by their first word; the last of those that begin alike."""
    return dict(line.split(" ", 1) for line in output.splitlines())


def test_gsoap_goes_the_whole_way(network: Network, tmp_path: Path) -> None:
    require("wsdl2h", "soapcpp2", "gcc")
    (tmp_path / "edn.wsdl").write_bytes(network.http.get("/soap?wsdl").content)
    run("wsdl2h", "-c", "-N", "e", "-o", "edn.h", "edn.wsdl", folder=tmp_path)
    run("soapcpp2", "-c", "-L", "-x", "-I/usr/share/gsoap:/usr/share/gsoap/import", "edn.h", folder=tmp_path)
    source = str(Path(__file__).with_name("peer_gsoap.c"))
    run("gcc", "-w", "-I.", "-o", "peer", "soapC.c", "soapClient.c", source, "-lgsoap", folder=tmp_path)
    output = run(str(tmp_path / "peer"), f"{network.url}/soap", TOPIC)
    said = told(output)
    assert said["granted"].startswith("PT3")
    assert said["status"].startswith("PT3")
    assert said["renewed"].startswith("PT7")
    assert said["event"] == f"of {TOPIC}"
    assert "attribute <price>31</price>" in output
    assert "does not exist" in said["fault"]
    assert network.http.get(f"/v1/subscriptions/{said['subscription']}").status_code == 404


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which npm's `soap` is installed; `EDN_NODE_MODULES` may name one that is."""
    require("node", "npm")
    there = os.environ.get("EDN_NODE_MODULES")
    if there is not None:
        return Path(there)
    folder = tmp_path_factory.mktemp("npm")
    installed = subprocess.run(
        ["npm", "install", "--silent", "--no-audit", "--no-fund", "soap"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if installed.returncode != 0:
        unavailable(f"npm could not install soap: {installed.stderr[-200:]}")
    return folder


@pytest.mark.parametrize("soap", ["Soap11", "Soap12"])
def test_npm_soap_goes_the_whole_way(network: Network, sink: Sink, node_modules: Path, soap: str) -> None:
    path = f"/npm-{soap}"
    script = str(Path(__file__).with_name("peer_npm.js"))
    with subprocess.Popen(
        ["node", script, str(node_modules), f"{network.url}/soap", TOPIC, sink.url(path), soap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as peer:
        try:
            until("a notification", lambda: sink.at(path) or peer.poll() is not None)
            output, errors = peer.communicate("go on\n", timeout=60)
        finally:
            peer.kill()
    assert peer.returncode == 0, errors
    said = dict(json.loads(line) for line in output.splitlines())
    assert said["granted"].startswith("PT3")
    assert said["status"].startswith("PT3")
    assert said["renewed"].startswith("PT7")
    assert said["accepted"] == 2
    assert "does not exist" in said["fault"]
    [heard] = sink.at(path)
    assert heard.text("//e:event/price") == "31"
    expected = "text/xml" if soap == "Soap11" else "application/soap+xml"
    assert heard.headers["content-type"].startswith(expected)
    assert network.http.get(f"/v1/subscriptions/{said['subscription']}").status_code == 404
