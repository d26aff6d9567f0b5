"""Calls of delivery: attempts, dead letters, examples, secrets."""

from __future__ import annotations

from datetime import datetime, timedelta
from urllib.parse import quote

import msgspec

from edn.api.delivery import Attempt, AttemptList, DeadLetter, DeadLetterPage, Delivery, Queued, Rotation
from edn.client import encoding
from edn.client.conversation import Call, Plan, request
from edn.client.encoding import drop_none, expiry, subscription_path
from edn.formats.webhooks import new_secret


def attempts(id: str) -> Call[list[Attempt]]:
    """Returns the last attempts at a subscription's address, newest first."""
    return request("GET", f"{subscription_path(id)}/attempts", AttemptList).then(lambda found: found.attempts)


def dead_letter_page(
    *, subscription: str | None = None, limit: int | None = None, after: str | None = None
) -> Call[DeadLetterPage]:
    """Returns one page of dead letters; `dead_letters` iterates over all of them."""
    query = drop_none(subscription=subscription, limit=None if limit is None else str(limit), after=after)
    return request("GET", "/v1/dead-letters", DeadLetterPage, query=query)


def dead_letter(id: str) -> Call[DeadLetter]:
    """Returns a dead letter with its body."""
    return request("GET", _letter_path(id), DeadLetter)


def resend(id: str) -> Call[Queued]:
    """Requeues a dead letter for those of its subscriptions that still exist."""
    return request("POST", f"{_letter_path(id)}/resend", Queued)


def recover(id: str, since: str | datetime) -> Plan[Queued]:
    """Requeues all dead letters of a subscription since a time, in as many requests as needed."""
    body = {"since": since if isinstance(since, str) else encoding.instant(since)}
    letters = notifications = 0
    while True:
        queued: Queued = yield request("POST", f"{subscription_path(id)}/recover", Queued, body)
        letters += queued.letters
        notifications += queued.notifications
        if not queued.more:
            return Queued(letters=letters, notifications=notifications)


def enable(id: str) -> Call[Delivery]:
    """Enables a subscription's failing or disabled address, and delivers at once."""
    return request("POST", f"{subscription_path(id)}/enable", Delivery)


def send_example(id: str) -> Call[Attempt]:
    """Sends an event that is marked as an example, and returns the answer of the sink."""
    return request("POST", f"{subscription_path(id)}/example", Attempt)


def rotate_secret(
    id: str, *, secret: str | None = None, grace: str | timedelta | None = None
) -> Call[Rotation]:
    """Rotates the signing secret; the previous one also signs for `grace`, by default a day.

    A missing `secret` is generated here, so that a repeated request rotates once.
    """
    new = secret or new_secret()
    body = drop_none(secret=new, grace=expiry(grace))
    call = request("POST", f"{subscription_path(id)}/rotate-secret", Rotation, body)
    return call.then(lambda rotation: msgspec.structs.replace(rotation, secret=new))


def _letter_path(id: str) -> str:
    return f"/v1/dead-letters/{quote(id, safe='')}"
