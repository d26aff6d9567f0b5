"""Registers this server with a dispatcher and sends heartbeats.

The dispatcher chooses the interval of heartbeats, and its answers name all dispatchers of the network. The
answer 404 to a heartbeat means that the dispatcher has restarted: the server registers again. Every failure
is logged and retried, because a server that stops trying stays offline. Only a refusal (409: another server
has this id) ends the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field

import msgspec
import psutil
import structlog

from edn import protocol
from edn.errors import CorruptMessage
from edn.http.control_client import (
    CallFailed,
    ControlAnswer,
    ControlClient,
    failure_reason,
    problem_detail,
)
from edn.runtime import clock
from edn.runtime.ownership import owned

logger = structlog.get_logger()

#: seconds per call
TIMEOUT = 10.0
#: seconds between attempts: the first, the longest, and after an unexpected failure
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
FAILED_PAUSE = 1.0


class Refused(Exception):
    """The dispatcher refuses this server; a retry would not help."""


@owned("loop")
@dataclass(slots=True)
class Registration:
    _: KW_ONLY
    #: sends the network secret
    client: ControlClient
    #: URL of the dispatcher
    url: str
    id: str
    describe: Callable[[], protocol.Register]
    backlog: Callable[[], int]
    notified: Callable[[], int] = lambda: 0
    on_registered: Callable[[protocol.Registered], Awaitable[None]]
    #: called with the URLs of all dispatchers, if there are several
    on_dispatchers: Callable[[list[str]], None] = lambda _: None
    #: called when the dispatcher does not answer
    on_silence: Callable[[], None] = lambda: None
    _process: psutil.Process = field(default_factory=psutil.Process, init=False)
    registered: bool = field(default=False, init=False)
    #: whether the last call had no answer
    is_silent: bool = field(default=False, init=False)

    async def run(self) -> None:
        while True:
            try:
                answer = await self._register()
                await self.on_registered(answer)
                self.registered = True
                self._note(answer.dispatchers)
                logger.info("registered", log=answer.log, incarnation=answer.incarnation)
                await self._beat(answer.heartbeat_seconds)
            except Refused:
                raise
            except Exception as error:
                logger.error("registration_failed", exc_info=error)
                await asyncio.sleep(FAILED_PAUSE)
            finally:
                self.registered = False

    async def _register(self) -> protocol.Registered:
        pause = FIRST_PAUSE
        while True:
            reason = ""
            try:
                response = await self._post("/internal/servers", self.describe())
                if response.status_code in (200, 201):
                    return protocol.decode(response.content, protocol.Registered)
                reason = f"{response.status_code} {problem_detail(response)}"
                if response.status_code == 409:
                    raise Refused(problem_detail(response))
            except (CallFailed, CorruptMessage) as error:
                reason = failure_reason(error)
            logger.warning("dispatcher_unavailable", reason=reason, retry_in=pause)
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)

    async def _beat(self, seconds: float) -> None:
        """Sends heartbeats until the dispatcher no longer knows this server."""
        self._process.cpu_percent()
        while True:
            await asyncio.sleep(seconds)
            own = self.describe()
            beat = protocol.Heartbeat(
                key=own.key,
                epoch=own.epoch,
                backlog=self.backlog(),
                cpu=min(1.0, self._process.cpu_percent() / 100),
                notified=self.notified(),
                suspect=clock.suspect(),
            )
            try:
                response = await self._post(f"/internal/servers/{self.id}/heartbeat", beat)
            except CallFailed as error:
                logger.warning("heartbeat_failed", reason=f"{type(error).__name__}: {error}")
                continue
            if response.status_code == 404:
                return
            if response.status_code == 409:
                raise Refused(problem_detail(response))
            if response.status_code >= 300:
                logger.warning("heartbeat_rejected", status=response.status_code)
            elif response.status_code == 200:
                self._note(protocol.decode(response.content, protocol.HeartbeatAck).dispatchers)

    def _note(self, dispatchers: list[str]) -> None:
        if dispatchers:
            self.on_dispatchers(dispatchers)

    async def _post(self, path: str, message: msgspec.Struct) -> ControlAnswer:
        try:
            answer = await self.client.post(
                f"{self.url.rstrip('/')}{path}",
                content=protocol.encode(message),
                headers={"content-type": protocol.MSGPACK},
                timeout=TIMEOUT,
            )
        except CallFailed:
            self.is_silent = True
            self.on_silence()
            raise
        self.is_silent = False
        return answer
