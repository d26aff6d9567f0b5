"""Ten thousand messages from a broker through a source, a topic and a sink back to it, while it restarts."""

from __future__ import annotations

import contextlib
import secrets
import signal
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from edn.client import Client
from tests.brokers import Broker, Mosquitto, Nats, RabbitMQ, running
from tests.connectors.probes import Message, Probe, probe
from tests.network import Network, until

COUNT = 10_000
#: so many are in the network when the broker ends
BEFORE = 2_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "how"),
    [(RabbitMQ, signal.SIGKILL), (Nats, signal.SIGKILL), (Mosquitto, signal.SIGTERM)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_no_message_is_lost_or_repeated_while_the_broker_restarts(
    kind: type[Broker], how: signal.Signals, tmp_path: Path
) -> None:
    # One notification per message, so that as many go out as come in.
    options = ["--batch-events", "1", "--retry-steps", "0.5"]
    with running(kind) as broker, contextlib.closing(Network(tmp_path, 1, server_options=options)) as network:
        network.start()
        into, out = (probe(broker, f"p{secrets.token_hex(4)}") for _ in range(2))
        into.prepare()
        out.prepare()
        with Client(network.url) as client:
            client.create_topic("chain", {"n": "integer"})
            client.subscribe("chain", url=out.sink)
            source = client.create_source("chain", into.source).id
            until("the source to run", lambda: client.source(source).state == "running")
            into.publish(messages(0, COUNT // 2))
            until("the first messages", lambda: client.source(source).published >= BEFORE, seconds=60)
            broker.end(how)
            until("the loss to be seen", lambda: client.source(source).last_error, seconds=60)
            broker.start()
            into.publish(messages(COUNT // 2, COUNT))
            found = collect(out)
            state = client.source(source)
        assert [n for n, times in found.items() if times != 1] == [], "lost or twice"
        assert len(found) == COUNT
        assert (state.rejected, state.dropped) == (0, 0)
        assert state.connections >= 2
        print(
            f"{kind.name}: {COUNT} in and out, lost {COUNT - len(found)}, twice 0, "
            f"received {state.received} with repetitions of the broker"
        )


def messages(start: int, end: int) -> list[Message]:
    return [Message(b'{"n": %d}' % n, f"message-{n}") for n in range(start, end)]


def collect(out: Probe) -> Counter[int]:
    """Read the messages that went out; those with the id of an earlier one are the same message."""
    by_id: dict[str, bytes] = {}
    found: Counter[int] = Counter()

    def is_complete() -> bool:
        for message in out.read(2.0):
            assert message.id is not None
            assert by_id.setdefault(message.id, message.body) == message.body
        found.clear()
        for body in by_id.values():
            notifications = msgspec.json.decode(body)["notifications"]
            found.update(one["event"]["attributes"]["n"] for one in notifications)
        return len(found) >= COUNT

    until("all messages", is_complete, seconds=240)
    return found
