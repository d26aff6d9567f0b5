"""The binary protocol: bytes from anywhere to every decoder of `edn.protocol`, and to a server's routes.

`decoders` reads each message. `server` posts a message to a route of a server in this process, on a real data
folder: raw bytes, or a valid message whose lengths, offsets, widths, counts and types were changed. A refusal
must leave disk and memory as they were; a message that is accepted must leave a folder that opens again.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import copy
import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import structlog
from fastapi import FastAPI
from starlette.routing import Route

from edn import protocol
from edn.errors import EdnError
from edn.formats.webhooks import KeyRing
from edn.model.schema import Schema
from edn.summary import Summary
from edn_server.api import messages
from edn_server.config import Settings
from edn_server.services import Services

#: every message of the protocol
MESSAGES: list[type[msgspec.Struct]] = sorted(
    (
        kind
        for kind in vars(protocol).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct
    ),
    key=lambda kind: kind.__name__,
)
_SECRET = "a secret of the fuzzer"
_LOG = "log-a"
_COLUMNS = [("symbol", "string"), ("price", "number")]


class WrongError(Exception):
    """Something holds that must not."""


# -- decoders ----------------------------------------------------------------------------------------------


def decoders(data: bytes) -> None:
    """The first byte chooses the message, and whether the rest is its bytes or says how to change one."""
    if not data:
        return
    body = data[1:]
    if data[0] & 128:
        valid = VALID[data[0] % 128 % len(VALID)]
        kind = type(valid)
        body = msgspec.msgpack.encode(changed(msgspec.to_builtins(valid, builtin_types=(bytes,)), body))
    else:
        kind = MESSAGES[data[0] % len(MESSAGES)]
    try:
        message = protocol.decode(body, kind)
    except EdnError as error:
        if error.status != 400:
            raise WrongError(f"refused with {error.status}") from error
        return
    written = protocol.encode(message)
    if protocol.encode(protocol.decode(written, kind)) != written:
        raise WrongError("what is written is read as something else")
    for summary in message.topics.values() if isinstance(message, protocol.SummarySnapshot) else ():
        try:
            Summary.from_bytes(summary).check()
        except EdnError as error:
            if error.status != 400:
                raise WrongError(f"refused with {error.status}") from error


# -- a server ----------------------------------------------------------------------------------------------


def _segment(first: int, count: int, ids: bool = True) -> protocol.Segment:
    bodies = [{"symbol": "GE", "price": float(number)} for number in range(count)]
    batch = Schema.from_wire(_COLUMNS).decode_events(msgspec.json.encode(bodies))
    offsets = list(range(first, first + count))
    return protocol.Segment(
        topic=1,
        offsets=protocol.int64_bytes(offsets),
        times=protocol.int64_bytes(offsets),
        stamps=protocol.int64_bytes([offset * 1_000_000 for offset in offsets]),
        points=protocol.points_bytes(batch.points),
        width=len(_COLUMNS),
        ids=[f"e{offset}" for offset in offsets] if ids else [],
        lines=batch.lines,
    )


def _control(offset: int, kind: protocol.Kind, **fields: Any) -> protocol.Control:
    return protocol.Control(offset=offset, time=offset, kind=kind, **fields)


def _item(
    id: str, version: int = 1, *, url: str = "http://127.0.0.1:9/h", **fields: Any
) -> protocol.StoreItem:
    return protocol.StoreItem(id, version, "", "owner", {"price": {"gte": 1}}, url, None, None, **fields)


_TOPIC = protocol.TopicInfo(1, "", "quotes", _COLUMNS, "scan")
_RING = KeyRing("r1", "c2VjcmV0IG9mIHRoZSBmdXp6ZXIgMQ==")
_ACTIVE = ("plain", "signed", "paused", "stream", "coming")
#: the state that every input meets
_BEFORE: list[tuple[str, msgspec.Struct]] = [
    (
        "subscriptions",
        protocol.Store(
            _LOG,
            1,
            _TOPIC,
            [
                _item("plain"),
                _item("signed", ring="r1"),
                _item("paused"),
                _item("late"),
                _item("coming", arriving=True),
                _item("stream", url="stream:"),
            ],
            [_RING],
        ),
    ),
    (
        "stream",
        protocol.Frame(
            _LOG,
            1,
            0,
            6,
            [
                _control(1, "join", incarnation=1),
                _control(2, "activate", versions=[(id, 1) for id in _ACTIVE]),
                _control(3, "activate", versions=[("late", 1)], replays=[("late", 1)]),
                _control(4, "pause", ids=["paused"]),
            ],
            [_segment(5, 2)],
        ),
    ),
]
#: a valid message for each route, in the order of `_ROUTES`
_AFTER: list[tuple[str, msgspec.Struct]] = [
    ("stream", protocol.Frame(_LOG, 1, 6, 9, [_control(7, "resume", ids=["paused"])], [_segment(8, 2)])),
    (
        "stream",
        protocol.Frame(
            _LOG,
            1,
            6,
            12,
            [
                _control(7, "change", versions=[("plain", 2)]),
                _control(8, "renew", expiries=[("signed", 99)]),
                _control(9, "deactivate", ids=["stream"], versions=[("late", 1)]),
                _control(10, "move", versions=[("coming", 2)]),
                _control(11, "rotate", rings=[_RING]),
            ],
            [_segment(12, 1, ids=False)],
        ),
    ),
    ("subscriptions", protocol.Store(_LOG, 1, _TOPIC, [_item("plain", 2), _item("new", ring="r1")], [_RING])),
    ("replay", protocol.ReplayPage(_LOG, "late", 1, 0, 3, _segment(1, 2), False)),
    ("replay", protocol.ReplayPage(_LOG, "late", 1, 0, 3, None, True)),
    (
        "explain",
        protocol.Explain(_LOG, 1, 6, protocol.points_bytes(np.array([[1.0, 2.0]])), b'{"price":2}', 5),
    ),
    ("journey", protocol.TraceQuery(_LOG, 5)),
    ("departures", protocol.Departures([("paused", 2), ("plain", 2)], ["gone"])),
    ("departures/kept", protocol.BufferedQuery("paused", 0)),
    ("arrivals", protocol.Arrivals([("coming", 1)])),
    (
        "arrivals/kept",
        protocol.BufferedPage("coming", 1, 0, 2, [protocol.BufferedEvent(1, "k1", 5, b'{"price":1}')], False),
    ),
    ("consents", protocol.Consented("a token", "120")),
]


class Server:
    """A server without a network, whose state can be put back."""

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="edn-fuzz-"))
        atexit.register(shutil.rmtree, self._root, ignore_errors=True)
        self._loop = asyncio.new_event_loop()
        self._open(self._root / "template")
        for path, message in _BEFORE:
            status, answer = self.post(path, protocol.encode(message))
            assert status == 200, answer
        self.services.close()
        self.reset()

    def _open(self, folder: Path) -> None:
        self._folder = folder
        settings = Settings(id="s1", data=folder, dispatcher=("http://127.0.0.1:1",), secret=_SECRET)
        self.services = Services(settings)
        # A server whose memory no longer follows its disk ends its process; `check_broken` tells.
        self.services._end = lambda code: setattr(self.services, "exit_code", code)  # type: ignore[method-assign]
        app = FastAPI()
        messages.mount(app, self.services)
        self._routes = {
            route.path.removeprefix("/internal/"): route.app
            for route in app.router.routes
            if isinstance(route, Route) and route.path.startswith("/internal/")
        }

    def reset(self) -> None:
        folder = self._root / "data"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self._root / "template", folder)
        self._open(folder)
        #: what it is before an input
        self.clean = self.disk(), self.memory()

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        status, parts = 0, []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            parts.append(message.get("body", b""))

        headers = [(b"authorization", b"Bearer " + _SECRET.encode())]
        scope = {"type": "http", "method": "POST", "path": f"/internal/{path}"}
        scope |= {"headers": headers, "client": ("127.0.0.1", 1)}
        self._loop.run_until_complete(self._routes[path](scope, receive, send))
        return status, b"".join(parts)

    def disk(self) -> str:
        """A digest of all that is stored."""
        with contextlib.closing(self.services._store.connect(read_only=True)) as db:
            return hashlib.sha256("\n".join(db.iterdump()).encode()).hexdigest()

    def memory(self) -> dict[str, Any]:
        """What decides about events to come."""
        registry = self.services.registry
        return {
            "numbers": {id: sorted(found) for id, found in registry.numbers.items() if found},
            "versions": {
                number: (one.id, one.version, one.topic) for number, one in registry.versions.items()
            },
            "topics": {uid: (topic.name, list(topic.columns)) for uid, topic in registry.topics.items()},
            "logs": {
                log.name: (
                    log.cursor,
                    log.joined,
                    log.incarnation,
                    {
                        number: (int(log.since[number]), int(log.until[number]), int(log.expires[number]))
                        for number in registry.versions
                    },
                )
                for log in registry.logs.values()
            },
            "paused": {id: sorted(logs) for id, logs in registry.paused.items()},
            "replaying": {number: sorted(logs) for number, logs in registry.replaying.items() if logs},
        }

    def check_broken(self) -> None:
        if self.services._store.writer.broken is not None or self.services.exit_code:
            raise WrongError("the server is broken") from self.services._store.writer.broken

    def reopen(self) -> None:
        """What was accepted must be there after a restart, and read as it was."""
        before = self.memory()
        self.services.close()
        self._open(self._folder)
        after = self.memory()
        for name, value in before.items():
            if after[name] != value:
                raise WrongError(f"{name} after a restart: {after[name]}, before it: {value}")

    def close(self) -> None:
        self.services.close()

    def end(self) -> None:
        """No reset follows."""
        with contextlib.suppress(Exception):
            self.close()
        self._loop.close()
        shutil.rmtree(self._root, ignore_errors=True)


_server: Server | None = None


def server(data: bytes) -> None:
    """The first byte chooses a message and whether the rest is its body or says how to change it."""
    global _server
    if not data:
        return
    with structlog.testing.capture_logs() as logged:
        if _server is None:
            _server = Server()
        _one(_server, data, logged)


def _one(server: Server, data: bytes, logged: list[Any]) -> None:
    global _server
    path, message = _AFTER[data[0] % 64 % len(_AFTER)]
    if data[0] & 64:
        built = msgspec.to_builtins(message, builtin_types=(bytes,))
        body = msgspec.msgpack.encode(changed(built, data[1:]))
    else:
        body = data[1:]
    disk, memory = server.clean
    try:
        status, answer = server.post(path, body)
        server.check_broken()
        allowed = {200, 400, 404, 409, 413, 422} | ({503} if path == "consents" else set())
        if status not in allowed:
            raise WrongError(f"{path}: {status} {answer[:300]!r}") from _cause(logged)
        after = server.disk(), server.memory()
        if after != (disk, memory):
            if status != 200:
                raise WrongError(f"{path} was refused with {status} and has changed something")
            server.reopen()
            server.close()
            server.reset()
    except BaseException:
        server.end()
        _server = None
        raise


def _cause(logged: list[Any]) -> BaseException | None:
    """The failure that the server logged."""
    causes = [entry["exc_info"] for entry in logged if isinstance(entry.get("exc_info"), BaseException)]
    return causes[-1] if causes else None


# -- mutation ----------------------------------------------------------------------------------------------

_VALUES: list[Any] = [
    0, 1, -1, 2, 7, 255, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 1.5,
    float("nan"), float("inf"), True, None, "", "x", "plain", "paused", "late", "coming", "acme,plain",
    "acme/plain", "acme", "a/b", "r1", "log-a", "log-b", "a" * 300, "\x00", "\ud7ff", "hold:x", "stream:",
    "activate", "join", "rotate", b"", b"\n", b"\n\n", b"x" * 7, b"x" * 8, b"x" * 16, b"\xff" * 8,
    b"\xff" * 16, b"{}\n", [], {}, [[]], [["plain", 2]], [["plain", -1]], [0, ""],
]  # fmt: skip


def changed(value: Any, data: bytes) -> Any:
    """The value with up to eight changes, four bytes each: where, how, with what."""
    for at in range(0, min(len(data), 32), 4):
        where, how, what, more = data[at : at + 4].ljust(4, b"\0")
        places = list(_places(value))
        if not places:
            return copy.deepcopy(_VALUES[what % len(_VALUES)])
        holder, key = places[(where | more << 8) % len(places)]
        _change(holder, key, how, what, more)
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of everything inside, lists and dictionaries only."""
    if isinstance(value, dict):
        keys: list[Any] = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    else:
        return
    for key in keys:
        if isinstance(value[key], tuple):
            value[key] = list(value[key])
        yield value, key
        yield from _places(value[key])


def _change(holder: Any, key: Any, how: int, what: int, more: int) -> None:
    old = holder[key]
    match how % 8:
        case 0:
            holder[key] = copy.deepcopy(_VALUES[what % len(_VALUES)])
        case 1:
            del holder[key]
        case 2 if isinstance(holder, list):
            holder.insert(key, copy.deepcopy(old))
        case 3 if isinstance(old, bytes):
            holder[key] = old[: -(what % 17) or None] + bytes([more]) * (how // 8)
        case 3 if isinstance(old, int) and not isinstance(old, bool):
            holder[key] = max(-(2**63), min(2**64 - 1, old + what - 128))
        case 4 if isinstance(old, bytes) and old:
            place = what % len(old)
            holder[key] = old[:place] + bytes([more]) + old[place + 1 :]
        case 4 if isinstance(old, str):
            holder[key] = old + chr(what)
        case 5 if isinstance(old, list) and len(old) > 1:
            old.reverse()
        case 6:
            deep: Any = old
            for _ in range(1 + what % 64):
                deep = [deep]
            holder[key] = deep
        case 7 if isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        case _:
            holder[key] = copy.deepcopy(_VALUES[(what + more) % len(_VALUES)])


def _seeds() -> list[bytes]:
    found = [bytes([place]) + protocol.encode(message) for place, (_, message) in enumerate(_AFTER)]
    found += [bytes([64 + place]) for place in range(len(_AFTER))]
    found += [bytes([64 + place, *at, 0, 9, 0]) for place in range(len(_AFTER)) for at in ([1], [3], [6])]
    return found


SERVER_SEEDS = _seeds()
#: messages to read, those of the servers to the dispatcher among them
VALID: list[msgspec.Struct] = [
    *(message for _, message in [*_BEFORE, *_AFTER]),
    protocol.SummarySnapshot(1, 2, {1: Summary.build(np.zeros((3, 2)), np.ones((3, 2))).to_bytes()}),
    protocol.Register("s1", "http://a", "k", 1, {"l": 3}, 4, [1.0, 2.0]),
    protocol.Registered("l", 1, 1.0),
    protocol.Heartbeat("k", 1, 2, 0.5),
    protocol.Subscribe(b"{}", ["s1", None]),
    protocol.FrameAck(1, 2),
    protocol.Departed(["a"], ["b"], []),
    protocol.Explained(1, [protocol.Explanation("a", True, ["price > 1"], False)]),
    protocol.EventTrace(
        5, [protocol.TracedRecipient("a", [protocol.TracedAttempt(1, "w", 200, None, 0.1, "delivered")])]
    ),
]
DECODER_SEEDS = [
    *(bytes([MESSAGES.index(type(message))]) + protocol.encode(message) for message in VALID),
    *(bytes([128 + place, *change]) for place in range(len(VALID)) for change in ([], [1, 0, 9, 0])),
]
