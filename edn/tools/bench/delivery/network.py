"""The product under test: a dispatcher and servers, started as `edn up` does, but none of them nicer."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import httpx
import psutil

from edn.tools.bench.database.replicated import Replicated
from edn.tools.bench.delivery.load import Receivers, Trail
from edn.tools.bench.delivery.peers.system import database_role
from edn.tools.bench.delivery.program import program
from edn.tools.bench.delivery.receiver import Streams
from edn.tools.bench.delivery.usage import Roles
from edn.tools.bench.delivery.workload import NAMES, TOPIC, Workload
from edn.tools.bench.network import STEP, summarised

#: seconds that servers may take to join
JOIN_SECONDS = 60.0
#: events of a phase whose trace is read
TRACED = 100
SINKS = ("webhook", "cloudevents", "soap", "sse")


class Network:
    publish_path = f"/v1/topics/{TOPIC}/events"

    def __init__(
        self, servers: int, sink: str, *, name: str = "edn", replicated: Replicated | None = None
    ) -> None:
        """`replicated`: the database of the network in place of data folders."""
        self.name = name
        self.modes: Sequence[str] = (name,)
        self._servers = servers
        self._sink = sink
        self._replicated = replicated
        self._roles: dict[str, Sequence[psutil.Process]] = {}
        self.url = ""
        #: a CloudEvent names the first match only
        self.lists_matches = sink != "cloudevents"

    def roles(self) -> Roles:
        if self._replicated is None:
            return self._roles
        return {
            **self._roles,
            "primary": database_role(self._replicated.primary),
            "standby": database_role(self._replicated.standby),
        }

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edn-bench-")))
            secret = folder / "secret"
            secret.write_text(secrets.token_urlsafe(32))
            secret.chmod(0o600)
            database = None if self._replicated is None else self._replicated.new_database()
            shared = [
                "--secret-file",
                str(secret),
                "--allow-loopback-sinks",
                "--host",
                "127.0.0.1",
                "--port",
                "0",
            ]
            if database is not None:
                keys = folder / "keys"
                keys.touch(0o600)
                keys.write_text(secrets.token_hex(32))
                shared += ["--secret-key-file", str(keys)]

            def start(module: str, name: str, *arguments: str) -> dict[str, Any]:
                place = ["--data", str(folder / name)] if database is None else ["--database", database]
                process, ready = stack.enter_context(
                    program(
                        "edn.cli.child",
                        [module, *place, *shared, *arguments],
                        log=folder / f"{name}.log",
                    )
                )
                self._roles[name] = [psutil.Process(process.pid)]
                return ready

            self.url = start("dispatcher", "dispatcher", "--open")["url"]
            for number in range(1, self._servers + 1):
                start("edn_server", f"s{number}", "--id", f"s{number}", "--dispatcher", self.url)
            self._await_servers()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _await_servers(self) -> None:
        until = time.monotonic() + JOIN_SECONDS
        with httpx.Client(base_url=self.url, timeout=60) as http:
            while time.monotonic() < until:
                states = [one["state"] for one in http.get("/v1/servers").json()["servers"]]
                if states.count("ready") == self._servers:
                    return
                time.sleep(0.05)
        raise RuntimeError(f"the servers did not join within {JOIN_SECONDS:g} s")

    async def subscribe(self, workload: Workload, receivers: Receivers) -> None:
        """Creates the topic and the subscriptions; waits until they are in the summaries."""
        path = "webhook" if self._sink == "sse" else self._sink
        urls = receivers.urls(workload.addresses, path)
        wanted = [
            {
                "topic": TOPIC,
                "id": f"n{number}",
                "filter": {
                    name: {"between": [low, high]} for name, low, high in zip(NAMES, lows, highs, strict=True)
                },
                **self._destination(urls[owner]),
            }
            for number, (lows, highs, owner) in enumerate(
                zip(workload.lo.tolist(), workload.hi.tolist(), workload.owners.tolist(), strict=True)
            )
        ]
        async with httpx.AsyncClient(base_url=self.url, timeout=300) as http:
            attributes = dict.fromkeys(NAMES, "number")
            (await http.put(f"/v1/topics/{TOPIC}", json={"attributes": attributes})).raise_for_status()
            for start in range(0, len(wanted), STEP):
                answer = await http.post("/v1/subscriptions", json=wanted[start : start + STEP])
                answer.raise_for_status()
        await asyncio.to_thread(summarised, self.url)
        if self._sink == "sse":
            paths = [f"/v1/subscriptions/n{number}/events" for number in range(len(wanted))]
            await receivers.open_streams(Streams(self.url, paths))

    async def timeline(self, trail: Trail) -> list[dict[str, float]]:
        """Returns the steps of events to their first recipient, in milliseconds since their publishing.

        They are read from the network's event trace, which holds recent events anyway.
        """
        clocks = time.time() - time.monotonic()
        found = []
        async with httpx.AsyncClient(base_url=self.url, timeout=60) as http:
            for place in range(max(0, len(trail.ids) - TRACED), len(trail.ids)):
                answer = await http.get(self.publish_path, params={"id": trail.ids[place]})
                steps = _steps(answer.raise_for_status().json())
                begin = float(trail.sent[place])
                steps = {name: (at - clocks - begin) * 1000 for name, at in steps.items()}
                steps["publish answered"] = float(trail.answered[place] - begin) * 1000
                steps["arrived"] = float(trail.arrived[place] - begin) * 1000
                found.append(steps)
        return found

    async def activate(self, mode: str) -> None:
        """Does nothing: the network runs all the time, as its servers must send heartbeats."""

    def pause(self) -> None:
        """Does nothing, for the same reason."""

    def _destination(self, url: str) -> dict[str, Any]:
        if self._sink == "sse":
            return {}
        if self._sink == "cloudevents":
            return {"sink": {"url": url, "format": "cloudevents-batch"}}
        if self._sink == "soap":
            return {"sink": {"url": "soap:?" + urlencode({"to": url, "wrap": "1"})}}
        return {"sink": {"url": url}}


def _steps(traced: dict[str, Any]) -> dict[str, float]:
    """Returns the wall-clock times of the steps of a traced event."""
    steps = {"logged by the dispatcher": _seconds(traced["accepted"])}
    for server in traced["servers"]:
        for match in server["matches"]:
            for attempt in match["attempts"]:
                steps["applied by the server"] = _seconds(server["taken"])
                steps["POST started"] = _seconds(attempt["time"])
                steps["POST answered"] = _seconds(attempt["time"]) + attempt["seconds"]
                return steps
    return steps


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
