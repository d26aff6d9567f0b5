"""XPath: parsing, writing, and errors with their texts."""

from __future__ import annotations

import pytest

from edn.errors import EdnError, InvalidFilter, TooLarge
from edn.model.filter import Filter
from edn.model.schema import Schema
from edn.model.xpath.expression import write
from edn.model.xpath.parsing import MAX_LENGTH, parse

SCHEMA = Schema.parse({"symbol": "string", "price": "number", "at.floor": "integer", "1st": "number"})


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("price > 30", "(child::price > 30)"),
        ("price>30 and symbol='GE' or 1", '(((child::price > 30) and (child::symbol = "GE")) or 1)'),
        ("- - price", "(- (- child::price))"),
        ("---price", "(- child::price)"),
        ("2 * 3 - 4 div 5", "((2 * 3) - (4 div 5))"),
        ("//price", "/descendant-or-self::node()/child::price"),
        ("a//b/..", "child::a/descendant-or-self::node()/child::b/parent::node()"),
        ("/", "/"),
        ("/e:event/*[1]", "/child::e:event/child::*[1]"),
        (". = 'it''s'"[:10], None),
        ("div div div", "(child::div div child::div)"),
        ("* * *", "(child::* * child::*)"),
        ("or or or", "(child::or or child::or)"),
        ("text()", "child::text()"),
        ("text", "child::text"),
        ("(a | b)[2]/c", "((child::a | child::b))[2]/child::c"),
        ("not(@id)", "not(attribute::id)"),
        ("'('", '"("'),
        ("'(' = a", '("(" = child::a)'),
        ("a-b - c", "(child::a-b - child::c)"),
        ("following-sibling::a", "following-sibling::a"),
        ('concat("a\'", b)', 'concat("a\'", child::b)'),
    ],
)
def test_what_is_written_says_what_was_read(text: str, written: str | None) -> None:
    if written is None:
        with pytest.raises(InvalidFilter):
            parse(text)
        return
    tree = parse(text)
    assert write(tree) == written
    assert parse(written) == tree


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("price >", 8, "expected a name, got the end"),
        ("price 30", 7, "expected the end or an operator"),
        ("price price", 7, "expected an operator, got 'price'"),
        ("price > $x", 9, "variables are not supported"),
        ("document('x')", 1, "'document' is not a function"),
        ("x:price > 3", 1, "the prefix x must stand for urn:edn:soap"),
        ("namespace::a", 1, "is not a supported axis; the axes are"),
        ("count(3) > 1", 1, "argument of count must be a set of nodes"),
        ("'a'[1]", 4, "only a set of nodes"),
        ("3 | a", 3, "must be sets of nodes"),
        ("not()", 1, "must have 1 arguments, got 0"),
        ("position() = 1", 1, "only allowed in a predicate"),
        ("processing-instruction('a')", 1, "is not a function"),
        ("price # 3", 7, "unexpected '# 3' in an XPath"),
        (".[1]", 2, "the end or an operator"),
        ("a[", 3, "expected a name"),
        ("(a", 3, "expected ')'"),
    ],
)
def test_what_is_no_expression_is_refused_at_its_column(text: str, column: int, says: str) -> None:
    with pytest.raises(InvalidFilter) as refused:
        parse(text)
    assert says in refused.value.detail
    assert refused.value.column == column


def test_prefixes_mean_what_the_caller_says() -> None:
    assert write(parse("n:event/price", {"n": "urn:edn:soap"})) == "child::e:event/child::price"
    with pytest.raises(InvalidFilter, match="got urn:else"):
        parse("n:event", {"n": "urn:else"})


@pytest.mark.parametrize(
    "text",
    ["a" * (MAX_LENGTH + 1), "(" * 17 + "a" + ")" * 17, "a" + "[1]" * 1000, "not(" * 30 + "a" + ")" * 30],
    ids=["long", "deep", "many parts", "deep calls"],
)
def test_expressions_have_a_size(text: str) -> None:
    with pytest.raises(TooLarge):
        parse(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("//*[//*[//*[//*[. = 1]]]]", "must take at most"),
        ("//*" + "[//*" * 7 + "]" * 7, "must take at most"),
        ("contains(symbol, price)", "must be a literal"),
        ("translate(symbol, symbol, 'x')", "must be a literal"),
        ("concat(symbol, symbol, symbol, symbol, symbol) = 'x'", "concat must join at most 4"),
        ("concat(concat(., .), concat(., ., .)) = 'x'", "concat must join at most 4"),
        ("//*[translate(., '" + "abc" * 1000 + "', '') = 'x']", "must take at most"),
    ],
)
def test_what_may_take_too_long_is_refused_beforehand(text: str, says: str) -> None:
    with pytest.raises(EdnError, match=says):
        Filter.parse({"$xpath": text}).bind(SCHEMA)


@pytest.mark.parametrize("text", ["//*[//*]", "//price[. > 3] | //symbol", "//*[contains(., 'x')]"])
def test_what_is_searched_for_in_a_small_event_is_taken(text: str) -> None:
    assert Filter.parse({"$xpath": text}).bind(SCHEMA).attributes == set(SCHEMA.attributes)


def test_an_xpath_is_a_filter_in_both_forms_and_combines() -> None:
    as_json = {"price": {"gt": 3}, "$xpath": "starts-with(symbol, 'G')", "$not": {"$xpath": "at/floor = 3"}}
    given = Filter.parse(as_json)
    text = given.to_text()
    assert text is not None
    assert "xpath \"starts-with(symbol, 'G')\"" in text
    assert Filter.parse(text) == given
    assert Filter.parse(given.to_json()) == given
    bound = given.bind(SCHEMA)
    assert bound.matches({"price": 4.0, "symbol": "GE"})
    assert not bound.matches({"price": 4.0, "symbol": "GE", "at.floor": 3})
    assert not bound.matches({"price": 2.0, "symbol": "GE"})
    assert not bound.rects().exact.any()


def test_an_attribute_may_be_called_xpath() -> None:
    schema = Schema.parse({"xpath": "string"})
    assert Filter.parse('xpath == "a"').bind(schema).matches({"xpath": "a"})
    assert Filter.parse('xpath contains "a"').to_text() == 'xpath contains "a"'


def test_names_that_are_no_xml_names_are_escaped() -> None:
    assert Filter.parse({"$xpath": "_x0031_st > 3"}).bind(SCHEMA).matches({"1st": 4.0})


def test_a_filter_in_xpath_covers_itself_and_nothing_that_is_not_known() -> None:
    one = Filter.parse({"$xpath": "price > 3"}).bind(SCHEMA)
    assert one.covers(Filter.parse({"$xpath": "price > 3"}).bind(SCHEMA))
    assert not one.covers(Filter.parse({"price": {"gt": 4}}).bind(SCHEMA))
    assert Filter.parse({"price": {"gt": 2}}).bind(SCHEMA).covers(one)
    assert not Filter.parse({"price": {"gt": 3.5}}).bind(SCHEMA).covers(one)
    assert not one.overlaps(Filter.parse({"price": {"lt": 2}}).bind(SCHEMA))
