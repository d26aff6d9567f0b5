"""The checker against exhaustion over small histories, and against single faults put into true ones."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from edn.tools.checker import Report, check_recording
from tests.unit.checker import script
from tests.unit.checker.orders import History, Item, Pair, matches, possible, run, steps

PLENTY = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check(history: History, *more: script.Step) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        return check_recording(script.write(Path(folder) / "run.jsonl", *steps(history), *more))


def drawn(chance: Random, *, lossy: bool = True, overlapping: bool = True) -> History:
    operations, events = chance.randrange(1, 5), chance.randrange(1, 6)
    return run(chance, operations=operations, events=events, lossy=lossy, overlapping=overlapping)


def disturbed(history: History, chance: Random) -> History:
    """One or two notifications taken away or put in, anywhere."""
    notified = dict(history.notified)
    events = [item for item in history.items if item.kind == "publish"]
    for _ in range(chance.randrange(1, 3)):
        event = chance.choice(events)
        pair = (chance.choice("ab"), event.name)
        if notified.pop(pair, None) is None:
            notified[pair] = event.begin + chance.randrange(1, 50)
    return History(history.items, notified)


@PLENTY
@given(st.randoms(use_true_random=False))
def test_a_true_history_is_never_accused(chance: Random) -> None:
    history = drawn(chance)
    assert possible(history), "the log itself is such an order"
    report = check(history)
    assert report.verdict == ("holds" if report.counts.due or report.counts.notified else "unknown")


@PLENTY
@given(st.randoms(use_true_random=False))
def test_what_is_accused_has_no_order_that_explains_it(chance: Random) -> None:
    history = disturbed(drawn(chance), chance)
    if check(history).verdict == "violated":
        assert not possible(history)


@pytest.mark.parametrize(("lossy", "floor"), [(False, 0.98), (True, 0.95)])
def test_nearly_all_that_no_order_explains_is_accused(lossy: bool, floor: float) -> None:
    """Not all: what only two subscriptions together disprove goes unnoticed."""
    found: Counter[bool] = Counter()
    for seed in range(600):
        chance = Random(seed)
        history = disturbed(drawn(chance, lossy=lossy), chance)
        if not possible(history):
            found[check(history).verdict == "violated"] += 1
    assert found.total() > 250, "too few of the histories were disturbed"
    assert found[True] / found.total() >= floor, found


# -- one fault in a true history ------------------------------------------------------------------------


def settled_states(history: History) -> dict[Pair, tuple[bool, Item]]:
    """Pairs whose event overlaps no operation of the subscription: whether the subscription gets it."""
    found: dict[Pair, tuple[bool, Item]] = {}
    for event in (item for item in history.items if item.kind == "publish" and item.end is not None):
        for name in "ab":
            mine = [item for item in history.items if item.name == name and not item.refused]
            earlier = [item for item in mine if item.end is not None and item.end < event.begin]
            later = [item for item in mine if item.begin > (event.end or 0)]
            if len(earlier) + len(later) < len(mine):
                continue
            last = max(earlier, key=lambda item: item.begin, default=None)
            gets = last is not None and last.kind != "unsubscribe" and matches(last.filter, event.n)
            found[name, event.name] = (gets, event)
    return found


def chosen(chance: Random, *, gets: bool) -> tuple[History, Pair, Item]:
    """A history without losses, one of its settled pairs that gets its event or does not, and the event."""
    history = drawn(chance, lossy=False, overlapping=False)
    pairs = [(pair, event) for pair, (given, event) in settled_states(history).items() if given == gets]
    assume(pairs)
    pair, event = chance.choice(pairs)
    return history, pair, event


def only(report: Report) -> tuple[str, str | None, str | None]:
    decisive = {name: count for name, count in report.faults.items() if name != "out_of_order"}
    assert (report.verdict, sum(decisive.values())) == ("violated", 1), report.text()
    (violation,) = (found for found in report.violations if found.fault != "out_of_order")
    return violation.fault.value, violation.subscription, violation.event


@PLENTY
@given(st.randoms(use_true_random=False))
def test_a_dropped_notification_is_missing(chance: Random) -> None:
    history, pair, _ = chosen(chance, gets=True)
    notified = {other: time for other, time in history.notified.items() if other != pair}
    assert only(check(History(history.items, notified))) == ("missing", *pair)


@PLENTY
@given(st.randoms(use_true_random=False))
def test_a_notification_outside_of_the_life_or_the_filter_is_unexpected(chance: Random) -> None:
    history, pair, event = chosen(chance, gets=False)
    # It arrives after the event was answered, so that it says nothing new about when that was logged.
    notified = history.notified | {pair: (event.end or 0) + 1}
    assert only(check(History(history.items, notified))) == ("unexpected", *pair)


@PLENTY
@given(st.randoms(use_true_random=False), st.booleans())
def test_a_second_webhook_id_is_a_duplicate_and_a_repeat_is_not(chance: Random, same: bool) -> None:
    history, pair, event = chosen(chance, gets=True)
    hook = None if same else "another"
    again = script.notified(*pair, history.notified[pair] + 1, hook=hook, n=event.n)
    report = check(history, again)
    if same:
        assert (report.verdict, report.counts.repeats) == ("holds", 1)
    else:
        assert only(report) == ("duplicate", *pair)


def standing(history: History, name: str, time: int) -> bool | None:
    """Whether a subscription is there at a time; None where an operation on it is under way."""
    mine = [item for item in history.items if item.name == name and not item.refused]
    if any(item.begin <= time <= (item.end or 0) for item in mine):
        return None
    last = max((item for item in mine if item.begin < time), key=lambda item: item.begin, default=None)
    return last is not None and last.kind != "unsubscribe"


@PLENTY
@given(st.randoms(use_true_random=False), st.booleans(), st.sampled_from(["change", "unsubscribe"]))
def test_an_answer_that_contradicts_whether_a_subscription_is_there_is_accused(
    chance: Random, refused: bool, kind: str
) -> None:
    history = drawn(chance, lossy=False, overlapping=False)
    latest = max((item.end or 0 for item in history.items), default=0) + 2
    # After everything else: a change that was accepted would change what is due.
    name = chance.choice("ab")
    item = Item(kind, name, latest, None, latest + 1, refused=refused, filter=None)
    disturbed = History((*history.items, item), history.notified)
    there = standing(history, name, latest)
    assert there is not None
    report = check(disturbed)
    if there == refused:
        assert not possible(disturbed)
        assert report.verdict == "violated", report.text()
        assert report.faults["ended" if refused else "revived"] == 1
    else:
        assert possible(disturbed)
        assert not {"ended", "revived"} & set(report.faults), report.text()


@PLENTY
@given(st.randoms(use_true_random=False))
def test_other_attributes_are_an_alteration(chance: Random) -> None:
    history, pair, event = chosen(chance, gets=True)
    kept = {other: time for other, time in history.notified.items() if other != pair}
    report = check(
        History(history.items, kept), script.notified(*pair, history.notified[pair], n=event.n, s="more")
    )
    assert only(report) == ("altered", None, event.name)


@PLENTY
@given(st.randoms(use_true_random=False))
def test_a_refused_event_that_is_notified_is_unexpected(chance: Random) -> None:
    history, pair, event = chosen(chance, gets=True)
    items = tuple(
        Item(**{**vars(item), "refused": True}) if item is event else item for item in history.items
    )
    notified = {other: time for other, time in history.notified.items() if other[1] != event.name}
    assume(check(History(items, notified)).verdict == "holds")
    report = check(History(items, notified | {pair: history.notified[pair]}))
    assert only(report) == ("unexpected", *pair)
