"""Two tenants that agree in everything they can choose: topic, ids, owner, key name, sink and secret.

Whatever the sink, no byte of one tenant reaches the other: not in a POST or a mail, not in what is shown of
attempts and dead letters, not in a stream; also after a move to another server and after its death.
"""

from __future__ import annotations

import contextlib
import email
import email.policy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session
from standardwebhooks import Webhook, WebhookVerificationError

from edn.client import Client
from edn.formats import webhooks
from tests.network import Hook, Network, until
from tests.network.moving import move
from tests.network.processes import free_port

SERVERS = 2
LOCKED = True
SMTP_PORT = free_port()
DISPATCHER_OPTIONS = ("--allow-mail-sinks",)
#: a delay, so that what waits for one address goes out together
SERVER_OPTIONS = (
    *("--batch-delay", "0.3"),
    *("--smtp-host", "127.0.0.1", "--smtp-port", str(SMTP_PORT), "--smtp-from", "edn@example.org"),
)
TOPIC = "orders"
TENANTS = ("acme", "evil")
HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")


@dataclass(frozen=True, slots=True)
class Message:
    """What came to a sink."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Mailbox:
    messages: list[Message] = field(default_factory=list)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        assert isinstance(envelope.content, bytes)
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        [part] = mail.iter_attachments()  # type: ignore[attr-defined]
        headers = {name.lower(): str(value) for name, value in mail.items()}
        [recipient] = envelope.rcpt_tos
        self.messages.append(Message(recipient, headers, part.get_content()))
        return "250 OK"


@pytest.fixture(scope="module")
def mailbox() -> Iterator[Mailbox]:
    box = Mailbox()
    controller = Controller(box, hostname="127.0.0.1", port=SMTP_PORT)
    controller.start()
    yield box
    controller.stop()


@dataclass(slots=True)
class Tenant:
    name: str
    http: httpx.Client
    #: the secrets that it was shown, or brought, by subscription
    secrets: dict[str, str] = field(default_factory=dict)

    def subscribe(self, id: str, sink: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
        made = self.http.post("/v1/subscriptions", json={"id": id, "topic": TOPIC, "sink": sink, **more})
        assert made.status_code == 201, made.text
        view: dict[str, Any] = made.json()
        assert view["id"] == id
        secret = (sink or {}).get("secret") or (view["sink"] or {}).get("secret")
        if secret:
            self.secrets[id] = secret
        return view

    def publish(self, text: str) -> None:
        """An event that says whose it is."""
        body = {"text": f"{self.name}-{text}"}
        assert self.http.post(f"/v1/topics/{TOPIC}/events", json=body).status_code == 202

    def get(self, path: str) -> Any:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def tenants(network: Network) -> Iterator[tuple[Tenant, Tenant]]:
    with contextlib.ExitStack() as stack, Client(network.url, key=network.secret) as operator:
        made = []
        for name in TENANTS:
            key = operator.create_key("app", ["admin"], tenant=name).key
            headers = {"authorization": f"Bearer {key}"}
            http = stack.enter_context(httpx.Client(base_url=network.url, headers=headers, timeout=30))
            made.append(Tenant(name, http))
            http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"text": "string"}}).raise_for_status()
            # On one server, where they could be taken for each other.
            bound = network.http.put(f"/v1/routes/{name}/**", json={"servers": ["s1"]})
            assert bound.status_code == 201, bound.text
        yield made[0], made[1]


def soap(url: str, wrap: int) -> str:
    return f"soap:?to={quote(url, safe='')}&soap=1.2&eventing=2011&addressing=2005&wrap={wrap}"


SECRET = webhooks.new_secret()
#: (sink, given its URL; whether what comes can be verified)
SINKS: dict[str, tuple[dict[str, Any], bool]] = {
    "http": ({"url": "{url}"}, True),
    "http-brought": ({"url": "{url}", "secret": SECRET}, False),  # both know it
    "binary": ({"url": "{url}", "format": "cloudevents-binary"}, True),
    "structured": ({"url": "{url}", "format": "cloudevents-structured"}, True),
    "batch": ({"url": "{url}", "format": "cloudevents-batch"}, True),
    "soap": ({"url": "{soap}"}, False),
    "soap-wrapped": ({"url": "{wrapped}"}, False),
    "mail": ({"url": "mailto:{name}@example.org"}, False),
    "mail-signed": ({"url": "mailto:{name}@example.org", "secret": SECRET}, False),
    "mail-odd": ({"url": "mailto:a#{name}@example.org"}, False),
}


def sink_of(name: str, hook: Hook) -> dict[str, Any]:
    sink, _ = SINKS[name]
    url = hook.url(f"/{name}")
    spelt = sink["url"].format(url=url, soap=soap(url, 0), wrapped=soap(url, 1), name=name)
    return {**sink, "url": spelt}


def came(name: str, hook: Hook, mailbox: Mailbox) -> list[Message]:
    if name.startswith("mail"):
        return [one for one in list(mailbox.messages) if f"{name}@" in one.path]
    return [Message(f"/{name}", headers, body) for headers, body in hook.at(f"/{name}")]


def whose(message: Message) -> str:
    """The tenant that a message is of; it must be of one."""
    told = message.body + json.dumps(message.headers).encode()
    found = [name for name in TENANTS if f"{name}-".encode() in told]
    assert len(found) == 1, (found, message)
    return found[0]


def check(name: str, messages: list[Message], tenants: tuple[Tenant, Tenant], text: str) -> dict[str, int]:
    """Nothing is mixed, everything of a round verifies with its own secret and no other; events by tenant."""
    events = dict.fromkeys(TENANTS, 0)
    for message in messages:
        owner = whose(message)
        told = message.body.count(f"{owner}-{text}-".encode())
        events[owner] += told
        if not told or not SINKS[name][1]:
            continue
        headers = {header: message.headers[header] for header in HEADERS}
        for tenant in tenants:
            verifier = Webhook(tenant.secrets[name])
            if tenant.name == owner:
                verifier.verify(message.body, headers)
            else:
                with pytest.raises(WebhookVerificationError):
                    verifier.verify(message.body, headers)
    return events


ROUND = 6


def publish_round(tenants: tuple[Tenant, Tenant], text: str) -> None:
    for number in range(ROUND):
        for tenant in tenants:
            tenant.publish(f"{text}-{number}")


def await_all(text: str, hook: Hook, mailbox: Mailbox, tenants: tuple[Tenant, Tenant]) -> None:
    """Until every sink was told of a round: once, unless a server has died since."""
    for name in SINKS:

        def whole(name: str = name) -> bool:
            events = check(name, came(name, hook, mailbox), tenants, text)
            return all(count >= ROUND for count in events.values())

        until(f"{name} to tell all", whole)


@pytest.fixture(scope="module")
def subscribed(tenants: tuple[Tenant, Tenant], hook: Hook, mailbox: Mailbox) -> tuple[Tenant, Tenant]:
    for tenant in tenants:
        for name in SINKS:
            tenant.subscribe(name, sink_of(name, hook), owner="app")
    return tenants


def test_no_message_is_of_two_tenants_whatever_the_sink(
    subscribed: tuple[Tenant, Tenant], hook: Hook, mailbox: Mailbox
) -> None:
    publish_round(subscribed, "first")
    await_all("first", hook, mailbox, subscribed)
    several = [m for name in SINKS for m in came(name, hook, mailbox) if m.body.count(b"-first-") > 1]
    assert several  # else nothing was packed, and nothing could have been mixed
    for tenant in subscribed:
        assert {one["server"] for one in tenant.get("/v1/subscriptions")["subscriptions"]} == {"s1"}


def test_the_rotation_of_one_tenants_secret_leaves_the_others_alone(
    subscribed: tuple[Tenant, Tenant], hook: Hook, mailbox: Mailbox
) -> None:
    _, evil = subscribed
    for name in ("http", "binary"):
        rotated = evil.http.post(f"/v1/subscriptions/{name}/rotate-secret", json={"grace": "PT0.001S"})
        assert rotated.status_code == 200, rotated.text
        assert rotated.json()["subscriptions"] == 1
        evil.secrets[name] = rotated.json()["secret"]
    publish_round(subscribed, "rotated")
    await_all("rotated", hook, mailbox, subscribed)


def test_a_sink_that_refuses_one_tenant_is_no_evidence_about_the_other(
    subscribed: tuple[Tenant, Tenant], network: Network
) -> None:
    acme, evil = subscribed
    refusing = Refusing("evil-")
    try:
        for tenant in subscribed:
            tenant.subscribe("refused", {"url": refusing.url("/refused")}, owner="app")
        publish_round(subscribed, "refused")

        def dead() -> list[dict[str, Any]]:
            letters: list[dict[str, Any]] = evil.get("/v1/dead-letters?subscription=refused")["dead_letters"]
            return letters if sum(one["notifications"] for one in letters) == ROUND else []

        letters = until("what was refused to be a dead letter", dead)
        until(
            "acme to be told",
            lambda: acme.get("/v1/subscriptions/refused")["delivery"]["delivered"] == ROUND,
        )
        assert acme.get("/v1/dead-letters?subscription=refused")["dead_letters"] == []
        mine, theirs = (one.get("/v1/subscriptions/refused")["delivery"] for one in subscribed)
        assert (mine["state"], mine["failed"], theirs["state"]) == ("healthy", 0, "disabled")
        for tenant, status in ((acme, 200), (evil, 410)):
            shown = tenant.get("/v1/subscriptions/refused/attempts")["attempts"]
            assert {one["status"] for one in shown} == {status}
            assert all(f"{tenant.name}-" in one["answer"] for one in shown)
        for letter in letters:
            whole = evil.get(f"/v1/dead-letters/{letter['id']}")
            assert whole["subscriptions"] == ["refused"]
            assert "acme" not in json.dumps(whole)
            assert acme.http.get(f"/v1/dead-letters/{letter['id']}").status_code == 404
            assert acme.http.post(f"/v1/dead-letters/{letter['id']}/resend").status_code == 404
            shown = network.http.get(f"/v1/dead-letters/{letter['id']}").json()
            assert shown["subscriptions"] == ["evil,refused"]
        # What one does to the address is done to its own.
        since = {"since": "2026-01-01T00:00:00Z"}
        assert acme.http.post("/v1/subscriptions/refused/enable").status_code == 200
        recovered = acme.http.post("/v1/subscriptions/refused/recover", json=since).json()
        assert recovered["notifications"] == 0
        assert evil.get("/v1/subscriptions/refused")["delivery"]["state"] == "disabled"
        refusing.wrong = "nobody-"
        assert evil.http.post("/v1/subscriptions/refused/enable").status_code == 200
        recovered = evil.http.post("/v1/subscriptions/refused/recover", json=since).json()
        assert recovered["notifications"] == ROUND
        until(
            "evil to be told",
            lambda: (
                evil.get("/v1/subscriptions/refused")["delivery"]["dead_letters"] == 0
                and sum(one.count(b"evil-") for one in refusing.taken) == ROUND
            ),
        )
        assert all(
            len({name for name in TENANTS if f"{name}-".encode() in body}) == 1 for body in refusing.taken
        )
    finally:
        for tenant in subscribed:
            assert tenant.http.delete("/v1/subscriptions/refused").status_code == 204
        refusing.close()


class Refusing(Hook):
    """Refuses for good what holds a text; its answers repeat what came."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self.wrong = wrong
        self.taken: list[bytes] = []

    def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        refused = self.wrong.encode() in body
        if not refused:
            self.taken.append(body)
        return 410 if refused else 200, body[:200]

    def close(self) -> None:
        self.shutdown()
        self.server_close()


def read_stream(tenant: Tenant, id: str, count: int) -> list[str]:
    """The texts of the first events of a stream."""
    found: list[str] = []
    with tenant.http.stream("GET", f"/v1/subscriptions/{id}/events") as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if line.startswith("data: ") and "attributes" in line:
                told = json.loads(line.removeprefix("data: "))
                assert [match["subscription"] for match in told["matches"]] == [id]
                found.append(told["event"]["attributes"]["text"])
            if len(found) == count:
                return found
    raise AssertionError("the stream ended")


def test_streams_and_pauses_of_one_id_are_each_tenants_own(subscribed: tuple[Tenant, Tenant]) -> None:
    acme, evil = subscribed
    for tenant in subscribed:
        tenant.subscribe("stream", None)
        tenant.subscribe("tree", None, topic="**")
    assert evil.http.post("/v1/subscriptions/stream/pause").status_code == 200
    assert acme.get("/v1/subscriptions/stream")["state"] == "active"
    publish_round(subscribed, "streamed")
    for tenant in subscribed:
        due = [f"{tenant.name}-streamed-{number}" for number in range(ROUND)]
        assert read_stream(tenant, "tree", ROUND) == due
        if tenant is acme:
            assert read_stream(tenant, "stream", ROUND) == due
    assert evil.http.post("/v1/subscriptions/stream/resume").status_code == 200
    assert read_stream(evil, "stream", ROUND) == [f"evil-streamed-{number}" for number in range(ROUND)]


def test_an_id_is_each_tenants_own_and_nobody_learns_of_anothers(
    subscribed: tuple[Tenant, Tenant], network: Network
) -> None:
    acme, evil = subscribed
    acme.subscribe("only", None)
    paths = ("", "/attempts", "/events")
    for id in ("only", "acme,only", "acme%2Conly", "acme/only"):
        for path in paths:
            assert evil.http.get(f"/v1/subscriptions/{id}{path}").status_code == 404, (id, path)
        for call in ("pause", "resume", "enable", "example", "rotate-secret"):
            assert evil.http.post(f"/v1/subscriptions/{id}/{call}").status_code == 404, (id, call)
        assert evil.http.delete(f"/v1/subscriptions/{id}").status_code == 404
        assert evil.http.get(f"/cloudevents/subscriptions/{id}").status_code == 404
    spelt = evil.http.post("/v1/subscriptions", json={"id": "acme,only", "topic": TOPIC})
    assert spelt.status_code == 422
    evil.subscribe("only", None)  # no conflict
    with Client(network.url, key=network.secret) as operator:
        weak = operator.create_key("weak", ["subscribe"]).key
        shown = {one.id for one in operator.subscriptions()}
    assert {"acme,only", "evil,only"} <= shown
    refused = httpx.get(
        f"{network.url}/v1/subscriptions/acme,only", headers={"authorization": f"Bearer {weak}"}
    )
    assert refused.status_code == 404
    seen = network.http.get("/v1/subscriptions/acme,only").json()
    assert (seen["id"], seen["topic"]) == ("acme,only", f"acme/{TOPIC}")
    assert network.http.post("/v1/subscriptions/acme,only/pause").json()["state"] == "paused"
    assert evil.get("/v1/subscriptions/only")["state"] == "active"
    for tenant in subscribed:
        assert tenant.http.delete("/v1/subscriptions/only").status_code == 204


def test_what_is_explained_and_followed_names_a_tenants_own(subscribed: tuple[Tenant, Tenant]) -> None:
    for tenant in subscribed:
        event = {"text": f"{tenant.name}-explained"}
        explained = tenant.http.post(f"/v1/topics/{TOPIC}/explain", json={"event": event}).json()
        covered = tenant.http.post(f"/v1/topics/{TOPIC}/explain", json={"filter": None}).json()
        for text in (json.dumps(explained), json.dumps(covered)):
            assert "," not in "".join(text.split(", "))  # no key anywhere
            assert not any(other in text for other in TENANTS if other != tenant.name)
        named = {one["id"] for server in explained["servers"] for one in server["subscriptions"]}
        assert {"http", "stream", "tree"} <= named
        assert {"http", "stream", "tree"} <= set(covered["covers"])


def test_nothing_is_mixed_after_a_move_and_after_the_death_of_a_server(
    subscribed: tuple[Tenant, Tenant], network: Network, hook: Hook, mailbox: Mailbox
) -> None:
    for tenant in subscribed:
        bound = network.http.put(f"/v1/routes/{tenant.name}/**", json={"servers": ["s2"]})
        assert bound.status_code == 200, bound.text
    listed = network.http.get("/v1/subscriptions?members=true&limit=1000").json()["subscriptions"]
    assert len(listed) == 2 * len(SINKS) + 4
    # Published while they move, and what a paused one has kept moves, too.
    for tenant in subscribed:
        assert tenant.http.post("/v1/subscriptions/http/pause").status_code == 200
    publish_round(subscribed, "moved")
    move(network.http, {one["id"]: "s2" for one in listed})
    for tenant in subscribed:
        assert tenant.http.post("/v1/subscriptions/http/resume").status_code == 200
    await_all("moved", hook, mailbox, subscribed)
    network.servers["s2"].kill()
    publish_round(subscribed, "dead")
    network.servers["s2"].start()
    network.servers["s2"].await_ready()
    network.await_servers("ready", "s2")
    await_all("dead", hook, mailbox, subscribed)
    for tenant in subscribed:
        for id in ("stream", "tree"):
            told = read_stream(tenant, id, 2 * ROUND)
            assert all(text.startswith(f"{tenant.name}-") for text in told)


def test_metrics_tell_the_topics_of_tenants_apart(
    subscribed: tuple[Tenant, Tenant], network: Network
) -> None:
    headers = {"authorization": f"Bearer {network.secret}"}
    shown = httpx.get(f"{network.servers['s2'].url}/metrics", headers=headers).text
    for tenant in subscribed:
        assert f'edn_server_topic_rectangles{{topic="{tenant.name}/{TOPIC}"}}' in shown
