"""The calls about delivery: attempts, dead letters, examples, secrets; described as in `edn.client.calls`."""

from __future__ import annotations

from datetime import datetime, timedelta
from urllib.parse import quote

import msgspec

from edn.api.delivery import Attempt, AttemptList, DeadLetter, DeadLetterPage, Delivery, Queued, Rotation
from edn.client import encoding
from edn.client.conversation import Call, Plan, reading
from edn.client.encoding import encode, expiry, given, subscription_path
from edn.formats.webhooks import new_secret


def attempts(id: str) -> Call[list[Attempt]]:
    """The last attempts at a subscription's address, the newest first."""
    read = reading(AttemptList)
    path = f"{subscription_path(id)}/attempts"
    return Call(method="GET", path=path, read=lambda response: read(response).attempts)


def dead_letter_page(
    *, subscription: str | None = None, limit: int | None = None, after: str | None = None
) -> Call[DeadLetterPage]:
    """One page of the notifications that were given up; `dead_letters` walks them all."""
    query = given(subscription=subscription, limit=None if limit is None else str(limit), after=after)
    return Call(method="GET", path="/v1/dead-letters", query=query, read=reading(DeadLetterPage))


def dead_letter(id: str) -> Call[DeadLetter]:
    """One of them, with what it would have said."""
    return Call(method="GET", path=_letter_path(id), read=reading(DeadLetter))


def resend(id: str) -> Call[Queued]:
    """Queue a dead letter again, for whoever of its subscriptions still lives."""
    return Call(method="POST", path=f"{_letter_path(id)}/resend", read=reading(Queued))


def recover(id: str, since: str | datetime) -> Plan[Queued]:
    """Queue again all dead letters of a subscription since a time, however many there are."""
    body = encode({"since": since if isinstance(since, str) else encoding.instant(since)})
    letters = notifications = 0
    while True:
        queued: Queued = yield Call(
            method="POST", path=f"{subscription_path(id)}/recover", body=body, read=reading(Queued)
        )
        letters += queued.letters
        notifications += queued.notifications
        if not queued.more:
            return Queued(letters=letters, notifications=notifications)


def enable(id: str) -> Call[Delivery]:
    """Send to a subscription's disabled or failing address again, at once."""
    return Call(method="POST", path=f"{subscription_path(id)}/enable", read=reading(Delivery))


def send_example(id: str) -> Call[Attempt]:
    """Send a made-up event, marked as an example, and return how the sink answered."""
    return Call(method="POST", path=f"{subscription_path(id)}/example", read=reading(Attempt))


def rotate_secret(
    id: str, *, secret: str | None = None, grace: str | timedelta | None = None
) -> Call[Rotation]:
    """Sign with another secret; the one before counts for `grace` (a day), so that receivers can follow.

    Without a `secret` one is made here, so that a request that is repeated rotates once.
    """
    new = secret or new_secret()
    read = reading(Rotation)
    return Call(
        method="POST",
        path=f"{subscription_path(id)}/rotate-secret",
        body=encode(given(secret=new, grace=expiry(grace))),
        read=lambda response: msgspec.structs.replace(read(response), secret=new),
    )


def _letter_path(id: str) -> str:
    return f"/v1/dead-letters/{quote(id, safe='')}"
