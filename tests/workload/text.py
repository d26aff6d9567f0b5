"""Writes a filter's JSON form as text, from the grammar alone and in varying ways, to check the reader."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

_WORDS = frozenset(
    {
        "and",
        "or",
        "not",
        "in",
        "between",
        "prefix",
        "suffix",
        "contains",
        "matches",
        "exists",
        "true",
        "false",
        "null",
    }
)
_SIGNS = {"eq": ["=", "=="], "ne": ["!=", "<>"], "lt": ["<"], "lte": ["<="], "gt": [">"], "gte": [">="]}


class Writer:
    """Draws among the spellings that mean the same."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def write(self, written: Mapping[str, Any]) -> str:
        return self._all([self._part(key, part) for key, part in written.items()])

    def _part(self, key: str, part: Any) -> str:
        if key == "$any":
            return self._grouped([self.write(branch) for branch in part], "or")
        if key == "$all":
            return self._grouped([self.write(branch) for branch in part], "and")
        if key == "$not":
            return f"{self._word('not')} ({self.write(part)})"
        return self._condition(self._name(key), part)

    def _grouped(self, parts: list[str], word: str) -> str:
        return "(" + self._joined([f"({part})" for part in parts], word) + ")"

    def _all(self, parts: list[str]) -> str:
        return self._joined(parts, "and")

    def _joined(self, parts: list[str], word: str) -> str:
        gap = self._chance.choice([" ", "  ", "\n", " \t"])
        return f"{gap}{self._word(word)}{gap}".join(parts)

    def _condition(self, name: str, condition: Any) -> str:
        if isinstance(condition, list):
            condition = {"in": condition}
        if not isinstance(condition, Mapping):
            condition = {"eq": condition}
        return self._all([self._test(name, operator, operand) for operator, operand in condition.items()])

    def _test(self, name: str, operator: str, operand: Any) -> str:
        if operator == "exists":
            return f"{name} {self._word('exists')}" if operand else f"{name} not {self._word('exists')}"
        if operator != "not":
            return f"{name} {self._comparison(operator, operand)}"
        simple = not isinstance(operand, Mapping) or (len(operand) == 1 and "exists" not in operand)
        if simple and self._chance.random() < 0.7:
            if isinstance(operand, list):
                operand = {"in": operand}
            if not isinstance(operand, Mapping):
                operand = {"eq": operand}
            ((inner, value),) = operand.items()
            return f"{name} {self._word('not')} {self._comparison(inner, value)}"
        return f"{name} exists and not ({self._condition(name, operand)})"

    def _comparison(self, operator: str, operand: Any) -> str:
        if operator in _SIGNS:
            space = self._chance.choice(["", " "])
            return f"{self._chance.choice(_SIGNS[operator])}{space}{self._literal(operand)}"
        if operator == "in":
            return f"{self._word('in')} ({', '.join(map(self._literal, operand))})"
        if operator == "between":
            low, high = map(self._literal, operand)
            return f"{self._word('between')} {low} {self._word('and')} {high}"
        return f"{self._word(operator)} {self._literal(operand)}"

    def _literal(self, value: Any) -> str:
        if isinstance(value, str) and self._chance.random() < 0.3 and not set(value) & set("'\"\\"):
            return "'" + json.dumps(value)[1:-1] + "'"
        return json.dumps(value, ensure_ascii=self._chance.random() < 0.5)

    def _name(self, name: str) -> str:
        if name.lower() in _WORDS or not (name[0].isalpha() or name[0] == "_") or self._chance.random() < 0.1:
            return f"`{name}`"
        return name

    def _word(self, word: str) -> str:
        return self._chance.choice([word, word, word.upper(), word.capitalize()])
