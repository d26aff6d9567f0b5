"""Brokers that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edn.client import Client
from tests.brokers import Broker, Mosquitto, Nats, running
from tests.network import Network


@pytest.fixture(scope="module")
def mosquitto() -> Iterator[Broker]:
    with running(Mosquitto) as broker:
        yield broker


@pytest.fixture(scope="module")
def nats_server() -> Iterator[Broker]:
    with running(Nats) as broker:
        yield broker


@pytest.fixture(params=["mosquitto", "nats_server"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """The brokers that start in a moment; RabbitMQ, which takes ten seconds, is in the long tests."""
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def client(network: Network) -> Iterator[Client]:
    with Client(network.url) as made:
        yield made
