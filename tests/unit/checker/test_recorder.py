"""What the recorder writes is what the checker reads."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edn.tools.checker import Recorder, check_recording

ADDRESS = "http://127.0.0.1:1/here"


class Ticks:
    """A clock that moves by one second whenever it is read."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 10**9
        return self.now


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def body(event: str, *subscriptions: str, **attributes: Any) -> bytes:
    entry = {
        "topic": "t",
        "event": {"id": event, "time": "2024-01-01T00:00:00Z", "attributes": attributes},
        "matches": [{"subscription": name} for name in subscriptions],
    }
    return msgspec.json.encode({"notifications": [entry]})


def record(path: Path, *, deliver: bool) -> None:
    with Recorder(path, clock=Ticks()) as recorder:
        recorder.topic("t", {"n": "integer"})
        recorder.listening(ADDRESS)
        with recorder.operation(
            "subscribe", subscription="a", topic="t", filter={"n": {"gt": 1}}, address=ADDRESS
        ) as subscribing:
            subscribing.answered(201)
        with recorder.operation("publish", topic="t", events=[{"n": 5}], via="d") as publishing:
            publishing.answered(202, ids=["e"])
        if deliver:
            recorder.notification(ADDRESS, "w1", body("e", "a", n=5))
        recorder.quiet()


def test_a_recorded_run_holds_and_one_without_its_notification_does_not(tmp_path: Path) -> None:
    record(tmp_path / "whole", deliver=True)
    record(tmp_path / "lost", deliver=False)
    assert check_recording(tmp_path / "whole").verdict == "holds"
    assert check_recording(tmp_path / "lost").faults == {"missing": 1}


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (200, "ok"),
        (202, "ok"),
        (204, "ok"),
        (301, "unknown"),
        (400, "fail"),
        (404, "fail"),
        (408, "unknown"),
        (422, "fail"),
        (429, "fail"),
        (499, "unknown"),
        (500, "unknown"),
        (503, "unknown"),
    ],
)
def test_a_status_says_what_became_of_the_operation(tmp_path: Path, status: int, answer: str) -> None:
    with Recorder(tmp_path / "run") as recorder, recorder.operation("renew", subscription="a") as op:
        op.answered(status)
    assert [line["record"] for line in read(tmp_path / "run")] == ["header", "invoke", answer, "end"]


def test_an_operation_that_raises_is_unknown_and_the_error_goes_on(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:
        with pytest.raises(TimeoutError), recorder.operation("unsubscribe", subscription="a"):
            raise TimeoutError
        with recorder.operation("unsubscribe", subscription="b"):
            pass
    answers = [line for line in read(tmp_path / "run") if line["record"] == "unknown"]
    assert [answer["reason"] for answer in answers] == ["TimeoutError", "no answer was recorded"]


def test_a_second_answer_is_a_mistake(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder, recorder.operation("pause", subscription="a") as op:
        op.ok()
        with pytest.raises(RuntimeError):
            op.fail()


def test_a_cancelled_coroutine_leaves_an_unknown_operation(tmp_path: Path) -> None:
    async def asking(recorder: Recorder, asked: asyncio.Event) -> None:
        with recorder.operation("unsubscribe", subscription="a"):
            asked.set()
            await asyncio.Event().wait()

    async def run() -> None:
        with Recorder(tmp_path / "run") as recorder:
            asked = asyncio.Event()
            task = asyncio.create_task(asking(recorder, asked))
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    assert [line["record"] for line in read(tmp_path / "run")] == ["header", "invoke", "unknown", "end"]


def test_threads_write_whole_lines_in_the_order_of_time(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:

        def many() -> None:
            for _ in range(200):
                with recorder.operation("renew", subscription="x" * 200) as op:
                    op.ok()

        threads = [threading.Thread(target=many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    written = read(tmp_path / "run")
    times = [line["time"] for line in written]
    assert len(written) == 2 + 4 * 200 * 2
    assert times == sorted(times)
    invoked = [line["op"] for line in written if line["record"] == "invoke"]
    assert len(set(invoked)) == len(invoked)


def test_every_line_is_on_disk_when_the_call_returns(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:
        recorder.listening(ADDRESS)
        assert read(tmp_path / "run")[-1]["address"] == ADDRESS
    recorder.close()  # once more does no harm
    assert [line["record"] for line in read(tmp_path / "run")] == ["header", "listening", "end"]


def test_a_body_over_several_lines_stays_one_line(tmp_path: Path) -> None:
    pretty = msgspec.json.format(body("e", "a", s="x\ny"), indent=2)
    assert b"\n" in pretty
    with Recorder(tmp_path / "run") as recorder:
        recorder.notification(ADDRESS, "w", pretty)
    assert read(tmp_path / "run")[1]["body"] == json.loads(pretty)


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b'{"a": 1',
        b'{"a": 1}',
        b"[]",
        b"null",
        b'{"notifications": [{"topic": "t"}]}',
    ],
)
def test_a_body_that_is_no_notification_is_kept_as_it_came(tmp_path: Path, junk: bytes) -> None:
    with Recorder(tmp_path / "run") as recorder:
        recorder.notification(ADDRESS, "w", junk)
    assert check_recording(tmp_path / "run").faults == {"altered": 1}
