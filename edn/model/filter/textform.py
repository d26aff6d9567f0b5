"""The text form of filters.

    filter   = all { "or" all }
    all      = one { "and" one }
    one      = "not" one | "(" filter ")" | "xpath" string | test
    test     = name [ "not" ] condition
    condition = ( "=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=" ) literal
             | "in" "(" literal { "," literal } ")"
             | "between" literal "and" literal
             | ( "prefix" | "suffix" | "contains" | "matches" ) string
             | "exists"
             | ( "any" | "all" ) element
    element  = "not" element | "(" elements ")" | condition, without "exists", "any" and "all"
    elements = both { "or" both }
    both     = element { "and" element }
    name     = letter or "_", then letters, digits, "_", "-", with dots between parts | "`" anything "`"
    literal  = string | number | "true" | "false"

Keywords are case-insensitive. A string is written as in JSON, or in single quotes. A backtick inside a name
in backticks is doubled. `a not …` requires the attribute to be present, like `not` inside an attribute in
JSON, except that `a not exists` is `exists: false`. `not …` before a test or a parenthesis is the complement.
`tags any == "a"` holds if an element of the array does; `marks any (> 3 and < 5)` if one element does both.
`any` and `all` are keywords only after a name.
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
    QUANTIFIERS,
    STRING_OPERATORS,
    All,
    AnyOf,
    Each,
    Literal,
    Node,
    Not,
    Operand,
    Place,
    Test,
    XPath,
    all_of,
    any_of,
    check_literal,
    check_name,
    negate_element,
    surely_exclude,
    too_deep,
    too_many_predicates,
)

#: bytes of a filter in text form
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
_CONDITION = "an operator (== != < <= > >= in between prefix suffix contains matches exists any all)"
_ELEMENT = (
    "a condition on elements "
    "(== != < <= > >= in between prefix suffix contains matches, not or a parenthesis)"
)


@dataclass(frozen=True, slots=True)
class _Token:
    #: number, word (an attribute), name (in backticks), string, symbol, keyword or end
    kind: str
    text: str
    #: counted from 1
    column: int


def read(text: str) -> Node:
    """Parses a filter; raises `InvalidFilter` with a column, or `TooLarge`."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidFilter("a filter must not contain a lone surrogate", column=error.start + 1) from None
    if size > MAX_TEXT:
        raise TooLarge(f"a filter must have at most {MAX_TEXT} bytes, got {size}")
    if not text.strip():
        raise InvalidFilter("a filter must not be empty; to match everything, leave it out", column=1)
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
        return "a number must be written as in JSON; write a name that begins like a number in backticks"
    remedy = {"&": "; write `and`", "|": "; write `or`", "!": "; write `not`, or !="}.get(rest[0], "")
    return f"unexpected character {rest[0]!r}{remedy}"


class _Parser:
    """A recursive-descent parser. `depth` counts open `not`s and parentheses."""

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
        return self._test(depth)

    def _test(self, depth: int) -> Node:
        token = self._next
        if token.kind not in ("word", "name"):
            wanted = "the name of an attribute, not or an opening parenthesis"
            if token.kind == "keyword":
                wanted += " (write a name that is a keyword in backticks)"
            raise self._expected(wanted)
        self._take()
        if token.text.lower() == "xpath" and self._next.kind == "string":
            return self._xpath(self._take())
        text = token.text[1:-1].replace("``", "`") if token.kind == "name" else token.text
        name = check_name(text, column=token.column)
        if name.startswith("$"):
            raise InvalidFilter("the name of an attribute must not begin with $", column=token.column)
        negated = self._skip("keyword", "not")
        if self._next.kind == "word" and self._next.text.lower() in QUANTIFIERS:
            quantifier = self._take()
            part = self._element(name, token.column, depth + 1)
            place = Place(columns=(token.column, quantifier.column))
            return Each(name, quantifier.text.lower(), part, negated, place)
        return self._condition(name, token.column, negated=negated)

    def _element(self, name: str, column: int, depth: int) -> Node:
        """Reads a condition on an element of an array."""
        if depth > MAX_DEPTH:
            raise too_deep()
        if self._skip("keyword", "not"):
            return negate_element(self._element(name, column, depth + 1))
        if self._skip("symbol", "("):
            alternatives: list[Node] = []
            while True:
                parts = [self._element(name, column, depth + 1)]
                while self._skip("keyword", "and"):
                    parts.append(self._element(name, column, depth + 1))
                alternatives.append(all_of(parts))
                if not self._skip("keyword", "or"):
                    break
            self._require("symbol", ")", "and, or, or a closing parenthesis")
            return any_of(alternatives)
        if self._is("keyword", "exists") or self._next.kind not in ("symbol", "keyword"):
            raise self._expected(_ELEMENT)
        return self._condition(name, column, negated=False)

    def _xpath(self, token: _Token) -> Node:
        """Reads an XPath. `xpath` is not a keyword: no string can follow an attribute of that name."""
        expression = _string(token)
        if not expression.strip():
            raise InvalidFilter("an XPath must not be empty", column=token.column)
        self._count(1)
        return XPath(expression)

    def _condition(self, name: str, column: int, *, negated: bool) -> Node:
        token = self._next
        columns = [column]
        value: Operand
        if token.kind == "symbol" and token.text in _SYMBOLS:
            operator = _SYMBOLS[self._take().text]
            value = self._literal(columns)
        elif token.kind != "keyword" or token.text in ("and", "or", "not", "true", "false", "null"):
            raise self._expected(_CONDITION)
        else:
            operator = self._take().text
            if operator == "exists":
                value, negated = not negated, False
                columns.append(token.column)
            elif operator == "between":
                value = self._bounds(columns)
            elif operator == "in":
                value = self._list(columns)
            elif self._next.kind != "string":
                raise self._expected(f"a string after {operator}")
            else:
                value = self._literal(columns)
        test = Test(name, operator, value, negated, Place(columns=tuple(columns)))
        self._count(len(test.literals) if operator == "in" else 1)
        return test

    def _bounds(self, columns: list[int]) -> tuple[Literal, Literal]:
        lo = self._literal(columns)
        self._require("keyword", "and", "and, with the upper bound of between")
        hi = self._literal(columns)
        if surely_exclude("gte", lo, "lte", hi):
            raise InvalidFilter(f"between must have lo <= hi, got {lo!r} > {hi!r}", column=columns[1])
        return lo, hi

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
                "null is not allowed in a filter; for a missing attribute write: name not exists",
                column=token.column,
            )
        else:
            hint = " (write a string in quotes)" if token.kind == "word" else ""
            raise self._expected("a string, a number, true or false" + hint)
        self._take()
        columns.append(token.column)
        return check_literal(value, column=token.column)

    def _count(self, predicates: int) -> None:
        self._predicates += predicates
        if self._predicates > MAX_PREDICATES:
            raise too_many_predicates()


def _number(token: _Token) -> int | float:
    try:
        value = json.loads(token.text)
    except ValueError:  # a leading zero, or more digits than Python accepts
        raise InvalidFilter(
            f"a number must be written as in JSON, got {token.text[:40]}", column=token.column
        ) from None
    assert isinstance(value, (int, float))
    return value


def _string(token: _Token) -> str:
    text = token.text
    if text[0] == "'":  # in double quotes, \' is ' and " is \"
        text = '"' + re.sub(r"\\.|\"", _requoted, text[1:-1], flags=re.DOTALL) + '"'
    try:
        value = json.loads(text)
    except ValueError as error:
        what = str(error).partition(":")[0]
        raise InvalidFilter(f"a string must be written as in JSON: {what}", column=token.column) from None
    assert isinstance(value, str)
    return value


def _requoted(found: re.Match[str]) -> str:
    return {"\\'": "'", '"': '\\"'}.get(found.group(), found.group())


def write(node: Node) -> str:
    """Writes the text form of a tree; reading it gives an equal tree."""
    match node:
        case Test():
            return _test_text(node)
        case Each():
            words = [_name_text(node.attribute), *(["not"] if node.negated else []), node.quantifier]
            return " ".join([*words, _element_text(node.part)])
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


def _element_text(node: Node) -> str:
    """Writes a condition on an element, in parentheses if it has several parts."""
    match node:
        case Test():
            return _condition_text(node)
        case Not(part):
            return f"not {_element_text(part)}"
        case All(parts):
            return "(" + " and ".join(map(_element_text, parts)) + ")"
        case AnyOf(parts):
            return "(" + " or ".join(map(_element_text, parts)) + ")"
    raise AssertionError(f"no condition on an element: {node}")


def _name_text(name: str) -> str:
    if not _BARE.fullmatch(name) or name.lower() in _WORDS:
        return "`" + name.replace("`", "``") + "`"
    return name


def _test_text(test: Test) -> str:
    return f"{_name_text(test.attribute)} {_condition_text(test)}"


def _condition_text(test: Test) -> str:
    words: list[str] = []
    if test.negated or (test.operator == "exists" and not test.operand):
        words.append("not")
    words.append(_SYMBOL_OF.get(test.operator, test.operator))
    values = [json.dumps(value, ensure_ascii=False) for value in test.literals]
    if test.operator == "in":
        words.append(f"({', '.join(values)})")
    elif test.operator != "exists":
        words.append(" and ".join(values))
    return " ".join(words)
