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
