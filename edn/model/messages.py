"""Parts of error messages: short descriptions of values, and suggestions for misspelled names.

Clients choose the length of invalid input, so results are short and cheap to compute.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

#: characters of a string in a message
_QUOTED = 40
#: names in a list
_LISTED = 10
#: characters of a name that gets a suggestion; a comparison takes quadratic time
_COMPARED = 40


def describe(value: object) -> str:
    """Describes a JSON value by its type and content."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a huge number" if abs(value) >= 1e300 else f"the number {value!r}"
        case str():
            return f"the string {quote(value)}"
        case list() | tuple():
            return "an array"
        case dict():
            return "an object"
    return f"a Python {type(value).__name__}"


def quote(text: str) -> str:
    """Quotes a string, shortened and with lone surrogates replaced."""
    short = text if len(text) <= _QUOTED else text[: _QUOTED - 1] + "…"
    return '"' + short.encode(errors="replace").decode() + '"'


def name_list(names: Sequence[str]) -> str:
    """Lists the first names and the number of the others."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def unknown_attribute(name: str, known: Sequence[str]) -> str:
    """Says that a topic has no such attribute, and which it has."""
    hint = suggestion(name, known)
    return f"{quote(name)} is not an attribute of this topic; {hint}its attributes are {name_list(known)}"


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns a question such as `did you mean "price"? `; empty if no known name is similar."""
    if len(name) > _COMPARED:
        return ""
    close = difflib.get_close_matches(name, [one for one in known if len(one) <= _COMPARED], 1)
    return f'did you mean "{close[0]}"? ' if close else ""
