"""The events and filters of the load: quotes of some hundred stocks, filters that match a few of them."""

from __future__ import annotations

import random
from typing import Any

TOPIC = "load.quotes"
ATTRIBUTES = {"symbol": "string", "price": "number", "volume": "integer", "venue": "string"}
BATCH = 100

_SYMBOLS = [f"{chr(65 + number % 26)}{number:03d}" for number in range(200)]
_VENUES = ["NYSE", "NASDAQ", "LSE", "XETRA"]


def quote(dice: random.Random) -> dict[str, Any]:
    """An event of the topic."""
    return {
        "symbol": dice.choice(_SYMBOLS),
        "price": round(dice.uniform(1.0, 500.0), 2),
        "volume": dice.randrange(1, 100_000),
        "venue": dice.choice(_VENUES),
    }


def random_filter(dice: random.Random) -> dict[str, Any]:
    """One stock within a band of prices: of uniform quotes, about one in four thousand matches."""
    low = dice.uniform(1.0, 475.0)
    return {"symbol": dice.choice(_SYMBOLS), "price": {"between": [round(low, 2), round(low + 25.0, 2)]}}
