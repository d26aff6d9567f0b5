"""Writes a recording while a run goes on: every line is whole and flushed before the call returns.

    with Recorder(path) as recorder:
        recorder.topic("quotes", {"symbol": "string", "price": "number"})
        recorder.listening(address)
        with recorder.operation("subscribe", subscription="s1", topic="quotes", address=address) as op:
            answer = client.post(…)
            op.answered(answer.status_code)
        …
        recorder.quiet()

Any thread or coroutine may call it. Times are taken while the line is written, so that lines stand in the
order of their times. An operation that is left without an answer, by an exception too, is unknown.
"""

from __future__ import annotations

import base64
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from edn.tools.checker.recording.records import VERSION, Body, Kind

#: answers of 4xx after which a request may still have been done: it was slow, or somebody between gave up
_UNSURE_4XX = frozenset({408, 499})


class Recorder:
    def __init__(
        self,
        path: Path | str,
        *,
        clock_tolerance: float = 0.5,
        settles_after: float | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        wall_clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """`clock_tolerance` and `settles_after` as `docs/checking.md` describes them, in seconds."""
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._encoder = msgspec.json.Encoder()
        self._bodies = msgspec.json.Decoder(Body)
        self._file = Path(path).open("wb")  # noqa: SIM115 -- open as long as the recorder; `close` closes it
        self._write(
            "header",
            {
                "version": VERSION,
                "wall": wall_clock(),
                "clock_tolerance": clock_tolerance,
                "settles_after": settles_after,
            },
        )

    # -- what is there ----------------------------------------------------------------------------------

    def topic(self, name: str, attributes: Mapping[str, str], *, availability: float | str = 0) -> None:
        """Before the first subscription to it or event of it; again when attributes were added."""
        self._write("topic", {"topic": name, "attributes": dict(attributes), "availability": availability})

    def listening(self, address: str) -> None:
        """From now on, all that this address accepts will be recorded, before it is accepted."""
        self._write("listening", {"address": address})

    def stopped(self, address: str) -> None:
        """The opposite of `listening`. A receiver that is merely down has not stopped: it accepts nothing."""
        self._write("stopped", {"address": address})

    def excused(self, address: str) -> None:
        """This address fails on purpose; nothing will be missed there."""
        self._write("excused", {"address": address})

    # -- what happens -----------------------------------------------------------------------------------

    def operation(
        self,
        kind: Kind,
        *,
        subscription: str | None = None,
        topic: str | None = None,
        filter: Mapping[str, Any] | str | None = None,
        address: str | None = None,
        recipient: str | None = None,
        expires: str | None = None,
        events: Sequence[Mapping[str, Any]] | None = None,
        key: str | None = None,
        via: str | None = None,
        publisher: str | None = None,
    ) -> Operation:
        """A request; enter it just before sending, answer it just after the answer came."""
        fields: dict[str, Any] = {
            "subscription": subscription,
            "topic": topic,
            "filter": filter,
            "address": address,
            "recipient": recipient,
            "expires": expires,
            "events": events,
            "key": key,
            "via": via,
            "publisher": publisher,
        }
        given = {name: value for name, value in fields.items() if value is not None}
        return Operation(self._write, next(self._numbers), {"kind": kind, **given})

    def notification(
        self,
        address: str,
        webhook_id: str,
        body: bytes,
        *,
        status: int = 204,
        time: int | None = None,
    ) -> None:
        """A POST that arrived; call it before answering `status`. `time` is of the recorder's own clock."""
        fields: dict[str, Any] = {"address": address, "webhook": webhook_id, "status": status}
        try:
            self._bodies.decode(body)
            # A line break in JSON is white space, never part of a value.
            fields["body"] = msgspec.Raw(body.replace(b"\n", b" ").replace(b"\r", b" "))
        except (msgspec.DecodeError, UnicodeDecodeError):
            fields["malformed"] = base64.b64encode(body).decode()
        self._write("notification", fields, time)

    def quiet(self) -> None:
        """The network is at rest: every notification of what was accepted so far has arrived."""
        self._write("quiet", {})

    def close(self) -> None:
        """Ends the recording; without it a reader takes the recording for cut off."""
        if not self._file.closed:
            self._write("end", {})
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, record: str, fields: Mapping[str, Any], at: int | None = None) -> None:
        with self._lock:
            line = {"record": record, "time": self._clock() if at is None else at, **fields}
            self._file.write(self._encoder.encode(line) + b"\n")
            self._file.flush()


class Operation:
    """One request between its sending and its answer."""

    def __init__(
        self, write: Callable[[str, Mapping[str, Any]], None], number: int, fields: Mapping[str, Any]
    ) -> None:
        self._write = write
        self._number = number
        self._fields = fields
        self._answered = False

    def __enter__(self) -> Self:
        self._write("invoke", {"op": self._number, **self._fields})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._answered:
            self.unknown(reason="no answer was recorded" if kind is None else kind.__name__)

    def ok(self, **fields: Any) -> None:
        """It was done. `subscription`, `filter`, `expires` or `ids` as the network answered them."""
        self._answer("ok", {name: value for name, value in fields.items() if value is not None})

    def fail(self, *, status: int | None = None, reason: str | None = None) -> None:
        """It was refused for good: it had no effect and will have none."""
        self._answer("fail", {"status": status, "reason": reason})

    def unknown(self, *, status: int | None = None, reason: str | None = None) -> None:
        """It may have been done, or may still be."""
        self._answer("unknown", {"status": status, "reason": reason})

    def answered(self, status: int, **fields: Any) -> None:
        """By an HTTP status: 2xx is ok (with `fields`), 4xx is fail, all else is unknown."""
        if 200 <= status < 300:
            self.ok(**fields)
        elif 400 <= status < 500 and status not in _UNSURE_4XX:
            self.fail(status=status)
        else:
            self.unknown(status=status)

    def _answer(self, record: str, fields: Mapping[str, Any]) -> None:
        if self._answered:
            raise RuntimeError(f"operation {self._number} is answered already")
        self._answered = True
        self._write(record, {"op": self._number, **fields})
