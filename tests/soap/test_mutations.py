"""The fuzz targets of SOAP and XPath, briefly and by chance: what `make fuzz` does for longer, and guided."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import soap, xpath

ROUNDS = 1_500


def mutated(chance: random.Random, data: bytes, others: list[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place = chance.randint(0, len(changed))
        match chance.randrange(5):
            case 0:
                changed[place : place + chance.randint(1, 12)] = b""
            case 1:
                changed[place:place] = bytes(chance.choices(range(256), k=chance.randint(1, 4)))
            case 2:
                other = chance.choice(others)
                begin = chance.randrange(len(other))
                changed[place:place] = other[begin : begin + chance.randint(1, 40)]
            case 3:
                changed[place:place] = changed[place : place + chance.randint(1, 60)]
            case 4:
                changed[place:place] = chance.choice(
                    [b"<", b">", b"&#0;", b"]]>", b"'", b"[", b"(", b"//", b":"]
                )
    return bytes(changed)


@pytest.mark.parametrize("target", [soap, xpath], ids=["soap", "xpath"])
def test_whatever_comes_is_taken_or_refused(target: object) -> None:
    chance = random.Random(7)
    seeds: list[bytes] = target.SEEDS  # type: ignore[attr-defined]  # a module
    for seed in seeds:
        target.one(seed)  # type: ignore[attr-defined]
    for _ in range(ROUNDS):
        target.one(mutated(chance, chance.choice(seeds), seeds))  # type: ignore[attr-defined]
