"""Filters in their text form: read by descent, written with as few parentheses as the grammar allows.

    filter   = all { "or" all }
    all      = one { "and" one }
    one      = "not" one | "(" filter ")" | "xpath" string | test
    test     = name [ "not" ] condition
    condition = ( "=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=" ) literal
             | "in" "(" literal { "," literal } ")"
             | "between" literal "and" literal
             | ( "prefix" | "suffix" | "contains" ) string
             | "exists"
    name     = letter or "_", then letters, digits, "_", "-", with dots between parts | "`" anything "`"
    literal  = string | number | "true" | "false"

Words are case-insensitive. A string is one of JSON, or the same in single quotes; a backtick inside a name
in backticks is doubled. `a not …` wants the attribute to be there, as `not` inside an attribute does in
JSON, except that `a not exists` is `exists: false`; `not …` before a test or a parenthesis is the
complement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from edn.errors import InvalidFilter, TooLarge
from edn.model.filter.ast import (
    MAX_DEPTH,
    MAX_PREDICATES,
    STRING_OPERATORS,
    All,
    AnyOf,
    Literal,
    Node,
    Not,
    Place,
    Test,
    XPath,
    all_of,
    any_of,
    surely_exclude,
    too_deep,
)
from edn.model.filter.literals import attribute_name, literal

#: bytes of a filter given as text
MAX_TEXT = 65_536

_SYMBOLS = {"=": "eq", "==": "eq", "!=": "ne", "<>": "ne", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_SYMBOL_OF = {"eq": "==", "ne": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_WORDS = {"and", "or", "not", "in", "between", *STRING_OPERATORS, "exists", "true", "false", "null"}
_BARE = re.compile(r"[^\W\d][\w-]*(?:\.[\w-]+)*")
_TOKEN = re.compile(
    r"""(?P<blank>\s+)
      | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]))
      | (?P<word>[^\W\d][\w-]*(?:\.[\w-]+)*)
      | (?P<name>`(?:[^`]|``)*`)
      | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<symbol>==|!=|<>|<=|>=|[=<>(),])""",
    re.VERBOSE | re.DOTALL,
)
_CONDITION = "an operator (== != < <= > >= in between prefix suffix contains exists)"


@dataclass(frozen=True, slots=True)
class _Token:
    #: number, word (an attribute), name (in backticks), string, symbol, keyword or end
    kind: str
    text: str
    #: counted from 1
    column: int


def read(text: str) -> Node:
    """The tree of a filter; raises `InvalidFilter` with the column, or `TooLarge`."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidFilter("the text holds a lone surrogate", column=error.start + 1) from None
    if size > MAX_TEXT:
        raise TooLarge(f"the filter's text has {size} bytes; at most {MAX_TEXT} are allowed")
    if not text.strip():
        raise InvalidFilter("the filter is empty; to match everything leave it out", column=1)
    return _Parser(list(_tokens(text))).whole()


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise InvalidFilter(_unreadable(text[at:]), column=at + 1)
        kind = str(found.lastgroup)
        if kind == "word" and found.group().lower() in _WORDS:
            yield _Token("keyword", found.group().lower(), at + 1)
        elif kind != "blank":
            yield _Token(kind, found.group(), at + 1)
        at = found.end()
    yield _Token("end", "", len(text) + 1)


def _unreadable(rest: str) -> str:
    if rest[0] in "\"'":
        return f"the string that begins here has no closing {rest[0]}"
    if rest[0] == "`":
        return "the name that begins here has no closing backtick"
    if rest[0].isdigit() or rest[0] == "-":
        return "this is no number of JSON; a name that looks like this is written in backticks"
    return f"the character {rest[0]!r} means nothing here"


class _Parser:
    """Descends over the tokens. `depth` counts the `not`s and parentheses that are open."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._predicates = 0

    def whole(self) -> Node:
        node = self._any(0)
        if self._next.kind != "end":
            raise self._expected("and, or, or the end of the filter")
        return node

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def _is(self, kind: str, text: str) -> bool:
        return self._next.kind == kind and self._next.text == text

    def _skip(self, kind: str, text: str) -> bool:
        if self._is(kind, text):
            self._at += 1
            return True
        return False

    def _require(self, kind: str, text: str, wanted: str) -> None:
        if not self._skip(kind, text):
            raise self._expected(wanted)

    def _expected(self, wanted: str) -> InvalidFilter:
        token = self._next
        found = "the filter ends" if token.kind == "end" else f"found {token.text[:40]}"
        return InvalidFilter(f"expected {wanted}, but {found} at column {token.column}", column=token.column)

    def _any(self, depth: int) -> Node:
        parts = [self._all(depth)]
        while self._skip("keyword", "or"):
            parts.append(self._all(depth))
        return any_of(parts)

    def _all(self, depth: int) -> Node:
        parts = [self._one(depth)]
        while self._skip("keyword", "and"):
            parts.append(self._one(depth))
        return all_of(parts)

    def _one(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise too_deep()
        if self._skip("keyword", "not"):
            return Not(self._one(depth + 1))
        if self._skip("symbol", "("):
            node = self._any(depth + 1)
            self._require("symbol", ")", "and, or, or a closing parenthesis")
            return node
        return self._test()

    def _test(self) -> Node:
        token = self._next
        if token.kind not in ("word", "name"):
            wanted = "an attribute's name, not or an opening parenthesis"
            if token.kind == "keyword":
                wanted += " (a name that is a word of the language is written in backticks)"
            raise self._expected(wanted)
        self._take()
        if token.text.lower() == "xpath" and self._next.kind == "string":
            return self._xpath(self._take())
        try:
            name = attribute_name(token.text[1:-1].replace("``", "`") if token.kind == "name" else token.text)
        except ValueError as error:
            raise InvalidFilter(str(error), column=token.column) from None
        if name.startswith("$"):
            raise InvalidFilter("no attribute begins with $", column=token.column)
        return self._condition(name, token.column, negated=self._skip("keyword", "not"))

    def _xpath(self, token: _Token) -> Node:
        """No word of the language: after an attribute of that name no string can stand."""
        expression = _string(token)
        if not expression.strip():
            raise InvalidFilter("the XPath is empty", column=token.column)
        self._count(1)
        return XPath(expression)

    def _condition(self, name: str, column: int, *, negated: bool) -> Node:
        token = self._next
        columns = [column]
        if token.kind == "symbol" and token.text in _SYMBOLS:
            self._take()
            value = self._literal(columns)
            return self._counted(
                Test(name, _SYMBOLS[token.text], value, negated, Place(columns=tuple(columns)))
            )
        if token.kind != "keyword" or token.text in ("and", "or", "not", "true", "false", "null"):
            raise self._expected(_CONDITION)
        self._take()
        if token.text == "exists":
            return self._counted(
                Test(name, "exists", not negated, place=Place(columns=(column, token.column)))
            )
        if token.text == "between":
            lo = self._literal(columns)
            self._require("keyword", "and", "and, with the upper bound of between")
            hi = self._literal(columns)
            if surely_exclude("gte", lo, "lte", hi):
                raise InvalidFilter(f"between has lo > hi: {lo!r} > {hi!r}", column=columns[1])
            return self._counted(Test(name, "between", (lo, hi), negated, Place(columns=tuple(columns))))
        if token.text == "in":
            values = self._list(columns)
            return self._counted(Test(name, "in", values, negated, Place(columns=tuple(columns))))
        if self._next.kind != "string":
            raise self._expected(f"a string after {token.text}")
        value = self._literal(columns)
        return self._counted(Test(name, token.text, value, negated, Place(columns=tuple(columns))))

    def _list(self, columns: list[int]) -> tuple[Literal, ...]:
        self._require("symbol", "(", "an opening parenthesis after in")
        values = [self._literal(columns)]
        while self._skip("symbol", ","):
            values.append(self._literal(columns))
        self._require("symbol", ")", "a comma or a closing parenthesis")
        return tuple(values)

    def _literal(self, columns: list[int]) -> Literal:
        token = self._next
        if token.kind == "keyword" and token.text in ("true", "false"):
            value: object = token.text == "true"
        elif token.kind == "number":
            value = _number(token)
        elif token.kind == "string":
            value = _string(token)
        elif self._is("keyword", "null"):
            raise InvalidFilter(
                "null is no value in a filter; for a missing attribute write: name not exists",
                column=token.column,
            )
        else:
            hint = " (a string stands in quotes)" if token.kind == "word" else ""
            raise self._expected("a string, a number, true or false" + hint)
        self._take()
        columns.append(token.column)
        try:
            return literal(value)
        except ValueError as error:
            raise InvalidFilter(str(error), column=token.column) from None

    def _counted(self, test: Test) -> Test:
        self._count(len(test.literals) if test.operator == "in" else 1)
        return test

    def _count(self, predicates: int) -> None:
        self._predicates += predicates
        if self._predicates > MAX_PREDICATES:
            raise TooLarge(f"the filter has more than {MAX_PREDICATES} predicates")


def _number(token: _Token) -> int | float:
    try:
        value = json.loads(token.text)
    except ValueError:  # a leading zero, or more digits than Python reads
        raise InvalidFilter(f"{token.text[:40]} is no number of JSON", column=token.column) from None
    assert isinstance(value, (int, float))
    return value


def _string(token: _Token) -> str:
    text = token.text
    if text[0] == "'":  # the same string in double quotes: \' is ' and " is \"
        text = '"' + re.sub(r"\\.|\"", _requoted, text[1:-1], flags=re.DOTALL) + '"'
    try:
        value = json.loads(text)
    except ValueError as error:
        what = str(error).partition(":")[0]
        raise InvalidFilter(f"the string is none of JSON: {what}", column=token.column) from None
    assert isinstance(value, str)
    return value


def _requoted(found: re.Match[str]) -> str:
    return {"\\'": "'", '"': '\\"'}.get(found.group(), found.group())


def write(node: Node) -> str:
    """The text form of a tree; reading it gives an equal tree."""
    match node:
        case Test():
            return _test_text(node)
        case Not(part):
            return f"not {_inside(part)}"
        case XPath(expression):
            return f"xpath {json.dumps(expression, ensure_ascii=False)}"
        case All(parts):
            return " and ".join(map(_inside, parts))
        case AnyOf(parts):
            return " or ".join(write(part) if isinstance(part, All) else _inside(part) for part in parts)


def _inside(node: Node) -> str:
    return f"({write(node)})" if isinstance(node, (All, AnyOf)) else write(node)


def _test_text(test: Test) -> str:
    name = test.attribute
    if not _BARE.fullmatch(name) or name.lower() in _WORDS:
        name = "`" + name.replace("`", "``") + "`"
    words = [name]
    if test.negated or (test.operator == "exists" and not test.operand):
        words.append("not")
    words.append(_SYMBOL_OF.get(test.operator, test.operator))
    values = [json.dumps(value, ensure_ascii=False) for value in test.literals]
    if test.operator == "in":
        words.append(f"({', '.join(values)})")
    elif test.operator != "exists":
        words.append(" and ".join(values))
    return " ".join(words)
