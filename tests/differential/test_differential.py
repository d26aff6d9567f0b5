"""The comparison itself, and one quick run against a network; `make differential` runs longer ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.differential.judge import judge
from tests.differential.plan import Plan, draw, fits, operators
from tests.differential.run import run
from tests.network import Delivery
from tests.workload.adversarial import OPERATORS
from tests.workload.literals import write

SCHEMA = {"n": "number", "s": "string", "b": "boolean"}


def _deliveries(plan: Plan) -> list[Delivery]:
    """Every pair that is due, a POST each."""
    posts = []
    for number, (subscription, event) in enumerate(sorted(plan.due)):
        topic, values = plan.events[event]
        attributes = {name: write(plan.schemas[topic][name], value) for name, value in values.items()}
        entry = {
            "topic": topic,
            "event": {"id": event, "attributes": attributes},
            "matches": [{"subscription": subscription}],
        }
        posts.append(Delivery(f"m{number}", "/a", {"notifications": [entry]}, 204))
    return posts


def _lose(posts: list[Delivery]) -> list[Delivery]:
    return posts[1:]


def _repeat_under_another_id(posts: list[Delivery]) -> list[Delivery]:
    return [*posts, replace(posts[0], webhook_id="another")]


def _invent(posts: list[Delivery]) -> list[Delivery]:
    entry = {**posts[0].body["notifications"][0], "matches": [{"subscription": "nobody"}]}
    return [*posts, Delivery("new", "/a", {"notifications": [entry]}, 204)]


def _alter(posts: list[Delivery]) -> list[Delivery]:
    entry = {**posts[0].body["notifications"][0], "topic": "elsewhere"}
    return [Delivery("m0", "/a", {"notifications": [entry]}, 204), *posts[1:]]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (_lose, "missing"),
        (_invent, "extra"),
        (_repeat_under_another_id, "twice"),
        (_alter, "altered"),
    ],
)
def test_each_kind_of_difference_is_noticed(
    change: Callable[[list[Delivery]], list[Delivery]], kind: str
) -> None:
    plan = draw(5, filters=20, events=30)
    names = {name: name for name in plan.events}
    posts = _deliveries(plan)
    assert judge(plan, names, posts).differences == 0
    found = judge(plan, names, change(posts))
    assert found.differences == len(getattr(found, kind)) == 1
    assert kind in found.explain(plan)


def test_a_repeated_attempt_is_no_difference() -> None:
    plan = draw(5, filters=20, events=30)
    posts = _deliveries(plan)
    assert judge(plan, {name: name for name in plan.events}, [*posts, posts[0]]).differences == 0


def test_a_seed_draws_the_same_plan_with_every_operator() -> None:
    plan = draw(2, filters=350, events=400)
    assert draw(2, filters=350, events=400) == plan
    assert set(operators(plan)) == OPERATORS
    assert 0.15 < plan.share_of_subtrees() < 0.4
    assert {type(one.sent) for one in plan.subscriptions.values()} >= {str, dict}
    assert any(step.change for step in plan.steps)
    assert any(step.cancel for step in plan.steps)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (None, True),
        ({"n": 1}, True),
        ({"n": "1"}, False),
        ({"x": {"exists": False}}, False),
        ({"b": {"exists": True}}, True),
        ({"b": {"lt": True}}, False),
        ({"n": {"prefix": "a"}}, False),
        ({"$not": {"x": 1}}, False),
        ({"$any": [{"n": 1}, {"s": 2}]}, False),
        ({"s": {"not": {"in": ["a", "b"]}}}, True),
    ],
)
def test_whether_a_filter_fits_a_topic(written: Any, expected: bool) -> None:
    assert fits(written, SCHEMA) is expected


def test_a_network_agrees_with_the_oracle(tmp_path: Path) -> None:
    plan = draw(1, filters=150, events=160)
    verdict = run(plan, tmp_path, servers=2)
    assert verdict.due > 500
    assert verdict.differences == 0, f"{verdict.line()}\n{verdict.explain(plan)}"
