"""The sink of cloudevents: addresses: notifications as CloudEvents, in the mode that the subscriber chose.

Binary and structured, each event is a POST of its own, in order, and what was taken is remembered until the
whole parcel is: an attempt after a failure begins with the event that failed. A batch is one POST. Whom an
event is for stands in the extension attributes `subscription` and `recipient`, of the first match.

`WebHook-Request-Origin` says who sends, at every delivery and when a sink is asked for its consent. Where it
is (`consent`), nothing is posted before it is given, and no more than it allows: a parcel whose POSTs would
be too many goes on later, where it stopped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from edn.errors import InvalidSink
from edn.formats import cloudevents
from edn.formats.cloudevents import CloudEvent, SinkAddress
from edn.runtime.ownership import owned
from edn_server.config import Settings
from edn_server.sinks.base import Answer, Message
from edn_server.sinks.consent import Consents, Withheld
from edn_server.sinks.http import HttpSink
from edn_server.sinks.resolver import Resolver

#: parcels of which it is remembered how much of them was taken
REMEMBERED = 10_000

Headers = tuple[tuple[str, str], ...]


@owned("loop")
class CloudEventsSink:
    def __init__(self, settings: Settings, consents: Consents, resolver: Resolver | None = None) -> None:
        self._http = HttpSink(settings, resolver)
        self._origin = settings.webhook_origin
        self._consents = consents
        #: webhook-id → POSTs that were taken
        self._taken: OrderedDict[str, int] = OrderedDict()

    async def close(self) -> None:
        await self._http.close()

    async def send(self, message: Message) -> Answer:
        try:
            address = SinkAddress.parse(message.url)
        except InvalidSink as error:
            return Answer(None, reason=error.detail, permanent=True)
        mode, url = address.mode, address.to
        if address.consent:
            standing = await self._consents.standing(url, message.tenant)
            if isinstance(standing, Withheld):
                return Answer(None, reason=f"the sink did not consent: {standing.reason}")
            if standing.state != "granted":
                return Answer(None, reason="awaiting the sink's consent")
        entries = msgspec.json.decode(message.body)["notifications"]
        answer = Answer(202)
        first = self._taken.pop(message.webhook_id, 0)
        for place, (headers, kind, body) in enumerate(posts(mode, [told(entry) for entry in entries])):
            if place < first:
                continue
            if address.consent and (pause := self._consents.pause(url)):
                self._remember(message.webhook_id, place)
                return Answer(None, reason="the sink allows no more at the moment", pause=pause)
            name = message.webhook_id if mode == "batch" else f"{message.webhook_id}.{place}"
            answer = await self._http.send(
                replace(
                    message,
                    url=url,
                    webhook_id=name,
                    body=body,
                    content_type=kind,
                    headers=(*headers, ("webhook-request-origin", self._origin)),
                )
            )
            if answer.status is None or not 200 <= answer.status < 300:
                self._remember(message.webhook_id, place)
                return answer
        return answer

    def _remember(self, webhook_id: str, taken: int) -> None:
        self._taken[webhook_id] = taken
        if len(self._taken) > REMEMBERED:
            self._taken.popitem(last=False)


def told(entry: dict[str, Any]) -> CloudEvent:
    """A notification as a CloudEvent."""
    event = cloudevents.from_notification(entry["topic"], entry["event"])
    for match in entry["matches"][:1]:
        event.context.setdefault("subscription", match["subscription"])
        if match.get("recipient"):
            event.context.setdefault("recipient", match["recipient"])
    return event


def posts(mode: str, events: list[CloudEvent]) -> Iterator[tuple[Headers, str, bytes]]:
    """Headers, content type and body of each POST."""
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
