"""Parses XPath 1.0, except variables, the namespace axis and extension functions.

Events have one namespace; its prefix is `e` unless the caller defines others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from edn.errors import InvalidFilter, TooLarge
from edn.formats.event_xml import NAMESPACE
from edn.model.xpath.expression import (
    AXES,
    FUNCTIONS,
    KINDS,
    NODE_FUNCTIONS,
    Binary,
    Call,
    Expression,
    Negative,
    Number,
    Path,
    Step,
    String,
    gives_nodes,
)

#: characters of an expression
MAX_LENGTH = 4_096
#: nesting of brackets
MAX_DEPTH = 16
#: tokens of an expression
MAX_PARTS = 1_000

_NAME = r"[^\W\d][\w.\u00b7-]*"
_TOKEN = re.compile(
    rf"""[ \t\r\n]*(?:
      (?P<number>\d+(?:\.\d*)?|\.\d+)
    | (?P<string>"[^"]*"|'[^']*')
    | (?P<symbol>::|//|\.\.|!=|<=|>=|[()\[\]@,/|+\-=<>.*])
    | (?P<variable>\$)
    | (?P<name>{_NAME}(?::(?:{_NAME}|\*))?(?!:(?!:)))
    )""",
    re.VERBOSE,
)
_WORDS = frozenset({"and", "or", "div", "mod"})
#: symbols after which `*` is a name test and a word is a name
_OPENING = frozenset({"@", "::", "(", "[", ","})
_OPERATORS = frozenset({"/", "//", "|", "+", "-", "=", "!=", "<", "<=", ">", ">="})
#: weakest first
_LEVELS = (("or",), ("and",), ("=", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "div", "mod"))
_ANYWHERE = Step("descendant-or-self", "node()")


class _Token(NamedTuple):
    #: number, string, name, symbol, operator or end
    kind: str
    text: str
    column: int


def parse(text: str, prefixes: Mapping[str, str] | None = None) -> Expression:
    """Parses an expression; raises `InvalidFilter` with the column, or `TooLarge`.

    `prefixes`: prefix → namespace; by default `e` is the namespace of events.
    """
    if len(text) > MAX_LENGTH:
        raise TooLarge(f"an XPath must have at most {MAX_LENGTH} characters, got {len(text)}")
    known = {"e": NAMESPACE} if prefixes is None else prefixes
    return _Parser(_tokens(text), known).whole()


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    place, end = 0, len(text.rstrip(" \t\r\n"))
    while place < end:
        found = _TOKEN.match(text, place)
        if found is None or found.lastgroup is None:
            column = place + len(text[place:]) - len(text[place:].lstrip(" \t\r\n")) + 1
            raise InvalidFilter(f"unexpected {text[column - 1 : column + 9]!r} in an XPath", column=column)
        kind, content = found.lastgroup, found.group(found.lastgroup)
        column = found.start(kind) + 1
        if kind == "variable":
            raise InvalidFilter("variables are not supported", column=column)
        before = tokens[-1] if tokens else None
        # XPath 1.0, 3.7: after an operand, `*` or a word can only be an operator.
        opening = before is None or (before.kind == "symbol" and before.text in _OPENING)
        operand = before is not None and before.kind != "operator" and not opening
        if kind == "string":
            content = content[1:-1]
        elif (kind == "symbol" and content in _OPERATORS) or (
            operand and (content == "*" or (kind == "name" and content in _WORDS))
        ):
            kind = "operator"
        elif kind == "name" and operand:
            raise InvalidFilter(f"expected an operator, got {content[:40]!r}", column=column)
        tokens.append(_Token(kind, content, column))
        place = found.end()
    tokens.append(_Token("end", "", len(text) + 1))
    return tokens


class _Parser:
    def __init__(self, tokens: list[_Token], prefixes: Mapping[str, str]) -> None:
        self._tokens = tokens
        self._prefixes = prefixes
        self._place = 0
        self._depth = 0
        #: open predicates
        self._inside = 0
        self._parts = 0

    def whole(self) -> Expression:
        found = self._binary(0)
        if self._now.kind != "end":
            raise self._wrong("the end or an operator")
        return found

    # -- tokens -----------------------------------------------------------------------------------------

    @property
    def _now(self) -> _Token:
        return self._tokens[self._place]

    def _take(self) -> _Token:
        token = self._now
        self._place += 1
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise TooLarge(f"an XPath must have at most {MAX_PARTS} parts")
        return token

    def _is(self, text: str) -> bool:
        return self._now.text == text and self._now.kind in ("symbol", "operator")

    def _follows(self, text: str) -> bool:
        """Tells whether this symbol is the next but one."""
        following = self._tokens[min(self._place + 1, len(self._tokens) - 1)]
        return following.kind == "symbol" and following.text == text

    def _expect(self, text: str) -> None:
        if not self._is(text):
            raise self._wrong(f"{text!r}")
        self._take()

    def _wrong(self, expected: str) -> InvalidFilter:
        got = "the end" if self._now.kind == "end" else repr(self._now.text[:40])
        return InvalidFilter(f"expected {expected}, got {got}", column=self._now.column)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TooLarge(f"an XPath must be nested at most {MAX_DEPTH} levels deep")

    # -- expressions ------------------------------------------------------------------------------------

    def _binary(self, level: int) -> Expression:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while self._now.kind == "operator" and self._now.text in _LEVELS[level]:
            operator = self._take().text
            left = Binary(operator, left, self._binary(level + 1))
        return left

    def _unary(self) -> Expression:
        signs = 0
        while self._is("-"):
            self._take()
            signs += 1
        found = self._union()
        # Two signs convert a set of nodes into a number, so an even number of signs becomes two.
        for _ in range(min(signs, 2 - signs % 2)):
            found = Negative(found)
        return found

    def _union(self) -> Expression:
        found = self._path()
        while self._is("|"):
            column = self._take().column
            found = Binary("|", found, self._path())
            if not (gives_nodes(found.left) and gives_nodes(found.right)):
                raise InvalidFilter("both operands of | must be sets of nodes", column=column)
        return found

    def _path(self) -> Expression:
        token = self._now
        if self._is("/"):
            self._take()
            begins = self._now.kind == "name" or any(map(self._is, ("*", "@", ".", "..")))
            return Path(None, (), True, self._steps() if begins else ())
        if self._is("//"):
            self._take()
            return Path(None, (), True, (_ANYWHERE, *self._steps()))
        called = token.kind == "name" and self._follows("(") and token.text not in KINDS
        if token.kind not in ("number", "string") and not self._is("(") and not called:
            return Path(None, (), False, self._steps())
        start = self._primary()
        if not gives_nodes(start) and any(map(self._is, ("[", "/", "//"))):
            raise InvalidFilter("only a set of nodes can have predicates and steps", column=self._now.column)
        predicates = self._predicates()
        steps = self._further_steps()
        return start if not predicates and not steps else Path(start, predicates, False, steps)

    def _primary(self) -> Expression:
        token = self._take()
        if token.kind == "number":
            return Number(token.text)
        if token.kind == "string":
            return String(token.text)
        self._deeper()
        if token.text == "(":
            found = self._binary(0)
            self._expect(")")
        else:
            found = self._call(token)
        self._depth -= 1
        return found

    def _call(self, name: _Token) -> Expression:
        if name.text not in FUNCTIONS:
            raise InvalidFilter(
                f"{name.text[:40]!r} is not a function; the functions are {', '.join(FUNCTIONS)}",
                column=name.column,
            )
        if name.text in ("position", "last") and not self._inside:
            raise InvalidFilter(f"{name.text}() is only allowed in a predicate", column=name.column)
        self._expect("(")
        arguments: list[Expression] = []
        while not self._is(")"):
            if arguments:
                self._expect(",")
            arguments.append(self._binary(0))
        self._expect(")")
        fewest, most = FUNCTIONS[name.text]
        if not fewest <= len(arguments) <= most:
            count = str(fewest) if fewest == most else f"{fewest} to {most}"
            raise InvalidFilter(
                f"{name.text} must have {count} arguments, got {len(arguments)}", column=name.column
            )
        if name.text in NODE_FUNCTIONS and arguments and not gives_nodes(arguments[0]):
            raise InvalidFilter(f"the argument of {name.text} must be a set of nodes", column=name.column)
        return Call(name.text, tuple(arguments))

    # -- paths ------------------------------------------------------------------------------------------

    def _steps(self) -> tuple[Step, ...]:
        return (self._step(), *self._further_steps())

    def _further_steps(self) -> tuple[Step, ...]:
        steps: list[Step] = []
        while self._is("/") or self._is("//"):
            if self._take().text == "//":
                steps.append(_ANYWHERE)
            steps.append(self._step())
        return tuple(steps)

    def _step(self) -> Step:
        if self._is("."):
            self._take()
            return Step("self", "node()")
        if self._is(".."):
            self._take()
            return Step("parent", "node()")
        axis = "child"
        if self._is("@"):
            self._take()
            axis = "attribute"
        elif self._follows("::"):
            token = self._take()
            if token.kind != "name" or token.text not in AXES:
                raise InvalidFilter(
                    f"{token.text[:40]!r} is not a supported axis; the axes are {', '.join(sorted(AXES))}",
                    column=token.column,
                )
            axis = token.text
            self._expect("::")
        test, qualified = self._test()
        return Step(axis, test, self._predicates(), qualified)

    def _test(self) -> tuple[str, bool]:
        if self._is("*"):
            self._take()
            return "*", False
        if self._now.kind != "name":
            raise self._wrong("a name")
        token = self._take()
        if self._is("("):
            if token.text not in KINDS:
                raise InvalidFilter(
                    f"a node test must be node(), text() or comment(), got {token.text[:40]}()",
                    column=token.column,
                )
            self._take()
            self._expect(")")
            return f"{token.text}()", False
        prefix, colon, local = token.text.rpartition(":")
        if colon and self._prefixes.get(prefix) != NAMESPACE:
            raise InvalidFilter(
                f"the prefix {prefix[:40]} must stand for {NAMESPACE}, the namespace of events, got "
                + self._prefixes.get(prefix, "no namespace")[:80],
                column=token.column,
            )
        return local, bool(colon)

    def _predicates(self) -> tuple[Expression, ...]:
        found = []
        while self._is("["):
            self._take()
            self._deeper()
            self._inside += 1
            found.append(self._binary(0))
            self._expect("]")
            self._inside -= 1
            self._depth -= 1
        return tuple(found)
