"""The documents of topics: JSON Schema per topic, and AsyncAPI by the official schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

from tests.store.test_advertising import ATTRIBUTES, Door, run

OFFICIAL = Path(__file__).parents[1] / "unit/model/asyncapi/3.0.0.json"


def test_the_asyncapi_document_is_valid_and_names_topics_advertisements_and_sinks(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        empty = await door.ok("GET", "/v1/asyncapi")
        await door.topic("guard")
        await door.ok(
            "PUT", "/v1/topics/other.topic", json={"attributes": {"raw": "bytes", "tags": ["time"]}}
        )
        await door.advertise({"what": ["alarm"], "at.city": [{"prefix": "B"}]}, id="a:1")
        sink = {"url": "https://example.org/hook"}
        body = {"topic": "t", "id": "s", "filter": {"level": 1}, "sink": sink}
        await door.ok("POST", "/v1/subscriptions", json=body)
        mail = {"topic": "other.topic", "id": "m", "sink": {"url": "https://example.com/"}}
        await door.ok("POST", "/v1/subscriptions", json=mail)
        document = await door.ok("GET", "/v1/asyncapi")
        official = jsonschema.validators.validator_for(json.loads(OFFICIAL.read_text()))(
            json.loads(OFFICIAL.read_text())
        )
        for one in (empty, document):
            errors = [f"{error.json_path}: {error.message[:200]}" for error in official.iter_errors(one)]
            assert errors == []
        addresses = {channel["address"] for channel in document["channels"].values()}
        assert "/v1/topics/other.topic/events" in addresses
        assert "/hook" in addresses
        assert {message["name"] for message in document["components"]["messages"].values()} == {
            "a:1",
            "other.topic",
        }
        # Every reference leads somewhere.
        for text in _references(document):
            place = document
            for part in text.removeprefix("#/").split("/"):
                place = place[part.replace("~1", "/").replace("~0", "~")]
        reader = await door.key("pub", "publish")
        seen = (await door.http.get("/v1/asyncapi", headers=reader)).json()
        assert seen["channels"] == {}

    run(tmp_path, work)


def _references(node: object) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [text for part in node.values() for text in _references(part)]
    if isinstance(node, list):
        return [text for part in node for text in _references(part)]
    return []


def test_the_schema_of_a_topic_follows_its_advertisements(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        await door.topic("guard")
        free = await door.ok("GET", "/v1/topics/t/schema")
        assert "anyOf" not in free
        nothing = await door.ok("GET", "/v1/topics/t/schema?publisher=ann")
        assert nothing["not"] == {}
        await door.advertise({"level": [1]}, id="a", publisher="ann")
        await door.advertise({"level": [2]}, id="b")
        answer = await door.http.get("/v1/topics/t/schema")
        assert answer.headers["content-type"] == "application/schema+json"
        schema = answer.json()
        assert [one["title"] for one in schema["anyOf"]] == ["a", "b"]
        validator = jsonschema.Draft202012Validator(schema)
        for event in ({"level": 1}, {"level": 2}, {"level": 3}, {"what": "x"}, {"level": 1, "free": 2}):
            published = await door.publish(event)
            mine = await door.ok("GET", "/v1/topics/t/schema?publisher=network")
            fits = jsonschema.Draft202012Validator(mine).is_valid(event)
            assert (published.status_code == 202) is fits, event
        assert validator.is_valid({"level": 1})
        assert (await door.http.get("/v1/topics/none/schema")).status_code == 404
        assert set(schema["properties"]) >= set(ATTRIBUTES)

    run(tmp_path, work)
