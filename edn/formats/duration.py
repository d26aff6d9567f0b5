"""Reads durations: ISO 8601, such as PT1H or P1DT30M, or short, such as 1h, 90s or 1h30m.

Months and years are not accepted, because their length varies.
"""

from __future__ import annotations

import re
from typing import Final

_NUMBER = r"(\d{1,9}(?:\.\d{1,6})?)"
_ISO = re.compile(
    rf"P(?=.)(?:(\d{{1,9}})W)?(?:(\d{{1,9}})D)?(?:T(?=.)(?:(\d{{1,9}})H)?(?:(\d{{1,9}})M)?(?:{_NUMBER}S)?)?",
    re.ASCII,
)
_SHORT = re.compile(
    rf"(?=.)(?:{_NUMBER}w)?(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?(?:{_NUMBER}ms)?",
    re.ASCII,
)
#: microseconds of each group
_UNITS = (604_800_000_000, 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000, 1_000)

#: for messages and help
EXAMPLES: Final = "a duration such as 1h, 90s or P30D"


def microseconds(text: str) -> int | None:
    """Returns the length of a duration; None if the text is none."""
    found = _ISO.fullmatch(text) or _SHORT.fullmatch(text)
    if found is None:
        return None
    parts = zip(found.groups(), _UNITS, strict=False)
    return sum(round(float(part) * unit) if "." in part else int(part) * unit for part, unit in parts if part)


def seconds(text: str) -> float | None:
    """Returns the length of a duration or of a plain number of seconds; None if the text is neither."""
    if re.fullmatch(_NUMBER, text, re.ASCII):
        return float(text)
    found = microseconds(text)
    return None if found is None else found / 1e6


def text(length: int) -> str:
    """Writes microseconds as an ISO 8601 duration, such as PT1H30M."""
    seconds, micros = divmod(length, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    fraction = f".{micros:06}".rstrip("0") if micros else ""
    time = "".join(
        f"{value}{unit}"
        for value, unit in ((hour, "H"), (minute, "M"), (f"{second}{fraction}", "S"))
        if value not in (0, "0")
    )
    return f"P{f'{days}D' if days else ''}{f'T{time}' if time else ''}" if length else "PT0S"
