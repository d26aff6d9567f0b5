"""Random logs, cut into random frames with repeats and restarts, against a model of intervals."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serverkit import Kit, control, item, segment

from edn import protocol

IDS = ["a", "b", "c", "d"]
SINKS = ["http://127.0.0.1:9/x", "http://127.0.0.1:9/y"]
PRICES = st.integers(0, 9)


@dataclass
class Life:
    """One version of a subscription, as the model sees it."""

    low: int
    high: int
    expires: int | None
    since: int | None = None
    until: int | None = None
    #: expiry by the time of the record that set it
    renewals: list[tuple[int, int | None]] = field(default_factory=list)

    def hears(self, offset: int, time: int, price: int) -> bool:
        expires = self.expires
        for at, renewed in self.renewals:
            if at < offset:
                expires = renewed
        return (
            self.since is not None
            and self.since < offset
            and (self.until is None or offset <= self.until)
            and (expires is None or time < expires)
            and (self.low <= price <= self.high)
        )


@dataclass
class Script:
    """A log: stores that must precede an offset, and the records."""

    stores: dict[int, list[protocol.StoreItem]] = field(default_factory=dict)
    controls: dict[int, protocol.Control] = field(default_factory=dict)
    events: dict[int, int] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    lives: dict[str, list[Life]] = field(default_factory=dict)
    head: int = 0

    def expected(self) -> Counter[tuple[str, str]]:
        return Counter(
            (id, f"e{offset}")
            for id, lives in self.lives.items()
            for offset, price in self.events.items()
            if any(life.hears(offset, self.times[offset], price) for life in lives)
        )


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    script = Script()
    now = 0
    for _ in range(draw(st.integers(1, 30))):
        script.head += 1
        offset = script.head
        now += draw(st.integers(0, 3))
        script.times[offset] = now
        id = draw(st.sampled_from(IDS))
        lives = script.lives.setdefault(id, [])
        current = lives[-1] if lives else None
        active = current is not None and current.since is not None and current.until is None
        kind = draw(st.sampled_from(["event", "event", "event", "begin", "end", "renew", "nothing"]))
        if kind == "event":
            script.events[offset] = draw(PRICES)
        elif kind == "begin":
            _begin(draw, script, id, now, active)
        elif kind == "end" and active:
            assert current is not None
            current.until = offset
            script.controls[offset] = control(offset, "deactivate", time=now, ids=[id])
        elif kind == "renew" and active:
            assert current is not None
            if not _expired(current, now):
                expires = draw(st.none() | st.integers(now + 1, now + 12))
                current.renewals.append((offset, expires))
                script.controls[offset] = control(offset, "renew", time=now, expiries=[(id, expires)])
    return script


def _expired(life: Life, now: int) -> bool:
    expires = life.renewals[-1][1] if life.renewals else life.expires
    return expires is not None and expires <= now


def _begin(draw: st.DrawFn, script: Script, id: str, now: int, active: bool) -> None:
    """Subscribe, or change what is active; sometimes the filter is stored long before its record."""
    offset, lives = script.head, script.lives[id]
    low, high = sorted((draw(PRICES), draw(PRICES)))
    life = Life(low, high, draw(st.none() | st.integers(now + 1, now + 12)))
    # No earlier than the record that began the version before it: its dispatcher stores in this order.
    earliest = max((other.since or 0 for other in lives), default=0) + 1
    stored_before = draw(st.integers(earliest, offset)) if earliest <= offset else offset
    version = len(lives) + 1
    if active:
        lives[-1].until = offset
    life.since = offset
    lives.append(life)
    halves: list[dict[str, Any]] = [{"price": {"between": [low, (low + high) // 2]}}]
    halves.append({"price": {"between": [(low + high) // 2, high]}})
    script.stores.setdefault(stored_before, []).append(
        item(
            id,
            {"$any": halves},
            version=version,
            url=draw(st.sampled_from(SINKS)),
            expires=life.expires,
        )
    )
    kind: protocol.Kind = "change" if active else "activate"
    script.controls[offset] = control(offset, kind, time=now, versions=[(id, version)])


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=scripts(), data=st.data())
def test_every_match_of_the_model_is_told_once_and_nothing_else_is(
    script: Script, data: st.DataObject
) -> None:
    folder = Path(tempfile.mkdtemp())
    kit = Kit(folder)
    try:
        cursor, stored = 0, 0
        while cursor < script.head:
            upto = min(script.head, cursor + 8 - data.draw(st.integers(0, 7), label="shorter"))
            after = max(0, cursor - data.draw(st.integers(0, 4), label="overlap"))
            for offset in range(stored + 1, upto + 1):
                for one in script.stores.get(offset, []):
                    kit.store(one)
            stored = max(stored, upto)
            inside = range(after + 1, upto + 1)
            events = [(o, {"price": script.events[o]}) for o in inside if o in script.events]
            controls = [script.controls[o] for o in inside if o in script.controls]
            segments = [segment(events, times=script.times)] if events else []
            for _ in range(1 + data.draw(st.booleans(), label="answer lost")):
                applied = kit.frame(after, upto, *controls, segments=segments)
                assert (applied.gap, applied.ack.cursor) == (False, upto)
            cursor = upto
            if data.draw(st.integers(0, 5), label="restart") == 5:
                kit.reopen()
            kit.collect()
        assert Counter(kit.told()) == script.expected()
        living = sum(lives[-1].until is None for lives in script.lives.values() if lives)
        assert len(kit.registry.numbers) == living
    finally:
        kit.close()
        shutil.rmtree(folder)
    assert kit.fatal == []
