"""A strict JSON decoder: refuses JSON that different parsers read differently.

Refused are repeated keys, NaN, lone surrogates, numbers beyond a double, and deep nesting. `msgspec` decodes.

Repeated keys are found without a second parse. Outside of strings a colon occurs only between a key and its
value, so a body has as many colons as written keys plus the colons in its strings. The decoded value shows
how many keys are left and how many colons its strings have; both counts agree if and only if no key is
repeated, unless a colon was written as an escape. Only then, and to name the key, the slow exact check runs.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

import msgspec

from edn.errors import MalformedJson, TooLarge

#: levels of nested objects and arrays
MAX_DEPTH = 32

_decoder = msgspec.json.Decoder()


def decode(body: bytes) -> Any:
    """Decodes a JSON text; raises `MalformedJson` or `TooLarge`."""
    try:
        value = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _refuse(body, error)
    if escapes_a_colon(body) or body.count(b":") != _colons(value):
        check_keys(body)
    return value


def escapes_a_colon(body: bytes) -> bool:
    """Whether a colon may be written as an escape, which makes counting colons useless."""
    return b"\\" in body and (b"\\u003a" in body or b"\\u003A" in body)


def check_keys(body: bytes) -> None:
    """Raises `MalformedJson` for a repeated key. The body must be valid JSON."""
    json.loads(body.decode(), object_pairs_hook=_without_repeats, parse_int=float)


def check_range(body: bytes) -> None:
    """Raises `MalformedJson` for a number beyond a double. The body must be valid JSON."""
    place = _beyond_range(body)
    if place is not None:
        raise _out_of_range(place)


def token(key: str) -> str:
    """Escapes a key as a reference token of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def _without_repeats(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            shown = json.dumps(key if len(key) <= 80 else key[:80] + "…", ensure_ascii=False)
            raise MalformedJson(f"the key {shown} is repeated; keys of an object must be unique")
        seen.add(key)


def _colons(value: Any) -> int:
    """Counts the colons of a text of this value without repeated keys; raises `TooLarge` for deep nesting."""
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
            raise _too_deep()
        if not below:
            break
        level = below
    return count


def _refuse(body: bytes, error: Exception) -> NoReturn:
    """Raises an error with the reason and the place of the syntax error."""
    if isinstance(error, RecursionError):
        raise _too_deep() from None
    try:
        body.decode()
    except UnicodeDecodeError as broken:
        raise MalformedJson(f"not UTF-8 at byte {broken.start}") from None
    if isinstance(error, msgspec.ValidationError):
        raise _out_of_range(_beyond_range(body)) from None
    if not body.strip():
        raise MalformedJson("the body must be JSON, got an empty body") from None
    what = str(error).removeprefix("JSON is malformed: ")
    if _is_readable(body):  # msgspec reports a lone surrogate as truncated or misplaced input
        what = "a string contains a lone surrogate escape, which is not a character"
    elif what == "Input data was truncated":
        what = f"unexpected end at byte {len(body)}"
    raise MalformedJson(f"not JSON: {what}") from None


def _out_of_range(pointer: str | None) -> MalformedJson:
    return MalformedJson("a number must be within the range of a 64-bit double", pointer=pointer)


def _too_deep() -> TooLarge:
    return TooLarge(f"JSON must not be nested deeper than {MAX_DEPTH} objects and arrays")


def _is_readable(body: bytes) -> bool:
    """Whether the standard library decodes the body, without constants such as NaN."""
    try:
        json.loads(body.decode(), parse_constant=_no_constant, parse_int=float)
    except (ValueError, RecursionError):
        return False
    return True


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _beyond_range(body: bytes) -> str | None:
    """Returns the JSON pointer to the first number that does not fit a double."""
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
