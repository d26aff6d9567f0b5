"""Writes a recording during a run: every line is complete and flushed before the call returns.

    with Recorder(path) as recorder:
        recorder.topic("quotes", {"symbol": "string", "price": "number"})
        recorder.listening(address)
        with recorder.operation("subscribe", subscription="s1", topic="quotes", address=address) as op:
            answer = client.post(…)
            op.answered(answer.status_code)
        …
        recorder.quiet()

Any thread or coroutine may call it. A line gets its time when it is written, so lines are in the order of
their times. An operation without an answer, also because of an exception, is unknown.
"""

from __future__ import annotations

import base64
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Self, cast

import msgspec

from edn.tools.checker.recording import records

#: 4xx answers after which a request may still take effect: it was slow, or a proxy timed out
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
        """`clock_tolerance` and `settles_after`: in seconds, see `docs/checking.md`."""
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._encoder = msgspec.json.Encoder()
        self._bodies = msgspec.json.Decoder(records.Body)
        self._file = Path(path).open("wb")  # noqa: SIM115 -- open as long as the recorder; `close` closes it
        self._write(records.Header(0, records.VERSION, wall_clock(), clock_tolerance, settles_after))

    def topic(
        self,
        name: str,
        attributes: Mapping[str, str | list[str]],
        *,
        availability: float | str = 0,
        closed: bool = False,
        advertising: str = "off",
    ) -> None:
        """Declares a topic before its first subscription or event; again when attributes were added."""
        mode = cast(Literal["off", "deliver", "guard"], advertising)
        self._write(records.Topic(0, name, dict(attributes), cast(float, availability), closed, mode))

    def listening(self, address: str) -> None:
        """Promises to record all that this address accepts from now on, before it is accepted."""
        self._write(records.Listening(0, address))

    def stopped(self, address: str) -> None:
        """Ends `listening`. A receiver that is only down has not stopped: it accepts nothing."""
        self._write(records.Stopped(0, address))

    def excused(self, address: str) -> None:
        """Declares that this address fails on purpose: its missing notifications are no violation."""
        self._write(records.Excused(0, address))

    def operation(self, kind: records.Kind, **fields: Any) -> Operation:
        """Returns a request with fields of `records.Invoke`; enter it just before sending, answer it just
        after the answer arrived."""
        given = {name: value for name, value in fields.items() if value is not None}
        return Operation(self._write, records.Invoke(0, next(self._numbers), kind, **given))

    def notification(
        self, address: str, webhook_id: str, body: bytes, *, status: int = 204, time: int | None = None
    ) -> None:
        """Records a POST; call it before answering `status`. `time` is of the recorder's own clock."""
        record = records.Notification(0, address, webhook_id, status=status)
        try:
            self._bodies.decode(body)
            # A line break in JSON is white space, never part of a value.
            record.body = cast(records.Body, msgspec.Raw(body.replace(b"\n", b" ").replace(b"\r", b" ")))
        except (msgspec.DecodeError, UnicodeDecodeError):
            record.malformed = base64.b64encode(body).decode()
        self._write(record, time)

    def quiet(self) -> None:
        """Declares that every notification of the accepted events has arrived."""
        self._write(records.Quiet(0))

    def close(self) -> None:
        """Ends the recording; without it a reader considers the recording truncated."""
        if not self._file.closed:
            self._write(records.End(0))
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, record: records.Line, at: int | None = None) -> None:
        with self._lock:
            record.time = self._clock() if at is None else at
            self._file.write(self._encoder.encode(record) + b"\n")
            self._file.flush()


class Operation:
    """One request between its sending and its answer."""

    def __init__(self, write: Callable[[records.Line], None], invoke: records.Invoke) -> None:
        self._write = write
        self._invoke = invoke
        self._answered = False

    def __enter__(self) -> Self:
        self._write(self._invoke)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._answered:
            self.unknown(reason="no answer was recorded" if kind is None else kind.__name__)

    def ok(self, **fields: Any) -> None:
        """Records success, with fields of `records.Ok`, such as the `ids` of the answer."""
        self._answer(records.Ok(0, self._invoke.op, **fields))

    def fail(self, *, status: int | None = None, reason: str | None = None) -> None:
        """Records a refusal: the operation has no effect, now or later."""
        self._answer(records.Fail(0, self._invoke.op, status, reason))

    def unknown(self, *, status: int | None = None, reason: str | None = None) -> None:
        """Records an unknown outcome: the operation may take effect, also later."""
        self._answer(records.Unknown(0, self._invoke.op, status, reason))

    def answered(self, status: int, **fields: Any) -> None:
        """Records an HTTP status: 2xx is ok (with `fields`), 4xx is fail, all others are unknown."""
        if 200 <= status < 300:
            self.ok(**fields)
        elif 400 <= status < 500 and status not in _UNSURE_4XX:
            self.fail(status=status)
        else:
            self.unknown(status=status)

    def _answer(self, answer: records.Ok | records.Fail | records.Unknown) -> None:
        if self._answered:
            raise RuntimeError(f"operation {self._invoke.op} has an answer already")
        self._answered = True
        self._write(answer)
