"""JSON documents as text, written in all the ways in which the same value can be written.

Numbers have exponents, trailing zeros or more digits than a double; strings have escapes that need not be;
keys look alike but differ. A document is valid and never ambiguous.
"""

from __future__ import annotations

import random
from typing import Any

_NUMBERS = [
    "0", "-0", "31", "31.0", "1e2", "1E+2", "1.50", "-0.0", "5e-324", "1e-400", "1.7976931348623157e308",
    "9007199254740993", "18446744073709551616", "123456789012345678901234567890", "0.1000000000000000055511",
]  # fmt: skip
_TEXTS = [
    "", "a", "é", "日本", "\U0001f600", '"', "\\", "/", "{", "},{", "[]", ":", ",", "$id", "\n", "\r\n",
    "\x7f", "\u2028", "null", "\x00",
]  # fmt: skip
_KEYS = [
    "a",
    "A",
    "a ",
    " a",
    "a.b",
    "a.b.c",
    "b",
    "é",
    "e\u0301",
    "$id",
    "$ref",
    "ce",
    "",
    "0",
    "00",
    "id",
    '"',
    "\\",
]


class Writer:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def document(self, members: dict[str, str] | None = None) -> str:
        """An object, without line breaks; `members` are further ones, as text."""
        written = self._members(0)
        written += [f"{self.string(name)}{self._blank()}:{text}" for name, text in (members or {}).items()]
        self._chance.shuffle(written)
        return "{" + ",".join(self._blank() + one + self._blank() for one in written) + "}"

    def value(self, depth: int) -> str:
        chance = self._chance
        kind = chance.random()
        if depth < 6 and kind < 0.15:
            return "{" + ",".join(self._members(depth)) + "}"
        if depth < 6 and kind < 0.3:
            inner = [self._blank() + self.value(depth + 1) for _ in range(chance.randrange(4))]
            return "[" + ",".join(inner) + self._blank() + "]"
        if kind < 0.45:
            return chance.choice(["true", "false", "null"])
        if kind < 0.7:
            return chance.choice([*_NUMBERS, str(chance.random()), str(chance.getrandbits(70))])
        return self.string("".join(chance.choices(_TEXTS, k=chance.randrange(4))))

    def string(self, text: str) -> str:
        return '"' + "".join(map(self._letter, text)) + '"'

    def _members(self, depth: int) -> list[str]:
        chance = self._chance
        names = chance.sample(_KEYS, chance.randrange(5))
        if depth == 0:  # the network's own, and those of CloudEvents
            names = [name for name in names if not name.startswith("$") and name not in ("ce", "id")]
        return [f"{self.string(name)}{self._blank()}:{self.value(depth + 1)}" for name in names]

    def _letter(self, letter: str) -> str:
        code = ord(letter)
        short = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "/": "\\/"}.get(letter)
        must = code < 0x20 or letter in '"\\'
        way = self._chance.random()
        if short is not None and (must or way < 0.3) and way < 0.7:
            return short
        if must or way > 0.85:
            units = letter.encode("utf-16-be")
            return "".join(f"\\u{units[at]:02x}{units[at + 1]:02X}" for at in range(0, len(units), 2))
        return letter

    def _blank(self) -> str:
        return self._chance.choice(["", "", "", " ", "\t", "  "])


def typed(chance: random.Random, kind: str) -> Any:
    """A value of a type of attributes, from a small pool, so that filters and documents meet."""
    pools: dict[str, list[Any]] = {
        "number": [0, -0.0, 1, 1.5, 2, 3, 1e300, 2**53],
        "integer": [0, 1, 2, 3, -1, 2**53, 2**53 + 1, 2**63 - 1],
        "string": ["", "a", "ab", "abc", "abcdefgh", "abcdefgi", "b", "é"],
        "boolean": [True, False],
        "time": ["2024-01-01T00:00:00Z", "2024-01-01T01:00:00+01:00", "2030-06-01T12:00:00.5Z"],
    }
    return chance.choice(pools[kind])
