"""A connection that was not used for a while still serves: clients give up first, not the network."""

from __future__ import annotations

import http.client
import time
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

from tests.network import Network, Process

SERVERS = 1
#: longer than the common clients keep one, httpx and Node above all
SECONDS = 6.0


def test_what_rested_longer_than_clients_let_it_is_answered(network: Network) -> None:
    with ExitStack() as stack:
        connections = [
            stack.enter_context(connected_to(process))
            for process in (network.dispatcher, network.servers["s1"])
        ]
        for rest in (0.0, SECONDS):
            time.sleep(rest)
            for connection in connections:
                connection.request("GET", "/metrics")
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 200


def connected_to(process: Process) -> closing[http.client.HTTPConnection]:
    address = urlsplit(process.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=10)
    connection.connect()
    connection.auto_open = 0  # and no second one behind our back
    return closing(connection)
