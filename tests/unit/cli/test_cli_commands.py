"""What the commands send, print and exit with, against a network that is a stub on a real socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from edn.cli import listen
from edn.cli.app import app
from edn.cli.explain import _event_lines
from edn.cli.listen import readable_notification
from edn.client.receiver import Match, Notification, NotifiedEvent
from tests.network.processes import free_port

TOPIC = {
    "name": "stocks",
    "attributes": {"symbol": "string", "price": "number", "volume": "integer", "halted": "boolean"},
    "engine": "bitmap",
    "availability": 0,
}
SUBSCRIPTION = {
    "id": "sub1",
    "topic": "stocks",
    "filter": {"price": {"gt": 30}},
    "sink": {"url": "http://127.0.0.1:9/in", "recipient": "ann"},
    "state": "active",
    "expires": None,
    "owner": "me",
    "server": "s1",
    "created": "2026-01-01T00:00:00Z",
}
SERVERS = {
    "servers": [
        {"id": "s1", "url": "http://x", "state": "ready", "subscriptions": 1200, "lag": 3, "forwarded": 40},
        {"id": "s2", "url": "http://y", "state": "away", "subscriptions": 7, "lag": None, "forwarded": 10},
    ],
    "published": 100,
}


class Stub:
    """Answers by (method, path); records what came."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], tuple[int, Any]] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        #: path → what each connection to it sends
        self.streams: dict[str, list[bytes]] = {}
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length", 0)))
                sent = json.loads(raw) if raw else None
                stub.requests.append((self.command, self.path, sent))
                stub.headers.append({name.lower(): value for name, value in self.headers.items()})
                status, body = stub.answers.get(
                    (self.command, self.path.partition("?")[0]),
                    (404, {"title": "Not found", "detail": f"no {self.path}"}),
                )
                if callable(body):
                    status, body = body(sent)
                parts = stub.streams.get(self.path)
                if parts is not None:
                    self.send_response(200)
                    self.send_header("content-type", "text/event-stream")
                    self.send_header("connection", "close")
                    self.end_headers()
                    self.wfile.write(parts.pop(0) if parts else b"event: end\ndata: {}\n\n")
                    return
                data = b"" if body is None else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815 - the names are http.server's

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def accept_events(self) -> None:
        def accept(sent: Any) -> tuple[int, Any]:
            count = len(sent) if isinstance(sent, list) else 1
            return 202, {"accepted": count, "ids": [f"e{number}" for number in range(count)]}

        self.answers["POST", "/v1/topics/stocks/events"] = (202, accept)


@pytest.fixture
def stub() -> Iterator[Stub]:
    made = Stub()
    made.answers["GET", "/v1/topics/stocks"] = (200, TOPIC)
    try:
        yield made
    finally:
        made.close()


def edn(stub: Stub | None, *arguments: str, stdin: str | bytes | None = None) -> Result:
    env = {"EDN_URL": stub.url if stub else "http://127.0.0.1:1", "COLUMNS": "200"}
    return CliRunner().invoke(app, arguments, input=stdin, env=env)


def test_every_command_explains_itself() -> None:
    commands = [
        "up",
        "topic",
        "subscribe",
        "unsubscribe",
        "subscriptions",
        "export",
        "publish",
        "listen",
        "status",
        "version",
    ]
    listing = edn(None, "--help").stdout
    for command in commands:
        assert command in listing
        shown = edn(None, command, "--help")
        assert shown.exit_code == 0
        assert "Usage" in shown.stdout


def test_topic_create_sends_names_and_types(stub: Stub) -> None:
    stub.answers["PUT", "/v1/topics/stocks"] = (201, TOPIC)
    result = edn(stub, "topic", "create", "stocks", "symbol:string", "price:number", "--availability", "60")
    assert result.exit_code == 0, result.stderr
    assert "symbol:string price:number" in result.stdout
    sent = {"attributes": {"symbol": "string", "price": "number"}, "availability": 60}
    assert stub.requests == [("PUT", "/v1/topics/stocks", sent)]


def test_topic_create_refuses_a_topic_that_exists(stub: Stub) -> None:
    exists = {"title": "Precondition failed", "detail": 'topic "stocks" exists already'}
    stub.answers["PUT", "/v1/topics/stocks"] = (412, exists)
    refused = edn(stub, "topic", "create", "stocks", "price:number")
    assert refused.exit_code == 1
    assert "topic stocks exists already: symbol:string price:number" in refused.stderr
    assert "edn topic change stocks" in refused.stderr
    kept = edn(stub, "topic", "create", "stocks", "price:number", "--if-not-exists")
    assert kept.exit_code == 0
    assert "exists with other attributes and was not changed" in kept.stderr


def test_topic_change_keeps_other_attributes_and_the_revision_that_it_has_read(stub: Stub) -> None:
    stub.answers["GET", "/v1/topics/stocks"] = (200, {**TOPIC, "revision": 7})
    stub.answers["PUT", "/v1/topics/stocks"] = (200, TOPIC)
    result = edn(stub, "topic", "change", "stocks", "venue:string", "--availability", "1h")
    assert result.exit_code == 0, result.stderr
    assert "adds venue:string" in result.stderr
    sent = {"attributes": {**TOPIC["attributes"], "venue": "string"}, "availability": 3600}
    assert stub.requests[-1] == ("PUT", "/v1/topics/stocks", sent)
    assert stub.headers[-1]["if-match"] == '"7"'


def test_topic_change_shows_what_breaks_and_asks(stub: Stub) -> None:
    stub.answers["PUT", "/v1/topics/stocks"] = (200, TOPIC)
    stub.answers["GET", "/v1/subscriptions"] = (200, {"subscriptions": [SUBSCRIPTION], "next": None})
    used = edn(stub, "topic", "change", "stocks", "--remove", "price", "--yes")
    assert used.exit_code == 1
    assert "removes price:number" in used.stderr
    assert "sub1: price" in used.stderr
    asked = edn(stub, "topic", "change", "stocks", "volume:number")
    assert asked.exit_code == 2, "there is no terminal to ask on"
    assert "changes volume from integer to number" in asked.stderr
    assert "--yes" in asked.stderr
    assert edn(stub, "topic", "change", "stocks", "--remove", "volume", "--dry-run").exit_code == 0
    assert not any(method == "PUT" for method, _, _ in stub.requests)
    assert edn(stub, "topic", "change", "stocks", "--remove", "volume", "--yes").exit_code == 0
    assert "volume" not in stub.requests[-1][2]["attributes"]
    assert edn(stub, "topic", "change", "stocks", "--remove", "nosuch").exit_code == 2


def test_commands_about_several_subscriptions_do_all_and_report(stub: Stub) -> None:
    for id in ("a", "b"):
        stub.answers["POST", f"/v1/subscriptions/{id}/pause"] = (200, {**SUBSCRIPTION, "id": id})
        stub.answers["DELETE", f"/v1/subscriptions/{id}"] = (204, None)
    for command, done in (("pause", "paused"), ("unsubscribe", "unsubscribed")):
        result = edn(stub, command, "a", "nosuch", "b")
        assert result.exit_code == 1
        assert result.stdout == f"{done} a\n{done} b\n"
        assert "nosuch: Not found" in result.stderr


def test_subscribe_sends_format_and_consent_or_makes_a_stream(stub: Stub) -> None:
    stub.answers["POST", "/v1/subscriptions"] = (201, SUBSCRIPTION)
    to = ("--to", "http://s/")
    assert edn(stub, "subscribe", "stocks", *to, "--format", "cloudevents-batch", "--consent").exit_code == 0
    assert stub.requests[-1][2]["sink"] == {
        "url": "http://s/",
        "format": "cloudevents-batch",
        "consent": True,
    }
    assert edn(stub, "subscribe", "stocks", "--stream").exit_code == 0
    assert "sink" not in stub.requests[-1][2]
    assert edn(stub, "subscribe", "stocks").exit_code == 2
    assert edn(stub, "subscribe", "stocks", *to, "--stream").exit_code == 2
    refused = edn(stub, "subscribe", "stocks", "--stream", "--format", "json")
    assert (refused.exit_code, refused.stderr) == (2, "edn: format requires a url\n")


def test_a_warning_of_the_network_is_said(stub: Stub) -> None:
    stub.answers["POST", "/v1/subscriptions"] = (201, {**SUBSCRIPTION, "warning": "no event can match"})
    result = edn(stub, "subscribe", "stocks", "price > 40 and price < 30", "--to", "http://s/")
    assert (result.exit_code, result.stdout) == (0, "sub1\n")
    assert "warning: no event can match" in result.stderr


def test_a_subscription_is_shown_changed_and_renewed(stub: Stub) -> None:
    sink = {"url": "http://s/", "recipient": "ann", "format": "cloudevents-binary", "consent": True}
    stored = {**SUBSCRIPTION, "sink": sink, "expires": "2030-01-01T00:00:00Z"}
    stub.answers["GET", "/v1/subscriptions/sub1"] = (200, stored)
    stub.answers["PUT", "/v1/subscriptions/sub1"] = (200, stored)
    stub.answers["POST", "/v1/subscriptions/sub1/renew"] = (200, stored)
    shown = edn(stub, "subscription", "show", "sub1").stdout
    for part in ("sub1: active", "price > 30", "http://s/ for ann", "cloudevents-binary, asks for consent"):
        assert part in shown
    assert edn(stub, "subscription", "change", "sub1", "--filter", "price > 31").exit_code == 0
    assert stub.requests[-1][2] == {"filter": "price > 31", "sink": sink, "expires": "2030-01-01T00:00:00Z"}
    changed = edn(
        stub, "subscription", "change", "sub1", "--everything", "--to", "http://t/", "--expires", "never"
    )
    assert changed.exit_code == 0
    assert stub.requests[-1][2] == {"sink": {"url": "http://t/", "recipient": "ann"}}
    assert edn(stub, "subscription", "renew", "sub1", "1h").exit_code == 0
    assert stub.requests[-1][2] == {"expires": "1h"}
    assert edn(stub, "subscription", "renew", "sub1", "never").exit_code == 0
    assert stub.requests[-1][2] == {"expires": None}
    assert edn(stub, "subscription", "change", "sub1").exit_code == 2


def test_tenants_and_their_topics_are_listed(stub: Stub) -> None:
    found = [{"name": "", "keys": 0, "topics": 1, "subscriptions": 2},
             {"name": "acme", "keys": 3, "topics": 1, "subscriptions": 1000}]  # fmt: skip
    stub.answers["GET", "/v1/tenants"] = (200, {"tenants": found})
    shown = edn(stub, "tenant", "list").stdout
    assert "(operator)" in shown
    assert "1,000" in shown
    assert json.loads(edn(stub, "tenant", "list", "--json").stdout) == found
    stub.answers["GET", "/v1/topics"] = (200, {"topics": []})
    nothing = edn(stub, "topic", "list", "--tenant", "*")
    assert stub.requests[-1][1] == "/v1/topics?tenant=%2A"
    assert (nothing.stdout, "there are no topics" in nothing.stderr) == ("", True)


def test_the_version_is_an_option_too() -> None:
    assert edn(None, "--version").stdout == edn(None, "version").stdout


@pytest.mark.parametrize("text", ["33", "-7", "0"])
def test_a_whole_number_is_published_as_one(stub: Stub, text: str) -> None:
    stub.accept_events()
    assert edn(stub, "publish", "stocks", f"price={text}", "$availability=90s").exit_code == 0
    sent = stub.requests[-1][2]
    assert (repr(sent["price"]), sent["$availability"]) == (text, 90)


def test_the_place_in_a_batch_of_one_is_not_said(stub: Stub) -> None:
    problem = {"title": "Invalid event", "detail": "no", "index": 0}
    stub.answers["POST", "/v1/topics/stocks/events"] = (422, problem)
    assert "counted from 0" not in edn(stub, "publish", "stocks", "price=1").stderr
    assert "event 0 (counted from 0)" in edn(stub, "publish", "stocks", '[{"price": 1}]').stderr


@pytest.mark.parametrize("attributes", [["price"], [":number"], ["price:"], ["a:number", "a:string"]])
def test_topic_create_refuses_what_is_no_attribute(stub: Stub, attributes: list[str]) -> None:
    result = edn(stub, "topic", "create", "stocks", *attributes)
    assert result.exit_code == 2
    assert "attribute" in result.stderr
    assert stub.requests == []


@pytest.mark.parametrize(
    ("flags", "closed"), [([], {}), (["--closed"], {"closed": True}), (["--open"], {"closed": False})]
)
def test_topic_create_sends_paths_arrays_and_whether_it_is_closed(
    stub: Stub, flags: list[str], closed: dict[str, bool]
) -> None:
    attributes = {"a.b": "string", "tags": ["string"], "marks": ["number"]}
    stub.answers["PUT", "/v1/topics/docs"] = 201, {"name": "docs", "attributes": attributes, **closed}
    result = edn(stub, "topic", "create", "docs", "a.b:string", "tags:string[]", "marks:[number]", *flags)
    assert result.exit_code == 0, result.output
    assert "a.b:string tags:string[] marks:number[]" in result.output
    assert stub.requests == [("PUT", "/v1/topics/docs", {"attributes": attributes, **closed})]


def test_publish_takes_arrays_and_undeclared_objects_as_json(stub: Stub) -> None:
    stub.answers["GET", "/v1/topics/docs"] = 200, {"name": "docs", "attributes": {"tags": ["string"]}}
    stub.answers["POST", "/v1/topics/docs/events"] = 202, {"accepted": 1, "ids": ["a"]}
    result = edn(stub, "publish", "docs", 'tags=["a", "b"]', 'more={"x": [1]}', "note=text")
    assert result.exit_code == 0, result.output
    assert stub.requests[-1][2] == {"tags": ["a", "b"], "more": {"x": [1]}, "note": "text"}
    refused = edn(stub, "publish", "docs", "tags=a")
    assert (refused.exit_code, "invalid value of" in refused.output) == (2, True)


def test_topics_are_listed_shown_and_deleted(stub: Stub) -> None:
    stub.answers["GET", "/v1/topics"] = (200, {"topics": [TOPIC]})
    stub.answers["DELETE", "/v1/topics/stocks"] = (204, None)
    assert "price:number" in edn(stub, "topic", "list").stdout
    assert json.loads(edn(stub, "topic", "list", "--json").stdout)[0]["name"] == "stocks"
    assert "  volume: integer" in edn(stub, "topic", "show", "stocks").stdout
    assert edn(stub, "topic", "delete", "stocks", "--cascade").exit_code == 0
    assert stub.requests[-1] == ("DELETE", "/v1/topics/stocks?cascade=true", None)


@pytest.mark.parametrize(
    ("given", "sent"),
    [("price > 30", "price > 30"), (' {"price": {"gt": 30}}', {"price": {"gt": 30}})],
)
def test_subscribe_takes_a_filter_as_text_or_json_and_prints_the_id(
    stub: Stub, given: str, sent: Any
) -> None:
    stub.answers["POST", "/v1/subscriptions"] = (201, SUBSCRIPTION)
    result = edn(stub, "subscribe", "stocks", given, "--to", "http://s/", "--id", "sub1", "--expires", "PT1H")
    assert (result.exit_code, result.stdout) == (0, "sub1\n")
    body = stub.requests[0][2]
    assert body["filter"] == sent
    assert (body["sink"], body["id"], body["expires"]) == ({"url": "http://s/"}, "sub1", "PT1H")


def test_a_filter_that_begins_like_json_must_be_json(stub: Stub) -> None:
    result = edn(stub, "subscribe", "stocks", "{price: 3}", "--to", "http://s/")
    assert result.exit_code == 2
    assert "invalid filter: not JSON" in result.stderr


def test_a_list_in_a_filter_is_shown_in_tables(stub: Stub) -> None:
    chosen = {**SUBSCRIPTION, "filter": {"open": {"in": [True, False]}}}
    stub.answers["GET", "/v1/subscriptions"] = (200, {"subscriptions": [chosen], "next": None})
    assert "open in (true, false)" in edn(stub, "subscriptions").stdout


def test_a_repeated_key_in_a_filter_is_refused(stub: Stub) -> None:
    twice = '{"price": {"gt": 1}, "price": {"lt": 2}}'
    result = edn(stub, "subscribe", "stocks", twice, "--to", "http://127.0.0.1:9/")
    assert result.exit_code == 2
    assert 'invalid filter: the key "price" is repeated' in result.stderr
    assert stub.requests == []


def test_subscriptions_are_a_table_or_json_lines(stub: Stub) -> None:
    stub.answers["GET", "/v1/subscriptions"] = (200, {"subscriptions": [SUBSCRIPTION], "next": None})
    shown = edn(stub, "subscriptions", "--owner", "me").stdout
    assert "sub1" in shown
    assert "price > 30" in shown, "the filter as people write it"
    assert stub.requests[0][1] == "/v1/subscriptions?owner=me"
    (line,) = edn(stub, "subscriptions", "--json").stdout.splitlines()
    settings = ("headers", "credentials", "timeout", "retry", "rate", "ordered")
    sink = {**dict.fromkeys(["format", "consent", "secret", *settings]), **SUBSCRIPTION["sink"]}
    sequence = ("sequence", "by", "within", "settle", "sequence_state")
    names = ("delivery", "location", "topics", "left_out", "warning", "advertised", *sequence)
    absent = dict.fromkeys(names)
    assert json.loads(line) == {**SUBSCRIPTION, "sink": sink, **absent}


ADVERTISEMENT = {
    "id": "a1",
    "topic": "stocks",
    "publisher": "me",
    "advertisement": {"symbol": ["GE"]},
    "expires": None,
    "created": "2026-01-01T00:00:00Z",
    "wanted": True,
    "subscriptions": 3,
}


def test_dead_subscriptions_are_listed(stub: Stub) -> None:
    stub.answers["GET", "/v1/subscriptions"] = (200, {"subscriptions": [], "next": None})
    result = edn(stub, "subscriptions", "--dead")
    assert stub.requests[0][1] == "/v1/subscriptions?dead=true"
    assert "there are no dead subscriptions" in result.stderr


def test_advertise_list_show_change_and_unadvertise(stub: Stub) -> None:
    stub.answers["POST", "/v1/advertisements"] = (201, ADVERTISEMENT)
    made = edn(stub, "advertise", "stocks", '{"symbol": ["GE"]}', "--id", "a1", "--expires", "1h")
    assert made.stdout.strip() == "a1"
    assert stub.requests[0][2] == {
        "topic": "stocks",
        "advertisement": {"symbol": ["GE"]},
        "id": "a1",
        "expires": "1h",
    }
    stub.answers["GET", "/v1/advertisements"] = (200, {"advertisements": [ADVERTISEMENT], "next": None})
    shown = edn(stub, "advertisements", "--topic", "stocks").stdout
    assert "a1" in shown
    assert "yes" in shown
    (line,) = edn(stub, "advertisements", "--json").stdout.splitlines()
    assert json.loads(line) == ADVERTISEMENT
    stub.answers["GET", "/v1/advertisements/a1"] = (200, ADVERTISEMENT)
    assert "subscriptions  3" in edn(stub, "advertisement", "show", "a1").stdout
    uncounted = {name: value for name, value in ADVERTISEMENT.items() if name != "subscriptions"}
    stub.answers["PUT", "/v1/advertisements/a1"] = (200, uncounted)
    changed = edn(stub, "advertisement", "change", "a1", '{"symbol": "any"}')
    assert changed.exit_code == 0
    assert "None" not in changed.stdout
    stub.answers["DELETE", "/v1/advertisements/a1"] = (204, None)
    assert edn(stub, "unadvertise", "a1").stdout.strip() == "unadvertised a1"
    stub.answers["DELETE", "/v1/advertisements"] = (200, {"ids": ["a1", "a2"]})
    ended = edn(stub, "unadvertise", "--topic", "stocks", "--covered-by", '{"$others": "any"}').stdout
    assert ended.splitlines() == ["unadvertised a1", "unadvertised a2"]
    stub.answers["DELETE", "/v1/advertisements"] = (200, {"ids": []})
    ended = edn(stub, "unadvertise", "--topic", "stocks", "--covered-by", '{"symbol": ["X"]}').stdout
    assert ended.strip() == "it covers no advertisement of the publisher"


@pytest.mark.parametrize(
    ("advertising", "by", "said"),
    [
        ("off", None, None),
        ("off", [], "no advertisement covers it"),
        ("off", [{"id": "a1", "publisher": "me"}], "advertised by a1 of me"),
        ("deliver", [], "no advertisement covers it: the event would be dropped"),
        ("guard", None, "nothing is advertised: the event would be refused"),
        (
            "guard",
            [{"id": "a1", "publisher": "me"}, {"id": "b", "publisher": "you"}],
            "advertised by a1 of me, b of you; only the publisher's own count",
        ),
    ],
)
def test_explain_says_what_advertisements_mean_for_an_event(
    advertising: str, by: Any, said: str | None
) -> None:
    found = {"matched": 1, "false_positives": [], "servers": [], "advertising": advertising}
    lines = _event_lines({**found, "advertised_by": by})
    assert lines == ["1 matched", *([] if said is None else [said])]


def test_advertise_says_what_is_wrong_before_it_asks(stub: Stub) -> None:
    for arguments in (
        ("advertise", "stocks", "symbol == 1"),
        ("advertise", "stocks", "[1]"),
        ("unadvertise",),
        ("unadvertise", "a", "--covered-by", "{}"),
        ("unadvertise", "--topic", "stocks"),
    ):
        assert edn(stub, *arguments).exit_code == 2, arguments
    assert stub.requests == []


def test_unsubscribe_takes_many(stub: Stub) -> None:
    for id in ("a", "b"):
        stub.answers["DELETE", f"/v1/subscriptions/{id}"] = (204, None)
    assert edn(stub, "unsubscribe", "a", "b").exit_code == 0
    assert [path for _, path, _ in stub.requests] == ["/v1/subscriptions/a", "/v1/subscriptions/b"]


def test_publish_reads_values_by_the_topics_types(stub: Stub) -> None:
    stub.accept_events()
    result = edn(
        stub, "publish", "stocks", "symbol=007", "price=32.5", "volume=10", "halted=false", "$id=x=y"
    )
    assert (result.exit_code, result.stdout) == (0, "e0\n"), result.stderr
    assert stub.requests[-1][2] == {
        "symbol": "007",
        "price": 32.5,
        "volume": 10,
        "halted": False,
        "$id": "x=y",
    }


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("price=dear", 'attribute "price" must be a number, got "dear"'),
        ("volume=1.5", 'attribute "volume" must be an integer, got "1.5"'),
        ("halted=yes", 'attribute "halted" must be true or false, got "yes"'),
        ("price", "NAME=VALUE"),
    ],
)
def test_publish_refuses_a_value_of_another_type(stub: Stub, pair: str, said: str) -> None:
    result = edn(stub, "publish", "stocks", pair)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize("text", ['{"symbol": "GE"}', '[{"symbol": "GE"}, {"symbol": "KO"}]'])
def test_publish_takes_json(stub: Stub, text: str) -> None:
    stub.accept_events()
    result = edn(stub, "publish", "stocks", text, "--json")
    sent = json.loads(text)
    assert json.loads(result.stdout)["accepted"] == (len(sent) if isinstance(sent, list) else 1)
    assert stub.requests[-1][2] == sent


@pytest.mark.parametrize("text", ['{"price": NaN}', '{"a": 1, "a": 2}', "{", "[1,"])
def test_publish_refuses_json_that_readers_disagree_about(stub: Stub, text: str) -> None:
    result = edn(stub, "publish", "stocks", text)
    assert result.exit_code == 2
    assert "invalid event: " in result.stderr
    assert stub.requests == []


@pytest.mark.parametrize(("text", "code", "said"), [("3", 2, "NAME=VALUE"), ("[3]", 1, "no object")])
def test_json_that_is_no_event_is_refused(stub: Stub, text: str, code: int, said: str) -> None:
    stub.answers["POST", "/v1/topics/stocks/events"] = (
        422,
        {"title": "Invalid event", "detail": "no object"},
    )
    result = edn(stub, "publish", "stocks", text)
    assert result.exit_code == code
    assert said in result.stderr


def test_publish_from_stdin_in_batches_skips_blank_lines(stub: Stub) -> None:
    stub.accept_events()
    lines = "".join(f'{{"volume": {number}}}\n\n' for number in range(7))
    result = edn(stub, "publish", "stocks", "-", "--batch", "3", stdin=lines)
    assert result.exit_code == 0, result.stderr
    assert "7 events published" in result.stderr
    assert [[event["volume"] for event in sent] for _, _, sent in stub.requests] == [
        [0, 1, 2],
        [3, 4, 5],
        [6],
    ]


def test_publish_from_a_file_names_the_line_that_is_no_event(stub: Stub, tmp_path: Path) -> None:
    stub.accept_events()
    file = tmp_path / "events.jsonl"
    file.write_text('{"volume": 1}\n\n{"volume": 2}\nnonsense\n')
    result = edn(stub, "publish", "stocks", "--file", str(file), "--batch", "2")
    assert result.exit_code == 2
    assert "line 4: not JSON" in result.stderr
    assert "2 events before it are published" in result.stderr


def test_publish_from_a_file_names_the_line_that_the_network_refuses(stub: Stub, tmp_path: Path) -> None:
    def refuse(sent: Any) -> tuple[int, Any]:
        bad = [place for place, event in enumerate(sent) if event["volume"] == 4]
        if bad:
            place = {"pointer": f"/{bad[0]}/volume"}
            return 422, {
                "title": "Invalid event",
                "detail": "no such volume",
                "index": bad[0],
                "errors": [place],
            }
        return 202, {"accepted": len(sent), "ids": ["e"] * len(sent)}

    stub.answers["POST", "/v1/topics/stocks/events"] = (202, refuse)
    file = tmp_path / "events.jsonl"
    file.write_text("\n" + "".join(f'{{"volume": {number}}}\n' for number in range(6)))
    result = edn(stub, "publish", "stocks", "--file", str(file), "--batch", "3")
    assert result.exit_code == 1
    assert "line 6: Invalid event: no such volume" in result.stderr  # a blank line, then 0, 1, 2, 3, and 4
    assert "  at /volume\n" in result.stderr
    assert "3 events before it are published" in result.stderr


def test_publish_refuses_input_that_is_not_utf8(stub: Stub) -> None:
    stub.accept_events()
    result = edn(stub, "publish", "stocks", "-", stdin=b'{"symbol": "\xff"}\n')
    assert result.exit_code == 2
    assert "not UTF-8" in result.stderr


@pytest.mark.parametrize("arguments", [[], ["-", "--file", "x"], ["--file", "/does/not/exist"]])
def test_publish_wants_exactly_one_readable_source(stub: Stub, arguments: list[str]) -> None:
    assert edn(stub, "publish", "stocks", *arguments).exit_code == 2


DISPATCHERS = {
    "dispatchers": [
        {
            "log": log,
            "name": f"d{number}",
            "url": f"http://d{number}:8080",
            "self": number == 1,
            "ready": number == 1,
            "draining": number == 3,
            "leader": number == 1,
        }
        for number, log in [(1, "a1"), (2, "b2"), (3, "c3")]
    ]
}


def test_status_shows_dispatchers_and_servers(stub: Stub) -> None:
    stub.answers["GET", "/readyz"] = (200, {"status": "ready"})
    stub.answers["GET", "/v1/dispatchers"] = (200, DISPATCHERS)
    stub.answers["GET", "/v1/servers"] = (200, SERVERS)
    stub.answers["GET", "/v1/topics"] = (200, {"topics": [TOPIC]})
    shown = edn(stub, "status").stdout
    assert "ready, 1 topic\n" in shown
    first, second = (line.split() for line in shown.splitlines()[-2:])
    assert first == ["s1", "ready", "1,200", "3", "40.0%"]
    assert second == ["s2", "away", "7", "10.0%"]
    described = json.loads(edn(stub, "status", "--json").stdout)
    assert [server["hit_ratio"] for server in described["servers"]] == [0.4, 0.1]
    told = {line.split()[0]: line.split(maxsplit=1)[1] for line in shown.splitlines() if "http://d" in line}
    assert {url: " ".join(rest.split()) for url, rest in told.items()} == {
        "http://d1:8080": "ready a1 asked, leader",
        "http://d2:8080": "offline b2",
        "http://d3:8080": "offline c3 its log is forwarded by another one",
    }
    assert described["dispatchers"] == DISPATCHERS["dispatchers"]


def test_status_of_one_dispatcher_that_knows_no_address_of_its_own_names_the_one_asked(stub: Stub) -> None:
    stub.answers["GET", "/readyz"] = (200, {"status": "ready"})
    alone = {**DISPATCHERS["dispatchers"][0], "url": None}
    stub.answers["GET", "/v1/dispatchers"] = (200, {"dispatchers": [alone]})
    stub.answers["GET", "/v1/servers"] = (200, SERVERS)
    stub.answers["GET", "/v1/topics"] = (200, {"topics": []})
    [line] = [line.split() for line in edn(stub, "status").stdout.splitlines() if " a1 " in line]
    assert line == [stub.url, "ready", "a1"]


def test_a_refusal_exits_with_1_and_says_where(stub: Stub) -> None:
    problem = {
        "title": "Invalid filter",
        "detail": "price is a number",
        "errors": [{"pointer": "/filter/price"}],
        "column": 4,
    }
    stub.answers["POST", "/v1/subscriptions"] = (422, problem)
    result = edn(stub, "subscribe", "stocks", "price > 'x'", "--to", "http://s/")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "Invalid filter: price is a number" in result.stderr
    assert "at /filter/price" in result.stderr
    assert "column 4" in result.stderr


def test_a_network_that_is_not_there_exits_with_3() -> None:
    result = edn(None, "topic", "list")
    assert result.exit_code == 3
    assert "cannot reach http://127.0.0.1:1" in result.stderr
    assert "edn up" in result.stderr


def test_an_address_that_is_none_exits_with_2() -> None:
    assert edn(None, "topic", "list", "--url", "localhost:8080").exit_code == 2


def test_version_is_printed() -> None:
    from edn import __version__

    assert edn(None, "version").stdout == f"edn {__version__}\n"
    assert json.loads(edn(None, "version", "--json").stdout) == {"version": __version__}


def test_a_notification_reads_on_one_line() -> None:
    event = NotifiedEvent(id="e1", time="2026-01-01T00:00:00Z", attributes={"symbol": "GE", "price": 32.5})
    matches = [Match(subscription="sub1", recipient="ann"), Match(subscription="sub2")]
    line = readable_notification(Notification(topic="stocks", event=event, matches=matches))
    assert line == "2026-01-01T00:00:00Z stocks: symbol=GE price=32.5  → ann, sub2"


def notification_for(subscription: str) -> dict[str, Any]:
    event = {"id": "e1", "time": "2026-01-01T00:00:00Z", "attributes": {"price": 31}}
    matches = [{"subscription": subscription, "recipient": None}]
    return {"notifications": [{"topic": "stocks", "event": event, "matches": matches}]}


def test_listen_subscribes_itself_again_when_its_subscription_has_ended_and_cancels_it_at_the_end(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "RENEW_SECONDS", 0.05)
    posting: list[threading.Thread] = []

    def subscribe(sent: Any) -> tuple[int, Any]:
        id = sent["id"]
        stub.answers["DELETE", f"/v1/subscriptions/{id}"] = (204, None)
        if any(path.endswith("/renew") for _, path, _ in stub.requests) and not posting:
            body = notification_for(id)
            posting.append(
                threading.Thread(target=httpx.post, args=(sent["sink"]["url"],), kwargs={"json": body})
            )
            posting[0].start()
        return 201, {**SUBSCRIPTION, "id": id}

    stub.answers["POST", "/v1/subscriptions"] = (201, subscribe)
    result = edn(stub, "listen", "--topic", "stocks", "--filter", "price > 30", "--count", "1", "--json")
    posting[0].join()
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["event"]["attributes"] == {"price": 31}
    first, renewed, second, *_, last = stub.requests
    assert first[2]["expires"] == "PT2M"
    assert renewed[:2] == ("POST", f"/v1/subscriptions/{first[2]['id']}/renew")
    assert second[2] == first[2]
    assert last[:2] == ("DELETE", f"/v1/subscriptions/{first[2]['id']}")
    assert "subscribing again" in result.stderr


def test_listen_wants_a_topic_for_its_filter_and_a_free_port(stub: Stub) -> None:
    assert edn(stub, "listen", "--filter", "price > 30").exit_code == 2
    port = stub.url.rpartition(":")[2]
    result = edn(stub, "listen", "--port", port)
    assert result.exit_code == 2
    assert f"cannot listen on 127.0.0.1 port {port}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topic", "stocks", "--host", "0.0.0.0"], "requires --advertise URL"),
        (["--topic", "stocks", "--advertise", "laptop"], "must begin with http"),
        (["--stream"], "requires --topic"),
        (["--id", "a", "--topic", "b"], "either --topic or --id"),
        (["--stream", "--topic", "stocks", "--forward-to", "http://x/"], "not --stream"),
    ],
)
def test_listen_refuses_what_cannot_work(stub: Stub, arguments: list[str], said: str) -> None:
    result = edn(stub, "listen", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert stub.requests == []


def test_listen_subscribes_the_url_that_is_advertised(stub: Stub) -> None:
    posting: list[threading.Thread] = []
    port = free_port()

    def subscribe(sent: Any) -> tuple[int, Any]:
        stub.answers["DELETE", f"/v1/subscriptions/{sent['id']}"] = (204, None)
        to, body = f"http://127.0.0.1:{port}/in", notification_for(sent["id"])
        posting.append(threading.Thread(target=httpx.post, args=(to,), kwargs={"json": body}))
        posting[0].start()
        return 201, {**SUBSCRIPTION, "id": sent["id"]}

    stub.answers["POST", "/v1/subscriptions"] = (201, subscribe)
    advertised = "https://laptop.example/in"
    result = edn(
        stub, "listen", "--port", str(port), "--topic", "stocks", "--advertise", advertised, "--count", "1"
    )
    posting[0].join()
    assert result.exit_code == 0, result.stderr
    assert stub.requests[0][2]["sink"] == {"url": advertised}


def test_listen_reads_a_stream_and_ends_its_subscription(stub: Stub) -> None:
    def subscribe(sent: Any) -> tuple[int, Any]:
        path = f"/v1/subscriptions/{sent['id']}"
        stub.answers["DELETE", path] = (204, None)
        entry = json.dumps(notification_for(sent["id"])["notifications"][0])
        stub.streams[f"{path}/events"] = [f"retry: 1\n\nid: p1\ndata: {entry}\n\n".encode()]
        return 201, {**SUBSCRIPTION, "id": sent["id"], "sink": None}

    stub.answers["POST", "/v1/subscriptions"] = (201, subscribe)
    result = edn(stub, "listen", "--stream", "--topic", "stocks", "--count", "1", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["position"] == "p1"
    assert "sink" not in stub.requests[0][2]
    assert stub.requests[-1][0] == "DELETE"


def test_route_lists_binds_and_unbinds(stub: Stub) -> None:
    entry = {
        "name": "stocks.nyse",
        "server": "s1",
        "everything": False,
        "rectangles": 3,
        "maximal": 6,
        "precision": 0.5,
        "bytes": 1234,
        "subscriptions": 7,
        "revision": [2, 40],
    }
    binding = {"name": "stocks.**", "servers": ["s1", "s2"], "engine": "rtree", "misplaced": 3}
    stub.answers["GET", "/v1/routes"] = (200, {"routes": [entry], "bindings": [binding]})
    assert edn(stub, "route", "list").stdout == edn(stub, "route", "ls").stdout
    listed = edn(stub, "route", "ls", "stocks.**")
    assert listed.exit_code == 0, listed.stderr
    for text in ("stocks.nyse", "50%", "1,234", "2.40", "stocks.**", "s1 s2", "rtree"):
        assert text in listed.stdout
    assert json.loads(edn(stub, "route", "ls", "--json").stdout)["bindings"][0]["name"] == "stocks.**"
    stub.answers["PUT", "/v1/routes/stocks.**"] = (201, binding)
    added = edn(stub, "route", "add", "stocks.**", "--server", "s1", "--server", "s2", "--engine", "rtree")
    assert added.exit_code == 0, added.stderr
    assert "3 subscriptions on other servers" in added.stdout
    assert stub.requests[-1][2] == {"servers": ["s1", "s2"], "engine": "rtree"}
    stub.answers["DELETE", "/v1/routes/stocks.**"] = (204, None)
    assert edn(stub, "route", "rm", "stocks.**").exit_code == 0
    assert edn(stub, "route", "rm", "bonds").exit_code != 0


def test_what_cannot_be_imported_is_said_in_one_line(stub: Stub, tmp_path: Path) -> None:
    ran = edn(stub, "import", str(tmp_path))
    assert (ran.exit_code, ran.stderr) == (2, f"edn: cannot read {tmp_path}: Is a directory\n")
    nameless = tmp_path / "nameless.jsonl"
    sink = {"url": "https://example.org/", "credentials": {"type": "bearer"}}
    nameless.write_text(json.dumps({"topic": "stocks", "sink": sink}))
    ran = edn(stub, "import", str(nameless))
    assert ran.exit_code == 2
    assert "a subscription with credentials must have an id" in ran.stderr
    assert stub.requests == []


@pytest.mark.parametrize(
    ("expires", "imported"),
    [(None, 1), ("2001-01-01T00:00:00Z", 0), ("2999-01-01T00:00:00Z", 1), ("PT1H", 1), ("soon", 1)],
)
def test_what_has_expired_is_left_out_of_an_import_and_nothing_else(
    stub: Stub, tmp_path: Path, expires: str | None, imported: int
) -> None:
    stub.answers["POST", "/v1/subscriptions"] = (201, [SUBSCRIPTION])
    file = tmp_path / "subscriptions.jsonl"
    file.write_text(json.dumps({**SUBSCRIPTION, "expires": expires}) + "\n")
    ran = edn(stub, "import", str(file), "--json")
    assert ran.exit_code == 0, ran.stderr
    assert json.loads(ran.stdout)["subscriptions"] == imported == len(stub.requests)
