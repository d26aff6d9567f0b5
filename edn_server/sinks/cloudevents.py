"""The sink of cloudevents: addresses: sends notifications as CloudEvents, in the mode of the address.

In binary and structured mode each event is a POST, in order (`post_sequence`); in batch mode a delivery batch
is one POST. The extension attributes `subscription` and `recipient` name the first match of an event.

`WebHook-Request-Origin` names this network in every request. If the sink must consent (`consent`), nothing is
posted before it does, and no more than it allows: a batch with too many POSTs is resumed later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from edn.errors import InvalidSink
from edn.formats import cloudevents
from edn.formats.cloudevents import CloudEvent, SinkAddress
from edn.runtime.ownership import owned
from edn_server.config import Settings
from edn_server.sinks.base import Answer, Message, Sink
from edn_server.sinks.consent import Consents
from edn_server.sinks.post_sequence import PostSequence
from edn_server.sinks.resolver import Resolver

#: type of the CloudEvent of a complete sequence
SEQUENCE_TYPE = "edn.sequence"

Headers = tuple[tuple[str, str], ...]


class _Event(msgspec.Struct):
    id: str
    time: str
    attributes: msgspec.Raw


class _Entry(msgspec.Struct):
    topic: str
    matches: list[dict[str, Any]]
    event: _Event | None = None
    #: of a sequence
    events: msgspec.Raw = msgspec.Raw(b"")


_notifications = msgspec.json.Decoder(dict[str, list[_Entry]])


@owned("loop")
class CloudEventsSink:
    def __init__(
        self,
        settings: Settings,
        consents: Consents,
        resolver: Resolver | None = None,
        brokers: Sink | None = None,
    ) -> None:
        self._sequence = PostSequence(settings, resolver, brokers)
        self._origin = settings.webhook_origin
        self._consents = consents

    async def close(self) -> None:
        await self._sequence.close()

    async def send(self, message: Message) -> Answer:
        try:
            address = SinkAddress.parse(message.url)
        except InvalidSink as error:
            return Answer(None, reason=error.detail, permanent=True)
        pause = None
        if address.consent:
            refusal = await self._consents.refusal(address.to, message.tenant)
            if refusal is not None:
                return refusal
            pause = partial(self._consents.pause, address.to)
        return await self._sequence.send(message.webhook_id, self._posts(address, message), pause)

    def _posts(self, address: SinkAddress, message: Message) -> Iterator[Message]:
        entries = _notifications.decode(message.body)["notifications"]
        encoded = encode(address.mode, [to_cloudevent(entry) for entry in entries])
        for place, (headers, kind, body) in enumerate(encoded):
            name = message.webhook_id if address.mode == "batch" else f"{message.webhook_id}.{place}"
            yield replace(
                message,
                url=address.to,
                webhook_id=name,
                body=body,
                content_type=kind,
                headers=(*headers, ("webhook-request-origin", self._origin)),
            )


def to_cloudevent(entry: _Entry) -> CloudEvent:
    """Converts a notification to a CloudEvent."""
    if entry.event is None:
        event = _sequence_event(entry)
    else:
        event = cloudevents.from_notification(entry.topic, msgspec.structs.asdict(entry.event))
    for match in entry.matches[:1]:
        event.context.setdefault("subscription", match["subscription"])
        if match.get("recipient"):
            event.context.setdefault("recipient", match["recipient"])
    return event


class _Last(msgspec.Struct):
    id: str
    time: str


def _sequence_event(entry: _Entry) -> CloudEvent:
    """Converts a complete sequence: its data has the list of its events."""
    last = msgspec.json.decode(entry.events, type=list[_Last])[-1]
    subscription = entry.matches[0]["subscription"] if entry.matches else ""
    context = {
        "id": f"{last.id}/{subscription}",
        "source": cloudevents.defaults(entry.topic)["source"],
        "type": SEQUENCE_TYPE,
        "time": last.time,
        "datacontenttype": "application/json",
    }
    return CloudEvent(context, data=msgspec.Raw(b'{"events":' + bytes(entry.events) + b"}"))


def encode(mode: str, events: list[CloudEvent]) -> Iterator[tuple[Headers, str, bytes]]:
    """Returns headers, content type and body of each POST."""
    if mode == "batch":
        batch = [cloudevents.as_structured(event) for event in events]
        yield (), cloudevents.BATCH, msgspec.json.encode(batch)
        return
    for event in events:
        if mode == "structured":
            yield (), cloudevents.STRUCTURED, msgspec.json.encode(cloudevents.as_structured(event))
        else:
            headers, kind, body = cloudevents.as_binary(event)
            yield tuple(headers), kind, body
