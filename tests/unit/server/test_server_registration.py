"""A server goes on trying to register, whatever goes wrong on the way; only a refusal ends it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable

import httpx
import pytest

from edn import protocol
from edn_server.dispatchers import registration
from edn_server.dispatchers.registration import Refused, Registration

REGISTERED = protocol.encode(protocol.Registered("log", 1, 0.01))
OWN = protocol.Register("s1", "http://127.0.0.1:1", "k" * 16, 1, {}, 0)


class Dispatcher:
    """Answers a request by the next of these: bytes with a status, or an error that the client raises."""

    def __init__(self, *script: tuple[int, bytes] | Exception) -> None:
        self._script = list(script)
        self.paths: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.paths.append(request.url.path)
        step = self._script.pop(0)
        if isinstance(step, Exception):
            raise step
        return httpx.Response(step[0], content=step[1])


def _run(
    dispatcher: Dispatcher,
    on_registered: Callable[[protocol.Registered], None] = lambda _: None,
    on_silence: Callable[[], None] = lambda: None,
) -> None:
    async def follow(answer: protocol.Registered) -> None:
        on_registered(answer)

    async def run() -> None:
        transport = httpx.MockTransport(dispatcher)
        async with (
            asyncio.timeout(20),
            httpx.AsyncClient(transport=transport) as client,
        ):
            await Registration(
                client=client,
                url="http://dispatcher",
                id="s1",
                describe=lambda: OWN,
                backlog=lambda: 0,
                on_registered=follow,
                on_silence=on_silence,
            ).run()

    asyncio.run(run())


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_PAUSE", "LONGEST_PAUSE", "FAILED_PAUSE"):
        monkeypatch.setattr(registration, name, 0.001)


#: what ends a script: the run is over when the server is refused
REFUSAL = (409, b'{"detail": "taken"}')
REGISTER, BEAT = "/internal/servers", "/internal/servers/s1/heartbeat"


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        # what anyio makes of a connection that is reset while it is being made
        AttributeError("'NoneType' object has no attribute 'getpeername'"),
        RuntimeError("something else"),
    ],
)
def test_a_request_that_fails_in_any_way_is_made_again(failure: Exception) -> None:
    dispatcher = Dispatcher(failure, (200, REGISTERED), failure, (404, b""), (200, REGISTERED), REFUSAL)
    with pytest.raises(Refused, match="taken"):
        _run(dispatcher)
    if isinstance(failure, httpx.HTTPError):
        assert dispatcher.paths == [REGISTER, REGISTER, BEAT, BEAT, REGISTER, BEAT]
    else:  # what was not foreseen in a heartbeat is mended by registering anew, which the script refuses
        assert dispatcher.paths[:4] == [REGISTER, REGISTER, BEAT, REGISTER]


def test_a_full_disk_while_it_notes_the_log_does_not_end_it() -> None:
    heard: list[str] = []

    def follow(answer: protocol.Registered) -> None:
        heard.append(answer.log)
        if len(heard) < 3:
            raise sqlite3.OperationalError("database or disk is full")

    dispatcher = Dispatcher(*[(200, REGISTERED)] * 3, REFUSAL)
    with pytest.raises(Refused):
        _run(dispatcher, follow)
    assert heard == ["log"] * 3
    assert dispatcher.paths == [REGISTER, REGISTER, REGISTER, BEAT]


def test_a_dispatcher_that_does_not_answer_is_reported_each_time() -> None:
    """The server then asks the dispatchers of its settings: those that it knew may be gone for good."""
    silences: list[int] = []
    failure = httpx.ConnectError("refused")
    dispatcher = Dispatcher(failure, (201, REGISTERED), failure, (200, b""), REFUSAL)
    with pytest.raises(Refused):
        _run(dispatcher, on_silence=lambda: silences.append(len(dispatcher.paths)))
    assert silences == [1, 3]
