"""Steps of a sequence on the command line, and sequences as a client receives them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from edn.cli.arguments import read_steps
from edn.cli.output import condition_text
from edn.client import Subscription
from edn.client.calls import _given_sequence
from edn.client.notifications import Notification


@pytest.mark.parametrize(
    ("then", "step"),
    [
        ("price < 25", {"filter": "price < 25"}),
        ('{"price": 3}', {"filter": {"price": 3}}),
        ("files: size > 3", {"topic": "files", "filter": "size > 3"}),
        ("files:", {"topic": "files", "filter": None}),
        ('files: {"size": 3}', {"topic": "files", "filter": {"size": 3}}),
        ('{"topic": "files", "times": 3}', {"topic": "files", "times": 3}),
        (
            '{"filter": {"a": 1}, "unless": {"filter": "b == 2"}}',
            {"filter": {"a": 1}, "unless": {"filter": "b == 2"}},
        ),
    ],
)
def test_a_step_is_a_filter_a_topic_with_a_filter_or_an_object(then: str, step: dict[str, Any]) -> None:
    assert read_steps("price > 30", 3, [then]) == [{"filter": "price > 30", "times": 3}, step]


def test_a_complete_sequence_is_one_notification_with_its_last_event() -> None:
    event = {"topic": "t", "id": "1", "time": "2030-01-01T00:00:00Z", "attributes": {}}
    body = {"topic": "t", "events": [event, {**event, "id": "2"}], "matches": [{"subscription": "s"}]}
    found = msgspec.convert(body, Notification)
    assert [one.id for one in found.events] == ["1", "2"]
    assert (found.event.id, found.matches[0].subscription) == ("2", "s")


def test_a_change_keeps_the_sequence() -> None:
    shown = {
        "id": "s",
        "topic": "t",
        "sequence": [{"topic": "t", "filter": {"a": 1}, "times": 2}, {"topic": "u", "filter": {"b": 1}}],
        "within": "PT5M",
    }
    found = msgspec.convert(shown, Subscription)
    assert _given_sequence(found) == {"sequence": shown["sequence"], "within": "PT5M"}
    assert condition_text(found) == "t: a == 1, then u: b == 1"
