"""A market's quotes and the filters of the people who watch it: plausible, with matches in a known range.

Every filter carries a narrow part (a symbol, a price band) and one more condition drawn from all operators,
so that each operator is exercised often while an event still matches about one filter in a hundred.
"""

from __future__ import annotations

import random
from typing import Any

from tests.workload.literals import write_time

ATTRIBUTES = {
    "symbol": "string",
    "price": "number",
    "volume": "integer",
    "venue": "string",
    "open": "boolean",
    "at": "time",
    "order.side": "string",
    "note": "string",
}

SYMBOLS = [f"{first}{second}{third}" for first in "ABCDE" for second in "GLX" for third in "EN"]
VENUES = ["NYSE", "NYSE-ARCA", "NASDAQ", "LSE", "XETRA-FRANKFURT", "XETRA-STUTTGART", "TSE"]
NOTES = ["halted", "halt lifted", "late print", "odd lot", "corrected: late print", "opening auction"]
_START = 1_700_000_000_000_000
_DAY = 86_400_000_000


def event(chance: random.Random) -> dict[str, Any]:
    written: dict[str, Any] = {
        "symbol": chance.choice(SYMBOLS),
        "price": round(chance.uniform(1, 500), 2),
        "volume": chance.choice([chance.randint(1, 10_000), 2**53 + chance.randint(0, 3)]),
        "venue": chance.choice(VENUES),
        "open": chance.random() < 0.8,
        "at": write_time(_START + chance.randrange(_DAY), chance),
        "note": chance.choice(NOTES),
    }
    if chance.random() < 0.6:
        written["order"] = {"side": chance.choice(["buy", "sell"])}
    for name in ("price", "volume", "venue", "note", "at", "open"):
        if chance.random() < 0.07:
            written[name] = None
    return written


def filter(chance: random.Random) -> dict[str, Any]:
    narrow: dict[str, Any] = {"symbol": chance.choice([_symbol, _symbols])(chance)}
    if chance.random() < 0.8:
        narrow |= {"price": _band(chance)}
    choice = chance.random()
    if choice < 0.06:
        return {"$any": [narrow, {"symbol": chance.choice(SYMBOLS), **_extra(chance)}]}
    if choice < 0.12:
        return {**narrow, "$not": _extra(chance)}
    if choice < 0.18:
        return {"$all": [narrow, _extra(chance)]}
    return {**_extra(chance), **narrow}


def _symbol(chance: random.Random) -> Any:
    symbol = chance.choice(SYMBOLS)
    return symbol if chance.random() < 0.5 else {"eq": symbol}


def _symbols(chance: random.Random) -> Any:
    return chance.choice(
        [
            chance.sample(SYMBOLS, 2),
            {"in": chance.sample(SYMBOLS, 2)},
            {"prefix": chance.choice("ABCDE") + "G"},
        ]
    )


def _band(chance: random.Random) -> Any:
    low = round(chance.uniform(1, 450), 2)
    high = round(low + chance.uniform(5, 80), 2)
    return chance.choice([{"between": [low, high]}, {"gte": low, "lt": high}, {"gt": low, "lte": high}])


def _extra(chance: random.Random) -> dict[str, Any]:
    """One condition from the whole language."""
    price, volume = round(chance.uniform(1, 500), 2), chance.choice([chance.randint(1, 10_000), 2**53 + 1])
    venue = chance.choice(VENUES)
    at = write_time(_START + chance.randrange(_DAY), chance)
    return chance.choice(
        [
            {"price": {"lt": price}},
            {"price": {"gt": price}},
            {"price": {"lte": price}},
            {"volume": {"gte": volume}},
            {"volume": {"lte": volume}},
            {"volume": {"ne": volume}},
            {"volume": {"not": {"gt": volume}}},
            {"venue": {"prefix": venue[: chance.randint(1, 8)]}},
            {"venue": {"suffix": venue[-chance.randint(1, 3) :]}},
            {"venue": {"not": {"prefix": venue[:2]}}},
            {"venue": {"ne": venue}},
            {"venue": {"gt": venue}},
            {"venue": {"in": chance.sample(VENUES, 3)}},
            {"note": {"contains": chance.choice(["halt", "late", "lot", "auction", ": "])}},
            {"note": {"suffix": "print"}},
            {"open": chance.random() < 0.5},
            {"open": {"ne": False}},
            {"order.side": {"exists": chance.random() < 0.5}},
            {"order.side": "buy"},
            {"at": {"gte": at}},
            {"at": {"lt": at}},
            {"at": {"not": {"between": [at, at]}}},
        ]
    )
