"""When a subscription ends: an instant or a duration as text, microseconds inside."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from edn.coordinates import instant
from edn.errors import InvalidInput

_DURATION = re.compile(
    r"P(?=.)(?:(\d{1,9})W)?(?:(\d{1,9})D)?(?:T(?=.)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,6})?)S)?)?",
    re.ASCII,
)
_EXAMPLES = "an instant such as 2030-01-31T09:00:00Z, or a duration such as PT1H or P30D"
#: the last instant that can be written
_LATEST = instant("9999-12-31T23:59:59Z")


def parse_expires(text: str, now: int, *, pointer: str = "/expires") -> int:
    """Microseconds since 1970 of `text`, which must lie after `now`."""
    found = _DURATION.fullmatch(text)
    if found is not None:
        weeks, days, hours, minutes = (int(part or 0) for part in found.groups()[:4])
        seconds = float(found.group(5) or 0)
        whole = ((weeks * 7 + days) * 24 + hours) * 3600 + minutes * 60
        expires = now + whole * 1_000_000 + round(seconds * 1_000_000)
    else:
        try:
            expires = instant(text)
        except ValueError as error:
            raise InvalidInput(f'expires "{text[:60]}": {_EXAMPLES}; {error}', pointer=pointer) from None
    if expires <= now:
        raise InvalidInput(f'expires "{text[:60]}" is not in the future', pointer=pointer)
    if expires > _LATEST:
        raise InvalidInput(
            f'expires "{text[:60]}" is beyond the year 9999; leave it out for never', pointer=pointer
        )
    return expires


def rfc3339(microseconds: int) -> str:
    """An instant as it is written in answers: UTC, with a fraction only where there is one."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    return moment.isoformat().replace("+00:00", "Z")
