"""The product under test: a dispatcher and servers, started as `edn up` does, but none of them nicer."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import httpx
import psutil

from edn.tools.bench.delivery.load import Receivers
from edn.tools.bench.delivery.program import program
from edn.tools.bench.delivery.receiver import Streams
from edn.tools.bench.delivery.usage import Roles
from edn.tools.bench.delivery.workload import NAMES, TOPIC, Workload
from edn.tools.bench.network import STEP, summarised

#: seconds that servers may take to join
JOIN_SECONDS = 60.0
SINKS = ("webhook", "cloudevents", "soap", "sse")


class Network:
    name = "edn"
    publish_path = f"/v1/topics/{TOPIC}/events"

    def __init__(self, servers: int, sink: str, log: Path | None = None) -> None:
        self._servers = servers
        self._sink = sink
        self._log = log
        self._roles: dict[str, Sequence[psutil.Process]] = {}
        self.url = ""

    @property
    def lists_matches(self) -> bool:
        """Whether notifications name all matches: a CloudEvent names the first only."""
        return self._sink != "cloudevents"

    def roles(self) -> Roles:
        return self._roles

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edn-bench-")))
            secret = folder / "secret"
            secret.write_text(secrets.token_urlsafe(32))
            secret.chmod(0o600)
            shared = [
                "--secret-file",
                str(secret),
                "--allow-loopback-sinks",
                "--host",
                "127.0.0.1",
                "--port",
                "0",
            ]

            def start(module: str, name: str, *arguments: str) -> dict[str, Any]:
                process, ready = stack.enter_context(
                    program(
                        "edn.cli.child",
                        [module, "--data", str(folder / name), *shared, *arguments],
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

    def _destination(self, url: str) -> dict[str, Any]:
        if self._sink == "sse":
            return {}
        if self._sink == "cloudevents":
            return {"sink": {"url": url, "format": "cloudevents-batch"}}
        if self._sink == "soap":
            return {"sink": {"url": "soap:?" + urlencode({"to": url, "wrap": "1"})}}
        return {"sink": {"url": url}}
