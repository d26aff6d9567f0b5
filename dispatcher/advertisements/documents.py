"""Documents for programs that know neither the network nor its clients: JSON Schema and AsyncAPI 3.

The AsyncAPI document describes the network as an application: it *receives* the events of each topic on one
channel, and *sends* notifications to the sinks of the caller's subscriptions. The messages of a topic are its
advertisements, with their JSON Schemas; without advertisements there is one message for all events.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from typing import Any
from urllib.parse import urlsplit

from dispatcher.advertisements.guard import BoundCache
from dispatcher.auth.caller import Caller, Need
from dispatcher.store import advertisement_rows
from dispatcher.store.advertisement_rows import Advertisement as Row
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Connection
from dispatcher.subscriptions import sinks
from dispatcher.subscriptions.service import Subscriptions
from dispatcher.subscriptions.topics import Topic, Topics
from edn.model import namespace
from edn.model.json_schema import advertisement_schema, topic_schema
from edn.runtime.ownership import owned

#: subscriptions whose sinks are described, and advertisements per topic
MOST_SUBSCRIPTIONS = 1_000
MOST_ADVERTISEMENTS = 200
#: media type of payloads' schemas
_FORMAT = "application/schema+json;version=draft-2020-12"


@owned("loop")
class Documents:
    def __init__(
        self, log: Log, topics: Topics, subscriptions: Subscriptions, cache: BoundCache, version: str
    ) -> None:
        self._log = log
        self._topics = topics
        self._subscriptions = subscriptions
        self._cache = cache
        self._version = version

    async def schema(self, name: str, publisher: str | None, who: Caller) -> dict[str, Any]:
        """Return the JSON Schema of a topic's events; `publisher`: only with its advertisements."""
        topic = await self._topics.find(name, who.tenant)
        rows = await self._log.reading(self._rows, topic, publisher)
        return await asyncio.to_thread(self._schema, topic, rows, enforced=publisher is not None)

    def _rows(self, connection: Connection, topic: Topic, publisher: str | None) -> list[Row]:
        now = self._log.now()
        if publisher is None:
            return advertisement_rows.of_topic(connection, topic.uid, now)
        return advertisement_rows.of_publisher(connection, topic.uid, publisher, now)

    def _schema(self, topic: Topic, rows: list[Row], *, enforced: bool) -> dict[str, Any]:
        bound = {namespace.id_of(row.id): self._cache.get(row, topic.schema) for row in rows}
        # A publisher without advertisements may send nothing to a topic that enforces them.
        is_restricted = bool(bound) or (enforced and topic.advertising != "off")
        return topic_schema(topic.schema, title=topic.name, advertisements=bound if is_restricted else None)

    async def asyncapi(self, who: Caller) -> dict[str, Any]:
        """Return the AsyncAPI document of what a caller may see."""
        topics = self._topics.all(who.tenant)
        rows = await self._log.reading(
            lambda connection: {
                topic.uid: advertisement_rows.of_topic(connection, topic.uid, self._log.now())
                for topic in topics
            }
        )
        addresses: dict[str, set[int]] = defaultdict(set)
        if who.may(Need.SUBSCRIBE):
            addresses = await self._sinks(who)
        return await asyncio.to_thread(self._asyncapi, topics, rows, addresses)

    async def _sinks(self, who: Caller) -> dict[str, set[int]]:
        """Return the URLs of sinks, with the topics of their subscriptions."""
        found: dict[str, set[int]] = defaultdict(set)
        page, _ = await self._subscriptions.page(
            limit=MOST_SUBSCRIPTIONS, cursor=None, tenant=who.tenant, members=True
        )
        for one in page:
            shown = sinks.view(one, None)
            if shown is not None:
                found[shown["url"]].add(one.topic)
        return found

    def _asyncapi(
        self, topics: list[Topic], rows: dict[int, list[Row]], addresses: dict[str, set[int]]
    ) -> dict[str, Any]:
        channels: dict[str, Any] = {}
        operations: dict[str, Any] = {}
        messages: dict[str, Any] = {}
        schemas: dict[str, Any] = {}
        servers: dict[str, Any] = {
            "network": {
                "host": "{host}",
                "protocol": "http",
                "description": "A dispatcher of the network.",
                "variables": {"host": {"default": "localhost:8080"}},
            }
        }
        names: dict[int, list[str]] = {}
        for topic in topics:
            key = _key(topic.name)
            names[topic.uid] = self._messages(topic, rows[topic.uid], messages, schemas)
            channels[key] = {
                "address": f"/v1/topics/{topic.name}/events",
                "title": topic.name,
                "servers": [{"$ref": "#/servers/network"}],
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names[topic.uid]},
            }
            operations[f"publish.{key}"] = {
                "action": "receive",
                "channel": {"$ref": f"#/channels/{key}"},
                "summary": f"Publish events to {topic.name}",
                "messages": [{"$ref": f"#/channels/{key}/messages/{name}"} for name in names[topic.uid]],
            }
        for number, (url, uids) in enumerate(sorted(addresses.items()), 1):
            _add_sink(number, url, [name for uid in sorted(uids) for name in names.get(uid, [])], servers,
                      channels, operations)  # fmt: skip
        return {
            "asyncapi": "3.0.0",
            "info": {
                "title": "edn",
                "version": self._version,
                "description": "Topics, what publishers advertise, and the sinks of subscriptions.",
            },
            "defaultContentType": "application/json",
            "servers": servers,
            "channels": channels,
            "operations": operations,
            "components": {"messages": messages, "schemas": schemas},
        }

    def _messages(
        self, topic: Topic, rows: list[Row], messages: dict[str, Any], schemas: dict[str, Any]
    ) -> list[str]:
        """Add the messages of a topic; return their names."""
        key = _key(topic.name)
        schemas[key] = {
            "schemaFormat": _FORMAT,
            "schema": topic_schema(topic.schema, title=topic.name),
        }
        if not rows:
            messages[key] = {
                "name": topic.name,
                "title": f"An event of {topic.name}",
                "payload": {"$ref": f"#/components/schemas/{key}"},
            }
            return [key]
        names = []
        for row in rows[:MOST_ADVERTISEMENTS]:
            id = namespace.id_of(row.id)
            name = f"{key}.{_key(id)}"
            bound = self._cache.get(row, topic.schema)
            schema = topic_schema(topic.schema, title=id)
            payload = {"allOf": [schema, advertisement_schema(id, bound)]}
            messages[name] = {
                "name": id,
                "title": f'Events of {topic.name} that "{row.publisher}" advertises',
                "payload": {"schemaFormat": _FORMAT, "schema": payload},
            }
            names.append(name)
        return names


def _add_sink(
    number: int,
    url: str,
    names: list[str],
    servers: dict[str, Any],
    channels: dict[str, Any],
    operations: dict[str, Any],
) -> None:
    parts = urlsplit(url)
    key = f"sink-{number}"
    servers[key] = {"host": parts.netloc or parts.path, "protocol": parts.scheme or "http"}
    channels[key] = {
        "address": (parts.path or "/") if parts.netloc else parts.path,
        "title": url,
        "servers": [{"$ref": f"#/servers/{key}"}],
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
    }
    operations[f"notify.{key}"] = {
        "action": "send",
        "channel": {"$ref": f"#/channels/{key}"},
        "summary": "Notify a sink",
        "messages": [{"$ref": f"#/channels/{key}/messages/{name}"} for name in names],
    }


def _key(name: str) -> str:
    """Return a name for references: letters, digits, dots, hyphens and underscores."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)
