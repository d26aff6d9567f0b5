"""The HTTP door, registration and the process: secret, errors, readiness, settings, exit codes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from serverkit import LOG, activate, control, item, segment, topic

from edn import protocol
from edn.runtime.process import CannotStart
from edn.summary import Summary
from edn_server.app import create_app
from edn_server.config import Settings
from edn_server.dispatchers import registration
from edn_server.dispatchers.registration import Refused, Registration
from edn_server.policies import UsageLimits
from edn_server.services import Services
from edn_server.storage.database import FORMAT, SqliteStore

SECRET = "a secret of the tests"
BEARER = {"authorization": f"Bearer {SECRET}"}
EVENT = {"symbol": "GE", "price": 5}


def services_in(path: Path, **changes: Any) -> Services:
    # Nothing listens there: registration goes on trying, which is what it should do.
    settings = Settings(id="s1", data=path, dispatcher=("http://127.0.0.1:1",), secret=SECRET, **changes)
    return Services(settings)


def with_door(
    path: Path, scenario: Callable[[httpx.AsyncClient, Services], Awaitable[None]], **changes: Any
) -> None:
    """Run the scenario against the app of a server, started and stopped as its lifespan does."""

    async def main() -> None:
        services = services_in(path, **changes)
        app = create_app(services, "http://127.0.0.1:2")
        transport = httpx.ASGITransport(app)
        async with (
            asyncio.timeout(60),
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://server") as client,
        ):
            await scenario(client, services)

    asyncio.run(main())


async def send(client: httpx.AsyncClient, path: str, message: msgspec.Struct) -> httpx.Response:
    return await client.post(path, content=protocol.encode(message), headers=BEARER)


ROUTES = [
    ("POST", "/internal/clock/confirm"),
    ("POST", "/internal/stream"),
    ("POST", "/internal/subscriptions"),
    ("POST", "/internal/replay"),
    ("POST", "/internal/explain"),
    ("POST", "/internal/departures"),
    ("POST", "/internal/departures/kept"),
    ("POST", "/internal/departures/progress"),
    ("POST", "/internal/arrivals/progress"),
    ("POST", "/internal/arrivals"),
    ("POST", "/internal/consents"),
    ("POST", "/internal/secrets"),
    ("POST", "/internal/arrivals/kept"),
    ("POST", "/internal/journey"),
    ("GET", "/internal/summary"),
    ("GET", "/internal/backup"),
    ("GET", "/internal/stats"),
    ("GET", "/internal/subscriptions/{id}/delivery"),
    ("GET", "/internal/subscriptions/{id}/attempts"),
    ("GET", "/internal/subscriptions/{id}/events"),
    ("POST", "/internal/subscriptions/{id}/recover"),
    ("POST", "/internal/subscriptions/{id}/enable"),
    ("POST", "/internal/subscriptions/{id}/example"),
    ("GET", "/internal/dead-letters"),
    ("GET", "/internal/dead-letters/{number}"),
    ("POST", "/internal/dead-letters/{number}/resend"),
]


@pytest.mark.parametrize("authorization", [None, "Bearer wrong", f"Basic {SECRET}", SECRET, "Bearer é"])
def test_internal_routes_want_the_network_secret(tmp_path: Path, authorization: str | None) -> None:
    async def scenario(client: httpx.AsyncClient, _: Services) -> None:
        headers = {} if authorization is None else {"authorization": authorization.encode("latin-1")}
        for method, path in ROUTES:
            path = path.format(id="s", number=1)
            answer = await client.request(method, path, headers=headers)  # type: ignore[arg-type]  # bytes are taken
            assert answer.status_code == 401, path
            assert answer.headers["content-type"] == "application/problem+json"
            assert SECRET not in answer.text

    with_door(tmp_path, scenario)


def test_backups_that_overlap_are_whole_and_leave_nothing(tmp_path: Path) -> None:
    async def scenario(client: httpx.AsyncClient, _: Services) -> None:
        answers = await asyncio.gather(
            *(client.get("/internal/backup", headers=BEARER) for _ in range(5)), return_exceptions=True
        )
        assert [getattr(answer, "status_code", answer) for answer in answers] == [200] * 5
        for answer in answers:
            assert isinstance(answer, httpx.Response)
            assert answer.content.startswith(b"SQLite format 3")

    with_door(tmp_path, scenario)
    assert list(tmp_path.glob("backup*")) == []


def test_store_stream_summary_and_figures_over_http(tmp_path: Path) -> None:
    async def scenario(client: httpx.AsyncClient, services: Services) -> None:
        store = protocol.Store(LOG, 1, topic(), [item("s", {"price": {"lt": 10}})])
        stored = msgspec.msgpack.decode(
            (await send(client, "/internal/subscriptions", store)).content, type=protocol.Stored
        )
        assert stored == protocol.Stored(epoch=1, seq=1)
        frame = protocol.Frame(LOG, 1, 0, 2, [activate(1, ("s", 1))], [segment([(2, EVENT)])])
        ack = msgspec.msgpack.decode(
            (await send(client, "/internal/stream", frame)).content, type=protocol.FrameAck
        )
        assert (ack.cursor, ack.matched, ack.useful) == (2, 1, 1)
        gap = await send(client, "/internal/stream", protocol.Frame(LOG, 1, 7, 9, [], []))
        assert gap.status_code == 409
        assert msgspec.msgpack.decode(gap.content, type=protocol.FrameAck).cursor == 2
        answer = await client.get("/internal/summary", headers=BEARER)
        snapshot = msgspec.msgpack.decode(answer.content, type=protocol.SummarySnapshot)
        assert (snapshot.epoch, snapshot.seq, list(snapshot.topics)) == (1, 1, [1])
        assert Summary.from_bytes(snapshot.topics[1]) is not None
        figures = (await client.get("/internal/stats", headers=BEARER)).json()
        assert figures["subscriptions"] == figures["seq"] == figures["backlog"] == 1
        assert figures["cursors"] == {LOG: 2}
        assert figures["topics"] == [
            {"uid": 1, "name": "quotes", "versions": 1, "rectangles": 1, "maximal": 1}
        ]

    with_door(tmp_path, scenario)


def test_a_node_has_the_limits_of_its_settings_and_forgets_topics_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edn_server.housekeeping.COLLECT_SECONDS", 0.01)

    async def scenario(client: httpx.AsyncClient, services: Services) -> None:
        assert services.registry.limits == UsageLimits(paused=1, stream=2, dead=3)
        await services.intake.store_versions(protocol.Store(LOG, 1, topic(), [item("s")]))
        await services.intake.apply(protocol.Frame(LOG, 1, 0, 1, [activate(1, ("s", 1))], []))
        assert list(services.registry.topics) == [1]
        await services.intake.apply(protocol.Frame(LOG, 1, 1, 2, [control(2, "deactivate", ids=["s"])], []))
        while services.registry.topics:  # noqa: ASYNC110 - the door's timeout bounds it
            await asyncio.sleep(0.01)

    with_door(tmp_path, scenario, paused_bytes=1, stream_bytes=2, dead_letter_bytes=3)


def test_shrinkable_counts_from_the_last_snapshot(tmp_path: Path) -> None:
    async def scenario(client: httpx.AsyncClient, services: Services) -> None:
        await services.intake.store_versions(
            protocol.Store(LOG, 1, topic(), [item("s"), item("t", {"price": 1})])
        )
        end = control(1, "deactivate", ids=["s"])
        assert (await services.intake.apply(protocol.Frame(LOG, 1, 0, 1, [end], []))).ack.shrinkable == 1
        assert (await services.intake.apply(protocol.Frame(LOG, 1, 1, 2, [], []))).ack.shrinkable == 1
        await client.get("/internal/summary", headers=BEARER)
        assert (await services.intake.apply(protocol.Frame(LOG, 1, 2, 3, [], []))).ack.shrinkable == 0

    with_door(tmp_path, scenario)


def test_errors_are_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edn_server.app.BODY_BYTES", 1000)

    async def scenario(client: httpx.AsyncClient, _: Services) -> None:
        unbound = protocol.Store(LOG, 1, topic(), [item("s", {"nowhere": 1})])
        cases = [
            (await client.get("/nowhere"), 404),
            (await client.get("/internal/stream", headers=BEARER), 405),
            (await client.post("/livez"), 405),
            (await client.post("/internal/stream", content=b"\xc1", headers=BEARER), 400),
            (await client.post("/internal/stream", content=b"", headers=BEARER), 400),
            (await send(client, "/internal/subscriptions", unbound), 422),
            (await client.post("/internal/stream", content=b"x" * 2000, headers=BEARER), 413),
            (await client.get("/readyz"), 503),
        ]
        for answer, status in cases:
            assert answer.status_code == status
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["status"] == status

    with_door(tmp_path, scenario)


def test_the_openapi_document_names_every_route(tmp_path: Path) -> None:
    async def scenario(client: httpx.AsyncClient, _: Services) -> None:
        document = (await client.get("/openapi.json")).json()
        named = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
        of_internal = {one for one in named if not one[1].startswith("/v1/")}
        assert of_internal == {*ROUTES, ("GET", "/livez"), ("GET", "/readyz"), ("GET", "/metrics")}
        assert ("POST", "/v1/subscriptions") in named
        assert (await client.get("/livez")).json() == {"status": "alive"}

    with_door(tmp_path, scenario)


# -- registration ---------------------------------------------------------------------------------------


@dataclass
class Dispatcher:
    """Answers registrations and heartbeats from lists; a float in them is a beat's rest until the next."""

    answers: list[tuple[int, Any]]
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((request.url.path, msgspec.msgpack.decode(request.content)))
        assert request.headers["authorization"] == BEARER["authorization"]
        status, body = self.answers.pop(0)
        if isinstance(body, Exception):
            raise body
        content = protocol.encode(body) if isinstance(body, msgspec.Struct) else json.dumps(body).encode()
        return httpx.Response(status, content=content)


def register_until_refused(
    answers: list[tuple[int, Any]], monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, str]:
    """Runs a registration until it is refused; what the dispatcher was asked, and the refusal."""
    monkeypatch.setattr(registration, "FIRST_PAUSE", 0.001)
    dispatcher = Dispatcher(answers)
    followed: list[protocol.Registered] = []

    async def follow(answer: protocol.Registered) -> None:
        followed.append(answer)

    async def main() -> str:
        async with httpx.AsyncClient(transport=httpx.MockTransport(dispatcher), headers=BEARER) as client:
            one = Registration(
                client=client,
                url="http://dispatcher",
                id="s1",
                describe=lambda: protocol.Register("s1", "http://server", "key", 3, {LOG: 7}, 5),
                backlog=lambda: 11,
                on_registered=follow,
            )
            with pytest.raises(Refused) as refused:
                async with asyncio.timeout(30):
                    await one.run()
            return str(refused.value)

    reason = asyncio.run(main())
    return dispatcher.asked, reason


def test_a_server_registers_beats_and_registers_again_when_it_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registered = protocol.Registered(LOG, 1, 0.001)
    answers = [
        (0, httpx.ConnectError("not up yet")),
        (503, {"detail": "starting"}),
        (200, registered),
        (200, protocol.HeartbeatAck([])),
        (0, httpx.ReadTimeout("slow")),
        (500, {"detail": "unwell"}),
        (404, {"detail": "who?"}),
        (200, registered),
        (409, {"detail": "another server has this id"}),
    ]
    asked, reason = register_until_refused(answers, monkeypatch)
    beat, register = "/internal/servers/s1/heartbeat", "/internal/servers"
    assert [path for path, _ in asked] == [register] * 3 + [beat] * 4 + [register, beat]
    assert asked[0][1]["cursors"] == {LOG: 7}
    assert (asked[3][1]["backlog"], asked[3][1]["key"]) == (11, "key")
    assert 0 <= asked[3][1]["cpu"] <= 1
    assert reason == "another server has this id"


def test_a_refused_registration_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, reason = register_until_refused([(409, {"detail": "taken"})], monkeypatch)
    assert len(asked) == 1
    assert reason == "taken"


def test_a_log_that_the_dispatcher_has_left_keeps_nothing_alive(tmp_path: Path) -> None:
    async def scenario(_: httpx.AsyncClient, services: Services) -> None:
        await services.intake.store_versions(protocol.Store(LOG, 1, topic(), [item("s"), item("never")]))
        await services.intake.apply(protocol.Frame(LOG, 1, 0, 1, [activate(1, ("s", 1))], []))
        await services.intake.follow(protocol.Registered("log-b", 1, 1.0))
        await services.intake.apply(protocol.Frame("log-b", 1, 4, 5, [control(5, "join", incarnation=1)], []))
        assert sorted(services.registry.numbers) == ["s"]
        applied = await services.intake.apply(protocol.Frame("log-b", 1, 5, 6, [], [segment([(6, EVENT)])]))
        assert applied.ack.matched == 1
        await services.intake.apply(
            protocol.Frame("log-b", 1, 6, 7, [control(7, "deactivate", ids=["s"])], [])
        )
        assert services.registry.numbers == {}

    with_door(tmp_path, scenario)


# -- settings, folder, process --------------------------------------------------------------------------


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET.replace(" ", "-") + "\n")
    return path


def test_flags_go_before_the_environment_and_the_servers_own_before_the_networks(secret_file: Path) -> None:
    environment = {
        "EDN_SERVER_ID": "one",
        "EDN_ID": "no",
        "EDN_DISPATCHER": "http://d:1/",
        "EDN_SECRET_FILE": str(secret_file),
        "EDN_DATA": "/somewhere",
        "EDN_SERVER_PORT": "80",
        "EDN_ALLOW_LOOPBACK_SINKS": "1",
        "EDN_SERVER_LOCATION": "48.1, -11.6",
        "EDN_SERVER_DISTANCE": "2.5",
    }
    settings = Settings.load(["--port", "81"], environment)
    assert (settings.location, settings.distance) == ((48.1, -11.6), 2.5)
    assert (settings.id, settings.port, settings.dispatcher) == ("one", 81, ("http://d:1",))
    assert settings.allow_loopback_sinks
    assert settings.secret == SECRET.replace(" ", "-")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"--id": ""}, "--id is required"),
        ({"--id": "a/b"}, "--id"),
        ({"--data": ""}, "--data is required"),
        ({"--dispatcher": "nowhere"}, "--dispatcher must be an address such as http://"),
        ({"--dispatcher": "http://h:99999"}, "--dispatcher must be an address such as http://"),
        ({"--dispatcher": ","}, "--dispatcher is required (or EDN_SERVER_DISPATCHER in the environment)"),
        ({"--advertise": "ftp://h"}, "--advertise must be an address"),
        ({"--port": "65536"}, "--port must be an integer from 0 to 65535"),
        ({"--port": "-1"}, "--port must be an integer from 0 to 65535"),
        ({"--nice": "x"}, '--nice must be an integer from 0 to 19, got "x"'),
        ({"--retry-steps": "1,0"}, "--retry-steps must be numbers above 0"),
        (
            {"--uncounted-clients": "::1,10.0.0.1/8"},
            'networks such as 10.0.0.0/8, got "10.0.0.1/8"',
        ),
        ({"--webhook-origin": "a b"}, "--webhook-origin must be a name such as"),
        ({"--smtp-password-file": "/nonexistent"}, "--smtp-password-file cannot be read"),
        ({"--secret-file": "/nonexistent"}, "cannot be read"),
        ({"--location": "48.1,east"}, "such as 48.1,11.6"),
        ({"--location": "1,nan"}, "such as 48.1,11.6"),
        ({"--location": "1,2,3,4,5,6,7,8,9"}, "up to 8 numbers"),
        ({"--distance": "0"}, '--distance must be a number above 0, got "0"'),
        ({"--exchange-seconds": "often"}, "--exchange-seconds"),
    ],
)
def test_a_wrong_setting_is_named(secret_file: Path, changes: dict[str, str], message: str) -> None:
    good = {"--id": "s", "--data": "/d", "--dispatcher": "http://h:1", "--secret-file": str(secret_file)}
    arguments = [f"{name}={value}" for name, value in {**good, **changes}.items()]
    with pytest.raises(CannotStart) as caught:
        Settings.load(arguments, {})
    assert message in caught.value.detail


def test_a_folder_has_one_process_at_a_time_a_stable_key_and_counts_its_starts(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path)
    with pytest.raises(CannotStart, match="in use"):
        SqliteStore(tmp_path)
    first.close()
    second = SqliteStore(tmp_path)
    second.close()
    assert first.identity.key == second.identity.key
    assert (first.identity.epoch, second.identity.epoch) == (1, 2)


@pytest.mark.parametrize(("found", "said"), [(99, "another version"), (FORMAT - 1, "edn export")])
def test_a_folder_of_another_format_is_refused_and_left_as_it_is(
    tmp_path: Path, found: int, said: str
) -> None:
    folder = SqliteStore(tmp_path)
    db = folder.connect()
    db.execute(f"PRAGMA user_version = {found}")
    db.close()
    folder.close()
    for _ in range(2):
        with pytest.raises(CannotStart, match=f"must have format {FORMAT}, got {found}.*{said}"):
            SqliteStore(tmp_path)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "server.db").write_bytes(b"not a database, and long enough to be looked at" * 10)
    with pytest.raises(CannotStart, match="cannot be opened"):
        SqliteStore(tmp_path)


def test_the_process_says_what_keeps_it_from_starting(tmp_path: Path, secret_file: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    command = [sys.executable, "-m", "edn_server", "--id", "s", "--dispatcher", "http://127.0.0.1:1"]
    options = ["--data", str(blocked), "--secret-file", str(secret_file)]
    ended = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "data folder" in ended.stderr
