"""JSON that every reader reads alike: what is ambiguous is refused, with its place.

The standard's gaps are where two programs see two different messages: repeated keys, NaN, lone surrogates,
numbers beyond a double, nesting without end. `decode` refuses all of them; `msgspec` does the reading.

Repeated keys are found without a second parse. Outside of strings a colon stands only between a key and its
value, so a body has as many colons as keys were written plus those inside its strings. The decoded value
tells how many keys are left and how many colons the strings have; the two counts agree exactly when no key
was repeated, unless a colon was written as an escape. Only then, and to name the culprit, the slow exact
check runs.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

import msgspec

from edn.errors import MalformedJson, TooLarge

#: containers inside one another
MAX_DEPTH = 32

_decoder = msgspec.json.Decoder()


def decode(body: bytes) -> Any:
    """The value of a JSON text; raises `MalformedJson` or `TooLarge`."""
    try:
        value = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _refuse(body, error)
    if escapes_a_colon(body) or body.count(b":") != _colons(value):
        check_keys(body)
    return value


def escapes_a_colon(body: bytes) -> bool:
    """Whether a colon may hide in an escape, so that counting colons proves nothing."""
    return b"\\" in body and (b"\\u003a" in body or b"\\u003A" in body)


def check_keys(body: bytes) -> None:
    """Refuse repeated keys by reading them all. The body must have been decoded before, and so be valid."""
    json.loads(body.decode(), object_pairs_hook=_without_repeats, parse_int=float)


def token(key: str) -> str:
    """A key as a reference token of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def _without_repeats(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            shown = json.dumps(key if len(key) <= 80 else key[:80] + "…", ensure_ascii=False)
            raise MalformedJson(f"the key {shown} is repeated in one object; each key may stand once")
        seen.add(key)


def _colons(value: Any) -> int:
    """How many colons a text of this value has if no key was repeated; refuses deep nesting on the way."""
    count = 0
    level = [value]
    for depth in range(MAX_DEPTH + 2):
        below: list[Any] = []
        nested = False
        for item in level:
            if isinstance(item, str):
                count += item.count(":")
            elif isinstance(item, dict):
                nested = True
                count += len(item)
                count += sum(key.count(":") for key in item)
                below.extend(item.values())
            elif isinstance(item, list):
                nested = True
                below.extend(item)
        if nested and depth == MAX_DEPTH:
            raise TooLarge(f"nested deeper than {MAX_DEPTH} objects and arrays")
        if not below:
            break
        level = below
    return count


def _refuse(body: bytes, error: Exception) -> NoReturn:
    """Say in our words what `msgspec` found wrong, and where."""
    if isinstance(error, RecursionError):
        raise TooLarge(f"nested deeper than {MAX_DEPTH} objects and arrays") from None
    try:
        body.decode()
    except UnicodeDecodeError as broken:
        raise MalformedJson(f"not UTF-8 at byte {broken.start}") from None
    if isinstance(error, msgspec.ValidationError):
        place = _beyond_range(body)
        raise MalformedJson("a number is beyond the range of a 64-bit double", pointer=place) from None
    if not body.strip():
        raise MalformedJson("the body is empty; JSON was expected") from None
    what = str(error).removeprefix("JSON is malformed: ")
    if _readable(body):  # msgspec calls it truncated or misplaced, whatever stands after it
        what = "a string holds a lone surrogate escape, which is no character"
    elif what == "Input data was truncated":
        what = f"it ends too early, at byte {len(body)}"
    raise MalformedJson(f"not JSON: {what}") from None


def _readable(body: bytes) -> bool:
    """Whether only the strict reader refuses the body, and no constant such as NaN is the reason."""
    try:
        json.loads(body.decode(), parse_constant=_no_constant, parse_int=float)
    except (ValueError, RecursionError):
        return False
    return True


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _beyond_range(body: bytes) -> str | None:
    """The pointer to the first number that no double can hold."""
    try:
        pending = [("", json.loads(body.decode(), parse_int=float))]
    except (ValueError, RecursionError):
        return None
    while pending:
        pointer, value = pending.pop()
        if isinstance(value, float) and math.isinf(value):
            return pointer
        children = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        pending.extend(reversed([(f"{pointer}/{token(str(key))}", child) for key, child in children]))
    return None
