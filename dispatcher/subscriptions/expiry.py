"""Parses the expiry and the start of a subscription: an instant or a duration, as text."""

from __future__ import annotations

from edn.errors import InvalidInput
from edn.formats import duration
from edn.model.coordinates import instant

_EXAMPLES = f"a time such as 2030-01-31T09:00:00Z or {duration.EXAMPLES}"
_LATEST = instant("9999-12-31T23:59:59Z")


def parse_expires(text: str, now: int, *, estimate: int = 0, pointer: str = "/expires") -> int:
    """Parse an expiry; return microseconds since 1970, which must be after `now`.

    A duration counts from `estimate` if that is later, because network time may be about to catch up with it.
    The last part of `pointer` is its name in errors.
    """
    name = pointer.rpartition("/")[2]
    length = duration.microseconds(text)
    if length is not None:
        now = max(now, estimate)
        expires = now + length
    else:
        try:
            expires = instant(text)
        except ValueError as error:
            raise InvalidInput(
                f'{name} must be {_EXAMPLES}, got "{text[:60]}": {error}', pointer=pointer
            ) from None
    if expires <= now:
        raise InvalidInput(f'{name} must be in the future, got "{text[:60]}"', pointer=pointer)
    if expires > _LATEST:
        raise InvalidInput(
            f'{name} must be in the year 9999 or before, got "{text[:60]}"; leave it out for never',
            pointer=pointer,
        )
    return expires


def parse_since(text: str, now: int, *, pointer: str = "/from") -> int | None:
    """Parse a time in the past; return None for now, else microseconds since 1970, up to `now`."""
    name = pointer.rpartition("/")[2]
    if text == "now":
        return None
    length = duration.microseconds(text)
    try:
        since = now - length if length is not None else instant(text)
    except ValueError as error:
        raise InvalidInput(
            f'{name} must be "now", {_EXAMPLES} (that long ago), got "{text[:60]}": {error}', pointer=pointer
        ) from None
    if since > now:
        raise InvalidInput(f'{name} must not be in the future, got "{text[:60]}"', pointer=pointer)
    return max(0, since)
