"""Explains violations: filter and event of the pair, operations on the subscription, lines as evidence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from edn.tools.checker.history import History, Life
from edn.tools.checker.recording.reading import Operation, Post, Recording
from edn.tools.checker.recording.records import Fail, Ok, Unknown
from edn.tools.checker.timeline import NEVER, SECOND, Effect
from edn.tools.checker.verdicts import Fault, Violation

#: operations of one subscription in an explanation
_SHOWN = 12


class Stories:
    def __init__(self, recording: Recording, history: History) -> None:
        self._recording = recording
        self._history = history
        self._origin = recording.header.time if recording.header else 0
        self._names = recording.events.all()

    def pair(
        self, fault: Fault, reason: str, subscription: str, event: int, posts: Iterable[int] = ()
    ) -> Violation:
        """Explains a pair; `event`: its number; `posts`: the POSTs with the pair."""
        topic, id = self.name(event)
        parts: list[tuple[int, str]] = []
        life = self._history.lives.get(subscription)
        if life is None:
            parts.append((self._origin, f'"{subscription}" was never subscribed'))
        else:
            parts += self._life(life)
        attributes = self._event(topic, id, event, parts)
        parts += [self._post(self._recording.posts[post]) for post in dict.fromkeys(posts)]
        parts.sort(key=lambda part: part[0])
        return Violation(
            fault=fault,
            reason=f'subscription "{subscription}", event "{id}" of {topic}: {reason}',
            subscription=subscription,
            topic=topic,
            event=id,
            attributes=attributes,
            story=[text for _, text in parts],
        )

    def answer(self, fault: Fault, subscription: str, reason: str) -> Violation:
        """Explains an answer about a subscription that contradicts others."""
        return Violation(
            fault=fault,
            reason=f'subscription "{subscription}": {reason}',
            subscription=subscription,
            story=[text for _, text in self._life(self._history.lives[subscription])],
        )

    def reused_webhook(self, posts: tuple[int, int]) -> Violation:
        first, second = (self._recording.posts[post] for post in posts)
        return Violation(
            fault=Fault.ALTERED,
            reason=f'webhook-id "{first.webhook}" at {first.address} was used for two contents',
            story=[self._post(first)[1], self._post(second)[1]],
        )

    def malformed(self, what: tuple[int, str]) -> Violation:
        place, address = what
        return Violation(
            fault=Fault.ALTERED,
            reason=f"{address} got a POST that is not a notification",
            story=[self._lines([place])],
        )

    def altered_event(self, what: tuple[str, int, int]) -> Violation:
        reason, event, place = what
        topic, id = self.name(event)
        parts: list[tuple[int, str]] = []
        attributes = self._event(topic, id, event, parts)
        return Violation(
            fault=Fault.ALTERED,
            reason=f'event "{id}" of {topic}: {reason}',
            topic=topic,
            event=id,
            attributes=attributes,
            story=[*(text for _, text in parts), f"seen so first in {self._lines([place])}"],
        )

    def name(self, event: int) -> tuple[str, str]:
        """Returns topic and id of an event number."""
        return self._names[event]

    def seconds(self, time: int) -> str:
        return f"{(time - self._origin) / SECOND:.6f} s"

    def _life(self, life: Life) -> list[tuple[int, str]]:
        parts = [(effect.begin, self._effect(effect)) for effect in life.effects]
        parts += [(one.invoke.time, self._operation(one)) for one in life.refused]
        parts.sort(key=lambda part: part[0])
        if len(parts) > _SHOWN:
            between = (parts[_SHOWN // 2][0], f"… {len(parts) - _SHOWN} more operations on it …")
            parts = [*parts[: _SHOWN // 2], between, *parts[-(_SHOWN // 2) :]]
        return parts

    def _effect(self, effect: Effect) -> str:
        text = f"{effect.kind} {self._span(effect.begin, effect.end, effect.sure)}"
        if effect.alive:
            text += f" filter {msgspec.json.encode(effect.filter).decode()}"
            text += f" to {effect.address}" if effect.address else ""
        if effect.expires[0] < NEVER:
            text += f" expires {self.seconds(effect.expires[0])}"
        return f"{text} ({self._lines(effect.places)})"

    def _operation(self, operation: Operation) -> str:
        answer = operation.answer
        end = answer.time if answer is not None else NEVER
        text = f"{operation.invoke.kind} {self._span(operation.invoke.time, end, isinstance(answer, Ok))}"
        if isinstance(answer, Fail):
            text += " refused" + (f" with {answer.status}" if answer.status else "")
        if isinstance(answer, Unknown) and (answer.status or answer.reason):
            text += f" ({answer.status or answer.reason})"
        return f"{text} ({self._lines(operation.places)})"

    def _event(self, topic: str, id: str, number: int, parts: list[tuple[int, str]]) -> dict[str, Any] | None:
        events = self._history.topics.get(topic)
        index = events.index.get(number) if events is not None else None
        if events is not None and index is not None:
            publishing = events.publishings[index]
        elif number in self._history.rejected:
            publishing = self._history.rejected[number]
        else:
            parts.append((self._origin, f'"{id}" was never published'))
            return None
        attributes = {name: value for name, value in publishing.given.items() if not name.startswith("$")}
        shown = msgspec.json.encode(attributes).decode()
        parts += [(one.invoke.time, f"{self._operation(one)} {shown}") for one in publishing.attempts]
        return attributes

    def _post(self, post: Post) -> tuple[int, str]:
        text = f"notified {self.seconds(post.time)} at {post.address} under webhook-id {post.webhook}"
        answered = "" if post.accepted else f", answered {post.status}"
        return post.time, f"{text}{answered} ({self._lines([post.place])})"

    def _span(self, begin: int, end: int, sure: bool) -> str:
        if end == NEVER:
            return f"{self.seconds(begin)} … never answered"
        return f"{self.seconds(begin)} … {self.seconds(end)}" + ("" if sure else " (unsure)")

    def _lines(self, places: Iterable[int]) -> str:
        return ", ".join(self._recording.where(place) for place in places)
