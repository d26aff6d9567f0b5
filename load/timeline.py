"""Samples of a network, once per second: throughput, hit ratio, precision and bottleneck.

The bottleneck is observed, not modelled: the outgoing link (`TP_OL`) if it is used to its limit, the
dispatcher's CPU (`TP_D`) if it is full, the servers (`TP_S`) if one of them is full while they fall behind;
otherwise the publishers (`TP_IL`), which could send more.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import Any

import httpx

FULL = 0.96


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One second."""

    #: since 1970, or since the beginning of the load after `since`
    second: float
    #: events per second that all servers have received
    throughput: float
    #: copies sent ÷ (events × servers)
    hit_ratio: float
    precision: float
    #: of the dispatcher and of the busiest server
    cpu: float
    server_cpu: float
    #: of the slowest server, in records
    lag: int
    bottleneck: str
    #: T_f as the network measures it: the dispatcher's CPU seconds per event, without routing and sending
    fixed: float = 0.0


class Timeline:
    """Samples a network until it is cancelled."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.moments: list[Moment] = []

    async def run(self) -> None:
        async with httpx.AsyncClient(base_url=self._url, timeout=30.0, trust_env=False) as http:
            before = await _look(http)
            while True:
                await asyncio.sleep(1.0)
                try:
                    now = await _look(http)
                except httpx.HTTPError:
                    continue  # this second is missing
                self.moments.append(_moment(before, now))
                before = now


async def _look(http: httpx.AsyncClient) -> dict[str, Any]:
    answers = [await http.get(path) for path in ("/v1/servers", "/v1/link", "/v1/tuning")]
    for answer in answers:
        answer.raise_for_status()
    servers, link, tuning = (answer.json() for answer in answers)
    return {"at": time.time(), "servers": servers, "link": link, "tuning": tuning}


def since(moments: list[Moment], began: float) -> list[Moment]:
    """Returns the samples since the beginning, relative to it."""
    return [replace(one, second=one.second - began) for one in moments if one.second >= began]


def _moment(before: dict[str, Any], now: dict[str, Any]) -> Moment:
    elapsed = now["at"] - before["at"]

    def behind(look: dict[str, Any]) -> int:
        return max((server["lag"] or 0 for server in look["servers"]["servers"]), default=0)

    def carried(look: dict[str, Any]) -> int:
        return int(look["servers"]["published"]) - behind(look)

    events = max(0, carried(now) - carried(before))
    copies = now["link"]["copies"] - before["link"]["copies"]
    servers = now["servers"]["servers"]
    server_cpu = max((server["cpu"] for server in servers), default=0.0)
    reading = now["tuning"]["reading"]
    cpu = reading["cpu"] if reading else 0.0
    width = now["link"]["bytes_per_second"]
    sent = (now["link"]["sent_bytes"] - before["link"]["sent_bytes"]) / elapsed
    if width is not None and sent >= 0.9 * width:
        bottleneck = "TP_OL"
    elif cpu >= FULL:
        bottleneck = "TP_D"
    elif server_cpu >= 0.9 and behind(now) > 1000:
        bottleneck = "TP_S"
    else:
        bottleneck = "TP_IL"
    return Moment(
        second=now["at"],
        throughput=events / elapsed,
        hit_ratio=min(1.0, copies / (events * len(servers))) if events and servers else 0.0,
        precision=now["tuning"]["precision"],
        cpu=cpu,
        server_cpu=server_cpu,
        lag=behind(now),
        bottleneck=bottleneck,
        fixed=(now["tuning"]["parameters"] or {}).get("fixed", 0.0),
    )
