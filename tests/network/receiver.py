"""The other end of webhooks: a process that takes POSTs on any path and writes each down before it answers.

Every POST is one record of a journal file: a length, then (webhook-id, path, body) as msgpack. Tests read the
journal; the process keeps nothing. A path decides the answer: below `/status/503/` the answer is 503. While
there is a file of the journal's name with the suffix `.refuse`, the answer to every POST is 503.
The file survives the death of the process, so what was acknowledged to a server is always on record.

`python -m tests.network.receiver JOURNAL` prints a readiness line like the services do.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import msgspec

from tests.network.posts import PostProtocol
from tests.network.processes import Process, until

_LENGTH = struct.Struct("<I")


class _Connection(PostProtocol):
    """A request is recorded when it is complete, then answered."""

    def __init__(self, journal: BinaryIO) -> None:
        super().__init__()
        self._journal = journal
        self._refuse = Path(f"{journal.name}.refuse")

    def posted(self, path: str, webhook_id: str, body: bytes) -> None:
        status = int(path.split("/")[2]) if path.startswith("/status/") else 204
        if self._refuse.exists():
            status = 503
        record = msgspec.msgpack.encode((webhook_id, path, body, status))
        self._journal.write(_LENGTH.pack(len(record)) + record)
        self._journal.flush()
        self.answer(status)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One POST as it arrived."""

    webhook_id: str
    path: str
    body: dict[str, Any]
    status: int

    def pairs(self) -> Iterator[tuple[str, str]]:
        """(subscription, event id) of everything in it."""
        for entry in self.body["notifications"]:
            for match in entry["matches"]:
                yield match["subscription"], entry["event"]["id"]


class Receiver:
    """Runs the process, as a context, and reads what it wrote down."""

    def __init__(self, folder: Path) -> None:
        self._journal = folder / "journal"
        self._journal.touch()
        self._refuse = folder / "journal.refuse"
        self._position = 0
        self._deliveries: list[Delivery] = []
        self.process = Process("receiver", ["tests.network.receiver", str(self._journal)], folder)

    def __enter__(self) -> Self:
        try:
            self.process.start()
            self.process.await_ready()
        except BaseException:
            self.process.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()

    @property
    def refuses(self) -> bool:
        return self._refuse.exists()

    @refuses.setter
    def refuses(self, wanted: bool) -> None:
        """Answers 503 to every POST from now on, or no longer."""
        if wanted:
            self._refuse.touch()
        else:
            self._refuse.unlink(missing_ok=True)

    def address(self, path: str) -> str:
        return f"{self.process.url}/{path.lstrip('/')}"

    def deliveries(self) -> list[Delivery]:
        """Every POST so far, in the order of arrival."""
        with self._journal.open("rb") as journal:
            journal.seek(self._position)
            data = journal.read()
        at = 0
        while at + _LENGTH.size <= len(data):
            (length,) = _LENGTH.unpack_from(data, at)
            if at + _LENGTH.size + length > len(data):
                break  # still being written
            record = msgspec.msgpack.decode(data[at + _LENGTH.size : at + _LENGTH.size + length])
            webhook_id, path, body, status = record
            self._deliveries.append(Delivery(webhook_id, path, msgspec.json.decode(body), status))
            at += _LENGTH.size + length
        self._position += at
        return self._deliveries

    def webhook_ids(self) -> dict[tuple[str, str], set[str]]:
        """(subscription, event id) → the webhook-ids under which it came; more than one is a defect."""
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        for delivery in self.deliveries():
            if delivery.status < 300:
                for pair in delivery.pairs():
                    found[pair].add(delivery.webhook_id)
        return found

    def await_quiet(self, expected: int, *, seconds: float = 120.0) -> None:
        """Waits for so many distinct (subscription, event) pairs; returns early if more came."""
        seen: set[tuple[str, str]] = set()
        read = 0

        def enough() -> bool:
            nonlocal read
            deliveries = self.deliveries()
            for delivery in deliveries[read:]:
                if delivery.status < 300:
                    seen.update(delivery.pairs())
            read = len(deliveries)
            return len(seen) >= expected

        try:
            until(f"{expected} pairs", enough, seconds=seconds, every=0.2)
        except AssertionError:
            raise AssertionError(f"{len(seen)} of {expected} pairs came within {seconds:g} s") from None


async def _serve(journal: BinaryIO) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(journal), "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"ready": True, "role": "receiver", "url": f"http://127.0.0.1:{port}"}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with Path(sys.argv[1]).open("ab") as opened:
        asyncio.run(_serve(opened))
