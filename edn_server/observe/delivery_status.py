"""Reports and changes delivery: state, counters, attempts, dead letters, a test notification.

Reading has a connection and a thread of its own, so that no question waits behind matching or behind
composing notifications. Lives on the event loop.

A subscription to a subtree is asked about under its own name: what is said of it is what its members here
come to. They share one address, unless it is a stream, which nothing is delivered to.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from edn.errors import Conflict, InvalidInput, NotFound
from edn.model.coordinates import rfc3339
from edn.model.namespace import public_id
from edn.runtime import clock
from edn.runtime.ownership import any_thread, owned
from edn_server.config import Settings
from edn_server.delivery import attempts, dead_letters
from edn_server.delivery.attempts import Attempt
from edn_server.delivery.dead_letters import Requeue, Requeued
from edn_server.delivery.notifier import Notifier
from edn_server.sinks.consent import State
from edn_server.storage import dead_letters as letters
from edn_server.storage import usage
from edn_server.storage.addresses import ring_of, url_of
from edn_server.storage.dead_letters import Letter
from edn_server.storage.interface import Reader
from edn_server.storage.writer import Writer
from edn_server.subscriptions.view import RegistryView

#: letters that one call recovers; whoever has more calls again
RECOVERED = 20_000

_CURSOR = re.compile(r"(\d{1,18})-(\d{1,18})\Z", re.ASCII)
_EXAMPLES: dict[str, Any] = {"string": "example", "number": 1.5, "integer": 1, "boolean": True}


@owned("loop")
class DeliveryStatus:
    def __init__(
        self,
        *,
        view: RegistryView,
        notifier: Notifier,
        writer: Writer,
        reader: Reader,
        settings: Settings,
        consent_of: Callable[[str], State | None] = lambda address: None,
    ) -> None:
        """`consent_of`: how it is with the consent of an address."""
        self._consent_of = consent_of
        self._view = view
        self._notifier = notifier
        self._writer = writer
        self._reader = reader
        self._settings = settings

    @any_thread
    def close(self) -> None:
        self._reader.close()

    # -- looking ----------------------------------------------------------------------------------------

    async def delivery(self, subscription: str) -> dict[str, Any]:
        """How it is with a subscription's address, and what became of its notifications."""
        numbers, address = self._find(subscription)
        parts = self._view.parts(subscription)
        dead = await self._reader.reading(letters.count, subscription)
        standing = await self._reader.reading(usage.standing, subscription, parts)
        health = self._notifier.health(address)
        found = [(number, self._view.version(number)) for number in numbers]
        counts = [self._view.counters.of([n], one.topic) for n, one in found if one is not None]
        return {
            "state": health.state,
            "failures": health.failures,
            "failing_since": _shown(health.failing_since),
            "next_attempt": _shown(health.next_attempt or None) if health.state == "failing" else None,
            "warned": _shown(health.warned),
            "disabled": health.disabled,
            "disabled_since": _shown(health.disabled_since),
            "reason": health.reason,
            "signed": self._view.ring(ring_of(address)) is not None,
            "consent": self._consent_of(address),
            "evaluated": sum(each.evaluated for each in counts),
            "matched": sum(each.matched for each in counts),
            "delivered": sum(each.delivered for each in counts),
            "failed": sum(each.failed for each in counts),
            "dead_letters": dead,
            "buffered_bytes": standing.buffered_bytes,
            "dropped": standing.dropped,
            "dropped_limit": standing.reason,
            "dropped_last": _shown(standing.last),
        }

    async def attempts(self, subscription: str) -> list[dict[str, Any]]:
        """The last attempts at its address, the newest first."""
        _, address = self._find(subscription)
        stored = await self._reader.reading(attempts.stored, address)
        oldest = attempts.oldest(self._settings.attempts_kept)
        return [_attempt(one) for one in self._notifier.attempts.latest(address, stored, oldest)]

    async def letters(
        self, subscription: str | None, after: str | None, limit: int
    ) -> tuple[list[dict[str, Any]], str | None]:
        """A page, the oldest death first, and the cursor of the next."""
        beyond = (0, 0)
        if after is not None:
            given = _CURSOR.match(after)
            if given is None:
                raise InvalidInput('after: not one that a listing gave as "next"', pointer="/after")
            beyond = (int(given[1]), int(given[2]))
        found = await self._reader.reading(letters.page, subscription, beyond, limit + 1)
        following = f"{found[limit - 1].died}-{found[limit - 1].id}" if len(found) > limit else None
        return [self._letter(letter) for letter in found[:limit]], following

    async def letter(self, number: int) -> dict[str, Any]:
        found = await self._reader.reading(letters.find, number)
        if found is None:
            raise NotFound(f'no dead letter "{self._settings.id}.{number}"')
        letter, body = found
        named = list(dict.fromkeys(dead_letters.recipients(body, letter.address)))
        return {**self._letter(letter), "subscriptions": named, "body": msgspec.json.decode(body)}

    # -- doing ------------------------------------------------------------------------------------------

    async def resend(self, number: int) -> dict[str, Any]:
        """Queue one letter again, for whoever it names and still lives."""
        await self.letter(number)
        revived = await self._revive(
            Requeue(lambda _: [number], self._address, _steady(), waits=self._view.is_paused)
        )
        if not revived.letters:
            raise Conflict("the subscriptions that this letter names are paused, or no more: nobody to tell")
        return {"letters": revived.letters, "notifications": revived.events, "more": False}

    async def recover(self, subscription: str, since: int) -> dict[str, Any]:
        """Queue a subscription's letters that died at or after a time, in the order of their deaths."""
        self._find(subscription)
        if self._view.is_paused(subscription):
            raise Conflict("the subscription is paused; resume it first")
        died = round(clock.moment(since / 1e6) * 1e6)
        revived = events = 0
        while revived < RECOVERED:
            job = Requeue(
                lambda db: letters.since(db, subscription, died, letters.STEP),
                self._address,
                _steady(),
                waits=self._view.is_paused,
                only=subscription,
            )
            step = await self._revive(job)
            revived += step.letters
            events += step.events
            if step.letters < letters.STEP:
                return {"letters": revived, "notifications": events, "more": False}
        return {"letters": revived, "notifications": events, "more": True}

    async def enable(self, subscription: str) -> dict[str, Any]:
        """Send to its address again, at once; what died meanwhile stays dead until it is recovered."""
        _, address = self._find(subscription)
        await self._notifier.enable(address)
        return await self.delivery(subscription)

    async def example(self, subscription: str) -> dict[str, Any]:
        """Send something that never happened, marked as such, and tell how the sink answered."""
        (number, *_), address = self._find(subscription)
        version = self._view.version(number)
        topic = None if version is None else self._view.topic(version.topic)
        if topic is None:
            raise _not_here(subscription)
        now = rfc3339(int(clock.estimate() * 1e6))
        attributes = {name: now if kind == "time" else _EXAMPLES[kind] for name, kind in topic.columns}
        entry = {
            "topic": topic.name,
            "event": {"id": f"example-{secrets.token_hex(8)}", "time": now, "attributes": attributes},
            "matches": [msgspec.Raw(self._view.fragment(number))],
            "example": True,
        }
        body = msgspec.json.encode({"notifications": [entry]})
        return _attempt(await self._notifier.example(address, body))

    # -- inside -----------------------------------------------------------------------------------------

    def _find(self, subscription: str) -> tuple[list[int], str]:
        """The newest version of a subscription, or of each of its members here, and the address."""
        newest = [self._view.newest(part) for part in self._view.parts(subscription)]
        numbers = [number for number in newest if number is not None]
        if not numbers:
            raise _not_here(subscription)
        return numbers, self._view.address(numbers[-1])

    def _address(self, subscription: str) -> str | None:
        try:
            return self._find(subscription)[1]
        except NotFound:
            return None

    async def _revive(self, job: Requeue) -> Requeued:
        revived = await asyncio.shield(asyncio.wrap_future(self._writer.submit(job)))
        self._notifier.counters.backlog += revived.events
        for address in revived.addresses:
            self._notifier.hurry(address)
        return revived

    def _letter(self, letter: Letter) -> dict[str, Any]:
        return {
            "id": f"{self._settings.id}.{letter.id}",
            "webhook_id": self._notifier.webhook_id(letter.id),
            "url": url_of(letter.address),
            "died": _instant(letter.died),
            "created": _instant(letter.created),
            "attempts": letter.attempts,
            "status": letter.status,
            "reason": letter.reason,
            "notifications": letter.events,
        }


def _not_here(subscription: str) -> NotFound:
    return NotFound(f'no subscription "{public_id(subscription)[:80]}" on this server')


def _steady() -> int:
    return int(clock.steady() * 1e6)


def _instant(steady: int) -> str:
    """Write the instant of a moment of steady time."""
    return rfc3339(max(0, round(clock.instant(steady / 1e6) * 1e6)))


def _shown(steady: int | None) -> str | None:
    return None if steady is None else _instant(steady)


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "time": rfc3339(attempt.time),
        "webhook_id": attempt.webhook_id,
        "status": attempt.status,
        "reason": attempt.reason,
        "seconds": attempt.seconds,
        "answer": attempt.answer,
        "notifications": attempt.events,
        "outcome": attempt.outcome,
        "next_attempt": None if attempt.next_attempt is None else rfc3339(attempt.next_attempt),
    }
