"""The audit log: changes, key creation and refused requests, one JSON line each in `audit.jsonl`.

A line contains the public id of the key, never its secret, and neither bodies nor queries: they may contain
secrets. Publishing and reading are not audited, but their refusals are. Refusals beyond `REFUSALS` per second
are only counted, so that an attacker cannot fill the disk. The file is rotated at `MOST_BYTES`; the last
`KEPT` files remain.

An address that sends wrong keys faster than `WRONG_KEYS` per second gets 429 instead of 401 until it slows
down. Valid keys from the same address pass: clients of a proxy share its address.
"""

from __future__ import annotations

import os
import sys
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
#: wrong keys per second from one address, on average; and in one burst
WRONG_KEYS = 100.0
WRONG_AT_ONCE = 1000.0
#: addresses whose wrong keys are counted
_ADDRESSES = 10_000
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
#: prefix of calls between the network's processes
_INTERNAL = "/internal/"


class Audit:
    """Appends to the audit log of a data folder, or to standard error without one; event loop only."""

    def __init__(self, folder: Path | None, clock: Callable[[], float] = clock.now) -> None:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self._path = None if folder is None else folder / FILE
        self._clock = clock
        self._file: IO[bytes] = self._open()
        self._second = 0
        self._refused = 0
        self._suppressed = 0
        #: client address → bucket
        self._wrong_keys: dict[str, Bucket] = {}

    def close(self) -> None:
        self._file.close()

    @staticmethod
    def is_audited(scope: Scope) -> bool:
        return scope.get("method") not in _READING and not scope["path"].startswith(_INTERNAL)

    def record_response(self, scope: Scope, who: Caller, send: Send) -> Send:
        """Wraps `send` so that the status of the response is recorded."""

        async def send_and_record(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.record_call(scope, who, message["status"])
            await send(message)

        return send_and_record

    def record_call(self, scope: Scope, who: Caller, status: int) -> None:
        self._write("called", scope, key=who.key, name=who.name, tenant=who.tenant, status=status)

    def record_refusal(self, scope: Scope, error: EdnError) -> EdnError:
        """Records a refused request; returns the error to send."""
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
            return Overloaded("too many wrong API keys from this address", retry_after=pause)
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
            if self._path is not None and self._file.tell() > MOST_BYTES:
                self._rotate(self._path)
        except OSError as error:
            logger.error("audit_write_failed", reason=str(error))

    def _open(self) -> IO[bytes]:
        if self._path is None:
            return os.fdopen(os.dup(sys.stderr.fileno()), "ab", buffering=0)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(descriptor, "ab", buffering=0)

    def _rotate(self, path: Path) -> None:
        # The old file is closed last: if the new one cannot be opened, lines still go to the old one.
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self._clock()))
        path.rename(path.with_name(f"audit-{stamp}.jsonl"))
        for old in sorted(path.parent.glob("audit-*.jsonl"))[:-KEPT]:
            old.unlink()
        full, self._file = self._file, self._open()
        full.close()
