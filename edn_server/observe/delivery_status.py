"""Reports and changes delivery: state, counters, attempts, dead letters, an example notification.

Reads have their own connection and thread, so they never wait for matching or for composing notifications.

The status of a subtree subscription is the sum over its members on this server. They share one address,
unless it is a stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import msgspec

from edn.errors import Conflict, InvalidInput, NotFound
from edn.http import sink_policy
from edn.model.coordinates import element_of, is_array, rfc3339
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
from edn_server.storage.addresses import is_sink, ring_of, url_of
from edn_server.storage.dead_letters import Letter
from edn_server.storage.interface import Connection, Reader
from edn_server.storage.writer import Writer
from edn_server.subscriptions.counters import Counts
from edn_server.subscriptions.sequences import LiveSequence
from edn_server.subscriptions.view import RegistryView

#: dead letters that one call requeues
RECOVERED = 20_000

_CURSOR = re.compile(r"(\d{1,18})-(\d{1,18})\Z", re.ASCII)
#: by type; a time is that of the example
_EXAMPLES: dict[str, Any] = {
    "string": "example",
    "number": 1.5,
    "integer": 1,
    "boolean": True,
    "bytes": "AA==",
}


def _monitor(live: LiveSequence) -> dict[str, Any]:
    """Returns the state of the monitor of a sequence."""
    count, oldest = live.state()
    return {
        "waiting_for": live.plan.slots[len(oldest)] + 1,
        "since": rfc3339(oldest[0].stamp) if oldest else None,
        "half_matches": count,
        "settling": len(live.waiting),
        "late": live.late,
        "dropped": live.dropped,
    }


def _example(kind: str, now: str) -> Any:
    """Returns a value of a type."""
    value = now if element_of(kind) == "time" else _EXAMPLES[element_of(kind)]
    return [value] if is_array(kind) else value


@owned("loop")
@dataclass(slots=True)
class DeliveryStatus:
    _: KW_ONLY
    view: RegistryView
    notifier: Notifier
    writer: Writer
    reader: Reader
    settings: Settings
    consent_of: Callable[[str], State | None] = lambda address: None

    @any_thread
    def close(self) -> None:
        self.reader.close()

    # -- reading ----------------------------------------------------------------------------------------

    async def delivery(self, subscription: str) -> dict[str, Any]:
        """Returns the state of a subscription's address, and the counters of its notifications."""
        numbers, address = self._find(subscription)
        members = self.view.members_of(subscription)
        dead = await self.reader.reading(letters.count, subscription)
        used = await self.reader.reading(usage.subscription_usage, subscription, members)
        health = self.notifier.health(address)
        found = [(number, self.view.version(number)) for number in numbers]
        monitor = self.view.sequence(numbers[-1]) if numbers else None
        counts = [self.view.counters.totals([n], one.topic) for n, one in found if one is not None]
        return {
            "state": health.state,
            "failures": health.failures,
            "failing_since": _shown(health.failing_since),
            "next_attempt": _shown(health.next_attempt or None) if health.state == "failing" else None,
            "warned": _shown(health.warned),
            "disabled": health.disabled,
            "disabled_since": _shown(health.disabled_since),
            "reason": health.reason,
            "signed": self.view.ring(ring_of(address)) is not None,
            "consent": self.consent_of(address),
            **{kind: sum(getattr(each, kind) for each in counts) for kind in Counts._fields},
            "dead_letters": dead,
            "retrying": self.notifier.retrying(address),
            "buffered_bytes": used.buffered_bytes,
            "dropped": used.dropped,
            "dropped_limit": used.reason,
            "dropped_last": _shown(used.last),
            **({} if monitor is None else {"sequence": _monitor(monitor)}),
        }

    async def attempts(self, subscription: str) -> list[dict[str, Any]]:
        """Returns the last attempts at a subscription's address, newest first."""
        _, address = self._find(subscription)
        stored = await self.reader.reading(attempts.stored, address)
        oldest = attempts.oldest(self.settings.attempts_kept)
        return [self._attempt(one) for one in self.notifier.attempts.latest(address, stored, oldest)]

    async def letters(
        self, subscription: str | None, after: str | None, limit: int
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Returns a page of dead letters, oldest first, and the cursor of the next page.

        The `cursor` of a letter continues after it.
        """
        beyond = (0, 0)
        if after is not None:
            given = _CURSOR.match(after)
            if given is None:
                raise InvalidInput('after must be a "next" of an earlier page', pointer="/after")
            beyond = (int(given[1]), int(given[2]))
        found = await self.reader.reading(letters.page, subscription, beyond, limit + 1)
        page = [{**self._letter(letter), "cursor": f"{letter.died}-{letter.id}"} for letter in found[:limit]]
        named = await self.reader.reading(letters.subscriptions_of, [letter.id for letter in found[:limit]])
        for shown, letter in zip(page, found, strict=False):
            shown["subscriptions"] = named[letter.id]
        return page, page[-1]["cursor"] if len(found) > limit else None

    async def letter(self, number: int) -> dict[str, Any]:
        found = await self.reader.reading(letters.find, number)
        if found is None:
            raise NotFound(f'dead letter "{self.settings.id}.{number}" does not exist')
        letter, body = found
        named = list(dict.fromkeys(dead_letters.recipients(body, letter.address)))
        return {**self._letter(letter), "subscriptions": named, "body": msgspec.json.decode(body)}

    # -- changing ---------------------------------------------------------------------------------------

    async def resend(self, number: int) -> dict[str, Any]:
        """Requeues a dead letter for its living recipients."""
        for subscription in (await self.letter(number))["subscriptions"]:
            with contextlib.suppress(NotFound):
                self._check_enabled(subscription)
        revived = await self._revive(lambda _: [number])
        if not revived.letters:
            raise Conflict("the subscriptions of this dead letter are paused or have ended")
        return {"letters": revived.letters, "notifications": revived.events, "more": False}

    async def recover(self, subscription: str, since: int) -> dict[str, Any]:
        """Requeues a subscription's dead letters since a time, oldest first."""
        self._check_enabled(subscription)
        if self.view.is_paused(subscription):
            raise Conflict("the subscription is paused; resume it first")
        died = round(clock.moment(since / 1e6) * 1e6)
        revived = events = 0
        while revived < RECOVERED:
            step = await self._revive(
                lambda db: letters.since(db, subscription, died, letters.STEP), only=subscription
            )
            revived += step.letters
            events += step.events
            if step.letters < letters.STEP:
                return {"letters": revived, "notifications": events, "more": False}
        return {"letters": revived, "notifications": events, "more": True}

    async def enable(self, subscription: str) -> dict[str, Any]:
        """Enables the address of a subscription; dead letters stay until they are requeued."""
        _, address = self._find(subscription)
        await self.notifier.enable(address)
        return await self.delivery(subscription)

    async def example(self, subscription: str) -> dict[str, Any]:
        """Sends an example notification, marked as such, and returns the attempt."""
        (number, *_), address = self._find(subscription)
        if not is_sink(address):
            raise Conflict("the subscription is a stream: it has no sink that an example could be sent to")
        version = self.view.version(number)
        topic = None if version is None else self.view.topic(version.topic)
        if topic is None:
            raise _not_here(subscription)
        now = rfc3339(int(clock.estimate() * 1e6))
        attributes = {name: _example(kind, now) for name, kind in topic.columns}
        entry = {
            "topic": topic.name,
            "event": {"id": f"example-{secrets.token_hex(8)}", "time": now, "attributes": attributes},
            "matches": [msgspec.Raw(self.view.fragment(number))],
            "example": True,
        }
        body = msgspec.json.encode({"notifications": [entry]})
        return self._attempt(await self.notifier.example(address, body))

    # -- internal ---------------------------------------------------------------------------------------

    def _attempt(self, attempt: Attempt) -> dict[str, Any]:
        fields = msgspec.structs.asdict(attempt)
        events = fields.pop("events")
        return {
            **fields,
            "time": rfc3339(attempt.time),
            "notifications": events,
            "next_attempt": None if attempt.next_attempt is None else rfc3339(attempt.next_attempt),
            "request": self.notifier.bodies.find(attempt.webhook_id),
        }

    def _find(self, subscription: str) -> tuple[list[int], str]:
        """Returns the newest version of each member, and the address."""
        newest = map(self.view.newest, self.view.members_of(subscription))
        numbers = [number for number in newest if number is not None]
        if not numbers:
            raise _not_here(subscription)
        return numbers, self.view.address(numbers[-1])

    def _check_enabled(self, subscription: str) -> None:
        """Raises if the address is disabled: requeued notifications would become dead letters at once."""
        health = self.notifier.health(self._find(subscription)[1])
        if health.disabled is not None:
            raise Conflict(
                f"the address is disabled since {_shown(health.disabled_since)}; enable it first, "
                "or requeued notifications become dead letters again"
            )

    def _address(self, subscription: str) -> str | None:
        try:
            return self._find(subscription)[1]
        except NotFound:
            return None

    async def _revive(
        self, select: Callable[[Connection], Sequence[int]], only: str | None = None
    ) -> Requeued:
        now = int(clock.steady() * 1e6)
        job = Requeue(select, self._address, now, waits=self.view.is_paused, only=only)
        revived = await asyncio.shield(asyncio.wrap_future(self.writer.submit(job)))
        self.notifier.counters.backlog += revived.events
        for address in revived.addresses:
            self.notifier.hurry(address)
        return revived

    def _letter(self, letter: Letter) -> dict[str, Any]:
        return {
            "id": f"{self.settings.id}.{letter.id}",
            "webhook_id": self.notifier.webhook_id(letter.id),
            "url": sink_policy.without_password(url_of(letter.address)),
            "died": _instant(letter.died),
            "created": _instant(letter.created),
            "attempts": letter.attempts,
            "status": letter.status,
            "reason": letter.reason,
            "notifications": letter.events,
        }


def _not_here(subscription: str) -> NotFound:
    return NotFound(f'subscription "{public_id(subscription)[:80]}" does not exist on this server')


def _instant(steady: int) -> str:
    """Formats a moment of steady time."""
    return rfc3339(max(0, round(clock.instant(steady / 1e6) * 1e6)))


def _shown(steady: int | None) -> str | None:
    return None if steady is None else _instant(steady)
