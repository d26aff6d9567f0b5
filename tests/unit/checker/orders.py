"""Small true histories, and by exhaustion: is there any order of the log that explains what was seen?

Shares no code with the checker. A history is made by running a log: every operation takes effect at a point
between its request and its answer, in the order of the points; then answers and notifications may get lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.unit.checker import script

FILTERS: tuple[dict[str, Any] | None, ...] = (None, {"n": 0}, {"n": 1}, {"n": [0, 1]})
Pair = tuple[str, str]


@dataclass(frozen=True)
class Item:
    """An operation, or the publication of one event."""

    kind: str
    name: str
    begin: int
    #: where it stands in the true log; None: it never took effect
    point: int | None
    #: None: nobody was told
    end: int | None
    refused: bool = False
    filter: dict[str, Any] | None = None
    n: int = 0


@dataclass(frozen=True)
class History:
    items: tuple[Item, ...]
    #: what was notified, and when
    notified: dict[Pair, int]


def matches(filter: dict[str, Any] | None, n: int) -> bool:
    return filter is None or n in ([filter["n"]] if isinstance(filter["n"], int) else filter["n"])


DEAD = "dead"
#: what needs a subscription that is there, and is refused with 404 if it is not
KNOWN = ("change", "unsubscribe")


def apply(item: Item, states: dict[str, Any]) -> dict[str, Any]:
    return {**states, item.name: DEAD if item.kind == "unsubscribe" else item.filter}


def told(item: Item, states: dict[str, Any]) -> frozenset[str]:
    """The subscriptions that an event meets."""
    return frozenset(
        name for name, filter in states.items() if not isinstance(filter, str) and matches(filter, item.n)
    )


def run(chance: Random, *, operations: int, events: int, lossy: bool, overlapping: bool) -> History:
    """A history of subscriptions "a" and "b" as it happens in a network that keeps its promise."""
    items: list[Item] = []
    clocks = {"a": 0, "b": 0}
    for number in range(operations + events):
        is_event = number >= operations
        name = f"e{number}" if is_event else chance.choice("ab")
        begin = chance.randrange(30)
        if not is_event and not overlapping:
            begin = clocks[name] + chance.randrange(6)
        point = begin + chance.randrange(1, 7)
        end = point + chance.randrange(1, 7)
        if not is_event:
            clocks[name] = end + 1
        lost = lossy and chance.random() < 0.3
        kind = "publish" if is_event else chance.choice(["subscribe", "subscribe", "change", "unsubscribe"])
        items.append(
            Item(
                kind,
                name,
                begin,
                None if lost and chance.random() < 0.4 else point,
                None if lost else end,
                filter=chance.choice(FILTERS),
                n=chance.randrange(2),
            )
        )
    states: dict[str, Any] = {"a": DEAD, "b": DEAD}
    notified: dict[Pair, int] = {}
    done: list[Item] = [item for item in items if item.point is None]
    for item in sorted((item for item in items if item.point is not None), key=lambda item: item.point or 0):
        if item.kind == "publish":
            for name in told(item, states):
                notified[name, item.name] = (item.point or 0) + chance.randrange(1, 40)
            done.append(item)
            continue
        alive = not isinstance(states[item.name], str)
        allowed = alive if item.kind != "subscribe" else not alive or states[item.name] == item.filter
        if allowed:
            states = apply(item, states)
        done.append(item if allowed else replace(item, refused=True, point=None))
    return History(tuple(done), notified)


def possible(history: History) -> bool:
    """Whether any order of the operations and events, lost ones included or not, gives what was notified."""
    wanted = {
        item.name: frozenset(name for name, event in history.notified if event == item.name)
        for item in history.items
        if item.kind == "publish"
    }
    # What was refused had no effect, and what was lost may have had one; a notified event was logged before.
    # Of a subscription that was refused as unknown one knows that it was not there, at some place in between;
    # of one that was accepted, that it was.
    items = []
    for item in history.items:
        if item.refused and item.end is not None and item.kind not in KNOWN:
            continue
        arrivals = [time for (_, event), time in history.notified.items() if event == item.name]
        end = min([time for time in (item.end, *arrivals) if time is not None], default=None)
        items.append(replace(item, end=end))
    needed = {place for place, item in enumerate(items) if item.end is not None}

    def search(placed: frozenset[int], states: dict[str, Any]) -> bool:
        if placed >= needed:
            return True
        # An item may come next if nothing outside was finished before it began.
        barrier = min(items[place].end or 0 for place in needed - placed)
        for place, item in enumerate(items):
            if place in placed or item.begin > barrier:
                continue
            if item.kind == "publish":
                if told(item, states) == wanted[item.name] and search(placed | {place}, states):
                    return True
                continue
            alive = not isinstance(states[item.name], str)
            if item.kind in KNOWN and item.end is not None and alive == item.refused:
                continue
            takes = not item.refused and (alive or item.kind not in KNOWN)
            if search(placed | {place}, apply(item, states) if takes else states):
                return True
        return False

    return search(frozenset(), {"a": DEAD, "b": DEAD})


def steps(history: History, *, via: str | None = "d") -> list[script.Step]:
    """The history as an observer records it."""
    made = []
    values = {}
    for item in history.items:
        answer = "fail" if item.refused else "ok"
        said = {"answer_status": 404 if item.kind in KNOWN else 409} if item.refused else {}
        if item.kind == "publish":
            values[item.name] = item.n
            made.append(script.publish(item.name, item.begin, item.end, answer, via=via, n=item.n))
        elif item.kind == "unsubscribe":
            made.append(script.unsubscribe(item.name, item.begin, item.end, answer, **said))
        elif item.kind == "change":
            made.append(
                script.change(
                    item.name, item.begin, item.end, item.filter, answer, topic=script.TOPIC, **said
                )
            )
        else:
            made.append(script.subscribe(item.name, item.begin, item.end, item.filter, answer, **said))
    for (name, event), time in history.notified.items():
        made.append(script.notified(name, event, time, n=values[event]))
    return made
