"""The general HTTP client for control calls between processes: one per process, with the network's secret.

Convenient rather than cheap: streamed answers, JSON, timeouts per call. The hot paths use `edn.http.client`.
Only this module of the services imports httpx.
"""

from __future__ import annotations

import httpx

ControlClient = httpx.AsyncClient
ControlAnswer = httpx.Response
#: replaces the network in tests
Transport = httpx.AsyncBaseTransport
#: bounds of one call, in seconds: `Timeout(total, connect=…)`
Timeout = httpx.Timeout

#: any failure of a call
CallFailed = httpx.HTTPError
#: no answer arrived, or it broke off
TransportFailed = httpx.TransportError
#: the other process could not be connected to, so the call was not sent
NOT_REACHED = (httpx.ConnectError, httpx.ConnectTimeout)


def open_client(secret: str, transport: Transport | None = None) -> ControlClient:
    """Return a client that presents the network's secret; whoever opens it closes it."""
    return httpx.AsyncClient(
        headers={"authorization": f"Bearer {secret}"},
        timeout=httpx.Timeout(30.0, connect=3.0),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        trust_env=False,
        transport=transport,
    )


def problem_detail(answer: ControlAnswer) -> str:
    """Return the detail of a problem, or the beginning of another answer, or its status."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200] or f"it answered {answer.status_code}"


def exact_url(url: str, target: bytes) -> httpx.URL:
    """Return the URL of a path and query that must arrive byte by byte as they are."""
    return httpx.URL(url).copy_with(raw_path=target)
