"""How messages show what was given, and what was perhaps meant: short, whatever it is that was given.

Whoever sends nonsense chooses how much of it; so nothing here takes long, or repeats all of it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

#: characters of a string that a message repeats
_QUOTED = 40
#: names that a message lists
_LISTED = 10
#: characters of a name for which another one is looked for; comparing two takes the square of it
_COMPARED = 40


def shown(value: object) -> str:
    """A value of JSON as messages show it: short, with its type when that is not plain."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            text = "a huge one" if abs(value) >= 1e300 else repr(value)
            return f"the number {text}"
        case str():
            return f"the string {quoted(value)}"
        case list() | tuple():
            return "an array"
        case dict():
            return "an object"
    return f"a Python {type(value).__name__}"


def quoted(text: str) -> str:
    """A string for a message: short, and without the lone surrogates that no message could carry."""
    short = text if len(text) <= _QUOTED else text[: _QUOTED - 1] + "…"
    return '"' + short.encode(errors="replace").decode() + '"'


def listed(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def meant(name: str, known: Iterable[str]) -> str:
    """A question that stands before what would be right: `did you mean "price"? `; empty if none is near."""
    if len(name) > _COMPARED:
        return ""
    close = difflib.get_close_matches(name, [one for one in known if len(one) <= _COMPARED], 1)
    return f'did you mean "{close[0]}"? ' if close else ""
