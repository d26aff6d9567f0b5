"""Delivery through real processes: signatures, dead letters and webhook-ids across SIGKILL, evidence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from standardwebhooks import Webhook

from tests.integration.sink_refusals import BEARER, REFUSED, TOKEN
from tests.network import Hook, Network, until

SERVERS = 1
SERVER_OPTIONS = ["--retry-steps", "0.05", "--refused-attempts", "2", "--give-up-seconds", "600"]


@pytest.fixture(scope="module", autouse=True)
def topic(network: Network) -> None:
    attributes = {"x": "number", "s": "string", "at": "time"}
    network.http.put("/v1/topics/t", json={"attributes": attributes}).raise_for_status()


def wanted(hook: Hook, id: str, **sink: Any) -> dict[str, Any]:
    return {
        "id": id,
        "topic": "t",
        "filter": {"s": id},
        "sink": {"url": hook.url(f"/{id}"), **sink},
        "owner": id,
    }


def subscribe(network: Network, hook: Hook, id: str, **sink: Any) -> dict[str, Any]:
    answer = network.http.post("/v1/subscriptions", json=wanted(hook, id, **sink))
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def publish(network: Network, id: str, count: int = 1) -> None:
    answer = network.http.post("/v1/topics/t/events", json=[{"s": id, "x": n} for n in range(count)])
    assert answer.status_code == 202, answer.text


def get(network: Network, path: str) -> Any:
    answer = network.http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(network: Network, path: str, body: Any = None, status: int = 200) -> Any:
    answer = network.http.post(path) if body is None else network.http.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_a_secret_is_shown_once_and_verifies_what_comes_through_a_rotation(
    network: Network, hook: Hook
) -> None:
    made = subscribe(network, hook, "signed")
    old = made["sink"]["secret"]
    again = network.http.post(
        "/v1/subscriptions",
        json={
            "topic": "t",
            "filter": {"s": "signed"},
            "sink": {"url": hook.url("/signed")},
            "owner": "signed",
        },
    ).json()
    assert "secret" not in again["sink"]
    assert "secret" not in get(network, "/v1/subscriptions/signed")["sink"]
    assert old not in network.http.get("/v1/subscriptions").text
    publish(network, "signed")
    until("the first", lambda: len(hook.at("/signed")) == 1)
    rotation = post(network, "/v1/subscriptions/signed/rotate-secret", {"grace": "PT1H"})
    new = rotation["secret"]
    assert rotation["subscriptions"] == 2
    # The rotation is a record of the log: what is accepted after it is signed with both.
    publish(network, "signed")
    until("the second", lambda: len(hook.at("/signed")) == 2)
    post(network, "/v1/subscriptions/signed/rotate-secret", {"secret": new, "grace": "PT1H"})  # no second one
    (first, first_body), (second, second_body) = hook.at("/signed")
    Webhook(old).verify(first_body, first)
    Webhook(old).verify(second_body, second)
    Webhook(new).verify(second_body, second)
    matches = json.loads(second_body)["notifications"][0]["matches"]
    assert {match["subscription"] for match in matches} == {"signed", again["id"]}


def test_a_dead_letter_and_its_id_survive_a_sigkill_and_recovery_sends_it(
    network: Network, hook: Hook
) -> None:
    subscribe(network, hook, "dies")
    hook.status["/dies"] = 422
    publish(network, "dies", 3)
    until("a dead letter", lambda: get(network, "/v1/subscriptions/dies")["delivery"]["dead_letters"] == 1)
    [letter] = get(network, "/v1/dead-letters?subscription=dies")["dead_letters"]
    assert (letter["status"], letter["notifications"], letter["attempts"]) == (422, 3, 2)
    server = network.servers["s1"]
    server.kill()
    network.await_servers("away", "s1")
    assert get(network, "/v1/subscriptions/dies")["delivery"] is None
    assert network.http.get("/v1/dead-letters?subscription=dies").status_code == 503
    server.start()
    server.await_ready()
    network.await_servers("ready", "s1")
    assert get(network, "/v1/dead-letters?subscription=dies")["dead_letters"] == [letter]
    assert letter in get(network, "/v1/dead-letters")["dead_letters"]
    whole = get(network, f"/v1/dead-letters/{letter['id']}")
    assert whole["subscriptions"] == ["dies"]
    assert len(whole["body"]["notifications"]) == 3
    hook.status["/dies"] = 200
    queued = post(network, "/v1/subscriptions/dies/recover", {"since": letter["died"]})
    assert queued == {"letters": 1, "notifications": 3, "more": False}
    until("it to come", lambda: len(hook.at("/dies", 200)) == 1)
    assert {head["webhook-id"] for head, _ in hook.at("/dies")} == {letter["webhook_id"]}
    assert len({body for _, body in hook.at("/dies")}) == 1
    assert get(network, "/v1/dead-letters?subscription=dies")["dead_letters"] == []
    assert network.http.get(f"/v1/dead-letters/{letter['id']}").status_code == 404


def test_a_post_that_was_cut_off_by_sigkill_comes_again_under_its_id_with_its_body(
    network: Network, hook: Hook
) -> None:
    subscribe(network, hook, "cut")
    hook.status["/cut"] = 503
    publish(network, "cut", 2)
    until("an attempt", lambda: len(hook.at("/cut")) >= 2)
    server = network.servers["s1"]
    server.kill()
    publish(network, "cut", 2)
    hook.status["/cut"] = 200
    server.start()
    server.await_ready()

    def told() -> list[float]:
        bodies = [json.loads(body) for _, body in hook.at("/cut", 200)]
        return [entry["event"]["attributes"]["x"] for body in bodies for entry in body["notifications"]]

    until("all of it", lambda: len(told()) >= 4)
    assert told() == [0, 1, 0, 1]
    by_id: dict[str, set[bytes]] = {}
    for head, body in hook.at("/cut"):
        by_id.setdefault(head["webhook-id"], set()).add(body)
    assert all(len(bodies) == 1 for bodies in by_id.values())


def test_gone_disables_and_a_call_enables_again(network: Network, hook: Hook) -> None:
    subscribe(network, hook, "gone")
    hook.status["/gone"] = 410
    publish(network, "gone")

    def delivery() -> dict[str, Any]:
        state: dict[str, Any] = get(network, "/v1/subscriptions/gone")["delivery"]
        return state

    until("it to be disabled", lambda: delivery()["state"] == "disabled")
    publish(network, "gone")
    until("two to be given up", lambda: delivery()["failed"] == 2)
    assert (delivery()["disabled"], delivery()["matched"], len(hook.at("/gone"))) == ("gone", 2, 1)
    hook.status["/gone"] = 200
    assert post(network, "/v1/subscriptions/gone/enable")["state"] == "healthy"
    publish(network, "gone")
    until("one to be delivered", lambda: delivery()["delivered"] == 1)
    post(network, "/v1/subscriptions/gone/recover", {"since": "2020-01-01T00:00:00Z"})
    until("all to be delivered", lambda: delivery()["delivered"] == 3)


def test_an_example_is_marked_and_counted_nowhere_and_attempts_tell_what_was_said(
    network: Network, hook: Hook
) -> None:
    subscribe(network, hook, "shown")
    attempt = post(network, "/v1/subscriptions/shown/example")
    assert (attempt["status"], attempt["answer"], attempt["outcome"]) == (200, "the hook says 200", "example")
    [(head, body)] = hook.at("/shown")
    [entry] = json.loads(body)["notifications"]
    assert entry["example"] is True
    assert set(entry["event"]["attributes"]) == {"x", "s", "at"}
    assert entry["matches"] == [{"subscription": "shown"}]
    assert head["webhook-id"] == attempt["webhook_id"]
    [listed] = get(network, "/v1/subscriptions/shown/attempts")["attempts"]
    assert listed["request"].encode() == body
    hook.status["/shown"] = 500
    publish(network, "shown")
    until("a failure", lambda: get(network, "/v1/subscriptions/shown")["delivery"]["failures"] > 0)
    hook.status["/shown"] = 200
    until("success", lambda: get(network, "/v1/subscriptions/shown")["delivery"]["delivered"] == 1)
    attempts = get(network, "/v1/subscriptions/shown/attempts")["attempts"]
    assert [one["outcome"] for one in attempts[:2]] == ["delivered", "again"]
    assert attempts[1]["next_attempt"] > attempts[1]["time"]
    assert attempts[-1] == attempt
    counted = get(network, "/v1/subscriptions/shown")["delivery"]
    assert (counted["evaluated"], counted["matched"], counted["failed"]) == (1, 1, 0)


REFUSALS = [
    ("POST", "/v1/subscriptions/nobody/example", None, 404),
    ("GET", "/v1/subscriptions/nobody/attempts", None, 404),
    ("GET", "/v1/dead-letters?subscription=nobody", None, 404),
    ("GET", "/v1/dead-letters?after=nonsense", None, 422),
    ("GET", "/v1/dead-letters?subscription=asked&after=nonsense", None, 422),
    ("GET", "/v1/dead-letters/nonsense", None, 404),
    ("GET", "/v1/dead-letters/s1.999999999", None, 404),
    ("POST", "/v1/dead-letters/s9.1/resend", None, 404),
    ("POST", "/v1/subscriptions/asked/recover", {"since": "yesterday"}, 422),
    ("POST", "/v1/subscriptions/asked/recover", {}, 422),
    ("POST", "/v1/subscriptions/asked/rotate-secret", {"secret": "guess"}, 422),
    ("POST", "/v1/subscriptions/asked/rotate-secret", {"grace": "P0D"}, 422),
    ("POST", "/v1/subscriptions", {"topic": "t", "sink": {"url": "https://e.org", "secret": "guess"}}, 422),
    ("POST", "/v1/subscriptions", {"topic": "t", "sink": {"url": "mailto:ann@example.org"}}, 422),
]


@pytest.fixture(scope="module")
def asked(network: Network, hook: Hook) -> None:
    """What some of them are about."""
    subscribe(network, hook, "asked")


@pytest.mark.parametrize(("method", "path", "body", "status"), REFUSALS)
def test_what_is_refused_is_refused_with_a_problem(
    network: Network, asked: None, method: str, path: str, body: Any, status: int
) -> None:
    answer = network.http.request(method, path, **({} if body is None else {"json": body}))
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert "guess" not in answer.text


# -- settings of sinks -----------------------------------------------------------------------------------


class PoisonHook(Hook):
    """Answers 500 to a notification of the event 13."""

    def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        poisoned = any(one["event"]["attributes"]["x"] == 13 for one in json.loads(body)["notifications"])
        return (500, b"poison") if poisoned else (200, b"")


@pytest.mark.parametrize(("sink", "pointer", "message"), REFUSED, ids=[str(one)[:60] for one, *_ in REFUSED])
def test_wrong_settings_are_refused_with_the_place_and_the_rule(
    network: Network, hook: Hook, sink: dict[str, Any], pointer: str, message: str
) -> None:
    answer = network.http.post("/v1/subscriptions", json=wanted(hook, "refused", **sink))
    assert answer.status_code == 422, answer.text
    assert pointer in [one.get("pointer") for one in answer.json()["errors"]], answer.text
    assert message in answer.text
    assert TOKEN not in answer.text
    assert network.http.get("/v1/subscriptions/refused").status_code == 404


def test_settings_are_shown_as_they_are_and_credentials_by_their_type_only(
    network: Network, hook: Hook
) -> None:
    given = {
        "headers": {"X-Environment": "test"},
        "credentials": BEARER,
        "timeout": "5s",
        "retry": {
            "exponential": {"first": "1s", "factor": 3, "longest": "1m"},
            "give_up": "1h",
            "permanent": [404],
        },
        "rate": 100,
        "ordered": False,
    }
    made = subscribe(network, hook, "settings", **given)
    assert made["sink"].pop("secret")
    expected = {
        "url": hook.url("/settings"),
        "recipient": None,
        "headers": {"x-environment": "test"},
        "credentials": {"type": "bearer"},
        "timeout": 5.0,
        "retry": {
            "exponential": {"first": 1.0, "factor": 3.0, "longest": 60.0},
            "give_up": 3600.0,
            "permanent": [404],
        },
        "rate": 100.0,
        "ordered": False,
    }
    assert made["sink"] == expected == get(network, "/v1/subscriptions/settings")["sink"]
    # The same request again is a repeat; another token is another sink.
    again = network.http.post("/v1/subscriptions", json=wanted(hook, "settings", **given))
    assert again.status_code == 200, again.text
    other = {**given, "credentials": {"type": "bearer", "token": "another"}}
    assert network.http.post("/v1/subscriptions", json=wanted(hook, "settings", **other)).status_code == 409
    # What is shown may be sent back: the stored credentials stay.
    back = network.http.put(
        "/v1/subscriptions/settings", json={"filter": {"s": "settings"}, "sink": made["sink"]}
    )
    assert back.status_code == 200, back.text
    assert back.json()["sink"] == expected
    publish(network, "settings")
    [(headers, _)] = until("the notification", lambda: hook.at("/settings"))
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["x-environment"] == "test"


def test_kept_credentials_do_not_follow_a_subscription_to_another_url(network: Network, hook: Hook) -> None:
    subscribe(network, hook, "lured", credentials=BEARER)
    lure = {"filter": {"s": "lured"}, "sink": {"url": hook.url("/thief"), "credentials": {"type": "bearer"}}}
    for method, path in (("PUT", "/v1/subscriptions/lured"), ("POST", "/v1/subscriptions/lured/resume")):
        answer = network.http.request(method, path, json=lure if method == "PUT" else {"sink": lure["sink"]})
        assert answer.status_code == 422, answer.text
        assert "given again" in answer.text
    other = {"filter": {"s": "lured"}, "sink": {"url": hook.url("/lured"), "credentials": {"type": "basic"}}}
    assert network.http.put("/v1/subscriptions/lured", json=other).status_code == 422
    # Without credentials they are removed.
    bare = {"filter": {"s": "lured"}, "sink": {"url": hook.url("/lured")}}
    assert "credentials" not in network.http.put("/v1/subscriptions/lured", json=bare).json()["sink"]
    publish(network, "lured")
    [(headers, _)] = until("the notification", lambda: hook.at("/lured"))
    assert "authorization" not in headers


def test_a_header_that_looks_like_a_secret_is_shown_by_its_name_only(network: Network, hook: Hook) -> None:
    secrets = {"authorization": "Custom 4711", "x-api-key": "4712", "cf-access-client-secret": "4713"}
    others = {"x-author": "ann", "x-environment": "test"}
    made = subscribe(network, hook, "hidden", headers={**secrets, **others})
    shown = {**dict.fromkeys(secrets, "***"), **others}
    assert made["sink"]["headers"] == shown
    assert "471" not in network.http.get("/v1/subscriptions/hidden").text
    # What is shown may be sent back, in any case of letters, and the values stay.
    sink = {"url": hook.url("/hidden"), "headers": {**shown, "X-Environment": "other"}}
    del sink["headers"]["x-environment"]
    change = {"filter": {"s": "hidden"}, "sink": sink}
    assert network.http.put("/v1/subscriptions/hidden", json=change).status_code == 200
    publish(network, "hidden")
    [(headers, _)] = until("the notification", lambda: hook.at("/hidden"))
    assert {name: headers[name] for name in shown} == {**secrets, **others, "x-environment": "other"}
    # They follow to no other URL, and to no new subscription.
    sink["url"] = hook.url("/thief")
    for method, path, body in (
        ("PUT", "/v1/subscriptions/hidden", change),
        ("POST", "/v1/subscriptions/hidden/resume", {"sink": sink}),
        ("POST", "/v1/subscriptions", {**change, "topic": "t"}),
    ):
        answer = network.http.request(method, path, json=body)
        assert answer.status_code == 422, answer.text
        assert "must have its value, got ***" in answer.text
    network.http.delete("/v1/subscriptions/hidden").raise_for_status()


def test_a_subscription_may_begin_paused(network: Network, hook: Hook) -> None:
    body = {**wanted(hook, "asleep"), "state": "paused"}
    tree = {**wanted(hook, "asleep"), "id": "tree", "topic": "**", "state": "paused"}
    tree["sink"] = {"url": hook.url("/tree")}
    for one in (body, tree):
        answer = network.http.post("/v1/subscriptions", json=one)
        assert answer.status_code == 201, answer.text
        assert answer.json()["state"] == "paused"
        assert network.http.post("/v1/subscriptions", json=one).status_code == 200
    publish(network, "asleep", 3)
    # An active subscription beside them gets its notification, so theirs would be here, too.
    subscribe(network, hook, "awake")
    publish(network, "awake")
    until("the notification of another one", lambda: hook.at("/awake"))
    assert not hook.at("/asleep")
    assert not hook.at("/tree")
    for id in ("asleep", "tree"):
        network.http.post(f"/v1/subscriptions/{id}/resume").raise_for_status()
        found = until("the buffered notifications", lambda id=id: hook.at(f"/{id}"))
        assert len(json.loads(found[0][1])["notifications"]) == 3
    assert network.http.post("/v1/subscriptions", json={**body, "state": "asleep"}).status_code == 422
    network.http.delete("/v1/subscriptions/tree").raise_for_status()


def test_one_poison_event_delays_nobody_and_is_evidence(network: Network) -> None:
    hook = PoisonHook()
    try:
        retry = {"schedule": ["1h"], "give_up": "2h"}
        subscribe(network, hook, "poison", ordered=False, retry=retry)
        publish(network, "poison", 200)
        until("all others", lambda: len(hook.at("/poison", 200)) == 199)
        # Its attempt may be the last one to begin.
        until("the poison one", lambda: len(hook.at("/poison", 500)) == 1)
        until("its retry", lambda: get(network, "/v1/subscriptions/poison")["delivery"]["retrying"] == 1)
        delivery = get(network, "/v1/subscriptions/poison")["delivery"]
        assert delivery["dead_letters"] == 0
        attempts = get(network, "/v1/subscriptions/poison/attempts")["attempts"]
        assert len(attempts) == 50
    finally:
        hook.shutdown()
        hook.server_close()


def test_a_single_event_that_is_refused_has_no_index(network: Network) -> None:
    path = "/v1/topics/t/events"
    network.http.post(path, json={"s": "single", "x": 1, "$id": "single"}).raise_for_status()
    other = {"s": "single", "x": 2, "$id": "single"}
    for body, detail, pointer in ((other, "id ", "/$id"), ([other], "event 0: id ", "/0/$id")):
        answer = network.http.post(path, json=body)
        assert answer.status_code == 409
        assert answer.json()["detail"].startswith(detail)
        assert [one["pointer"] for one in answer.json()["errors"]] == [pointer]


@pytest.mark.parametrize(
    "url", ["http://hooks.example.org/x", "amqp://mq.example.org/?queue=q", "nats://u:p@mq.example.org/s"]
)
def test_credentials_leave_this_machine_over_tls_only(network: Network, hook: Hook, url: str) -> None:
    """Also in development, which this network is in. No event matches, so nothing is sent in any case."""
    given = {} if "@" in url else {"credentials": {"type": "basic", "user": "u", "password": "p"}}
    answer = network.http.post("/v1/subscriptions", json=wanted(hook, "plain", url=url, **given))
    assert answer.status_code == 422, answer.text
    assert "must begin with" in answer.json()["detail"]
    assert [one["pointer"] for one in answer.json()["errors"]] == ["/sink/url"]
