"""The dialects of the CloudEvents Subscriptions API select events by their CloudEvents form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edn.errors import EdnError, InvalidFilter, TooLarge
from edn.model.filter import Filter
from edn.model.filter.dialects import OURS, Context, read, write
from edn.model.schema import Schema
from tests.oracle.meaning import matches
from tests.oracle.values import read_event

TYPES = {
    "price": "number",
    "ce.source": "string",
    "ce.type": "string",
    "ce.subject": "string",
    "ce.rank": "integer",
    "ce.urgent": "boolean",
    "ce.weight": "number",
    "ce.due": "time",
}
SCHEMA = Schema.parse(TYPES)
TOPIC = "shop"
CONTEXT = Context.of(TOPIC, SCHEMA)
#: a topic that keeps no context attributes
BARE = Context.of(TOPIC, Schema.parse({"price": "number"}))
OWN = {"source": "/v1/topics/shop", "type": "edn.shop"}


# -- what is meant, by the words of the draft alone -------------------------------------------------------


def context_of(event: dict[str, Any]) -> dict[str, str]:
    """The context attributes of the CloudEvent that an event is delivered as, as texts."""
    kept = {name: value for name, value in event.get("ce", {}).items() if value is not None}
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in kept.items()
    }
    return {**OWN, **texts}


def holds(expression: dict[str, Any], event: dict[str, Any]) -> bool:
    [(dialect, value)] = expression.items()
    there = context_of(event)
    if dialect == "all":
        return all(holds(one, event) for one in value)
    if dialect == "any":
        return any(holds(one, event) for one in value)
    if dialect == "not":
        return not holds(value, event)
    if dialect == OURS:
        return bool(matches(value, read_event(event, TYPES), TYPES))
    compare = {
        "exact": lambda one, text: one == text,
        "prefix": lambda one, text: one[: len(text)] == text,
        "suffix": lambda one, text: one[len(one) - len(text) :] == text and len(one) >= len(text),
    }[dialect]
    return all(name in there and compare(there[name], text) for name, text in value.items())


def selected(subscription: dict[str, Any], event: dict[str, Any]) -> bool:
    there = context_of(event)
    return (
        ("source" not in subscription or there["source"] == subscription["source"])
        and ("types" not in subscription or there["type"] in subscription["types"])
        and all(holds(one, event) for one in subscription.get("filters", []))
    )


def found(filter: object, event: dict[str, Any], schema: Schema = SCHEMA) -> bool:
    [body] = schema.decode_events(json.dumps(event).encode()).bodies
    return Filter.parse(filter).bind(schema).matches(schema.values(body))


# -- drawn ------------------------------------------------------------------------------------------------

SOURCES = ["/v1/topics/shop", "/v1/topics/", "/shops/7", "/shops/", "/", "p"]
TEXTS = {
    "source": SOURCES,
    "type": ["edn.shop", "edn.", "sold", "so", "ld", "shop"],
    "subject": ["tea", "t", "a", "café"],
    "rank": ["3", "03", "-7", "9223372036854775807", "9223372036854775808", "x"],
    "urgent": ["true", "false", "True"],
}


def comparing(dialect: str) -> st.SearchStrategy[dict[str, Any]]:
    names = TEXTS if dialect == "exact" else {name: TEXTS[name] for name in ("source", "type", "subject")}
    one = st.fixed_dictionaries({}, optional={name: st.sampled_from(texts) for name, texts in names.items()})
    return one.filter(bool).map(lambda given: {dialect: given})


OURS_DRAWN = st.sampled_from(
    [
        {"price": {"gt": 3}},
        {"ce.source": "/v1/topics/shop"},
        {"ce.source": {"exists": False}},
        {"ce.type": {"ne": "sold"}},
        {"ce.type": ["edn.shop", "sold"]},
        {"$not": {"ce.subject": "tea"}, "ce.rank": 3},
        {"$any": [{"price": 2}, {"ce.urgent": True}, {"ce.source": {"prefix": "/shops/"}}]},
    ]
).map(lambda filter: {OURS: filter})

EXPRESSIONS = st.recursive(
    st.one_of(comparing("exact"), comparing("prefix"), comparing("suffix"), OURS_DRAWN),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"all": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"any": parts}),
        inner.map(lambda part: {"not": part}),
    ),
    max_leaves=6,
)
SUBSCRIPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "source": st.sampled_from(SOURCES),
        "types": st.lists(st.sampled_from(TEXTS["type"]), min_size=1, max_size=3),
        "filters": st.lists(EXPRESSIONS, max_size=3),
    },
)
EVENTS = st.fixed_dictionaries(
    {
        "ce": st.fixed_dictionaries(
            {},
            optional={
                "source": st.sampled_from(["/v1/topics/shop", "/shops/7", "p", None]),
                "type": st.sampled_from(["sold", "edn.shop", "shop"]),
                "subject": st.sampled_from(["tea", "café"]),
                "rank": st.sampled_from([3, -7, 2**63 - 1]),
                "urgent": st.booleans(),
            },
        )
    },
    optional={"price": st.sampled_from([2, 3, 4])},
)


@given(subscription=SUBSCRIPTIONS, events=st.lists(EVENTS, min_size=1, max_size=8))
def test_a_subscription_selects_what_its_words_say(
    subscription: dict[str, Any], events: list[dict[str, Any]]
) -> None:
    wanted = [selected(subscription, event) for event in events]
    try:
        filter = read(CONTEXT, **subscription)
    except InvalidFilter as error:
        refusal = error.detail
    else:
        refusal = ""
    if refusal:
        assert "no event of this topic can match" in refusal
        assert not any(wanted)
    else:
        assert [found(filter, event) for event in events] == wanted


@given(subscription=SUBSCRIPTIONS, events=st.lists(EVENTS, min_size=1, max_size=8))
def test_what_is_written_back_says_the_same_and_is_written_the_same_again(
    subscription: dict[str, Any], events: list[dict[str, Any]]
) -> None:
    try:
        filter = read(CONTEXT, **subscription)
    except InvalidFilter:
        return
    written = write(CONTEXT, filter)
    fields = {
        name: value
        for name in ("source", "types", "filters")
        if (value := getattr(written, name)) is not None
    }
    assert [selected(fields, event) for event in events] == [found(filter, event) for event in events]
    assert write(CONTEXT, read(CONTEXT, **fields)) == written


@given(filter=OURS_DRAWN, events=st.lists(EVENTS, min_size=1, max_size=8))
def test_any_filter_can_be_written(filter: dict[str, Any], events: list[dict[str, Any]]) -> None:
    written = write(CONTEXT, filter[OURS])
    fields = {name: value for name in ("source", "types") if (value := getattr(written, name)) is not None}
    for event in events:
        assert selected({**fields, "filters": written.filters}, event) == found(filter[OURS], event)


# -- worked out by hand -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "filter"),
    [
        ({}, None),
        ({"filters": []}, None),
        ({"source": "/shops/7"}, {"ce.source": {"eq": "/shops/7"}}),
        ({"types": ["sold"]}, {"ce.type": {"eq": "sold"}}),
        ({"filters": [{"suffix": {"subject": ".jpg"}}]}, {"ce.subject": {"suffix": ".jpg"}}),
        ({"filters": [{"exact": {"rank": "3"}}]}, {"ce.rank": {"eq": 3}}),
        ({"filters": [{"exact": {"urgent": "false"}}]}, {"ce.urgent": {"eq": False}}),
        # An integer is never "03", so the negation always holds.
        ({"filters": [{"not": {"exact": {"rank": "03"}}}]}, None),
        # Events that came without a source have that of their topic.
        (
            {"source": "/v1/topics/shop"},
            {"$any": [{"ce.source": {"eq": "/v1/topics/shop"}}, {"ce.source": {"exists": False}}]},
        ),
        ({"filters": [{OURS: "price > 30"}]}, {"price": {"gt": 30}}),
        (
            {"source": "/a", "filters": [{OURS: {"price": 1}}]},
            {"$all": [{"ce.source": {"eq": "/a"}}, {"price": 1}]},
        ),
    ],
)
def test_what_is_read(given: dict[str, Any], filter: object) -> None:
    assert read(CONTEXT, **given) == filter


@pytest.mark.parametrize(
    ("filter", "fields"),
    [
        (None, {"filters": []}),
        ({"ce.source": "/shops/7", "price": 3}, {"source": "/shops/7", "filters": [{OURS: {"price": 3}}]}),
        ({"ce.type": ["sold", "bought"]}, {"types": ["sold", "bought"], "filters": []}),
        ({"ce.source": "/v1/topics/shop"}, {"filters": [{OURS: {"ce.source": "/v1/topics/shop"}}]}),
        (
            {"$any": [{"ce.source": "/v1/topics/shop"}, {"ce.source": {"exists": False}}]},
            {"source": "/v1/topics/shop", "filters": []},
        ),
        (
            {"$any": [{"ce.subject": "tea"}, {"price": {"gt": 3}}, {"price": {"lt": 1}}]},
            {
                "filters": [
                    {
                        "any": [
                            {"exact": {"subject": "tea"}},
                            {OURS: {"$any": [{"price": {"gt": 3}}, {"price": {"lt": 1}}]}},
                        ]
                    }
                ]
            },
        ),
        ({"$not": {"ce.rank": 3}}, {"filters": [{"not": {"exact": {"rank": "3"}}}]}),
        ({"ce.weight": 3}, {"filters": [{OURS: {"ce.weight": 3}}]}),
    ],
)
def test_what_is_written(filter: object, fields: dict[str, Any]) -> None:
    written = write(CONTEXT, filter)
    assert {"source": None, "types": None, **fields} == {
        "source": written.source,
        "types": written.types,
        "filters": written.filters,
    }


@pytest.mark.parametrize(
    ("given", "pointer", "says"),
    [
        (
            {"filters": [{"sql": "source LIKE '%a%'"}]},
            "/filters/0/sql",
            'must be one of exact, prefix, .* got "sql"',
        ),
        ({"filters": [{"https://a/b": {}}]}, "/filters/0/https:~1~1a~1b", "the dialect must be one of"),
        ({"filters": {"exact": {}}}, "/filters", "an array"),
        ({"filters": ["exact"]}, "/filters/0", "an object with one key"),
        ({"filters": [{}]}, "/filters/0", "an object with one key"),
        ({"filters": [{"exact": {"type": "a"}, "not": {}}]}, "/filters/0", "an object with one key"),
        ({"filters": [{"exact": {}}]}, "/filters/0/exact", "must be an object of strings"),
        ({"filters": [{"exact": {"type": ""}}]}, "/filters/0/exact/type", "must be a non-empty string"),
        (
            {"filters": [{"exact": {"rank": 3}}]},
            "/filters/0/exact/rank",
            'the value for "rank" must be a non-empty string',
        ),
        ({"filters": [{"all": []}]}, "/filters/0/all", "must be a non-empty array of expressions"),
        ({"filters": [{"any": [{"prefix": {"Type": "a"}}]}]}, "/filters/0/any/0/prefix/Type", "lower-case"),
        ({"filters": [{"not": [{}]}]}, "/filters/0/not", "an object with one key"),
        (
            {"filters": [{"exact": {"region": "eu"}}]},
            "/filters/0/exact/region",
            'PUT the topic with .* "ce.region"',
        ),
        (
            {"filters": [{"exact": {"id": "1"}}]},
            "/filters/0/exact/id",
            "the id of an event is not an attribute",
        ),
        (
            {"filters": [{"prefix": {"time": "2026"}}]},
            "/filters/0/prefix/time",
            "the time of an event is not an attribute",
        ),
        ({"filters": [{"exact": {"data": "x"}}]}, "/filters/0/exact/data", OURS),
        ({"filters": [{"prefix": {"rank": "3"}}]}, "/filters/0/prefix/rank", "as integer"),
        ({"filters": [{"exact": {"weight": "3"}}]}, "/filters/0/exact/weight", "as number"),
        ({"filters": [{"exact": {"due": "2026-01-01T00:00:00Z"}}]}, "/filters/0/exact/due", "as time"),
        ({"filters": [{OURS: {"prize": 3}}]}, f"/filters/0/{OURS}/prize", 'did you mean "price"'),
        ({"filters": [{OURS: {}}]}, f"/filters/0/{OURS}", "empty"),
    ],
)
def test_what_is_refused(given: dict[str, Any], pointer: str, says: str) -> None:
    with pytest.raises(InvalidFilter, match=says) as refused:
        read(CONTEXT, **given)
    assert refused.value.pointer == pointer


def test_nesting_has_an_end() -> None:
    expression: dict[str, Any] = {"exact": {"type": "sold"}}
    for _ in range(40):
        expression = {"not": expression}
    with pytest.raises(TooLarge):
        read(CONTEXT, filters=[expression])


@pytest.mark.parametrize(
    ("given", "all_events"),
    [
        ({"source": "/v1/topics/shop", "types": ["edn.shop"]}, True),
        ({"filters": [{"prefix": {"source": "/v1/"}}, {"not": {"exact": {"type": "sold"}}}]}, True),
        ({"source": "/shops/7"}, False),
        ({"types": ["sold"]}, False),
    ],
)
def test_a_topic_that_keeps_no_context_has_one_source_and_one_type(
    given: dict[str, Any], all_events: bool
) -> None:
    if all_events:
        assert read(BARE, **given) is None
    else:
        with pytest.raises(EdnError, match="no event of this topic can match"):
            read(BARE, **given)
    with pytest.raises(InvalidFilter, match=r"ce\.subject"):
        read(BARE, filters=[{"exact": {"subject": "tea"}}])
