"""The sample market: plausible for as long as it runs, and its subscriptions are worth watching."""

from __future__ import annotations

import random
from collections import Counter

import msgspec

from edn.client.receiver import Match, Notification, NotifiedEvent
from edn.model.filter import Filter
from edn.model.schema import Schema
from edn.tools.demo import ATTRIBUTES, MARKET, Market, Tally, sample_subscriptions


def test_prices_stay_near_where_they_began_and_quotes_fit_the_topic() -> None:
    market = Market(random.Random(1))
    quotes = [market.quote() for _ in range(20_000)]
    for quote in quotes:
        _, start = MARKET[quote["symbol"]]
        assert 0.5 * start < quote["price"] < 2.0 * start
        assert quote["volume"] >= 100
    batch = Schema.parse(ATTRIBUTES).decode_events(msgspec.json.encode(quotes[:1000]))
    assert len(batch.bodies) == 1000


def test_every_sample_subscription_is_a_filter_of_the_topic_and_most_of_them_hear_something() -> None:
    schema = Schema.parse(ATTRIBUTES)
    wanted = sample_subscriptions("http://127.0.0.1:9/")
    filters = [Filter.parse(one.filter).bind(schema) for one in wanted]
    assert 24 <= len(filters) <= 100
    market = Market(random.Random(2))
    heard: Counter[int] = Counter()
    for _ in range(5_000):
        quote = market.quote()
        values = schema.values(msgspec.json.encode(quote))
        heard.update(place for place, bound in enumerate(filters) if bound.matches(values))
    assert len(heard) > 0.8 * len(filters)
    assert max(heard.values()) < 2_500, "no subscription that hears half of everything"


def test_what_the_view_keeps_is_bounded() -> None:
    tally = Tally()
    event = NotifiedEvent(id="e", time="2026-01-01T00:00:00Z", attributes={})
    for _ in range(1000):
        tally.notified(Notification(topic="stocks", event=event, matches=[Match("a"), Match("b")]))
    assert (tally.arrived, tally.matches) == (1000, 2000)
    assert len(tally.latest) < 20
    assert "1,000 notifications arrived (2,000 matches" in tally.line()
