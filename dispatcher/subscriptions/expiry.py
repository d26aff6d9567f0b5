"""Parses the expiry and the start of a subscription: an instant or a duration, as text."""

from __future__ import annotations

import re

from edn.errors import InvalidInput
from edn.model.coordinates import instant

_DURATION = re.compile(
    r"P(?=.)(?:(\d{1,9})W)?(?:(\d{1,9})D)?(?:T(?=.)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,6})?)S)?)?",
    re.ASCII,
)
_EXAMPLES = "an instant such as 2030-01-31T09:00:00Z or a duration such as PT1H or P30D"
_LATEST = instant("9999-12-31T23:59:59Z")


def parse_expires(text: str, now: int, *, estimate: int = 0, pointer: str = "/expires") -> int:
    """Parse an expiry; return microseconds since 1970, which must be after `now`.

    A duration counts from `estimate` if that is later, because network time may be about to catch up with it.
    """
    found = _DURATION.fullmatch(text)
    if found is not None:
        now = max(now, estimate)
        expires = now + _microseconds(found)
    else:
        try:
            expires = instant(text)
        except ValueError as error:
            raise InvalidInput(
                f'expires must be {_EXAMPLES}, got "{text[:60]}": {error}', pointer=pointer
            ) from None
    if expires <= now:
        raise InvalidInput(f'expires must be in the future, got "{text[:60]}"', pointer=pointer)
    if expires > _LATEST:
        raise InvalidInput(
            f'expires must be in the year 9999 or before, got "{text[:60]}"; leave it out for never',
            pointer=pointer,
        )
    return expires


def parse_since(text: str, now: int, *, pointer: str = "/from") -> int | None:
    """Parse the start of a subscription; return None for now, else microseconds since 1970, up to `now`."""
    if text == "now":
        return None
    found = _DURATION.fullmatch(text)
    try:
        since = now - _microseconds(found) if found is not None else instant(text)
    except ValueError as error:
        raise InvalidInput(
            f'from must be "now", {_EXAMPLES} (that long ago), got "{text[:60]}": {error}', pointer=pointer
        ) from None
    if since > now:
        raise InvalidInput(f'from must not be in the future, got "{text[:60]}"', pointer=pointer)
    return max(0, since)


def _microseconds(found: re.Match[str]) -> int:
    weeks, days, hours, minutes = (int(part or 0) for part in found.groups()[:4])
    whole = ((weeks * 7 + days) * 24 + hours) * 3600 + minutes * 60
    return whole * 1_000_000 + round(float(found.group(5) or 0) * 1_000_000)
