"""The events of a request's body, as they were sent: one line each, without the keys that begin with $.

A line has the bytes of the publisher: numbers, escapes, the order of keys and spaces are kept. Only line
breaks between tokens become spaces, because log, frames and event streams use them as ends of lines.

This is the exact reading, in Python. `edn.protocol.documents` does the same much faster, for most bodies.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from edn.formats import strict_json

#: levels of nested objects and arrays of a body
MAX_DEPTH = strict_json.MAX_DEPTH
#: for `bytes.translate`; in valid JSON line breaks occur only between tokens
SPACED = bytes(32 if code in b"\n\r" else code for code in range(256))

# Values are only skipped; `float` reads integers of any length.
_decoder = json.JSONDecoder(parse_int=float)
_BLANKS = " \t\n\r"


class Lines(NamedTuple):
    #: one line per event
    text: bytes
    #: number of keys that begin with $
    own: int


def cut_events(body: bytes) -> Lines:
    """Cuts the events out of a body: an object, or an array of objects, that `strict_json` accepts."""
    text = body.translate(SPACED).decode()
    found: list[str] = []
    own = 0
    place = _skip(text, 0)
    if text[place] == "{":
        line, own, place = _event(text, place)
        found.append(line)
    else:
        place = _skip(text, place + 1)
        while text[place] != "]":
            line, more, place = _event(text, _skip(text, place + (text[place] == ",")))
            found.append(line)
            own += more
            place = _skip(text, place)
    return Lines("".join([line + "\n" for line in found]).encode(), own)


def _event(text: str, place: int) -> tuple[str, int, int]:
    """Reads the object at a place; returns its line, the number of our own keys, and the place after it."""
    kept: list[str] = []
    own = 0
    while text[place] != "}":
        begin = place + 1
        place = _skip(text, begin)
        if text[place] == "}":  # an empty object
            kept.append(text[begin:place])
            break
        key, place = _decoder.raw_decode(text, place)
        _, place = _decoder.raw_decode(text, _skip(text, _skip(text, place) + 1))
        place = _skip(text, place)
        if key.startswith("$"):
            own += 1
        else:
            kept.append(text[begin:place])
    return "{" + ",".join(kept) + "}", own, place + 1


def _skip(text: str, place: int) -> int:
    """Returns the place of the next token."""
    while place < len(text) and text[place] in _BLANKS:
        place += 1
    return place
