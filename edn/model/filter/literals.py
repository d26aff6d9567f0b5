"""Checks literals of filters, in JSON and in text, before any schema is known."""

from __future__ import annotations

import math

from edn.model.filter.ast import Literal
from edn.model.wording import shown


def literal(given: object) -> Literal:
    """A string, number or boolean of JSON; raises ValueError with what is wrong."""
    if isinstance(given, (bool, str)):
        if isinstance(given, str) and not _encodable(given):
            raise ValueError("the string holds a lone surrogate, which is no character")
        return given
    if isinstance(given, (int, float)):
        try:
            finite = math.isfinite(float(given))
        except OverflowError:
            finite = False
        if not finite:
            raise ValueError("the number is beyond the range of a 64-bit double")
        # Only a double can hold it, so it is one from here on: messages carry integers of up to 64 bits.
        return given if isinstance(given, float) or -(2**63) <= given < 2**63 else float(given)
    if given is None:
        raise ValueError("null is no value in a filter; for a missing attribute write exists: false")
    raise ValueError(f"a string, number or boolean is wanted; got {shown(given)}")


def attribute_name(given: object) -> str:
    """Anything that could be an attribute's name; whether a topic has it shows later."""
    if not isinstance(given, str) or not given or not _encodable(given):
        raise ValueError(f"an attribute's name is a non-empty string; got {shown(given)}")
    return given


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
