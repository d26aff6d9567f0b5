"""How the dispatcher learns of this server, and that it lives.

Register; then a heartbeat as often as the dispatcher asks. A heartbeat whose server it does not know (404)
means that it restarted: register again. A dispatcher that cannot be reached may come up later, so that is
only logged and tried again, and so is whatever else goes wrong (a full disk, a client that stumbles over a
connection that is reset): a server that stops to try is away for good. Only a dispatcher that refuses (409:
another server has this id) ends the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import psutil
import structlog

from edn import protocol
from edn.errors import CorruptMessage
from edn.http.control_client import CallFailed, ControlAnswer, ControlClient, problem_detail
from edn.runtime import clock
from edn.runtime.ownership import owned

logger = structlog.get_logger()

#: of one call, in seconds
TIMEOUT = 10.0
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
#: after a failure that nobody foresaw
FAILED_PAUSE = 1.0


class Refused(Exception):
    """The dispatcher does not take this server; trying again would not help."""


@owned("loop")
class Registration:
    """`run` for as long as the server lives."""

    def __init__(
        self,
        *,
        client: ControlClient,
        url: str,
        id: str,
        describe: Callable[[], protocol.Register],
        backlog: Callable[[], int],
        notified: Callable[[], int] = lambda: 0,
        on_registered: Callable[[protocol.Registered], Awaitable[None]],
    ) -> None:
        """`client` knows the secret; `url`: the dispatcher's; `on_registered` is awaited."""
        self._client = client
        self._url = url.rstrip("/")
        self._id = id
        self._describe = describe
        self._backlog = backlog
        self._notified = notified
        self._on_registered = on_registered
        self._process = psutil.Process()
        self.registered = False

    async def run(self) -> None:
        while True:
            try:
                answer = await self._register()
                await self._on_registered(answer)
                self.registered = True
                logger.info("registered", log=answer.log, incarnation=answer.incarnation)
                await self._beat(answer.heartbeat_seconds)
            except Refused:
                raise
            except Exception as error:
                logger.error("registering anew", exc_info=error)
                await asyncio.sleep(FAILED_PAUSE)
            finally:
                self.registered = False

    async def _register(self) -> protocol.Registered:
        pause = FIRST_PAUSE
        while True:
            reason = ""
            try:
                response = await self._post("/internal/servers", self._describe())
                if response.status_code in (200, 201):
                    return protocol.decode(response.content, protocol.Registered)
                reason = f"{response.status_code} {problem_detail(response)}"
                if response.status_code == 409:
                    raise Refused(problem_detail(response))
            except (CallFailed, CorruptMessage) as error:
                reason = f"{type(error).__name__}: {error}"
            logger.warning("the dispatcher does not answer", reason=reason, again_in=pause)
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)

    async def _beat(self, seconds: float) -> None:
        """Until the dispatcher has forgotten this server."""
        self._process.cpu_percent()
        while True:
            await asyncio.sleep(seconds)
            own = self._describe()
            beat = protocol.Heartbeat(
                key=own.key,
                epoch=own.epoch,
                backlog=self._backlog(),
                cpu=min(1.0, self._process.cpu_percent() / 100),
                notified=self._notified(),
                suspect=clock.suspect(),
            )
            try:
                response = await self._post(f"/internal/servers/{self._id}/heartbeat", beat)
            except CallFailed as error:
                logger.warning("a heartbeat was not heard", reason=f"{type(error).__name__}: {error}")
                continue
            if response.status_code == 404:
                return
            if response.status_code == 409:
                raise Refused(problem_detail(response))
            if response.status_code >= 300:
                logger.warning("a heartbeat was not taken", status=response.status_code)

    async def _post(self, path: str, message: msgspec.Struct) -> ControlAnswer:
        return await self._client.post(
            f"{self._url}{path}",
            content=protocol.encode(message),
            headers={"content-type": protocol.MSGPACK},
            timeout=TIMEOUT,
        )
