"""The audit: who changed what, who made keys, and who was turned away. One JSON line each, in `audit.jsonl`.

A line names the key by its public id, never by its secret part, and neither bodies nor queries are written:
they may hold secrets. Publishing and reading are not audited, refusals of them are. Refusals beyond some a
second are only counted, so that nobody fills the disk by knocking. The file is closed at `MOST_BYTES` and
kept beside its successor, as long as there are no more than `KEPT` of them.

An address that sends wrong keys faster than `WRONG_KEYS` per second is answered 429 instead of 401, until it
slows down. Right keys from the same address pass: a proxy's address is that of all its clients.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import msgspec
import structlog
from starlette.types import Message, Scope, Send

from dispatcher.auth.caller import Caller
from dispatcher.auth.quotas import Bucket
from edn.errors import EdnError, Overloaded, Unauthorized
from edn.model.coordinates import rfc3339
from edn.runtime import clock

logger = structlog.get_logger()

FILE = "audit.jsonl"
MOST_BYTES = 16 << 20
KEPT = 8
#: refusals written in one second
REFUSALS = 20
#: wrong keys per second from one address, on the average, and how many at once
WRONG_KEYS = 100.0
WRONG_AT_ONCE = 1000.0
#: addresses that are remembered for that
_ADDRESSES = 10_000
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
#: the network's own calls, among themselves
_INTERNAL = "/internal/"


class Audit:
    """Appends to the file in a data folder; event loop only."""

    def __init__(self, folder: Path, clock: Callable[[], float] = clock.now) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / FILE
        self._clock = clock
        self._file: IO[bytes] = self._open()
        self._second = 0
        self._refused = 0
        self._suppressed = 0
        #: by client address
        self._wrong_keys: dict[str, Bucket] = {}

    def close(self) -> None:
        self._file.close()

    @staticmethod
    def concerns(scope: Scope) -> bool:
        """Whether a request changes something."""
        return scope.get("method") not in _READING and not scope["path"].startswith(_INTERNAL)

    def following(self, scope: Scope, who: Caller, send: Send) -> Send:
        """Note what becomes of a request."""

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.called(scope, who, message["status"])
            await send(message)

        return noting

    def called(self, scope: Scope, who: Caller, status: int) -> None:
        """Note a call that was let in, and how it was answered."""
        self._write("called", scope, key=who.key, name=who.name, tenant=who.tenant, status=status)

    def refused(self, scope: Scope, error: EdnError) -> EdnError:
        """Note a call that was turned away; return the error to answer it with."""
        now = time.monotonic()
        if int(now) != self._second:
            if self._suppressed:
                self._write("refused", None, more=self._suppressed)
            self._second, self._refused, self._suppressed = int(now), 0, 0
        self._refused += 1
        if self._refused > REFUSALS:
            self._suppressed += 1
        else:
            self._write("refused", scope, status=error.status)
        return self._throttled(scope, now) or error if isinstance(error, Unauthorized) else error

    def _throttled(self, scope: Scope, now: float) -> Overloaded | None:
        address = (scope.get("client") or ("", 0))[0]
        bucket = self._wrong_keys.get(address)
        if bucket is None:
            if len(self._wrong_keys) >= _ADDRESSES:
                self._wrong_keys.clear()
            bucket = self._wrong_keys[address] = Bucket(WRONG_KEYS, WRONG_AT_ONCE, now, WRONG_AT_ONCE)
        pause = bucket.wait(now)
        if pause:
            return Overloaded("too many wrong keys from this address", retry_after=pause)
        bucket.spend(1)
        return None

    def _write(self, what: str, scope: Scope | None, **fields: Any) -> None:
        line: dict[str, Any] = {"time": rfc3339(int(self._clock() * 1e6)), "what": what}
        if scope is not None:
            client = scope.get("client")
            line |= {
                "from": client[0] if client else None,
                "method": scope.get("method", scope["type"]),
                "path": scope["path"][:300],
            }
        try:
            self._file.write(msgspec.json.encode(line | fields) + b"\n")
            if self._file.tell() > MOST_BYTES:
                self._turn_over()
        except OSError as error:
            logger.error("the audit cannot be written", reason=str(error))

    def _open(self) -> IO[bytes]:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(descriptor, "ab", buffering=0)

    def _turn_over(self) -> None:
        # The old one is let go last: as long as there is no other, lines go there.
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self._clock()))
        self._path.rename(self._path.with_name(f"audit-{stamp}.jsonl"))
        for old in sorted(self._path.parent.glob("audit-*.jsonl"))[:-KEPT]:
            old.unlink()
        full, self._file = self._file, self._open()
        full.close()
