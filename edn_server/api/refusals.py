"""Refuses and logs internal calls without the network secret: somebody may be guessing it.

A server has no audit log. Beyond `MOST` lines per second refusals are only counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from starlette.types import Scope

from edn.errors import Unauthorized
from edn.http.asgi import check_bearer
from edn.runtime.ownership import owned

logger = structlog.get_logger()

#: log lines per second
MOST = 20


@owned("loop")
class Refusals:
    def __init__(self, secret: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._secret = secret
        self._clock = clock
        self._second = 0
        self._written = 0
        self._suppressed = 0

    def check(self, scope: Scope) -> None:
        """Raises `Unauthorized`, and logs the call, unless a request carries the network secret."""
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        try:
            check_bearer(given.decode("latin-1"), self._secret)
        except Unauthorized:
            self._log(scope)
            raise

    def _log(self, scope: Scope) -> None:
        second = int(self._clock())
        if second != self._second:
            if self._suppressed:
                logger.warning("network_calls_refused", count=self._suppressed)
            self._second, self._written, self._suppressed = second, 0, 0
        self._written += 1
        if self._written > MOST:
            self._suppressed += 1
            return
        client = scope.get("client")
        logger.warning(
            "network_call_refused",
            client=client[0] if client else None,
            method=scope["method"],
            path=scope["path"][:300],
        )
