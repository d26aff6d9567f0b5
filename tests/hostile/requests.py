"""A table of requests that must be refused, with the status and the place that the refusal must name.

They are sent to a dispatcher that has the topic `stocks` (attributes below), on it the subscription
`kept`, whose filter uses `price`, and the topic `closed` of the same attributes, which allows no other
fields. Long because it is a table: a row a request.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

ATTRIBUTES = {
    "symbol": "string",
    "price": "number",
    "volume": "integer",
    "open": "boolean",
    "at": "time",
    "order.side": "string",
    "tags": ["string"],
    "order.lots": ["integer"],
}
SINK = {"url": "http://127.0.0.1:9/hook"}
#: publishes to a topic that allows no other fields
CLOSED = "/v1/topics/closed/events"
JSON = {"content-type": "application/json"}


@dataclass(frozen=True, kw_only=True)
class Bad:
    """One request and the refusal that it must get."""

    name: str
    method: str
    path: str
    status: int
    #: words that the problem's detail holds
    says: str
    #: the JSON pointer that the problem names, None where the request has no such place
    pointer: str | None = None
    body: Any = None
    #: the body's bytes, where they cannot be written as JSON
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=lambda: dict(JSON))

    def content(self) -> bytes | None:
        if self.raw is not None:
            return self.raw
        return None if self.body is None else json.dumps(self.body).encode()


def asked(
    name: str, method: str, path: str, status: int, says: str, pointer: str | None = None, **more: Any
) -> Bad:
    return Bad(name=name, method=method, path=path, status=status, says=says, pointer=pointer, **more)


def topic(name: str, status: int, says: str, pointer: str | None = None, **more: Any) -> Bad:
    more = {"path": "/v1/topics/fresh", **more}
    return Bad(name=f"topic: {name}", method="PUT", status=status, says=says, pointer=pointer, **more)


def event(name: str, status: int, says: str, pointer: str | None = None, **more: Any) -> Bad:
    more = {"path": "/v1/topics/stocks/events", **more}
    return Bad(name=f"event: {name}", method="POST", status=status, says=says, pointer=pointer, **more)


def subscription(name: str, status: int, says: str, pointer: str | None = None, **more: Any) -> Bad:
    given = more.pop("given", None)
    if given is not None:
        more["body"] = {"topic": "stocks", "sink": SINK, **given}
    more = {"method": "POST", "path": "/v1/subscriptions", **more}
    return Bad(name=f"subscription: {name}", status=status, says=says, pointer=pointer, **more)


def filtered(name: str, written: Any, says: str, pointer: str | None = "", status: int = 422) -> Bad:
    place = None if pointer is None else "/filter" + pointer
    return subscription(f"filter: {name}", status, says, place, given={"filter": written})


def sunk(name: str, url: str, says: str) -> Bad:
    return subscription(f"sink: {name}", 422, says, "/sink/url", given={"sink": {"url": url}})


def nested(depth: int) -> Any:
    written: Any = {"price": 1}
    for _ in range(depth):
        written = {"$not": written}
    return written


TOPICS = [
    topic("no body", 422, "body", raw=b""),
    topic("not JSON", 400, "JSON", raw=b"{"),
    topic("an array", 422, "object", body=[]),
    topic("no attributes", 422, "attributes", "/attributes", body={}),
    topic("empty attributes", 422, "at least one", "/attributes", body={"attributes": {}}),
    topic("attributes as a list", 422, "attributes", "/attributes", body={"attributes": ["price"]}),
    topic("unknown type", 422, "float", "/attributes/price", body={"attributes": {"price": "float"}}),
    topic("a type that is no string", 422, "price", "/attributes/price", body={"attributes": {"price": 1}}),
    topic("an empty array type", 422, "price", "/attributes/price", body={"attributes": {"price": []}}),
    topic("two element types", 422, "a", "/attributes/a", body={"attributes": {"a": ["string", "number"]}}),
    topic("nested array type", 422, "a", "/attributes/a", body={"attributes": {"a": [["string"]]}}),
    topic("unknown element type", 422, "a", "/attributes/a", body={"attributes": {"a": ["text"]}}),
    topic(
        "closed that is no boolean",
        422,
        "closed",
        "/closed",
        body={"attributes": {"a": "string"}, "closed": 1},
    ),
    topic("a name with $", 422, "$", "/attributes/$id", body={"attributes": {"$id": "string"}}),
    topic("an empty name", 422, "name", "/attributes/", body={"attributes": {"": "string"}}),
    topic("a name with a slash", 422, "a/b", "/attributes/a~1b", body={"attributes": {"a/b": "string"}}),
    topic("a doubled dot", 422, "a..b", "/attributes/a..b", body={"attributes": {"a..b": "string"}}),
    topic(
        "leaf and parent",
        422,
        "parent",
        "/attributes/a.b",
        body={"attributes": {"a": "string", "a.b": "number"}},
    ),
    topic("a long name", 422, "128", "/attributes/" + "x" * 129, body={"attributes": {"x" * 129: "string"}}),
    topic(
        "257 attributes",
        422,
        "256",
        "/attributes",
        body={"attributes": {f"a{n}": "string" for n in range(257)}},
    ),
    topic("unknown engine", 422, "warp", "/engine", body={"attributes": {"a": "string"}, "engine": "warp"}),
    topic(
        "unknown key", 422, "atributes", "/atributes", body={"attributes": {"a": "string"}, "atributes": 1}
    ),
    topic(
        "availability that is no time",
        422,
        "availability",
        "/availability",
        body={"attributes": {"a": "string"}, "availability": "for ever"},
    ),
    topic(
        "negative availability",
        422,
        "availability",
        "/availability",
        body={"attributes": {"a": "string"}, "availability": -1},
    ),
    topic("a repeated key", 400, "price", raw=b'{"attributes": {"price": "number", "price": "string"}}'),
    topic(
        "a bad name",
        422,
        "the name of a topic must be parts of",
        "/name",
        path="/v1/topics/a..b",
        body={"attributes": {"a": "string"}},
    ),
    topic(
        "a name of 300 characters",
        422,
        "256",
        "/name",
        path="/v1/topics/" + "n" * 300,
        body={"attributes": {"a": "string"}},
    ),
    topic(
        "a name with a space",
        422,
        "the name of a topic must be parts of",
        "/name",
        path="/v1/topics/a%20b",
        body={"attributes": {"a": "string"}},
    ),
    topic(
        "a change that breaks a stored filter: removed",
        409,
        "price",
        "/attributes/price",
        path="/v1/topics/stocks",
        body={"attributes": {"symbol": "string"}},
    ),
    topic(
        "a change that breaks a stored filter: another type",
        409,
        "price",
        "/attributes/price",
        path="/v1/topics/stocks",
        body={"attributes": {**ATTRIBUTES, "price": "string"}},
    ),
    asked("topic: read an unknown one", "GET", "/v1/topics/nope", 404, "nope"),
    asked("topic: delete an unknown one", "DELETE", "/v1/topics/nope", 404, "nope"),
    asked("topic: delete one in use", "DELETE", "/v1/topics/stocks", 409, "cascade"),
    asked(
        "topic: cascade that is neither true nor false",
        "DELETE",
        "/v1/topics/stocks?cascade=perhaps",
        422,
        "cascade",
        pointer="/cascade",
    ),
]

EVENTS = [
    event("unknown topic", 404, "nope", path="/v1/topics/nope/events", body={"price": 1}),
    event("no body", 400, "empty", raw=b""),
    event("not JSON", 400, "JSON", raw=b"price=1"),
    event("truncated", 400, "JSON", raw=b'[{"price": 1}, {"pri'),
    event("a number", 422, "object", body=5),
    event("null", 422, "object", raw=b"null"),
    event("an array of numbers", 422, "object", "/1", body=[{"price": 1}, 2]),
    event(
        "unknown field of a closed topic",
        422,
        'did you mean "price"',
        "/prize",
        body={"prize": 1},
        path=CLOSED,
    ),
    event(
        "unknown field of a closed topic in a batch",
        422,
        "prize",
        "/2/prize",
        body=[{}, {"price": 1}, {"prize": 1}],
        path=CLOSED,
    ),
    event(
        "nested field of a closed topic", 422, "order.x", "/order/x", body={"order": {"x": 1}}, path=CLOSED
    ),
    event("string for array", 422, "must be an array of strings, got", "/tags", body={"tags": "a"}),
    event("object for array", 422, "must be an array of strings, got", "/tags", body={"tags": {}}),
    event("array of mixed types", 422, "each element", "/tags/1", body={"tags": ["a", 1]}),
    event("null in an array", 422, "got null", "/tags/0", body={"tags": [None]}),
    event("array in an array", 422, "an array", "/tags/0", body={"tags": [["a"]]}),
    event("fraction in a nested array", 422, "integer", "/order/lots/1", body={"order": {"lots": [1, 1.5]}}),
    event("array for scalar", 422, "must be a number, got an array", "/price", body={"price": [1]}),
    event("path through a scalar", 422, "must be an object with order.side", "/order", body={"order": 1}),
    event("path through an array", 422, "must be an object with", "/order", body={"order": [{"side": "a"}]}),
    event(
        "wrong type in a nested field", 422, "must be a string", "/order/side", body={"order": {"side": 1}}
    ),
    event("nested and dotted", 422, "twice", "/order.side", body={"order": {"side": "a"}, "order.side": "b"}),
    event("1,001 elements", 422, "at most 1000 elements, got 1001", "/tags", body={"tags": ["a"] * 1001}),
    event("repeated key of an undeclared object", 400, "repeated", raw=b'{"x": {"a": 1, "a": 2}}'),
    event("NaN in an undeclared field", 400, "not JSON", raw=b'{"x": [NaN]}'),
    event("undeclared number beyond a double", 422, "range", "/x/0", raw=b'{"x": [1e999]}'),
    event("undeclared integer beyond a double", 422, "range", "/x", raw=b'{"x": ' + b"9" * 400 + b"}"),
    event("undeclared lone surrogate", 400, "surrogate", raw=b'{"x": "\\ud800"}'),
    event("undeclared field that is not UTF-8", 400, "UTF-8", raw=b'{"x": "\xff"}'),
    event("deep undeclared field", 413, "nested deeper", raw=b'{"x": ' + b"[" * 33 + b"]" * 33 + b"}"),
    event("string for number", 422, "must be a number, got the string", "/price", body={"price": "1"}),
    event("number for string", 422, "must be a string, got the number 1", "/symbol", body={"symbol": 1}),
    event("number for boolean", 422, "must be a boolean, got the number 1", "/open", body={"open": 1}),
    event("boolean for number", 422, "must be a number, got true", "/price", body={"price": True}),
    event(
        "fraction for integer", 422, "must be an integer, got the number 1.5", "/volume", body={"volume": 1.5}
    ),
    event("integer beyond 64 bits", 422, "does not fit in 64 bits", "/volume", body={"volume": 2**63}),
    event("number beyond a double", 422, "range", "/price", raw=b'{"price": 1e999}'),
    event("an array", 422, "array", "/symbol", body={"symbol": ["GE"]}),
    event("an object where a value is", 422, "price", "/price", body={"price": {"amount": 1}}),
    event(
        "a value where an object is",
        422,
        "must be an object with order.side",
        "/order",
        body={"order": "buy"},
    ),
    event(
        "dotted and nested at once", 422, "order.side", body={"order.side": "buy", "order": {"side": "buy"}}
    ),
    event("a time without offset", 422, "at", "/at", body={"at": "2024-01-01T00:00:00"}),
    event("a day that does not exist", 422, "at", "/at", body={"at": "2024-02-30T00:00:00Z"}),
    event("NaN", 400, "JSON", raw=b'{"price": NaN}'),
    event("Infinity", 400, "JSON", raw=b'{"price": -Infinity}'),
    event("a repeated key", 400, "price", raw=b'{"price": 1, "price": 2}'),
    event("a repeated key, one of them escaped", 400, "price", raw=b'{"price": 1, "p\\u0072ice": 2}'),
    event(
        "a repeated key in a later event", 400, "open", raw=b'[{"price": 1}, {"open": true, "open": false}]'
    ),
    event("invalid UTF-8", 400, "UTF-8", raw=b'{"symbol": "\xff"}'),
    event("a lone surrogate", 400, "surrogate", raw=b'{"symbol": "\\ud800"}'),
    event("nested 40 deep", 413, "deeper", raw=b'{"a":' * 40 + b"1" + b"}" * 40),
    event("nested 100,000 deep", 413, "deeper", raw=b"[" * 100_000 + b"]" * 100_000),
    event("2 MB", 413, "must be at most 1048576 bytes", raw=b'{"symbol": "' + b"x" * 2_000_000 + b'"}'),
    event("10,001 events", 413, "10000", body=[{}] * 10_001),
    event("empty id", 422, "$id must be a string of 1 to 256 characters, got", "/$id", body={"$id": ""}),
    event("an id that is no string", 422, "$id", "/$id", body={"$id": 7}),
    event("an id of 300 characters", 422, "$id", "/0/$id", body=[{"$id": "x" * 300}]),
    event("bad $time", 422, "$time must be a time, got", "/$time", body={"$time": "yesterday"}),
    event("negative $availability", 422, "$availability", "/$availability", body={"$availability": -1}),
    event("$availability that is no time", 422, "$availability", body={"$availability": "for ever"}),
    event("unknown $ key", 422, "must be $id, $time or $availability, got", "/$ttl", body={"$ttl": 1}),
    event("the id of another event", 409, "taken", body={"$id": "taken", "price": 99}),
    event(
        "one id twice in a batch",
        409,
        "both",
        body=[{"$id": "both", "price": 1}, {"$id": "both", "price": 2}],
    ),
    event("text/plain", 415, "text/plain", body={"price": 1}, headers={"content-type": "text/plain"}),
    event("a form", 415, "form", body={}, headers={"content-type": "application/x-www-form-urlencoded"}),
    event(
        "empty Idempotency-Key", 422, "Idempotency-Key", body={}, headers={**JSON, "idempotency-key": '""'}
    ),
    event(
        "long Idempotency-Key",
        422,
        "Idempotency-Key",
        body={},
        headers={**JSON, "idempotency-key": "k" * 300},
    ),
]

SUBSCRIPTIONS = [
    subscription("no body", 422, "body", raw=b""),
    subscription("not JSON", 400, "JSON", raw=b"topic: stocks"),
    subscription("NaN", 400, "JSON", raw=b'{"topic": "stocks", "filter": {"price": NaN}}'),
    subscription("a repeated key", 400, "topic", raw=b'{"topic": "stocks", "topic": "other"}'),
    subscription("invalid UTF-8", 400, "UTF-8", raw=b'{"topic": "\xc3\x28"}'),
    subscription("2 MB", 413, "must be at most 1048576 bytes", raw=b'{"topic": "' + b"x" * 2_000_000 + b'"}'),
    subscription("no topic", 422, "topic", "/topic", body={"sink": SINK}),
    subscription("unknown topic", 404, "nope", "/topic", given={"topic": "nope"}),
    subscription("topic that is no string", 422, "topic", "/topic", given={"topic": 1}),
    subscription("unknown key", 422, "fliter", "/fliter", given={"fliter": {}}),
    subscription("a bad id", 422, "id", "/id", given={"id": "a/b c"}),
    subscription("an id of 200 characters", 422, "id", "/id", given={"id": "x" * 200}),
    subscription(
        "an id in use for another", 409, "kept", "/id", given={"id": "kept", "filter": {"price": 1}}
    ),
    subscription(
        "one id twice in an array", 409, "dup", body=[{"topic": "stocks", "sink": SINK, "id": "dup"}] * 2
    ),
    subscription("1,001 in an array", 413, "1000", body=[{"topic": "stocks", "sink": SINK}] * 1001),
    subscription(
        "the second of an array",
        422,
        "prize",
        "/1/filter/prize",
        body=[{"topic": "stocks", "sink": SINK}, {"topic": "stocks", "sink": SINK, "filter": {"prize": 1}}],
    ),
    subscription("expired already", 422, "future", "/expires", given={"expires": "2001-01-01T00:00:00Z"}),
    subscription("expires that is nothing", 422, "expires", "/expires", given={"expires": "soon"}),
    subscription("expires as a number", 422, "expires", "/expires", given={"expires": 60}),
    subscription("expires after nothing", 422, "expires", "/expires", given={"expires": "PT"}),
    subscription("expires in zero seconds", 422, "future", "/expires", given={"expires": "PT0S"}),
    subscription("expires beyond all years", 422, "9999", "/expires", given={"expires": "P999999999W"}),
    subscription("from that is nothing", 422, "a duration such as 1h", "/from", given={"from": "soon"}),
    subscription("from the future", 422, "future", "/from", given={"from": "2999-01-01T00:00:00Z"}),
    subscription("from before what is kept", 422, "retained", "/from", given={"from": "P1D"}),
    subscription("from as a number", 422, "from", "/from", given={"from": 60}),
    subscription("sink that is a string", 422, "sink", "/sink", given={"sink": "http://127.0.0.1/"}),
    subscription("sink without url", 422, "url", "/sink/url", given={"sink": {}}),
    subscription("sink with an unknown key", 422, "uri", "/sink/uri", given={"sink": {**SINK, "uri": "x"}}),
    subscription(
        "empty recipient", 422, "recipient", "/sink/recipient", given={"sink": {**SINK, "recipient": ""}}
    ),
    sunk("no URL", "not a url", "URL"),
    sunk("another scheme", "ftp://example.org/", "https"),
    sunk("a file", "file:///etc/passwd", "https"),
    sunk("with a password", "https://me:secret@example.org/", "password"),
    sunk("with a fragment", "https://example.org/#top", "fragment"),
    sunk("without a host", "https:///path", "host"),
    sunk("a port beyond all ports", "https://example.org:70000/", "URL is invalid"),
    sunk("a link-local address", "http://169.254.169.254/latest/meta-data", "must be public"),
    sunk("a private address", "https://10.0.0.1/", "must be public"),
    sunk("a private address in hexadecimal", "https://0x0a000001/", "must be public"),
    sunk("mapped into IPv6", "https://[::ffff:10.0.0.1]/", "must be public"),
    sunk("multicast", "https://224.0.0.1/", "must be public"),
    sunk("a line break", "https://example.org/\r\nx: y", "character"),
    sunk("3,000 characters", "https://example.org/" + "x" * 3000, "2048"),
    filtered("an empty object", {}, "empty"),
    filtered("an empty attribute", {"price": {}}, "must have at least one operator", "/price"),
    filtered("an empty $any", {"$any": []}, "$any must be a non-empty list", "/$any"),
    filtered("an empty $all", {"$all": []}, "$all", "/$all"),
    filtered("an empty $not", {"$not": {}}, "empty", "/$not"),
    filtered("an empty list", {"symbol": []}, "must not be empty", "/symbol"),
    filtered("$any that is no list", {"$any": {"price": 1}}, "$any", "/$any"),
    filtered("an unknown combinator", {"$none": [{"price": 1}]}, "must be one of $any", "/$none"),
    filtered("an unknown operator", {"price": {"above": 1}}, "is not an operator", "/price/above"),
    filtered("an unknown attribute", {"prize": 1}, "price", "/prize"),
    filtered("an unknown attribute inside", {"$any": [{"price": 1}, {"prize": 1}]}, "prize", "/$any/1/prize"),
    filtered("null", {"price": None}, "null", "/price"),
    filtered("literal for an array", {"tags": "a"}, "must be any, all or exists, got eq", "/tags"),
    filtered("order on an array", {"tags": {"gt": "a"}}, "must be any, all or exists", "/tags"),
    filtered("any on a scalar", {"price": {"any": 1}}, "any applies to arrays only", "/price/any"),
    filtered("any of another type", {"tags": {"any": 1}}, "must be a string", "/tags/any"),
    filtered("any without a condition", {"tags": {"any": {}}}, "at least one operator", "/tags/any"),
    filtered("exists of an element", {"tags": {"any": {"exists": True}}}, "elements", "/tags/any/exists"),
    filtered("any in any", {"tags": {"any": {"any": "a"}}}, "elements", "/tags/any/any"),
    filtered("empty $any of elements", {"tags": {"any": {"$any": []}}}, "non-empty", "/tags/any/$any"),
    filtered("text: any without a condition", "tags any", "condition on elements"),
    filtered("text: any on a scalar", "price any > 3", "arrays only"),
    filtered("text: exists of an element", "tags any exists", "condition on elements"),
    filtered("null in a list", {"price": [1, None]}, "null", "/price/1"),
    filtered("string for number", {"price": {"gt": "30"}}, "must be a number, got", "/price/gt"),
    filtered("boolean for number", {"price": True}, "price", "/price"),
    filtered("number for string", {"symbol": 5}, "symbol", "/symbol"),
    filtered("fraction for integer", {"volume": {"gte": 1.5}}, "volume", "/volume/gte"),
    filtered("beyond 64 bits", {"volume": {"lt": 2**64}}, "volume", "/volume/lt"),
    filtered("no time", {"at": {"gt": "today"}}, "at", "/at/gt"),
    filtered("prefix of a number", {"price": {"prefix": "1"}}, "applies to strings only", "/price/prefix"),
    filtered("order of booleans", {"open": {"lt": True}}, "does not apply to booleans", "/open/lt"),
    filtered("exists that is no boolean", {"price": {"exists": 1}}, "must be true or false", "/price/exists"),
    filtered("between with one bound", {"price": {"between": [1]}}, "between", "/price/between"),
    filtered("between turned round", {"price": {"between": [2, 1]}}, "lo <= hi, got", "/price/between"),
    filtered(
        "bounds turned round",
        {"price": {"gt": 5, "lt": 1}},
        "gt must be below lt, got gt 5 and lt 1",
        "/price",
    ),
    filtered("in with a nested list", {"price": {"in": [[1]]}}, "in", "/price/in/0"),
    filtered("in that is no list", {"price": {"in": 1}}, "in", "/price/in"),
    filtered("40 deep", nested(40), "deep", None, status=413),
    filtered("10,000 predicates", {"price": list(range(10_000))}, "1000", status=413),
    filtered("10,000 branches", {"$any": [{"price": n} for n in range(10_000)]}, "1000", status=413),
    filtered("a list", [{"price": 1}], "filter"),
    filtered("a number", 5, "filter"),
    subscription("an unknown key with a slash", 422, "a/b", "/a~1b", given={"a/b": 1}),
    subscription("an unknown key that is also a tag", 422, "many", "/many", given={"many": 1}),
    filtered("empty text", "", "empty"),
    filtered("text that ends too early", "price >", "expected"),
    filtered("text with an unknown word", "price above 3", "above"),
    filtered("text with an open string", 'symbol == "GE', "string"),
    filtered("text with an unknown attribute", "prize > 3", "price"),
    filtered("text of the wrong type", 'price > "3"', "price"),
    filtered("text with 200 parentheses", "(" * 200 + "price > 3" + ")" * 200, "deep", status=413),
    filtered("text of 100,000 characters", "price > 3 or " * 8000 + "price > 3", "", status=413),
    asked("subscription: read an unknown one", "GET", "/v1/subscriptions/nope", 404, "nope"),
    asked("subscription: end an unknown one", "DELETE", "/v1/subscriptions/nope", 404, "nope"),
    subscription(
        "change an unknown one", 404, "nope", method="PUT", path="/v1/subscriptions/nope", body={"sink": SINK}
    ),
    subscription(
        "change to a bad filter",
        422,
        "prize",
        "/filter/prize",
        method="PUT",
        path="/v1/subscriptions/kept",
        body={"sink": SINK, "filter": {"prize": 1}},
    ),
    subscription(
        "change to a sink that is none",
        422,
        "sink",
        "/sink",
        method="PUT",
        path="/v1/subscriptions/kept",
        body={"sink": 7},
    ),
    subscription(
        "change the topic",
        422,
        "topic",
        "/topic",
        method="PUT",
        path="/v1/subscriptions/kept",
        body={"topic": "other", "sink": SINK},
    ),
    subscription(
        "renew an unknown one", 404, "nope", path="/v1/subscriptions/nope/renew", body={"expires": "PT1H"}
    ),
    subscription(
        "renew into the past",
        422,
        "future",
        "/expires",
        path="/v1/subscriptions/kept/renew",
        body={"expires": "2001-01-01T00:00:00Z"},
    ),
    subscription(
        "renew without saying until when",
        422,
        "expires",
        "/expires",
        path="/v1/subscriptions/kept/renew",
        body={},
    ),
]


def listing(name: str, query: str, says: str, pointer: str | None, status: int = 422) -> Bad:
    path = f"/v1/subscriptions?{query}"
    return Bad(name=f"listing: {name}", method="GET", path=path, status=status, says=says, pointer=pointer)


def ended(name: str, query: str, status: int, says: str, pointer: str | None = None) -> Bad:
    return asked(f"end covered: {name}", "DELETE", f"/v1/subscriptions?{query}", status, says, pointer)


def internal(name: str, status: int, says: str, *, path: str = "/internal/servers", raw: bytes = b"") -> Bad:
    headers = {"content-type": "application/msgpack"}
    if status != 401:
        headers["authorization"] = "SECRET"  # the test puts the network's own in
    return Bad(
        name=f"internal: {name}", method="POST", path=path, status=status, says=says, raw=raw, headers=headers
    )


OTHERS = [
    listing("a cursor of nobody", "cursor=abc", "cursor", "/cursor"),
    listing("a cursor that is no base 64", "cursor=%ff%00", "cursor", "/cursor"),
    listing("a huge cursor", "cursor=" + "A" * 200, "cursor", "/cursor"),
    listing("limit 0", "limit=0", "limit", "/limit"),
    listing("limit 10,000", "limit=10000", "limit", "/limit"),
    listing("limit that is a word", "limit=all", "limit", "/limit"),
    listing("an unknown topic", "topic=nope", "nope", None, 404),
    asked(
        "tuning: beyond 1", "PUT", "/v1/tuning", 422, "precision", pointer="/precision", body={"precision": 2}
    ),
    asked("tuning: NaN", "PUT", "/v1/tuning", 400, "JSON", raw=b'{"precision": NaN}'),
    asked(
        "tuning: a word",
        "PUT",
        "/v1/tuning",
        422,
        "precision",
        pointer="/precision",
        body={"precision": "high"},
    ),
    asked(
        "tuning: unknown mode",
        "PUT",
        "/v1/tuning",
        422,
        "magic",
        pointer="/mode",
        body={"mode": "magic", "precision": 0.5},
    ),
    asked(
        "link: no bytes",
        "PUT",
        "/v1/link",
        422,
        "bytes_per_second",
        pointer="/bytes_per_second",
        body={"bytes_per_second": 0},
    ),
    asked(
        "link: a lag of nothing",
        "PUT",
        "/v1/link",
        422,
        "lag_limit",
        pointer="/lag_limit",
        body={"lag_limit": 0},
    ),
    asked("link: unknown key", "PUT", "/v1/link", 422, "speed", pointer="/speed", body={"speed": 1}),
    asked("server: unknown", "GET", "/v1/servers/nope/summary", 404, "nope"),
    asked("path: unknown", "GET", "/v2/topics", 404, "does not exist; /docs lists all calls"),
    asked("path: traversal", "GET", "/v1/topics/../../etc/passwd", 404, ""),
    asked("path: NUL", "GET", "/v1/subscriptions/%00", 404, ""),
    asked("path: invalid UTF-8", "GET", "/v1/subscriptions/%ff", 404, ""),
    asked("method: POST to topics", "POST", "/v1/topics", 405, "does not allow", body={}),
    ended("no topic", "filter=price%3E3", 422, "topic", "/topic"),
    ended("no filter", "topic=stocks", 422, "filter", "/filter"),
    ended("an empty filter", "topic=stocks&filter=", 422, "empty", "/filter"),
    ended("an empty object", "topic=stocks&filter=%7B%7D", 422, "empty", "/filter"),
    ended("an unknown topic", "topic=nope&filter=price%3E3", 404, "nope"),
    ended("an unknown attribute", "topic=stocks&filter=prize%3E3", 422, "price", "/filter"),
    ended("a repeated key", "topic=stocks&filter=%7B%22price%22:1,%22price%22:2%7D", 400, "price"),
    asked("method: PUT of all subscriptions", "PUT", "/v1/subscriptions", 405, "does not allow"),
    asked("method: PUT of events", "PUT", "/v1/topics/stocks/events", 405, "does not allow"),
    asked("trace: without an event's id", "GET", "/v1/topics/stocks/events", 422, "id", "/id"),
    asked("method: PATCH of a subscription", "PATCH", "/v1/subscriptions/kept", 405, "does not allow"),
    internal("register without the secret", 401, "Bearer"),
    internal("heartbeat without the secret", 401, "Bearer", path="/internal/servers/s1/heartbeat"),
    internal("register with garbage", 400, "", raw=b"\xc1\xff\x00"),
    internal("heartbeat with garbage", 400, "", raw=b"", path="/internal/servers/s1/heartbeat"),
]

TABLE = [*TOPICS, *EVENTS, *SUBSCRIPTIONS, *OTHERS]
